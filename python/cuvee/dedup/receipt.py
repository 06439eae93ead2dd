"""Near-duplicates of a manifest's sources, and evaluation documents in them: the receipt, and the rows that stay."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..cache import write_atomically
from ..checks import as_name, canonical_json
from ..errors import CuveeError
from ..manifest import Manifest, SourceSpec, dump
from ..manifest.locations import move_path
from ..manifest.outputs import index_path
from ..sources import fingerprint_of, open_source, open_sources
from ..sources.kept import Index, read_index
from ..sources.loaders import Loader
from .comparison import Comparison, Corpus, Progress, default_threads
from .containment import Contamination, as_share, contaminate
from .drop import DROPPED, MANIFEST, RECEIPT, check_folder, index_names
from .local import compare
from .result import Keep, NearDuplicates, Overlap, has_near_duplicate, near_duplicates_of, overlap_of
from .rule import Rule
from .texts import texts_of
from .workspace import workspace

Engine = Literal["local", "ray"]
RECEIPT_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Deduplication:
    """What was found among the documents of a manifest and of evaluation sets.

    Args:
        manifest: whose sources were compared.
        evaluation: names of the evaluation sets, which come after the sources.
        rule: when two documents are near-duplicates.
        keep: which document of a cluster stays.
        loaded: whether a loader function made the rows of the sources.
        fingerprints: content identity of each source and set.
        columns: which columns of each were read.
        starts: int64[s + 1], where the documents of each begin.
        comparison: the verified pairs.
        contamination: what documents of the sources contain of the evaluation sets.
        containment: least share of its shingles that a document must have to contain one of an evaluation set.
    """

    manifest: Manifest
    evaluation: tuple[str, ...]
    rule: Rule
    keep: Keep
    loaded: bool
    fingerprints: Mapping[str, str | None]
    columns: Mapping[str, tuple[str, ...]]
    starts: NDArray[np.int64]
    comparison: Comparison
    contamination: Contamination
    containment: float

    @cached_property
    def found(self) -> NearDuplicates:
        """Pairs, clusters and survivors; of an evaluation set no document goes for one of a source."""
        tested = int(self.starts[-1] - self.starts[len(self.manifest.sources)])
        return near_duplicates_of(self.comparison, self.keep, stay=tested, unwanted=self.containing)

    @cached_property
    def containing(self) -> NDArray[np.bool_]:
        """bool[n], which documents contain one of an evaluation set."""
        flags = np.zeros(self.comparison.documents, bool)
        source, row = self.contamination.quotes[:, :2].T
        flags[self.starts[source] + row] = True
        return flags

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """bool[n], which documents stay: survivors that contain none of an evaluation set."""
        return np.asarray(self.found.kept & ~self.containing)

    @cached_property
    def overlap(self) -> Overlap:
        """How much of each source and evaluation set is in each other one."""
        return overlap_of(self.comparison, list(self.fingerprints), self.starts)

    @property
    def rate(self) -> float:
        """Share of the sources' documents that have a near-duplicate, there or in an evaluation set, 0..1."""
        end = int(self.starts[len(self.manifest.sources)])
        return int(has_near_duplicate(self.comparison)[:end].sum()) / max(end, 1)

    def kept_rows(self) -> dict[str, NDArray[np.int64]]:
        """Return the rows of each source that stay, rising."""
        return {
            spec.name: np.flatnonzero(self.kept[self.starts[index] : self.starts[index + 1]])
            for index, spec in enumerate(self.manifest.sources)
        }

    def receipt(self) -> dict[str, Any]:
        """Return what was compared, by which rule, and what was found: the same bytes whoever computes it."""
        bands, rows = self.rule.bands
        clusters = sorted((len(cluster) for cluster in self.found.clusters), reverse=True)
        return {
            "version": RECEIPT_VERSION,
            "rule": asdict(self.rule)
            | {"bands": bands, "hashes_per_band": rows, "keep": self.keep, "containment": self.containment},
            "missed_at_threshold": self.rule.missed(bands, rows),
            "sources": self._sources(),
            "documents": self.found.documents,
            "pairs": len(self.found.pairs),
            "pairs_complete": self.found.complete,
            "clusters": len(clusters),
            "largest_clusters": clusters[:10],
            "near_duplicate_rate": self.rate,
            "overlap": {"names": list(self.overlap.names), "documents": self.overlap.counts.tolist()},
            "contamination": self._contamination(),
            "result_hash": self._hash(),
        }

    def write_kept(self, folder: Path) -> Path:
        """Write an index of the rows that stay for each source, what went and why, and a manifest over the rest.

        Args:
            folder: gets `NAME.rows.npy`, `dropped.jsonl`, `receipt.json` and `mix.deduplicated.json`.

        Returns:
            The manifest's path.

        Raises:
            CuveeError: nothing would be left of a source, or something would be lost in the folder.
        """
        kept, sources = self.kept_rows(), self.manifest.sources
        for number, (name, rows) in enumerate(kept.items()):
            if len(rows) == 0:
                raise CuveeError(
                    f"source {name!r}: at least one row must stay, but all went for others that are like them or in "
                    f"them; leave it out of the manifest{self._cure(number)}"
                )
        check_folder(folder, self.manifest)
        indexes = [self._index(spec, kept[spec.name], number) for number, spec in enumerate(sources)]
        specs = []
        for spec, index, name in zip(sources, indexes, index_names(list(kept)), strict=True):
            write_atomically(folder / name, index.content())
            specs.append(spec.model_copy(update={"rows": name}))
        write_atomically(folder / DROPPED, b"".join(canonical_json(line) + b"\n" for line in self.dropped()))
        write_atomically(folder / RECEIPT, (json.dumps(self.receipt(), indent=2) + "\n").encode())
        target = folder / MANIFEST
        dump(_with_sources(self.manifest, specs, folder), target)
        return target

    def dropped(self) -> Iterator[dict[str, Any]]:
        """Yield each document that goes: its source and row, what stays for it, what it is most like or contains."""
        found, (inside, share) = self.found, self._first_contained()
        gone = np.flatnonzero(~self.kept[: self.starts[len(self.manifest.sources)]])
        survivor = found.survivor[gone]
        stays = np.where(inside[survivor] < 0, survivor, inside[survivor])  # of some clusters nothing does
        numbers = (gone, stays, found.match[gone], found.match_similarity[gone], inside[gone], share[gone])
        for document, kept, match, similarity, contains, containment in zip(
            *(column.tolist() for column in numbers), strict=True
        ):
            line = self._place(document) | {"kept": self._place(kept)}
            if match >= 0:
                line["match"] = self._place(match) | {"similarity": similarity}
            if contains >= 0:
                line["contains"] = self._place(contains) | {"containment": containment}
            yield line

    def _first_contained(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the first evaluation document that each contains, int64[n], -1 for none, and its containment."""
        first, share = np.full(self.comparison.documents, -1, np.int64), np.zeros(self.comparison.documents)
        source, row, test, test_row = self.contamination.quotes[::-1].T  # of equal documents the last is written
        documents = self.starts[source] + row
        first[documents] = self.starts[len(self.manifest.sources) + test] + test_row
        share[documents] = self.contamination.shares[::-1]
        return first, share

    def _place(self, document: int) -> dict[str, Any]:
        source = bisect_right(self._begins, document) - 1
        return {"source": self._names[source], "row": document - self._begins[source]}

    @cached_property
    def _names(self) -> list[str]:
        return list(self.fingerprints)

    @cached_property
    def _begins(self) -> list[int]:
        return [int(start) for start in self.starts]

    def _cure(self, number: int) -> str:
        """Return what else than to leave it out lets rows of a source stay; nothing where all are for a test set."""
        span = slice(int(self.starts[number]), int(self.starts[number + 1]))
        tested = self.found.survivor[span] >= self.starts[len(self.manifest.sources)]
        if bool(np.all(self.containing[span] | tested)):
            return ""
        if self.keep == "first":
            return ", or name it before the others"
        return ', or keep the "first" where it comes before the others'

    def _index(self, spec: SourceSpec, kept: NDArray[np.int64], number: int) -> Index:
        """Return the kept rows as numbers of the data, where the manifest had an index already."""
        if spec.rows is None:
            return Index(rows=kept, size=int(self.starts[number + 1] - self.starts[number]), loaded=self.loaded)
        before = read_index(index_path(self.manifest, spec), name=spec.name)
        return Index(rows=before.rows[kept], size=before.size, loaded=self.loaded)

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
                "columns": list(self.columns[name]),
                "documents": span.stop - span.start,
                "near_duplicates": int(near[span].sum()),
                "exact_copies": int(copies[span].sum()),
                "containing": int(self.containing[span].sum()),
                "kept": int(self.kept[span].sum()) if name not in self.evaluation else span.stop - span.start,
            })  # fmt: skip
        return described

    def _contamination(self) -> dict[str, Any]:
        found = self.contamination
        return {
            "sources": list(found.sources),
            "evaluation": list(found.evaluation),
            "contaminated": found.contaminated.tolist(),
            "containing": found.containing.tolist(),
            "shorter_than_a_shingle": [int(flags.sum()) for flags in found.short.values()],
        }

    def _hash(self) -> str:
        digest = _core.Digest()
        decided = self.contamination
        for part in (self.starts, self.found.survivor, self.found.match, self.found.pairs, decided.quotes):
            digest.update(np.ascontiguousarray(part, "<i8").tobytes())
        for name in decided.evaluation:
            digest.update(np.ascontiguousarray(decided.match[name], "<i8").tobytes())
            digest.update(np.ascontiguousarray(decided.containment[name], "<f8").tobytes())
        digest.update(np.ascontiguousarray(decided.contaminated, "<i8").tobytes())
        return digest.hexdigest()


def deduplicate(
    manifest: Manifest,
    *,
    rule: Rule,
    keep: Keep = "longest",
    evaluation: Mapping[str, str] | None = None,
    containment: float = 0.8,
    column: str | None = None,
    loader: Callable[..., Any] | None = None,
    engine: Engine = "local",
    threads: int | None = None,
    work_folder: Path | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Deduplication:
    """Compare all documents of a manifest's sources and of evaluation sets, and look for the latter in the former.

    Args:
        manifest: whose sources are compared.
        rule: when two documents are near-duplicates.
        keep: which document of a cluster stays.
        evaluation: name to path of sets that training must not see: where one of their documents is in a cluster, all
            of the sources go, and so does every document that contains one of theirs.
        containment: least share of its shingles, in (0, 1], that a document must have to contain one of them.
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
    sets, share = dict(evaluation or {}), as_share(containment, "containment")
    twice = [spec.name for spec in manifest.sources if spec.name in sets]
    if twice:
        raise CuveeError(f"evaluation sets must have other names than sources, but got {twice} in both")
    for name in sets:
        as_name(name, CuveeError, of="evaluation set")
    data = dict(open_sources(manifest.sources, loader=loader, folder=manifest.folder, alike=False))
    data |= {name: open_source(path, name=name) for name, path in sets.items()}
    with workspace(work_folder, memory_limit) as space:
        corpus = Corpus({name: texts_of(rows, name=name, column=column) for name, rows in data.items()})
        sources = Corpus({name: texts for name, texts in corpus.sources.items() if name not in sets})
        tests = Corpus({name: texts for name, texts in corpus.sources.items() if name in sets})
        if engine == "ray":
            from . import on_ray

            comparison = on_ray.compare(corpus, rule, progress=progress)
            found = on_ray.contaminate(sources, tests, rule, share=share, progress=progress)
        else:
            workers = default_threads(threads)
            comparison = compare(corpus, rule, workspace=space, threads=workers, progress=progress)
            found = contaminate(sources, tests, rule, share=share, threads=workers, progress=progress)
    return Deduplication(
        manifest=manifest,
        evaluation=tuple(sets),
        rule=rule,
        keep=keep,
        loaded=loader is not None,
        columns={name: texts.columns for name, texts in corpus.sources.items()},
        fingerprints=_fingerprints(manifest, data, Loader.of(loader) if loader is not None else None),
        starts=corpus.starts,
        comparison=comparison,
        contamination=found,
        containment=share,
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
