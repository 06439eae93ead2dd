"""The comparison on this machine: threads, arrays in memory or in files, resumable block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..errors import SourceError
from .comparison import Comparison, Corpus, Progress, as_progress, candidates, jaccard, sketch_block
from .rule import Rule
from .texts import BLOCK
from .workspace import Workspace

_FORMAT = 2  # of the files of a work folder
_MARKED = 16  # blocks or parts between two notes of what is done
_SETS = 1 << 21  # hashes of the sets that are held at a time, about: what a shared cache holds


def compare(
    corpus: Corpus, rule: Rule, *, workspace: Workspace, threads: int, progress: Progress | None = None
) -> Comparison:
    """Return all near-duplicate pairs of a corpus.

    Args:
        corpus: the documents.
        rule: when two are near-duplicates.
        workspace: where arrays lie.
        threads: to work with.
        progress: called with (stage, done, of how many).

    Raises:
        SourceError: a document is no string.
        StateError: the work folder belongs to other documents or settings.
    """
    return _Work(corpus, rule, workspace, threads, progress).comparison()


class _Work:
    def __init__(
        self, corpus: Corpus, rule: Rule, workspace: Workspace, threads: int, progress: Progress | None
    ) -> None:
        self._corpus, self._rule, self._space, self._threads = corpus, rule, workspace, threads
        self._tell: Progress = as_progress(progress)

    def comparison(self) -> Comparison:
        if self._space.keeps:
            self._space.go_on(self._identity())
        keys, digests, shingles = self._sketches()
        first = _core.first_copies(digests)
        members = np.flatnonzero((first == np.arange(len(first))) & (shingles > 0))
        pairs, complete = candidates(keys, digests, members, self._threads)
        similarity = self._similarity(pairs, shingles)
        near = similarity >= self._rule.threshold
        return Comparison(
            documents=len(self._corpus),
            first=first,
            shingles=_in_memory(shingles),
            digests=_in_memory(digests),
            pairs=pairs[near],
            similarity=similarity[near],
            complete=complete,
        )

    def _identity(self) -> dict[str, Any]:
        """Return all that decides sketches and sets."""
        sources = [[name, len(texts), texts.identity()] for name, texts in self._corpus.sources.items()]
        unknown = [name for name, _, identity in sources if identity is None]
        if unknown:
            raise SourceError(
                f"source {unknown[0]!r}: documents must have a content that can be identified, to go on in a work "
                "folder, but got none; save them as a dataset first, or leave the work folder out"
            )
        rule = self._rule
        return {
            "format": _FORMAT,
            "sources": sources,
            **rule.shingling(),
            "bands": list(rule.bands),
            "seed": rule.seed,
            "block": BLOCK,
            "sets": _SETS,
        }

    def _sketches(self) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.int64]]:
        """Return band keys uint32[bands, n], digests uint64[n, 2] and numbers of shingles int64[n]."""
        n = len(self._corpus)
        keys = self._space.array("keys", (self._rule.bands[0], n), np.uint32, stage="sketches")
        digests = self._space.array("digests", (n, 2), np.uint64, stage="sketches")
        shingles = self._space.array("shingles", (n,), np.int64, stage="sketches")
        done = self._space.done("sketches")
        blocks = 0
        for name, texts, first, rows in self._corpus.blocks():
            blocks += 1
            if blocks <= done:
                continue
            span = slice(first, first + len(rows))
            found = sketch_block(texts.at(rows), self._rule, self._threads, name=name, rows=rows)
            keys[:, span], digests[span], shingles[span] = found
            if blocks % _MARKED == 0:
                self._space.mark("sketches", blocks)
            self._tell("sketches", span.stop, n)
        self._space.mark("sketches", blocks)
        return keys, digests, shingles

    def _similarity(self, pairs: NDArray[np.int64], shingles: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the exact similarity of each pair, float64[p]."""
        similarity = self._space.array("similarity", (len(pairs),), np.float64, stage="pairs")
        parts = _parts(pairs, shingles)
        most = max((int(shingles[documents].sum()) for documents, _ in parts), default=0)
        hashes = self._space.array("sets", (most,), np.uint64)
        place = np.empty(len(shingles), np.int64)  # of each document's set among those of the part
        verified = 0
        for part, (documents, which) in enumerate(parts, 1):
            verified += len(which)
            if part <= self._space.done("pairs"):
                continue
            place[documents] = np.arange(len(documents))
            both = place[pairs[which]]
            starts, sizes = self._sets(documents, shingles[documents], hashes)
            shared = _core.shared_hashes(hashes, starts, sizes, both, threads=self._threads)
            similarity[which] = jaccard(shared, sizes[both[:, 0]], sizes[both[:, 1]])
            if part % _MARKED == 0:
                self._space.mark("pairs", part)
            self._tell("pairs", verified, len(pairs))
        return similarity

    def _sets(
        self, documents: NDArray[np.int64], most: NDArray[np.int64], hashes: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Write the sorted sets of shingles of some documents; return where in `hashes` each begins, and its size.

        Args:
            documents: rising.
            most: shingles of each, with repeats.
            hashes: written to.
        """
        starts = np.concatenate([[0], np.cumsum(most)])
        sizes = np.empty(len(documents), np.int64)
        for first in range(0, len(documents), BLOCK):
            at = first
            for _, texts, rows in self._corpus.at(documents[first : first + BLOCK]):
                room = starts[at : at + len(rows) + 1]
                sizes[at : at + len(rows)] = _core.shingle_sets(
                    texts.at(rows), room, hashes, **self._rule.shingling(), threads=self._threads
                )
                at += len(rows)
        return starts[:-1], sizes


def _parts(pairs: NDArray[np.int64], shingles: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return parts of all pairs: the documents of each, rising, and which pairs are in it, rising.

    Documents that pairs link are in one part, so that the set of each is needed once; more of them until there are
    _SETS shingles.

    Args:
        pairs: int64[p, 2], documents.
        shingles: int64[n], of each document.
    """
    if len(pairs) == 0:
        return []
    root = _core.connected(pairs, n=len(shingles))
    involved = np.zeros(len(shingles), bool)
    involved[pairs.ravel()] = True
    documents = np.flatnonzero(involved)
    documents = documents[np.argsort(root[documents], kind="stable")]  # linked ones side by side, their root first
    is_root = root[documents] == documents
    begins = np.cumsum(shingles[documents]) - shingles[documents]
    part = (begins[is_root] // _SETS)[np.cumsum(is_root) - 1]
    root[documents] = part  # not needed as it was from here on
    part_of_pair = root[pairs[:, 0]]
    which = np.argsort(part_of_pair, kind="stable")
    grouped = np.split(documents, np.flatnonzero(np.diff(part)) + 1)
    listed = np.split(which, np.flatnonzero(np.diff(part_of_pair[which])) + 1)
    return [(np.sort(group), numbers) for group, numbers in zip(grouped, listed, strict=True)]


def _in_memory(array: NDArray[Any]) -> NDArray[Any]:
    """Return what outlives the work folder."""
    return np.array(array) if isinstance(array, np.memmap) else array
