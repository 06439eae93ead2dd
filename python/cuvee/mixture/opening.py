"""From a manifest to sources: data opened, rows and tokens counted, weights resolved, content identified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..manifest import Manifest, SourceSpec, resolve_weights
from ..manifest.locations import resolve_path
from ..manifest.policies import WeightPolicy
from ..sources import fingerprint_of, lengths_of, open_sources
from .source import Source, passing_tokens


def sources_of(
    manifest: Manifest,
    *,
    loader: Callable[..., Any] | None = None,
    tokenizer: Callable[..., Any] | None = None,
    length_column: str | None = None,
) -> list[Source]:
    """Open every source of `manifest` and return them with weights, fingerprints and, where needed, lengths.

    Args:
        manifest: a checked document.
        loader: applied to each source as it is opened.
        tokenizer: counts tokens; without one `length_column` holds them, or token lists.
        length_column: column to count; None looks for the usual ones.

    Raises:
        SourceError: where data cannot be opened or counted.
        ManifestError: where the weights' policy cannot be met.
    """
    data = open_sources(manifest.sources, loader=loader, folder=manifest.folder)
    in_tokens = manifest.unit == "tokens"
    sources = []
    for spec in manifest.sources:
        rows = data[spec.name]
        fingerprint = content_of(spec, rows, folder=manifest.folder, loader=loader)
        lengths = None
        if in_tokens or manifest.max_length is not None or tokenizer is not None or length_column is not None:
            lengths = lengths_of(
                rows, column=length_column, tokenizer=tokenizer, name=spec.name, fingerprint=fingerprint
            )
        sources.append(
            Source(
                spec.name,
                rows,
                1.0 if spec.weight is None else spec.weight,
                lengths=lengths,
                max_epochs=spec.max_epochs,
                fingerprint=fingerprint,
            )
        )
    if manifest.weights is None:
        return sources
    return weighted(
        sources,
        manifest.weights,
        unit=manifest.unit,
        samples_per_epoch=manifest.samples_per_epoch,
        max_length=manifest.max_length,
    )


def weighted(
    sources: Sequence[Source],
    policy: WeightPolicy,
    *,
    unit: str,
    samples_per_epoch: int | str | None,
    max_length: int | None,
) -> list[Source]:
    """Return the sources with the weights of a policy.

    Args:
        sources: their weights are not looked at.
        policy: works weights out from the sources' sizes.
        unit: what sizes are in, "rows" or "tokens" of the rows that pass.
        samples_per_epoch: rows of an epoch, for policies that ask for a budget.
        max_length: rows with more tokens do not pass.

    Raises:
        ManifestError: the policy cannot be met.
    """
    in_tokens = unit == "tokens"
    sizes = [passing_tokens(source, max_length) if in_tokens else source.rows for source in sources]
    budget = samples_per_epoch if isinstance(samples_per_epoch, int) and not in_tokens else None
    return [
        Source(
            source.name,
            source.data,
            weight,
            lengths=source.lengths,
            max_epochs=source.max_epochs,
            fingerprint=source.fingerprint,
        )
        for source, weight in zip(sources, resolve_weights(policy, sizes, budget), strict=True)
    ]


def content_of(spec: SourceSpec, rows: object, *, folder: Path, loader: Callable[..., Any] | None) -> str | None:
    """Return the content identity of a source: of its file or folder if all of it is used, else of what was opened.

    Args:
        spec: how the manifest describes it.
        rows: what was opened.
        folder: where relative paths start.
        loader: the user's function that made the rows.
    """
    path = Path(resolve_path(spec.path, folder))
    whole = loader is None and spec.split is None and spec.columns is None and spec.rows is None
    return fingerprint_of(path if whole and path.exists() else rows)
