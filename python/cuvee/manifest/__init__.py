"""The manifest: a JSON document that says which sources are mixed, and how."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from ..cache import write_atomically
from ..errors import ManifestError
from .inline import split_source
from .locations import move_file, move_path, resolve_path
from .model import Manifest, SourceSpec, StageSpec
from .policies import normalised, resolve_weights
from .records import Location, complaint, joined, path_text, show
from .strict_json import read_json

__all__ = [
    "Manifest",
    "SourceSpec",
    "StageSpec",
    "canonical_bytes",
    "dump",
    "from_inline",
    "json_schema",
    "load",
    "parse",
    "resolve_weights",
    "source_path",
]


def load(path: str | os.PathLike[str]) -> Manifest:
    """Return the manifest in the JSON file `path`; its relative paths start at the file's folder.

    Raises:
        ManifestError: the file cannot be read, or something in it is wrong; one sentence that says what and where.
    """
    path = Path(path)
    return _validated(read_json(path), folder=path.parent, origin=str(path))


def parse(document: Mapping[str, Any], *, folder: str | os.PathLike[str] | None = None) -> Manifest:
    """Return the manifest that `document`, the content of a manifest file, describes.

    Args:
        document: objects and arrays as mappings and lists.
        folder: where relative paths start; None is the current folder.

    Raises:
        ManifestError: something in the document is wrong.

    Example:
        >>> halves = [{"name": name, "path": f"{name}.jsonl", "weight": 0.5} for name in ("math", "code")]
        >>> parse({"version": 1, "seed": 42, "exhaustion": "stop", "sources": halves}).sources[1].name
        'code'
    """
    return _validated(document, folder=Path(folder or "."))


def from_inline(
    sources: Sequence[str],
    *,
    seed: int = 42,
    exhaustion: str = "cycle",
    samples_per_epoch: int | Literal["all_seen"] | None = None,
) -> Manifest:
    """Return the manifest of sources written `NAME=PATH:WEIGHT`; relative paths start at the current folder.

    Args:
        sources: at least two; each is split at its first `=` and its last `:`.
        seed: as in a manifest, like the other two.
        exhaustion: "stop", "cycle" or "renormalize".
        samples_per_epoch: rows in an epoch; None is the sum of all rows.

    Raises:
        ManifestError: a source or a setting is wrong; the sentence quotes the source.
    """
    if isinstance(sources, str) or not isinstance(sources, Sequence):
        raise ManifestError(f"sources must be a list of NAME=PATH:WEIGHT, but got {show(sources)}")
    document: dict[str, Any] = {
        "version": 2 if samples_per_epoch == "all_seen" else 1,
        "seed": seed,
        "exhaustion": exhaustion,
        "sources": [split_source(text)._asdict() for text in sources],
    }
    if samples_per_epoch is not None:
        document["samples_per_epoch"] = samples_per_epoch

    def place(location: Location) -> str:
        match location:
            case ("sources", int(index), *rest):
                return joined(f"source {show(sources[index], most=400)}", path_text(tuple(rest)))
        return path_text(location)

    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        raise ManifestError(complaint(error, document, place)) from None


def _validated(document: object, *, folder: Path, origin: str = "") -> Manifest:
    try:
        return Manifest.model_validate(document, context={"folder": folder})
    except ValidationError as error:
        raise ManifestError(joined(origin, complaint(error, document))) from None


def source_path(manifest: Manifest, spec: SourceSpec) -> str:
    """Return the path of a source as it can be opened from anywhere: absolute if local, a Hub reference as it is."""
    return resolve_path(spec.path, manifest.folder)


def canonical_bytes(manifest: Manifest) -> bytes:
    """Return all of a manifest that decides the order; over the same data, equal bytes give the same order.

    Left out are the version and what says where the data are (paths, splits, columns, rows): their content is vouched
    for by the sources' fingerprints. Weights are normalised, defaults filled in, keys sorted.
    """
    names = [spec.name for spec in manifest.sources]
    policy = manifest.weights.model_dump() if manifest.weights else None
    weights = [None] * len(names) if policy else normalised([spec.weight or 0.0 for spec in manifest.sources])
    order = manifest.model_dump(exclude={"version", "sources", "stages", "weights"}) | {
        "weights": policy,
        "sources": [
            {"name": spec.name, "weight": weight, "max_epochs": spec.max_epochs}
            for spec, weight in zip(manifest.sources, weights, strict=True)
        ],
        "stages": [
            {
                "at": stage.at,
                "weights": normalised([stage.weights[name] for name in names]),
                "interpolation": stage.interpolation,
            }
            for stage in manifest.stages or ()
        ],
    }
    return json.dumps(order, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def dump(manifest: Manifest, path: str | os.PathLike[str]) -> None:
    """Write `manifest` to the JSON file `path`, whole or not at all.

    In the manifest's own folder it loads back equal. In another one, relative local paths are rewritten so that they
    still point to the same files.

    Raises:
        ManifestError: the file cannot be written.
    """
    path = Path(path)
    document = manifest.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    for source in document["sources"]:
        source["path"] = move_path(source["path"], manifest.folder, path.parent.resolve())
        if "rows" in source:
            source["rows"] = move_file(source["rows"], manifest.folder, path.parent.resolve())
    try:
        write_atomically(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ManifestError(
            f"manifest must be written to a file, but got {show(str(path), most=400)}: {reason}"
        ) from None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of manifests, made from the model that validates them.

    It cannot say that names are unique, that stages are in order, or that they name every source; `load` checks that.
    """
    schema = Manifest.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Cuvée manifest"
    schema["description"] = "The sources of a mixture and how they are mixed"
    schema["allOf"] = [
        _when("version", {"const": 1}, then=_version_1_schema()),
        _when("exhaustion", {"enum": ["stop", "renormalize"]}, then={"samples_per_epoch": {"type": "null"}}),
        _when("weights", {"type": "object"}, then=_every_source(weight={"type": "null"}))
        | {"else": {"properties": _every_source(weight={"type": "number"}, required=["weight"])}},
    ]
    return schema


def _when(field: str, is_like: dict[str, Any], *, then: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {field: is_like}, "required": [field]}, "then": {"properties": then}}


def _version_1_schema() -> dict[str, Any]:
    absent: dict[str, Any] = dict.fromkeys(Manifest.ADDED_IN_2, False)
    source: dict[str, Any] = dict.fromkeys(SourceSpec.ADDED_IN_2, False)
    return (
        absent
        | {"samples_per_epoch": {"type": ["integer", "null"]}}
        | _every_source(weight={"exclusiveMinimum": 0}, **source)
    )


def _every_source(*, required: Sequence[str] = (), **properties: object) -> dict[str, Any]:
    return {"sources": {"items": {"properties": properties, "required": list(required)}}}
