"""What a comparison means for documents: pairs, clusters, the one that stays of each, overlaps of sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .comparison import Comparison

Keep = Literal["longest", "first"]
MOST_OF_A_PAIR = 1 << 20  # pairs of documents that one pair of contents may stand for before only the first are listed


@dataclass(frozen=True, kw_only=True)
class NearDuplicates:
    """Near-duplicates among n documents.

    Args:
        documents: n.
        pairs: int64[p, 2], documents that are near-duplicates, the smaller number first; sorted.
        similarity: float64[p], their exact Jaccard similarity.
        survivor: int64[n], of each document's cluster the one that stays; the document itself where it has no
            near-duplicate.
        match: int64[n], for a document that goes the first one of the same text (for the first itself the survivor, if
            that has its text), or else the one of another text that it is most like; -1 for one that stays.
        match_similarity: float64[n], how much so; 0 for one that stays.
        complete: whether `pairs` has every pair; clusters do not need them all.
    """

    documents: int
    pairs: NDArray[np.int64] = field(repr=False)
    similarity: NDArray[np.float64] = field(repr=False)
    survivor: NDArray[np.int64] = field(repr=False)
    match: NDArray[np.int64] = field(repr=False)
    match_similarity: NDArray[np.float64] = field(repr=False)
    complete: bool

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """bool[n], whether a document stays."""
        return np.asarray(self.survivor == np.arange(self.documents))

    @cached_property
    def clusters(self) -> list[NDArray[np.int64]]:
        """The documents of each cluster of two or more, rising; clusters in the order of their first documents."""
        sizes = np.bincount(self.survivor, minlength=self.documents)
        together = np.flatnonzero(sizes[self.survivor] > 1)
        grouped = together[np.argsort(self.survivor[together], kind="stable")]
        cuts = np.flatnonzero(np.diff(self.survivor[grouped])) + 1
        found = np.split(grouped, cuts) if len(grouped) else []
        return sorted(found, key=lambda cluster: int(cluster[0]))

    @property
    def rate(self) -> float:
        """Share of documents that have a near-duplicate, 0..1."""
        return sum(map(len, self.clusters)) / self.documents if self.documents else 0.0


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """How much of each source is in others.

    Args:
        names: of the s sources.
        documents: int64[s].
        counts: int64[s, s], documents of source i (row) that have a near-duplicate among the documents of source j,
            itself aside.
    """

    names: tuple[str, ...]
    documents: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def shares(self) -> NDArray[np.float64]:
        """float64[s, s], counts[i, j] / documents of i."""
        return np.asarray(self.counts / np.maximum(self.documents, 1)[:, None])


def near_duplicates_of(
    comparison: Comparison, keep: Keep, *, stay: int = 0, unwanted: NDArray[np.bool_] | None = None
) -> NearDuplicates:
    """Return pairs, clusters and survivors of a comparison.

    Args:
        comparison: the verified pairs.
        keep: which document of a cluster stays: the one of most shingles, or the first.
        stay: number of documents at the end, those of evaluation sets, of which one stays wherever a cluster has any.
        unwanted: bool[n], documents of which one stays only where a cluster has no others.
    """
    n = comparison.documents
    copies = np.flatnonzero(comparison.first != np.arange(n))
    links = np.concatenate([comparison.pairs, np.stack([comparison.first[copies], copies], axis=1)])
    root = _core.connected(np.ascontiguousarray(links), n=n)
    last = np.zeros(n, np.int8) if unwanted is None else unwanted.astype(np.int8)
    last[n - stay :] = -1
    survivor = _survivors(comparison, root, keep, last)
    match, match_similarity = _matches(comparison, survivor)
    pairs, similarity, listed = _listed_pairs(comparison)
    return NearDuplicates(
        documents=n,
        pairs=pairs,
        similarity=similarity,
        survivor=survivor,
        match=match,
        match_similarity=match_similarity,
        complete=comparison.complete and listed,
    )


def has_near_duplicate(comparison: Comparison) -> NDArray[np.bool_]:
    """Return for each document whether it has a near-duplicate, bool[n]."""
    return np.asarray(_repeated(comparison)[comparison.first])


def _repeated(comparison: Comparison) -> NDArray[np.bool_]:
    """Return which first documents of a content have a copy or a pair, bool[n]."""
    found = np.bincount(comparison.first, minlength=comparison.documents) > 1
    found[comparison.pairs.ravel()] = True
    return np.asarray(found)


def overlap_of(comparison: Comparison, names: Sequence[str], starts: NDArray[np.int64]) -> Overlap:
    """Return how much of each source is in others.

    Args:
        comparison: of the documents of all sources, end to end.
        names: of the sources.
        starts: int64[s + 1], where each source's documents begin.
    """
    kinds = len(names)
    source = np.repeat(np.arange(kinds), np.diff(starts))
    held = np.flatnonzero(_repeated(comparison))  # first documents of contents that have any near-duplicate
    place = np.full(comparison.documents, -1, np.int64)
    place[held] = np.arange(len(held))
    copies = np.zeros((len(held), kinds), np.int64)  # of each content in each source
    mine = place[comparison.first]
    np.add.at(copies, (mine[mine >= 0], source[mine >= 0]), 1)
    near = np.zeros((len(held), kinds), bool)  # whether a source has a document of another content that is near
    one, other = place[comparison.pairs[:, 0]], place[comparison.pairs[:, 1]]
    np.logical_or.at(near, one, copies[other] > 0)
    np.logical_or.at(near, other, copies[one] > 0)
    counts = np.empty((kinds, kinds), np.int64)
    for i in range(kinds):
        others = copies - np.eye(kinds, dtype=np.int64)[i]  # a document is no near-duplicate of itself
        counts[i] = copies[:, i] @ (near | (others > 0))
    return Overlap(names=tuple(names), documents=np.diff(starts), counts=counts)


def _survivors(
    comparison: Comparison, root: NDArray[np.int64], keep: Keep, last: NDArray[np.int8]
) -> NDArray[np.int64]:
    """Return the survivor of each document's cluster, one of least `last`; by content alone where the longest stays."""
    sizes = np.bincount(root, minlength=len(root))
    members = np.flatnonzero(sizes[root] > 1)
    members = members[np.argsort(root[members], kind="stable")]  # rising in each cluster
    if keep == "longest":
        low, high = comparison.digests[members, 0], comparison.digests[members, 1]
        best = _least_of_each(root[members], last[members], -comparison.shingles[members], high, low)
    else:
        best = _least_of_each(root[members], last[members])
    chosen = np.arange(len(root))
    chosen[root[members[best]]] = members[best]
    return chosen[root]


def _least_of_each(group: NDArray[np.int64], *keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return which member of each group has the least keys, of which earlier ones decide first; of equals the first.

    Args:
        group: int64[m], of each member, rising.
        keys: [m] each.
    """
    left = np.arange(len(group))
    for key in keys:
        begins = np.flatnonzero(np.diff(group[left], prepend=-1))
        if len(begins) == len(left):
            break
        values = key[left]
        least = np.minimum.reduceat(values, begins)
        left = left[values == np.repeat(least, np.diff(begins, append=len(left)))]
    return left[np.flatnonzero(np.diff(group[left], prepend=-1))]


def _matches(comparison: Comparison, survivor: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return for each document that goes what it is most like; the survivor where that is as near as any."""
    n = comparison.documents
    match, similarity = np.full(n, -1, np.int64), np.zeros(n)
    both = np.concatenate([comparison.pairs, comparison.pairs[:, ::-1]])
    order = np.argsort(both[:, 0], kind="stable")
    one, other = both[order].T
    near = np.tile(comparison.similarity, 2)[order]
    away = comparison.first[survivor[one]] != other
    low, high = comparison.digests[other, 0], comparison.digests[other, 1]
    best = _least_of_each(one, -near, away, high, low)
    match[one[best]], similarity[one[best]] = other[best], near[best]
    copies = np.flatnonzero(comparison.first != np.arange(n))
    match[copies], similarity[copies] = comparison.first[copies], 1.0
    replaced = np.flatnonzero((comparison.first == np.arange(n)) & (comparison.first[survivor] == np.arange(n)))
    match[replaced], similarity[replaced] = survivor[replaced], 1.0  # a first one that goes for a copy behind it
    stays = survivor == np.arange(n)
    match[stays], similarity[stays] = -1, 0.0
    return match, similarity


def _listed_pairs(comparison: Comparison) -> tuple[NDArray[np.int64], NDArray[np.float64], bool]:
    """Return all pairs of documents that the pairs of contents stand for, and whether none was too many to list."""
    n = comparison.documents
    if np.array_equal(comparison.first, np.arange(n)):
        return comparison.pairs, comparison.similarity, True
    sizes = np.bincount(comparison.first, minlength=n)
    members = np.argsort(comparison.first, kind="stable")  # documents by content
    begins = np.cumsum(sizes) - sizes
    repeated = np.flatnonzero(sizes > 1)
    one = np.concatenate([comparison.pairs[:, 0], repeated])
    other = np.concatenate([comparison.pairs[:, 1], repeated])
    near = np.concatenate([comparison.similarity, np.ones(len(repeated))])
    many = sizes[one] * sizes[other] > MOST_OF_A_PAIR
    width = np.where(many, 1, sizes[one])  # only with the first of `one` then
    total = width * sizes[other]
    owner = np.repeat(np.arange(len(total)), total)
    number = np.arange(int(total.sum())) - np.repeat(np.cumsum(total) - total, total)
    left = members[begins[one[owner]] + number // sizes[other[owner]]]
    right = members[begins[other[owner]] + number % sizes[other[owner]]]
    wanted = (one[owner] != other[owner]) | (left < right)
    pairs = np.stack([np.minimum(left, right), np.maximum(left, right)], axis=1)[wanted]
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return pairs[order], near[owner][wanted][order], not bool(many.any())
