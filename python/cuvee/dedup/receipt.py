"""Near-duplicates of a manifest's sources: the receipt, and a manifest over the rows that stay."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..cache import write_atomically
from ..checks import canonical_json
from ..errors import CuveeError
from ..manifest import Manifest, SourceSpec, dump
from ..manifest.locations import move_path
from ..sources import fingerprint_of, open_source, open_sources
from ..sources.loaders import Loader
from .comparison import Comparison, Corpus, Progress, default_threads
from .local import compare
from .result import Keep, NearDuplicates, Overlap, has_near_duplicate, near_duplicates_of, overlap_of
from .rule import Rule
from .texts import texts_of
from .workspace import workspace

Engine = Literal["local", "ray"]
RECEIPT_VERSION = 1
MANIFEST, DROPPED, RECEIPT = "mix.deduplicated.json", "dropped.jsonl", "receipt.json"  # beside the indexes
_UNSAFE = '/\\:*?"<>|%'  # in a file's name, on one system or another


@dataclass(frozen=True, kw_only=True)
class Deduplication:
    """What was found among the documents of a manifest and of evaluation sets.

    Args:
        manifest: whose sources were compared.
        evaluation: names of the evaluation sets, which come after the sources.
        rule: when two documents are near-duplicates.
        keep: which document of a cluster stays.
        fingerprints: content identity of each source and set.
        starts: int64[s + 1], where the documents of each begin.
        comparison: the verified pairs.
    """

    manifest: Manifest
    evaluation: tuple[str, ...]
    rule: Rule
    keep: Keep
    fingerprints: Mapping[str, str | None]
    starts: NDArray[np.int64]
    comparison: Comparison

    @cached_property
    def found(self) -> NearDuplicates:
        """Pairs, clusters and survivors; of an evaluation set no document goes for one of a source."""
        sources = len(self.manifest.sources)
        return near_duplicates_of(self.comparison, self.keep, stay=int(self.starts[-1] - self.starts[sources]))

    @cached_property
    def overlap(self) -> Overlap:
        """How much of each source and evaluation set is in each other one."""
        return overlap_of(self.comparison, list(self.fingerprints), self.starts)

    def kept_rows(self) -> dict[str, NDArray[np.int64]]:
        """Return the rows of each source that stay, rising."""
        return {
            spec.name: np.flatnonzero(self.found.kept[self.starts[index] : self.starts[index + 1]])
            for index, spec in enumerate(self.manifest.sources)
        }

    def receipt(self) -> dict[str, Any]:
        """Return what was compared, by which rule, and what was found: the same bytes whoever computes it."""
        bands, rows = self.rule.bands
        clusters = sorted((len(cluster) for cluster in self.found.clusters), reverse=True)
        return {
            "version": RECEIPT_VERSION,
            "rule": asdict(self.rule) | {"bands": bands, "hashes_per_band": rows, "keep": self.keep},
            "missed_at_threshold": self.rule.missed(bands, rows),
            "sources": self._sources(),
            "documents": self.found.documents,
            "pairs": len(self.found.pairs),
            "pairs_complete": self.found.complete,
            "clusters": len(clusters),
            "largest_clusters": clusters[:10],
            "near_duplicate_rate": self.found.rate,
            "overlap": {"names": list(self.overlap.names), "documents": self.overlap.counts.tolist()},
            "result_hash": self._hash(),
        }

    def write_kept(self, folder: Path) -> Path:
        """Write an index of the rows that stay for each source, what went and why, and a manifest over the rest.

        Args:
            folder: gets `NAME.rows.npy`, `dropped.jsonl`, `receipt.json` and `mix.deduplicated.json`.

        Returns:
            The manifest's path.

        Raises:
            CuveeError: nothing would be left of a source, or the folder holds indexes that the manifest names.
        """
        kept = self.kept_rows()
        for name, rows in kept.items():
            if len(rows) == 0:
                raise CuveeError(
                    f"source {name!r}: at least one row must stay, but all went for others that are like them; leave "
                    'it out of the manifest, or keep the "first" where it comes before the others'
                )
        if any(spec.rows and self._index(spec).parent.resolve() == folder.resolve() for spec in self.manifest.sources):
            raise CuveeError(
                f"folder must not be that of indexes which are read, but got {str(folder)!r}; name another"
            )
        specs = []
        for spec, rows in zip(self.manifest.sources, self._original(kept), strict=True):
            name = f"{_file_name(spec.name)}.rows.npy"
            content = io.BytesIO()
            np.save(content, rows)
            write_atomically(folder / name, content.getvalue())
            specs.append(spec.model_copy(update={"rows": name}))
        write_atomically(folder / DROPPED, b"".join(canonical_json(line) + b"\n" for line in self.dropped()))
        write_atomically(folder / RECEIPT, (json.dumps(self.receipt(), indent=2) + "\n").encode())
        target = folder / MANIFEST
        dump(_with_sources(self.manifest, specs, folder), target)
        return target

    def dropped(self) -> Iterator[dict[str, Any]]:
        """Yield each document that goes: its source and row, the one that stays for it, and what it is most like."""
        names = list(self.fingerprints)
        found = self.found
        gone = np.flatnonzero(~found.kept)

        def places(documents: NDArray[np.int64]) -> list[tuple[int, int]]:
            source = np.searchsorted(self.starts, documents, side="right") - 1
            return list(zip(source.tolist(), (documents - self.starts[source]).tolist(), strict=True))

        lines = zip(
            places(gone),
            places(found.survivor[gone]),
            places(found.match[gone]),
            found.match_similarity[gone].tolist(),
            strict=True,
        )
        for place, survivor, match, similarity in lines:
            if place[0] < len(self.manifest.sources):
                yield {
                    "source": names[place[0]],
                    "row": place[1],
                    "kept": {"source": names[survivor[0]], "row": survivor[1]},
                    "match": {"source": names[match[0]], "row": match[1], "similarity": similarity},
                }

    def _original(self, kept: Mapping[str, NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Return the kept rows as numbers of the data, where the manifest had an index already."""
        found = []
        for spec in self.manifest.sources:
            rows = kept[spec.name]
            found.append(rows if spec.rows is None else np.load(self._index(spec))[rows])
        return found

    def _index(self, spec: SourceSpec) -> Path:
        return self.manifest.folder / Path(str(spec.rows)).expanduser()

    def _sources(self) -> list[dict[str, Any]]:
        near = has_near_duplicate(self.comparison)
        copies = self.comparison.first != np.arange(self.comparison.documents)
        described = []
        for index, (name, fingerprint) in enumerate(self.fingerprints.items()):
            span = slice(int(self.starts[index]), int(self.starts[index + 1]))
            described.append({
                "name": name,
                "evaluation": name in self.evaluation,
                "fingerprint": fingerprint,
                "documents": span.stop - span.start,
                "near_duplicates": int(near[span].sum()),
                "exact_copies": int(copies[span].sum()),
                "kept": int(self.found.kept[span].sum()) if name not in self.evaluation else span.stop - span.start,
            })  # fmt: skip
        return described

    def _hash(self) -> str:
        digest = _core.Digest()
        for part in (self.starts, self.found.survivor, self.found.match, self.found.pairs):
            digest.update(np.ascontiguousarray(part, "<i8").tobytes())
        return digest.hexdigest()


def deduplicate(
    manifest: Manifest,
    *,
    rule: Rule,
    keep: Keep = "longest",
    evaluation: Mapping[str, str] | None = None,
    column: str | None = None,
    loader: Callable[..., Any] | None = None,
    engine: Engine = "local",
    threads: int | None = None,
    work_folder: Path | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Deduplication:
    """Compare all documents of a manifest's sources, and of evaluation sets, with each other.

    Args:
        manifest: whose sources are compared.
        rule: when two documents are near-duplicates.
        keep: which document of a cluster stays.
        evaluation: name to path of sets that training must not see: where one of their documents is in a cluster, all
            of the sources go.
        column: that holds the documents; without one that of the form of rows.
        loader: applied to each source as it is opened.
        engine: "local", or "ray" for a cluster.
        threads: this and the next two as in `near_duplicates`, for the local engine.
        work_folder: where a comparison that was stopped goes on.
        memory_limit: bytes.
        progress: called with (stage, done, of how many).

    Raises:
        SourceError: data cannot be opened, or a document is no string.
        CuveeError: a name is given twice, or the engine cannot be had.
        StateError: the work folder is that of other documents or settings.
    """
    sets = dict(evaluation or {})
    twice = [spec.name for spec in manifest.sources if spec.name in sets]
    if twice:
        raise CuveeError(f"evaluation sets must have other names than sources, but got {twice} in both")
    data = dict(open_sources(manifest.sources, loader=loader, folder=manifest.folder, alike=False))
    data |= {name: open_source(path, name=name) for name, path in sets.items()}
    with workspace(work_folder, memory_limit) as space:
        corpus = Corpus({name: texts_of(rows, name=name, column=column) for name, rows in data.items()})
        if engine == "ray":
            from . import on_ray

            comparison = on_ray.compare(corpus, rule, progress=progress)
        else:
            workers = default_threads(threads)
            comparison = compare(corpus, rule, workspace=space, threads=workers, progress=progress)
    return Deduplication(
        manifest=manifest,
        evaluation=tuple(sets),
        rule=rule,
        keep=keep,
        fingerprints=_fingerprints(manifest, data, Loader.of(loader) if loader is not None else None),
        starts=corpus.starts,
        comparison=comparison,
    )


def _fingerprints(manifest: Manifest, data: Mapping[str, Any], loader: Loader | None) -> dict[str, str | None]:
    from ..mixture.opening import content_of

    specs = {spec.name: spec for spec in manifest.sources}
    return {
        name: content_of(specs[name], rows, folder=manifest.folder, loader=loader)
        if name in specs
        else fingerprint_of(rows)
        for name, rows in data.items()
    }


def _with_sources(manifest: Manifest, specs: Sequence[SourceSpec], folder: Path) -> Manifest:
    """Return the manifest over the rows whose indexes are in `folder`; of version 2, which knows of them."""
    document = manifest.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    document["version"] = 2
    document["sources"] = [spec.model_dump(mode="json", exclude_unset=True, exclude_none=True) for spec in specs]
    for source in document["sources"]:
        source["path"] = move_path(source["path"], manifest.folder, folder.resolve())
    return Manifest.model_validate(document, context={"folder": folder})


def _file_name(name: str) -> str:
    """Return a source's name as one of a file: what a file system may refuse is written %XX, as in URLs."""
    escaped = "".join(f"%{ord(char):02X}" if char in _UNSAFE else char for char in name)
    return escaped if not escaped.startswith(".") else f"%2E{escaped[1:]}"
