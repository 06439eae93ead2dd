"""Contamination: evaluation documents that lie within documents of sources, by the exact containment of shingles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..errors import CuveeError
from .comparison import Corpus, Progress
from .rule import Rule
from .texts import BLOCK, Block, Texts, refuse_block

STAGE = "quotes"  # as progress is told


@dataclass(frozen=True, kw_only=True)
class Contamination:
    """How much of evaluation documents lies within documents of sources.

    The containment of an evaluation document in a document is the share of its distinct shingles that the document has.

    Args:
        sources: names of the s sources.
        evaluation: names of the e evaluation sets.
        containment: of each set float64[n], the largest containment of each of its documents in one document.
        match: of each set int64[n, 2], (source, row) of that document, the first of several with as much; -1 for none.
        short: of each set bool[n], which of its documents are shorter than a shingle: only a whole document of the same
            normal text has them.
        contaminated: int64[s, e], documents of an evaluation set that a document of a source contains.
        quotes: int64[m, 4], (source, row, set, row in it) of each document that contains any of a set, and of the first
            that it contains; sorted.
        shares: float64[m], the containment of these.
    """

    sources: tuple[str, ...]
    evaluation: tuple[str, ...]
    containment: Mapping[str, NDArray[np.float64]]
    match: Mapping[str, NDArray[np.int64]]
    short: Mapping[str, NDArray[np.bool_]]
    contaminated: NDArray[np.int64]
    quotes: NDArray[np.int64]
    shares: NDArray[np.float64]

    @cached_property
    def containing(self) -> NDArray[np.int64]:
        """int64[s, e], documents of a source that contain one of an evaluation set."""
        counts = np.zeros((len(self.sources), len(self.evaluation)), np.int64)
        np.add.at(counts, (self.quotes[:, 0], self.quotes[:, 2]), 1)
        return counts

    def rows(self, source: str) -> NDArray[np.int64]:
        """Return the rows of a source that contain an evaluation document of any set, int64 and rising."""
        if source not in self.sources:
            raise CuveeError(f"source must be one of {list(self.sources)}, but got {source!r}")
        return np.unique(self.quotes[self.quotes[:, 0] == self.sources.index(source), 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What was found in some rows of one source; documents are numbered through all sources, evaluation ones too.

    Args:
        source: its number.
        documents: int64[m], that contain an evaluation document of a set.
        quoted: int64[m], the first of the set that each contains.
        shares: float64[m], the containment of it.
        shared: int64[n], of each evaluation document the shingles that one document has at most.
        best: int64[n], the first document that has so many; -1 for none.
        contained: bool[n], whether a document contains it.
    """

    source: int
    documents: NDArray[np.int64]
    quoted: NDArray[np.int64]
    shares: NDArray[np.float64]
    shared: NDArray[np.int64]
    best: NDArray[np.int64]
    contained: NDArray[np.bool_]


def as_share(value: object, name: str) -> float:
    """Return the least containment of what is contained, a number in (0, 1]."""
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_) and 0 < float(value) <= 1:
        return float(value)
    raise CuveeError(f"{name} must be a number above 0 and at most 1, but got {value!r}")


def contaminate(
    sources: Corpus,
    evaluation: Corpus,
    rule: Rule,
    *,
    share: float,
    threads: int,
    progress: Progress | None = None,
) -> Contamination:
    """Return how much of evaluation documents lies within documents of sources, which are read once.

    Args:
        sources: the documents.
        evaluation: the sets.
        rule: what shingles are.
        share: least containment of what is contained.
        threads: to work with.
        progress: called with (stage, done, of how many).

    Raises:
        SourceError: a document is no string.
    """
    index = index_of(evaluation, rule, share, threads)

    def tell(done: int) -> None:
        if progress is not None:
            progress(STAGE, done, len(sources))

    parts = (
        look_through(index, texts, range(len(texts)), name=name, source=number, start=start, tell=tell)
        for number, ((name, texts), start) in enumerate(
            zip(sources.sources.items(), sources.starts.tolist(), strict=False)
        )
    )
    return merged(parts if len(evaluation) else (), index, sources, evaluation)


def index_of(evaluation: Corpus, rule: Rule, share: float, threads: int) -> _core.Containment:
    """Return the index of evaluation documents by their shingles."""
    index = _core.Containment(**rule.shingling(), share=share, threads=threads)
    numbers = {name: number for number, name in enumerate(evaluation.sources)}
    for name, texts, _, rows in evaluation.blocks():
        block = texts.at(rows)
        with _naming(block, name=name, rows=rows):
            index.add(block, of_set=numbers[name])
    return index


def look_through(
    index: _core.Containment,
    texts: Texts,
    rows: range,
    *,
    name: str,
    source: int,
    start: int,
    tell: Callable[[int], None] | None = None,
) -> Part:
    """Return what the index finds in rows of a source.

    Args:
        index: of the evaluation documents.
        texts: of the source.
        rows: to look through.
        name: of the source.
        source: its number.
        start: number of its first document.
        tell: called with the number of the next document.
    """
    found = []
    index.begin_source()
    for first in range(rows.start, rows.stop, BLOCK):
        part = range(first, min(first + BLOCK, rows.stop))
        block = texts.at(part)
        with _naming(block, name=name, rows=part):
            found.append(index.scan(block, first=start + first))
        if tell is not None:
            tell(start + part.stop)
    documents, quoted, shares = (
        np.concatenate(column) for column in zip(*(found or [index.scan([], first=0)]), strict=True)
    )
    shared, _, best, contained = index.best()
    return Part(
        source=source,
        documents=documents,
        quoted=quoted,
        shares=shares,
        shared=shared,
        best=best,
        contained=contained,
    )


def merged(parts: Iterable[Part], index: _core.Containment, sources: Corpus, evaluation: Corpus) -> Contamination:
    """Return what all parts found.

    Args:
        parts: in the order of their documents.
        index: of the evaluation documents.
        sources: whose parts they are.
        evaluation: the sets.
    """
    n = len(evaluation)
    shared, best = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    contained = np.zeros((len(sources.sources), n), bool)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    for part in parts:
        more = part.shared > shared
        shared[more], best[more] = part.shared[more], part.best[more]
        contained[part.source] |= part.contained
        found.append((part.documents, part.quoted, part.shares))
    documents, quoted, shares = (np.concatenate(column) for column in zip(*found, strict=True))
    containment = shared / np.maximum(index.best()[1], 1)
    sets = np.repeat(np.arange(len(evaluation.sources)), np.diff(evaluation.starts))
    return Contamination(
        sources=tuple(sources.sources),
        evaluation=tuple(evaluation.sources),
        containment=_by_set(containment, evaluation),
        match=_by_set(np.where(best[:, None] < 0, -1, _places(np.maximum(best, 0), sources)), evaluation),
        short=_by_set(index.is_short(), evaluation),
        contaminated=np.array(
            [np.bincount(sets[row], minlength=len(evaluation.sources)) for row in contained], np.int64
        ).reshape(len(sources.sources), len(evaluation.sources)),
        quotes=np.concatenate([_places(documents, sources), _places(quoted, evaluation)], axis=1),
        shares=shares,
    )


@contextmanager
def _naming(block: Block, *, name: str, rows: range) -> Iterator[None]:
    """Name the document of a block that is no string, where the core refuses one."""
    try:
        yield
    except TypeError:
        refuse_block(block, name=name, rows=rows)
        raise


def _places(documents: NDArray[np.int64], corpus: Corpus) -> NDArray[np.int64]:
    """Return (source, row) of documents that are numbered through all sources, int64[n, 2]."""
    source = np.searchsorted(corpus.starts, documents, side="right") - 1
    return np.stack([source, documents - corpus.starts[source]], axis=1)


def _by_set(values: NDArray[Any], evaluation: Corpus) -> dict[str, NDArray[Any]]:
    starts = evaluation.starts.tolist()
    return {name: values[starts[i] : starts[i + 1]] for i, name in enumerate(evaluation.sources)}
