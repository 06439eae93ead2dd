"""Sections 3, 4 and 6 of docs/algorithm.md with exact integers, as plainly as possible: the rounding tree."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

ROW = 2**64  # one row, in ulps
HALF = 2**63
WORST_PATH_SUM = 1.7
LIGHTEST_ROOT = 2.0**-500


# --- 3. rounding tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    source: int
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    weight: float
    fraction: int
    phase: int
    left: Leaf | Node
    right: Leaf | Node
    base_left: int
    base_right: int

    def gone_left(self, arrivals: int) -> int:
        return min(max((arrivals * self.fraction + self.phase) >> 64, 0), arrivals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtree:
    """A leaf or a node with its clock and its residual at one slot boundary."""

    top: Leaf | Node
    clock: int
    residual: int


def scale(r: int, fraction: int) -> int:
    return r * fraction >> 64


def fraction_of(share: float) -> int:
    return math.floor(Fraction(share) * ROW)


def join(left: Subtree, right: Subtree, *, clipped: bool) -> Subtree:
    """A new node over two subtrees, lighter one left; its clock starts at 0."""
    if left.top.weight > right.top.weight:
        left, right = right, left
    weight = left.top.weight + right.top.weight
    fraction = fraction_of(left.top.weight / weight if weight > 0 else 0.5)
    residual = left.residual + right.residual
    phase = left.residual - scale(residual, fraction) + HALF
    if clipped:
        phase = min(max(phase, 0), ROW - 1)
    node = Node(
        weight=weight,
        fraction=fraction,
        phase=phase,
        left=left.top,
        right=right.top,
        base_left=left.clock,
        base_right=right.clock,
    )
    return Subtree(top=node, clock=0, residual=residual)


def split(tree: Subtree) -> tuple[Subtree, Subtree]:
    """The two halves of a node at the node's clock."""
    node, arrivals = tree.top, tree.clock
    assert isinstance(node, Node)
    left = node.gone_left(arrivals)
    error = arrivals * node.fraction + node.phase - HALF - left * ROW
    residual_left = scale(tree.residual, node.fraction) + error
    return (
        Subtree(top=node.left, clock=node.base_left + left, residual=residual_left),
        Subtree(top=node.right, clock=node.base_right + arrivals - left, residual=tree.residual - residual_left),
    )


def leaves(tree: Subtree) -> Iterator[Subtree]:
    if isinstance(tree.top, Leaf):
        yield tree
    else:
        for half in split(tree):
            yield from leaves(half)


def descend(tree: Subtree) -> int:
    """The source that the next arrival reaches."""
    top, arrival = tree.top, tree.clock
    while isinstance(top, Node):
        node, left = top, top.gone_left(arrival)
        if node.gone_left(arrival + 1) > left:
            top, arrival = node.left, node.base_left + left
        else:
            top, arrival = node.right, node.base_right + arrival - left
    return top.source


def build(given: dict[int, tuple[int, int]], weights: Sequence[float], *, clipped: bool) -> Subtree:
    """Huffman tree over the sources in `given`: {source: (draws so far, residual)}."""
    heaviest = max(weights[source] for source in given)
    heap: list[tuple[float, int, Subtree]] = []
    for identity, source in enumerate(sorted(given)):
        draws, residual = given[source]
        leaf = Leaf(source=source, weight=weights[source] / heaviest)
        heap.append((leaf.weight, identity, Subtree(top=leaf, clock=draws, residual=residual)))
    heapq.heapify(heap)
    identity = len(given)
    while len(heap) > 1:
        left, right = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        node = join(left, right, clipped=clipped)
        heapq.heappush(heap, (node.top.weight, identity, node))
        identity += 1
    return heap[0][2]


def rebuilt(tree: Subtree, weights: Sequence[float], *, clipped: bool) -> Subtree:
    return build({source_of(leaf): (leaf.clock, leaf.residual) for leaf in leaves(tree)}, weights, clipped=clipped)


def source_of(leaf: Subtree) -> int:
    assert isinstance(leaf.top, Leaf)
    return leaf.top.source


def residual_of(tree: Subtree, source: int) -> int:
    return next(leaf.residual for leaf in leaves(tree) if source_of(leaf) == source)


def certificate(tree: Subtree, *, fresh: bool = False) -> float:
    """Section 6: the largest E of a leaf; with `fresh` the path sum, every |D| taken as 1/2."""

    def largest(top: Leaf | Node, error: float) -> float:
        if isinstance(top, Leaf):
            return error
        share = top.fraction / ROW
        own = 0.5 if fresh else max(0.5, abs(top.phase - HALF) / ROW)
        return max(largest(top.left, share * error + own), largest(top.right, (1 - share) * error + own))

    return largest(tree.top, 0.0)


# --- 4. leaving and new weights


def holds(top: Leaf | Node, source: int) -> bool:
    if isinstance(top, Leaf):
        return top.source == source
    return holds(top.left, source) or holds(top.right, source)


def weight_without(top: Leaf | Node, source: int) -> float:
    """Weight of the tree without a leaf it holds, summed from the bottom."""
    if not holds(top, source):
        return top.weight
    assert isinstance(top, Node)
    if isinstance(top.left, Leaf) and top.left.source == source:
        return top.right.weight
    if isinstance(top.right, Leaf) and top.right.source == source:
        return top.left.weight
    return weight_without(top.left, source) + weight_without(top.right, source)


def charge_of(residual: int, weight: float, total: float) -> int:
    if total == 0:
        return residual >> 1
    if weight / total == 1:
        return residual
    return scale(residual, fraction_of(weight / total))


def without(tree: Subtree, source: int) -> Subtree | None:
    """The tree after a leaf has left at this boundary."""
    if isinstance(tree.top, Leaf):
        return None
    owed = residual_of(tree, source)
    total = weight_without(tree.top, source)

    def path_copy(old: Subtree, wanted: int) -> Subtree:
        left, right = split(old)
        for child, sibling in ((left, right), (right, left)):
            if isinstance(child.top, Leaf) and child.top.source == source:
                return Subtree(top=sibling.top, clock=sibling.clock, residual=wanted)
        path, off = (left, right) if holds(left.top, source) else (right, left)
        wanted_off = off.residual + charge_of(owed, off.top.weight, total)
        new_path = path_copy(path, wanted - wanted_off)
        new_off = Subtree(top=off.top, clock=off.clock, residual=wanted_off)
        return join(*((new_path, new_off) if path is left else (new_off, new_path)), clipped=True)

    return path_copy(tree, 0)


def without_all(tree: Subtree, sources: Sequence[int]) -> tuple[Subtree | None, dict[int, int]]:
    """The tree after leaves have left one by one, and the residuals with which they went."""
    rest: Subtree | None = tree
    parted = {}
    for source in sources:
        assert rest is not None
        parted[source] = residual_of(rest, source)
        rest = without(rest, source)
    return rest, parted


def must_rebuild(tree: Subtree) -> bool:
    return tree.top.weight < LIGHTEST_ROOT or certificate(tree, fresh=True) > WORST_PATH_SUM


def reweighted(tree: Subtree, weights: Sequence[float]) -> Subtree:
    """The same shape with other weights; no work moves."""
    if isinstance(tree.top, Leaf):
        leaf = Leaf(source=tree.top.source, weight=weights[tree.top.source])
        return Subtree(top=leaf, clock=tree.clock, residual=tree.residual)
    left, right = split(tree)
    return join(reweighted(left, weights), reweighted(right, weights), clipped=False)
