"""From documents to verified pairs: sketches, candidates that agree in a band, exact similarity of those."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..errors import CuveeError, SourceError
from .rule import Rule
from .texts import BLOCK, Block, Texts, refuse_block

Progress = Callable[[str, int, int], None]  # stage, documents or pairs done, of how many
FEW = 512  # different documents, up to which all are compared with all
LARGEST_BUCKET = 256  # documents that are all compared with each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The verified pairs among documents.

    Documents of equal normal text are one content, which is compared as its first document.

    Args:
        documents: how many there are.
        first: int64[n], the first document of the same content.
        shingles: int64[n], shingles of each, with repeats.
        digests: uint64[n, 2], of each normal text.
        pairs: int64[p, 2], first documents of two contents, the smaller first; sorted.
        similarity: float64[p], exact Jaccard similarity of their sets of shingles.
        complete: whether every two documents that agree in a band were compared.
    """

    documents: int
    first: NDArray[np.int64]
    shingles: NDArray[np.int64]
    digests: NDArray[np.uint64]
    pairs: NDArray[np.int64]
    similarity: NDArray[np.float64]
    complete: bool


class Corpus:
    """The documents of several sources, numbered through."""

    def __init__(self, sources: dict[str, Texts]) -> None:
        self.sources = sources
        sizes = [len(texts) for texts in sources.values()]
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        if len(self) >= 2**32 - 1:
            raise SourceError(f"documents must be fewer than 2**32 - 1, but got {len(self)}; compare parts of them")

    def __len__(self) -> int:
        return int(self.starts[-1])

    def blocks(self) -> Iterator[tuple[str, Texts, int, range]]:
        """Yield (source, its documents, number of the first of the block, rows of the block) in order."""
        for (name, texts), start in zip(self.sources.items(), self.starts.tolist(), strict=False):
            for first in range(0, len(texts), BLOCK):
                yield name, texts, start + first, range(first, min(first + BLOCK, len(texts)))

    def at(self, documents: NDArray[np.int64]) -> Iterator[tuple[str, Texts, NDArray[np.int64]]]:
        """Yield (source, its documents, rows) for documents in rising order, a source at a time."""
        cuts = np.searchsorted(documents, self.starts)
        for index, (name, texts) in enumerate(self.sources.items()):
            part = documents[cuts[index] : cuts[index + 1]]
            if len(part):
                yield name, texts, part - self.starts[index]


def candidates(
    keys: NDArray[np.uint32], digests: NDArray[np.uint64], members: NDArray[np.int64], threads: int
) -> tuple[NDArray[np.int64], bool]:
    """Return the pairs of documents to compare, int64[p, 2] and sorted, and whether these are all that agree in a band.

    Args:
        keys: uint32[bands, n], of each document.
        digests: uint64[n, 2].
        members: int64[m], the documents that take part, rising.
        threads: to work with.
    """
    if len(members) <= FEW:
        one, other = np.triu_indices(len(members), 1)
        return np.stack([members[one], members[other]], axis=1).reshape(-1, 2), True
    order = np.ascontiguousarray(digests[:, 0])
    return _core.candidate_pairs(keys, order, members.astype(np.uint32), limit=LARGEST_BUCKET, threads=threads)


def sketch_block(block: Block, rule: Rule, threads: int, *, name: str, rows: Any) -> tuple[Any, Any, Any]:
    """Return (keys uint32[bands, m], digests uint64[m, 2], shingles int64[m]) of a block of documents."""
    bands, per_band = rule.bands
    try:
        return _core.sketches(block, **rule.shingling(), bands=bands, rows=per_band, seed=rule.seed, threads=threads)
    except TypeError:
        refuse_block(block, name=name, rows=rows)
        raise


def jaccard(shared: NDArray[np.int64], one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return shared / joint shingles of pairs of sets, from the sizes of both."""
    return shared / (one + other - shared)


def as_progress(progress: Progress | None) -> Progress:
    """Return what is to be called with progress: nothing much where nobody asked for it."""
    if progress is None:
        return lambda *_: None
    if not callable(progress):
        raise CuveeError(f"progress must be callable with (stage, done, of how many), but got {progress!r}")
    return progress


def default_threads(threads: int | None) -> int:
    """Return the number of threads: of those this process may use where none was given."""
    import os

    from ..checks import as_int

    if threads is not None:
        return as_int(threads, "threads", 1, 1025, CuveeError)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
