"""The same on a Ray cluster: sketches, bands and verification are Ray Data jobs, the search for tests is tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..errors import CuveeError, SourceError
from .comparison import (
    FEW,
    LARGEST_BUCKET,
    Comparison,
    Corpus,
    Progress,
    as_progress,
    candidates,
    jaccard,
    sketch_block,
)
from .containment import STAGE, Contamination, Part, index_of, look_through, merged
from .rule import Rule
from .texts import BLOCK, Texts

Batch = Mapping[str, NDArray[Any]]
_SLICE_BITS = 28  # of a band's 32-bit key: buckets whose leading bits are equal are worked on together
_ENTRIES = 1 << 18  # documents of a band that are worked on together, at the least
_PAIRS = 1 << 16  # pairs verified by one task
_LOOKED_THROUGH = 1 << 18  # documents that one task looks through for evaluation documents


def compare(corpus: Corpus, rule: Rule, *, progress: Progress | None = None) -> Comparison:
    """Return all near-duplicate pairs of a corpus: the same, to the bit, as on one machine.

    The cluster is the one that `ray.init` was called for, the one in RAY_ADDRESS, or else this machine. Workers read
    the documents themselves: those of datasets from their files, which every machine must see under the same path. The
    driver holds about 100 bytes a document, and the pairs.

    Args:
        corpus: the documents.
        rule: when two are near-duplicates.
        progress: called with (stage, done, of how many).

    Raises:
        CuveeError: Ray is not installed.
        SourceError: a document is no string.
    """
    try:
        import ray.data
    except ModuleNotFoundError:
        raise CuveeError(
            "engine ray must have the package ray, but it is not installed: pip install '.[ray]' in a checkout of Cuvée"
        ) from None
    if not ray.is_initialized():
        ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
    with _quiet(ray.data.DataContext.get_current()):
        return _Work(ray, corpus, rule, progress).comparison()


def contaminate(
    sources: Corpus, evaluation: Corpus, rule: Rule, *, share: float, progress: Progress | None = None
) -> Contamination:
    """Return how much of evaluation documents lies within documents of sources: the same as on one machine.

    Each worker makes an index of the evaluation documents of its own, and looks through a stretch of a source.

    Args:
        sources: the documents.
        evaluation: the sets.
        rule: what shingles are.
        share: least containment of what is contained.
        progress: called with (stage, done, of how many).
    """
    import ray

    index = index_of(evaluation, rule, share, 1)
    wanted = ray.put(evaluation.sources)

    @ray.remote
    def find(texts: Texts, wanted: dict[str, Texts], rows: range, place: Any) -> Part:
        return look_through(index_of(Corpus(wanted), rule, share, 1), texts, rows, **place)

    found = []
    for number, (name, texts) in enumerate(sources.sources.items() if len(evaluation) else ()):
        here, start = ray.put(texts), int(sources.starts[number])
        place = {"name": name, "source": number, "start": start}
        for first in range(0, len(texts), _LOOKED_THROUGH):
            rows = range(first, min(first + _LOOKED_THROUGH, len(texts)))
            found.append((start + rows.stop, find.remote(here, wanted, rows, place)))

    def parts() -> Iterator[Part]:
        for done, part in found:
            yield ray.get(part)
            if progress is not None:
                progress(STAGE, done, len(sources))

    return merged(parts(), index, sources, evaluation)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What every task needs: the rule, and the documents of all sources in the object store."""

    rule: Rule
    names: tuple[str, ...]
    starts: NDArray[np.int64]
    texts: tuple[Any, ...]

    def corpus(self) -> Corpus:
        import ray

        return Corpus(dict(zip(self.names, ray.get(list(self.texts)), strict=True)))


class _Work:
    def __init__(self, ray: Any, corpus: Corpus, rule: Rule, progress: Progress | None) -> None:
        self._ray, self._corpus, self._rule = ray, corpus, rule
        self._tell: Progress = as_progress(progress)
        self._shared = _Shared(
            rule, tuple(corpus.sources), corpus.starts, tuple(ray.put(texts) for texts in corpus.sources.values())
        )

    def comparison(self) -> Comparison:
        n = len(self._corpus)
        sketches = self._sketches()
        digests, shingles = np.empty((n, 2), np.uint64), np.empty(n, np.int64)
        done = 0
        facts = sketches.select_columns(["document", "digest", "shingles", "problem"])
        for batch in facts.iter_batches(batch_format="numpy"):
            for problem in filter(None, batch["problem"]):
                raise SourceError(str(problem))
            digests[batch["document"]], shingles[batch["document"]] = batch["digest"], batch["shingles"]
            done += len(batch["document"])
            self._tell("sketches", done, n)
        first = _core.first_copies(digests)
        members = np.flatnonzero((first == np.arange(n)) & (shingles > 0))
        pairs, complete = self._candidates(sketches, digests, members)
        similarity = self._similarity(pairs, shingles)
        near = similarity >= self._rule.threshold
        return Comparison(
            documents=n,
            first=first,
            shingles=shingles,
            digests=digests,
            pairs=pairs[near],
            similarity=similarity[near],
            complete=complete,
        )

    def _sketches(self) -> Any:
        """Return the dataset of documents with digest, number of shingles and band keys."""
        blocks = [
            {"source": name, "first": first, "start": rows.start, "stop": rows.stop}
            for name, _, first, rows in self._corpus.blocks()
        ]
        shared, bands = self._shared, self._rule.bands[0]

        def sketch(batch: Batch) -> dict[str, NDArray[Any]]:
            name, (first, start, stop) = str(batch["source"][0]), (int(batch[key][0]) for key in _SPAN)
            rows, problem = range(start, stop), ""
            documents = np.arange(first, first + len(rows))
            try:
                texts = shared.corpus().sources[name]
                keys, digests, shingles = sketch_block(texts.at(rows), shared.rule, 1, name=name, rows=rows)
            except SourceError as error:  # goes to the driver as it is, where Ray would wrap it
                problem, documents = str(error), documents[:1]
                keys, digests, shingles = np.zeros((bands, 1), np.uint32), np.zeros((1, 2), np.uint64), np.zeros(1, int)
            return {
                "document": documents,
                "digest": digests,
                "shingles": shingles,
                "keys": np.ascontiguousarray(keys.T),
                "problem": np.full(len(documents), problem, object),
            }

        return self._ray.data.from_items(blocks).map_batches(sketch, batch_size=1).materialize()

    def _candidates(
        self, sketches: Any, digests: NDArray[np.uint64], members: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], bool]:
        if len(members) <= FEW:
            return candidates(np.empty((0, len(digests)), np.uint32), digests, members, 1)
        takes_part = np.zeros(len(digests), bool)
        takes_part[members] = True
        flags = self._ray.put(takes_part)
        bands = self._rule.bands[0]

        def spread(batch: Batch) -> dict[str, NDArray[Any]]:
            import ray

            chosen = np.flatnonzero(ray.get(flags)[batch["document"]])
            keys = np.asarray(batch["keys"], np.uint32)[chosen]
            part = (np.arange(bands)[:, None] << (32 - _SLICE_BITS)) | (keys.T >> np.uint32(_SLICE_BITS))
            return {
                "part": part.ravel().astype(np.int64),
                "document": np.tile(batch["document"][chosen], bands),
                "order": np.tile(batch["digest"][chosen, 0], bands),
                "keys": np.tile(keys, (bands, 1)),
            }

        def pair(batch: Batch) -> dict[str, NDArray[Any]]:
            sorting = np.argsort(batch["document"])  # so that no order of arrival decides anything
            documents = batch["document"][sorting]
            keys = np.ascontiguousarray(np.asarray(batch["keys"], np.uint32)[sorting].T)
            order = np.ascontiguousarray(batch["order"][sorting])
            band = int(batch["part"][0]) >> (32 - _SLICE_BITS)
            found, complete = _core.band_pairs(keys, order, band=band, limit=LARGEST_BUCKET)
            pairs = documents[found] if len(found) else np.full((1, 2), -1, np.int64)  # a group must give some row
            return {"pair": pairs, "complete": np.full(len(pairs), complete)}

        entries = sketches.map_batches(spread, batch_size=BLOCK)
        partitions = min(max(len(members) * bands // _ENTRIES, 2), bands << (32 - _SLICE_BITS))
        grouped = entries.groupby("part", num_partitions=partitions).map_groups(pair, batch_format="numpy")
        found = list(grouped.iter_batches(batch_format="numpy"))
        pairs = np.concatenate([batch["pair"] for batch in found])
        complete = all(bool(batch["complete"].all()) for batch in found)
        return np.unique(pairs[pairs[:, 0] >= 0], axis=0), complete

    def _similarity(self, pairs: NDArray[np.int64], shingles: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the exact similarity of each pair, float64[p]."""
        similarity = np.empty(len(pairs))
        if len(pairs) == 0:
            return similarity
        shared, all_pairs, counts = self._shared, self._ray.put(pairs), self._ray.put(shingles)

        def verify(batch: Batch) -> dict[str, NDArray[Any]]:
            import ray

            start = int(batch["start"][0])
            both = ray.get(all_pairs)[start : start + _PAIRS]
            return {
                "place": np.arange(start, start + len(both)),
                "similarity": _similarity(shared, both, ray.get(counts)),
            }

        parts = self._ray.data.from_items([{"start": start} for start in range(0, len(pairs), _PAIRS)])
        done = 0
        for batch in parts.map_batches(verify, batch_size=1).iter_batches(batch_format="numpy"):
            similarity[batch["place"]] = batch["similarity"]
            done += len(batch["place"])
            self._tell("pairs", done, len(pairs))
        return similarity


_SPAN = ("first", "start", "stop")


def _similarity(shared: _Shared, pairs: NDArray[np.int64], shingles: NDArray[np.int64]) -> NDArray[np.float64]:
    documents, places = np.unique(pairs, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(shingles[documents])])
    hashes, sizes = np.empty(int(starts[-1]), np.uint64), np.empty(len(documents), np.int64)
    at = 0
    for _, texts, rows in shared.corpus().at(documents):
        room = starts[at : at + len(rows) + 1]
        sizes[at : at + len(rows)] = _core.shingle_sets(texts.at(rows), room, hashes, **shared.rule.shingling())
        at += len(rows)
    both = np.ascontiguousarray(places.reshape(-1, 2).astype(np.int64))
    found = _core.shared_hashes(hashes, starts[:-1], sizes, both)
    return jaccard(found, sizes[both[:, 0]], sizes[both[:, 1]])


@contextmanager
def _quiet(context: Any) -> Iterator[None]:
    """Leave out the bars and notes of Ray Data's jobs, which say nothing about documents; `progress` does."""
    logger = logging.getLogger("ray.data")
    bars, level = context.enable_progress_bars, logger.level
    context.enable_progress_bars = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = bars
        logger.setLevel(level)
