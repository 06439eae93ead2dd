"""Random contracts and changes for the plan tests, and how to apply them to the core and to the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from cuvee import _core
from reference import ENDLESS, ReferencePlan
from reference_bijection import key64

WINDOWS = (1, 2, 3, 7, 64)
Draws = list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One contract in plain Python numbers; `policy` is stop, renormalize or cycle, `passes` the cap in cycles."""

    rows: tuple[int, ...]
    weights: tuple[float, ...]
    policy: str = "cycle"
    passes: int | None = None
    window: int = 64
    epoch_rows: int = 0
    shuffle: bool = True
    seed: int = 0

    def caps(self, rows: Sequence[int]) -> list[int]:
        passes = self.passes if self.policy == "cycle" else self.passes or 1
        return [ENDLESS if passes is None else n * passes for n in rows]

    def row_keys(self, first: int, count: int) -> list[int]:
        epoch = None if self.policy == "cycle" else 0
        return [key64("rows", seed=self.seed, name=f"source {k}", epoch=epoch) for k in range(first, first + count)]

    @property
    def window_key(self) -> int:
        return key64("window", seed=self.seed, epoch=None if self.policy == "cycle" else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New weights (`stage`: with a new window grid), or an all_seen epoch (no weights), `gap` slots after the last.

    Sources with `joining` rows are added first; `weights` has one number per source then present, the rest unused.
    """

    gap: int
    weights: tuple[float, ...] | None
    stage: bool = False
    joining: tuple[int, ...] = ()


def int64(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def core_plan(case: Case, *, isa: str = "auto") -> _core.Plan:
    return _core.Plan(
        rows=int64(case.rows),
        caps=int64(case.caps(case.rows)),
        weights=np.array(case.weights, dtype=np.float64),
        row_keys=np.array(case.row_keys(0, len(case.rows)), dtype=np.uint64),
        window=case.window,
        window_key=case.window_key,
        epoch_rows=case.epoch_rows,
        stop=case.policy == "stop",
        shuffle=case.shuffle,
        isa=isa,
    )


def reference_plan(case: Case) -> ReferencePlan:
    return ReferencePlan(
        rows=case.rows,
        caps=case.caps(case.rows),
        weights=case.weights,
        row_keys=case.row_keys(0, len(case.rows)),
        window=case.window,
        window_key=case.window_key,
        epoch_rows=case.epoch_rows,
        stop=case.policy == "stop",
        shuffle=case.shuffle,
    )


class Windowed(Protocol):
    """What `slot_for` needs to know of a plan."""

    @property
    def end(self) -> int: ...
    @property
    def last_change(self) -> int: ...
    def window(self, position: int) -> tuple[int, int]: ...


def slot_for(change: Change, plan: Windowed) -> int | None:
    """Where the change takes effect, or None if the plan ends before."""
    at = plan.last_change + change.gap
    if at >= plan.end:
        return None
    if change.weights is not None and not change.stage:
        first, end = plan.window(at)
        at = first if first >= plan.last_change else end
    return at if at < plan.end else None


def add_to_core(plan: _core.Plan, case: Case, joining: Sequence[int]) -> None:
    keys = np.array(case.row_keys(plan.sources, len(joining)), dtype=np.uint64)
    plan.add_sources(rows=int64(joining), caps=int64(case.caps(joining)), row_keys=keys)


def add_to_reference(plan: ReferencePlan, case: Case, joining: Sequence[int]) -> None:
    plan.add_sources(rows=joining, caps=case.caps(joining), row_keys=case.row_keys(plan.sources, len(joining)))


def changed(case: Case, steps: list[Change]) -> _core.Plan:
    """A plan after changes; those that would leave no source are refused and skipped."""
    plan = core_plan(case)
    for change in steps:
        if change.joining:
            add_to_core(plan, case, change.joining)
        at = slot_for(change, plan)
        if at is None:
            break
        if change.weights is None:
            plan.restart(at)
        elif any(change.weights[: plan.sources]):
            try:
                plan.set_weights(at, np.array(change.weights[: plan.sources]), restart=change.stage)
            except ValueError as refusal:
                assert "must" in str(refusal)  # noqa: PT017
    return plan


def fill(plan: _core.Plan, start: int, stop: int, *, threads: int = 1) -> NDArray[np.int64]:
    """Draws start, ..., stop-1 as int64[n, 3]: source, row, cycle."""
    source, row = np.empty(stop - start, np.int32), np.empty(stop - start, np.int64)
    cycle = np.empty(stop - start, np.int32)
    plan.fill(start, source=source, row=row, cycle=cycle, threads=threads)
    return np.stack([source.astype(np.int64), row, cycle.view(np.uint32).astype(np.int64)], axis=1)


def slot_of(plan: _core.Plan, source: int, draw: int) -> int:
    return int(plan.slots_of(np.full(plan.sources, draw))[source])


def position_of(plan: _core.Plan, source: int, draw: int) -> int:
    return int(plan.positions_of(np.full(plan.sources, draw))[source])


def draw_bytes(draws: Any) -> bytes:
    """The bytes of which a schedule digest is the xxh3-128."""
    table = np.asarray(draws, dtype=np.int64).reshape(-1, 3)
    record = np.zeros(len(table), dtype=[("source", "<u4"), ("cycle", "<u4"), ("row", "<u8")])
    record["source"], record["row"], record["cycle"] = table.T
    return record.tobytes()


def zipf(count: int) -> NDArray[np.float64]:
    return 1.0 / np.arange(1, count + 1)


positive_weights = st.one_of(
    st.just(1.0),
    st.integers(1, 20).map(lambda rank: 1.0 / rank),
    st.floats(0.0, 1.0, exclude_min=True),
    st.floats(0.0, 12.0).map(lambda x: 2.0 ** (-x * x)),
    st.sampled_from([1e-300, 1e-12, 1e300]),
)
any_weights = st.one_of(positive_weights, st.just(0.0))
row_counts = st.one_of(st.integers(1, 12), st.integers(1, 50), st.integers(50, 3000))


@st.composite
def cases(draw: st.DrawFn, *, most_sources: int = 12) -> Case:
    count = draw(st.integers(1, most_sources))
    weights = draw(st.lists(any_weights, min_size=count, max_size=count).filter(any))
    policy = draw(st.sampled_from(["stop", "renormalize", "cycle"]))
    return Case(
        rows=tuple(draw(st.lists(row_counts, min_size=count, max_size=count))),
        weights=tuple(weights),
        policy=policy,
        passes=draw(st.sampled_from([None, 1, 2, 3])),
        window=draw(st.sampled_from(WINDOWS)),
        epoch_rows=draw(st.sampled_from([0, 0, 1, 10, 100, 333])) if policy == "cycle" else 0,
        shuffle=draw(st.booleans()),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    def one() -> st.SearchStrategy[Change]:
        joining = st.one_of(st.just(()), st.just(()), st.lists(row_counts, min_size=1, max_size=2).map(tuple))
        weights = st.lists(any_weights, min_size=24, max_size=24).map(tuple)
        gap = st.one_of(st.integers(0, 3), st.integers(0, 200))
        with_weights = st.builds(Change, gap=gap, weights=weights, stage=st.booleans(), joining=joining)
        return st.one_of(with_weights, with_weights, st.builds(Change, gap=gap, weights=st.none()))

    return draw(st.lists(one(), max_size=6))
