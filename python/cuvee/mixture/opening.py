"""From a manifest to sources: data opened, rows and tokens counted, weights resolved, content identified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..manifest import Manifest, SourceSpec, resolve_weights, source_path
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
        fingerprint = _fingerprint(manifest, spec, rows, loader)
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
    return sources if manifest.weights is None else _weighted(sources, manifest, manifest.weights)


def _weighted(sources: list[Source], manifest: Manifest, policy: WeightPolicy) -> list[Source]:
    """Return the sources with the weights of the manifest's policy, sizes being in the mixture's unit."""
    in_tokens = manifest.unit == "tokens"
    sizes = [passing_tokens(source, manifest.max_length) if in_tokens else source.rows for source in sources]
    budget = manifest.samples_per_epoch if isinstance(manifest.samples_per_epoch, int) and not in_tokens else None
    weights = resolve_weights(policy, sizes, budget)
    return [
        Source(
            source.name,
            source.data,
            weight,
            lengths=source.lengths,
            max_epochs=source.max_epochs,
            fingerprint=source.fingerprint,
        )
        for source, weight in zip(sources, weights, strict=True)
    ]


def _fingerprint(manifest: Manifest, spec: SourceSpec, data: object, loader: Callable[..., Any] | None) -> str | None:
    """Return the content identity of a source: of its file or folder if all of it is used, else of what was opened."""
    path = Path(source_path(manifest, spec))
    whole = loader is None and spec.split is None and spec.columns is None
    return fingerprint_of(path if whole and path.exists() else data)
