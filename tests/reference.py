"""The order of docs/algorithm.md with exact integers, as plainly as possible.

Slow on purpose: slots are looked up one by one and inverses are found by bisection. The tests compare the core with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import xxhash

from reference_bijection import cycle_key, permute, window_key_at
from reference_tree import (
    ROW,
    Subtree,
    build,
    certificate,
    descend,
    leaves,
    must_rebuild,
    rebuilt,
    reweighted,
    source_of,
    without,
    without_all,
)

ENDLESS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Slots from `first` on, dealt by one tree."""

    first: int
    tree: Subtree  # at `first`, residual 0
    weights: tuple[float, ...]
    is_change: bool  # else the plan's beginning or an exhaustion
    given: dict[int, int]  # draws before `first` of the sources not in the tree
    parted: dict[int, int]  # residual with which they left

    def at(self, slot: int) -> Subtree:
        return Subtree(top=self.tree.top, clock=self.tree.clock + slot - self.first, residual=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """From draw number `first` on a source has `rows` rows; that draw begins cycle `cycle`."""

    first: int
    cycle: int
    rows: int


class ReferencePlan:
    """The same constructor and methods as `cuvee._core.Plan`; sequences of Python numbers will do for arrays."""

    def __init__(
        self,
        *,
        rows: Sequence[int],
        caps: Sequence[int],
        weights: Sequence[float],
        row_keys: Sequence[int],
        window: int,
        window_key: int,
        epoch_rows: int = 0,
        stop: bool = False,
        shuffle: bool = True,
        isa: str = "auto",
    ) -> None:
        self._window, self._window_key = window, int(window_key)
        self._epoch_rows, self._stop, self._shuffle = epoch_rows, stop, shuffle
        self._stretches: list[list[Stretch]] = []
        self._caps: list[int] = []
        self._row_keys: list[int] = []
        self._segments: list[Segment] = []
        self._restarts = [0]
        self._exhaustions: list[tuple[int, int]] = []
        self.end, self.ended_by, self.last_change = ENDLESS, -1, 0
        self.add_sources(rows=rows, caps=caps, row_keys=row_keys)
        self._start(0, [float(w) for w in weights])

    # --- growing

    def add_sources(self, *, rows: Sequence[int], caps: Sequence[int], row_keys: Sequence[int]) -> None:
        self._stretches += [[Stretch(first=0, cycle=0, rows=int(n))] for n in rows]
        self._caps += [int(cap) if n else 0 for cap, n in zip(caps, rows, strict=True)]
        self._row_keys += [int(key) for key in row_keys]

    def set_weights(self, at: int, weights: Sequence[float], *, restart: bool = False) -> None:
        if not self.last_change <= at < self.end:
            raise ValueError(f"at must be in [{self.last_change}, {self.end}), but got {at}")
        if not restart and self.window(at)[0] != at:
            raise ValueError(f"at must be a window start, but got {at}")
        self._start(at, [float(w) for w in weights])
        if restart:
            self._restarts = sorted({*self._restarts, at})

    def restart(self, at: int) -> None:
        if not self.last_change <= at < self.end:
            raise ValueError(f"at must be in [{self.last_change}, {self.end}), but got {at}")
        self._restarts = sorted({*self._restarts, at})
        self.last_change = at

    def resize_source(self, source: int, *, rows: int, cap: int, at_draw: int, cycle: int) -> None:
        self._stretches[source].append(Stretch(first=at_draw, cycle=cycle, rows=rows))
        self._caps[source] = cap
        self._forget_after(self.last_change)
        self._find_exhaustions()

    def _forget_after(self, slot: int) -> None:
        self._segments = [s for s in self._segments if s.first <= slot]
        self._restarts = [r for r in self._restarts if r <= slot]
        self._exhaustions = [e for e in self._exhaustions if e[0] <= slot]
        self.end, self.ended_by = ENDLESS, -1

    def _start(self, at: int, weights: list[float]) -> None:
        """Section 4, weight change; the first segment too."""
        given = dict(enumerate(self.tree_counts(at)))
        wanted = [k for k in given if weights[k] > 0 and given[k] < self._caps[k]]
        if not wanted:
            raise ValueError(f"weights must leave a source that is not empty a weight above 0, but got {weights}")
        heaviest = max(weights[k] for k in wanted)
        scaled = [w / heaviest if k in wanted else 0.0 for k, w in enumerate(weights)]
        self._forget_after(at)
        while len(self._segments) > 1 and self._segments[-1].first == at and self._segments[-1].is_change:
            self._segments.pop()  # later weights at one slot replace the earlier
        tree: Subtree | None = None
        parted: dict[int, int] = {}
        if self._segments:
            tree = reweighted(self._segments[-1].at(at), scaled)
            unwanted = sorted({source_of(leaf) for leaf in leaves(tree)} - set(wanted))
            tree, parted = without_all(tree, unwanted)
            parted |= {k: r for k, r in self._segments[-1].parted.items() if k not in parted}
        staying = {source_of(leaf): leaf.residual for leaf in leaves(tree)} if tree else {}
        if tree is None or len(staying) < len(wanted) or must_rebuild(tree):
            tree = build({k: (given[k], staying.get(k, 0)) for k in wanted}, weights, clipped=False)
        self._append(at, tree, weights, given, parted, is_change=True)
        self.last_change = at
        self._find_exhaustions()

    def _append(
        self,
        first: int,
        tree: Subtree,
        weights: Sequence[float],
        given: dict[int, int],
        parted: dict[int, int],
        *,
        is_change: bool,
    ) -> None:
        inside = {source_of(leaf) for leaf in leaves(tree)}
        self._segments.append(
            Segment(
                first=first,
                tree=tree,
                weights=tuple(weights),
                is_change=is_change,
                given={k: c for k, c in given.items() if k not in inside},
                parted={k: r for k, r in parted.items() if k not in inside},
            )
        )

    def _find_exhaustions(self) -> None:
        while True:
            segment = self._segments[-1]

            def emptied(slot: int, segment: Segment = segment) -> list[Subtree]:
                return [leaf for leaf in leaves(segment.at(slot)) if leaf.clock >= self._caps[source_of(leaf)]]

            boundary = bisect_left(range(ENDLESS), True, lo=segment.first, key=lambda slot: bool(emptied(slot)))
            if boundary == ENDLESS:
                return
            (leaf,) = emptied(boundary)
            self._exhaustions.append((boundary, source_of(leaf)))
            tree = without(segment.at(boundary), source_of(leaf))
            if self._stop or tree is None:
                self.end, self.ended_by = boundary, source_of(leaf)
                return
            if must_rebuild(tree):
                tree = rebuilt(tree, segment.weights, clipped=True)
            given = dict(enumerate(self.tree_counts(boundary)))
            parted = segment.parted | {source_of(leaf): leaf.residual}
            self._append(boundary, tree, segment.weights, given, parted, is_change=False)
            self._restarts.append(boundary)

    # --- reading

    @property
    def sources(self) -> int:
        return len(self._caps)

    @property
    def bound(self) -> float:
        return max(certificate(segment.tree) for segment in self._segments)

    def segment_at(self, slot: int) -> Segment:
        return [s for s in self._segments if s.first <= slot][-1]

    def tree_counts(self, slot: int) -> list[int]:
        """Draws per source in the slots before `slot`."""
        counts = [0] * self.sources
        if self._segments:
            segment = self.segment_at(slot)
            for k, draws in segment.given.items():
                counts[k] = draws
            for leaf in leaves(segment.at(slot)):
                counts[source_of(leaf)] = leaf.clock
        return counts

    def work_ulps(self, slot: int) -> list[int]:
        segment = self.segment_at(slot)
        residuals = segment.parted | {source_of(leaf): leaf.residual for leaf in leaves(segment.at(slot))}
        return [draws * ROW + residuals.get(k, 0) for k, draws in enumerate(self.tree_counts(slot))]

    def work(self, slot: int) -> list[float]:
        return [float(Fraction(work, ROW)) for work in self.work_ulps(slot)]

    def shares(self, slot: int) -> list[Fraction]:
        segment = self.segment_at(slot)
        active = {source_of(leaf) for leaf in leaves(segment.tree)}
        total = sum(Fraction(segment.weights[k]) for k in active)
        return [Fraction(segment.weights[k]) / total if k in active else Fraction(0) for k in range(self.sources)]

    def weights(self, slot: int) -> list[float]:
        return [float(share) for share in self.shares(slot)]

    def rebased(self, slot: int) -> list[float]:
        owed = [Fraction(work, ROW) for work in self.work_ulps(slot)]
        firsts = [s.first for s in self._segments if s.first < slot]
        for first, last in pairwise([*firsts, slot]):
            owed = [x - share * (last - first) for x, share in zip(owed, self.shares(first), strict=True)]
        return [float(x) for x in owed]

    def exhaustions(self) -> tuple[list[int], list[int]]:
        return [slot for slot, _ in self._exhaustions], [source for _, source in self._exhaustions]

    def slot_of(self, source: int, draw: int) -> int:
        boundaries = range(min(self.end + 1, ENDLESS))
        boundary = bisect_left(boundaries, draw + 1, key=lambda slot: self.tree_counts(slot)[source])
        return boundary - 1 if boundary < len(boundaries) else ENDLESS

    def seen_all(self, start: int) -> int:
        before = self.tree_counts(start)
        firsts = [s.first for s in self._segments]
        for segment, last in zip(self._segments, [*firsts[1:], self.end], strict=True):
            active = [source_of(leaf) for leaf in leaves(segment.tree)]
            need = {k: before[k] + self._stretches[k][-1].rows for k in active}

            def seen(slot: int, need: dict[int, int] = need, segment: Segment = segment) -> bool:
                return all(leaf.clock >= need[source_of(leaf)] for leaf in leaves(segment.at(slot)))

            slots = range(max(segment.first, start), min(last + 1, ENDLESS))
            if slots and (found := bisect_left(slots, True, key=seen)) < len(slots):
                return slots[found]
        return ENDLESS

    # --- 5. windows and draws

    def window(self, position: int) -> tuple[int, int]:
        if not 0 <= position < self.end:
            raise IndexError(f"position must be in [0, {self.end}), but got {position}")
        origin = max(r for r in self._restarts if r <= position)
        limit = min([r for r in self._restarts if r > position] + [self.end])
        if self._epoch_rows:
            epoch = position // self._epoch_rows
            origin = max(origin, epoch * self._epoch_rows)
            limit = min(limit, (epoch + 1) * self._epoch_rows)
        first = origin + (position - origin) // self._window * self._window
        return first, min(first + self._window, limit)

    def window_sources(self, first: int, end: int) -> list[int]:
        """Source at each position of a window."""
        segment = self.segment_at(first)
        key = window_key_at(self._window_key, first, end - first)
        return [descend(segment.at(first + permute(end - first, key, j))) for j in range(end - first)]

    def window_draws(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """(source, row, cycle) at each position of a window."""
        given = self.tree_counts(first)
        draws = []
        for source in self.window_sources(first, end):
            draws.append((source, *self.row_and_cycle(source, given[source])))
            given[source] += 1
        return draws

    def row_and_cycle(self, source: int, draw: int) -> tuple[int, int]:
        stretch = [s for s in self._stretches[source] if s.first <= draw][-1]
        cycles, rank = divmod(draw - stretch.first, stretch.rows)
        cycle = stretch.cycle + cycles
        if not self._shuffle:
            return rank, cycle
        return permute(stretch.rows, cycle_key(self._row_keys[source], cycle), rank), cycle

    def at(self, position: int) -> tuple[int, int, int]:
        first, end = self.window(position)
        return self.window_draws(first, end)[position - first]

    def source_at(self, position: int) -> int:
        return self.at(position)[0]

    def draws(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        while start < stop:
            first, end = self.window(start)
            found += self.window_draws(first, end)[start - first : stop - first]
            start = end
        return found

    def fill(self, start: int, *, source: Any, row: Any, cycle: Any, threads: int = 1) -> None:
        for i, draw in enumerate(self.draws(start, start + len(source))):
            source[i], row[i], cycle[i] = draw

    def counts(self, position: int) -> list[int]:
        first, end = self.window(position) if position < self.end else (position, position)
        counts = self.tree_counts(first)
        for source in self.window_sources(first, end)[: position - first]:
            counts[source] += 1
        return counts

    def position_of(self, source: int, draw: int) -> int:
        slot = self.slot_of(source, draw)
        if slot == ENDLESS:
            return ENDLESS
        first, end = self.window(slot)
        earlier = draw - self.tree_counts(first)[source]
        return first + [j for j, k in enumerate(self.window_sources(first, end)) if k == source][earlier]

    def digest(self, start: int, stop: int) -> str:
        digest = xxhash.xxh3_128()
        for source, row, cycle in self.draws(start, stop):
            digest.update(source.to_bytes(4, "little") + cycle.to_bytes(4, "little") + row.to_bytes(8, "little"))
        return digest.hexdigest()
