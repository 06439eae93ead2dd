"""The manifest of a mixture that was searched for: what it was, with the weights that were learnt."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import ManifestError
from ..manifest import Manifest, dump, parse

LEAST_SHARE = 1e-6  # a source of weight 0 is none: it gets a row in a million


def check_learnable(manifest: Manifest) -> None:
    """Check that learned weights would hold for a whole run.

    Raises:
        ManifestError: the manifest has stages, which would replace them.
    """
    if manifest.stages:
        raise ManifestError(
            f"--write must have a manifest without stages, which replace its weights, but got {len(manifest.stages)} "
            "of them; leave the stages out"
        )


def learned(manifest: Manifest, weights: Mapping[str, float], *, unit: str | None = None) -> Manifest:
    """Return a manifest of version 2 with learned weights, and all else as it was.

    Args:
        manifest: what was searched on.
        weights: share of each source by name. One below a millionth is written as a millionth, in place of none.
        unit: what the shares are of, "rows" or "tokens"; None leaves it as it is.

    Raises:
        ManifestError: the manifest has stages, or a source has no weight.
    """
    check_learnable(manifest)
    document: dict[str, Any] = manifest.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    document.pop("weights", None)  # a policy, whose place they take
    document["version"] = 2
    if unit is not None:
        document["unit"] = unit
    for source in document["sources"]:
        if source["name"] not in weights:
            raise ManifestError(f"weights must name every source, but got none for {source['name']!r}")
        source["weight"] = max(round(float(weights[source["name"]]), 6), LEAST_SHARE)
    return parse(document, folder=manifest.folder)


def write_learned(
    manifest: Manifest, weights: Mapping[str, float], path: str | PathLike[str], *, unit: str | None = None
) -> Path:
    """Write what `learned` returns to a JSON file, whole or not at all, and return its path.

    Raises:
        ManifestError: as `learned` does, or if the file cannot be written.
    """
    dump(learned(manifest, weights, unit=unit), path)
    return Path(path)
