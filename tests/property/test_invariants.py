"""What holds for every plan: the certificate, random access, permutations, ends. See docs/algorithm.md."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cuvee import _core
from plan_cases import (
    Case,
    Change,
    add_to_core,
    cases,
    changed,
    changes,
    core_plan,
    draw_bytes,
    fill,
    position_of,
    positive_weights,
    slot_for,
    slot_of,
    zipf,
)

SLACK = 1e-9  # works are asked as doubles
SHAPES: dict[str, Callable[[int], NDArray[np.float64]]] = {
    "equal": np.ones,
    "zipf": zipf,
    "tiny": lambda count: np.where(np.arange(count) == 0, 1.0, 1e-300),
    "halving": lambda count: 2.0 ** -np.minimum(np.arange(count), 1000.0),
    "fibonacci": lambda count: 1.6180339887 ** -np.minimum(np.arange(count), 1400.0),
    "dirichlet": lambda count: np.random.default_rng(count).dirichlet(np.full(count, 0.1)) + 1e-300,
    "lognormal": lambda count: np.random.default_rng(count).lognormal(0, 4, count),
}
SIZES = [1, 2, 3, 8, 33, 128, 2000, 10_000]


def deviation(plan: _core.Plan, position: int) -> float:
    """Largest |count - work| of a source."""
    return float(np.abs(plan.counts(position) - plan.work(position)).max())


def window_starts(plan: _core.Plan, stop: int) -> list[int]:
    starts = [0]
    while starts[-1] < stop:
        starts.append(plan.window(starts[-1])[1])
    return [start for start in starts if start <= stop]


# --- the bound


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_fresh_certificate(shape: str, count: int) -> None:
    weights = SHAPES[shape](count)
    plan = core_plan(Case(rows=(10**9,) * count, weights=tuple(weights)))
    assert plan.bound < 1.68
    for position in (0, 64, 64 * 1001, 2**41):
        assert deviation(plan, position) <= plan.bound + SLACK


@settings(max_examples=200, deadline=None)
@given(weights=st.lists(positive_weights, min_size=1, max_size=60))
def test_fresh_certificate_of_any_weights(weights: list[float]) -> None:
    assert core_plan(Case(rows=(5,) * len(weights), weights=tuple(weights))).bound < 1.68


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_certificate_through_every_exhaustion(shape: str, count: int) -> None:
    rng = np.random.default_rng(count)
    rows = tuple(rng.integers(1, 30, count).tolist())
    plan = core_plan(Case(rows=rows, weights=tuple(SHAPES[shape](count)), policy="renormalize"))
    assert plan.end == sum(rows)
    assert plan.bound <= 1.7
    slots = plan.exhaustions()[0]
    assert len(slots) == count
    for slot in slots[:: max(1, count // 40)].tolist():
        assert deviation(plan, slot) <= plan.bound + SLACK


@settings(max_examples=100, deadline=None)
@given(case=cases(), steps=changes())
def test_certificate_holds_everywhere(case: Case, steps: list[Change]) -> None:
    plan = changed(case, steps)
    stop = min(plan.end, plan.last_change + 300)
    boundaries = set(window_starts(plan, stop))
    for position in range(stop + 1):
        allowed = plan.bound + SLACK
        if position not in boundaries:
            share = plan.weights(position)
            allowed += case.window * float((share * (1 - share)).max())
        assert deviation(plan, position) <= allowed


@pytest.mark.parametrize("window", [1, 64])
def test_100_000_random_weight_changes(window: int) -> None:
    """To 0 and back, with joins: within the certificate, and no worse at the end than at the beginning."""
    rng = np.random.default_rng(window)
    case = Case(rows=(1000,) * 6, weights=(1.0,) * 6, window=window)
    plan = core_plan(case)
    worst, at = np.zeros(10), 0
    for i in range(100_000):
        if i % 25_000 == 24_999:
            add_to_core(plan, case, [1000])
        weights = rng.random(plan.sources)
        weights[rng.random(plan.sources) < 0.3] = 0.0
        weights[i % plan.sources] = 1.0
        at += window * (1 + i % 3)
        plan.set_weights(at, weights)
        worst[i // 10_000] = max(worst[i // 10_000], deviation(plan, at))
    assert (worst <= plan.bound + SLACK).all()
    assert plan.bound < 16
    assert worst[5:].max() <= 1.5 * worst[:5].max()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_drift_after_2_to_the_40_draws(shape: str) -> None:
    weights = SHAPES[shape](9)
    plan = core_plan(Case(rows=(2**35,) * 9, weights=tuple(weights)))
    total = sum(map(Fraction, weights.tolist()))
    for position in (2**32, 2**40, 2**40 + 64 * 12_345, 2**44):
        counts = plan.counts(position).tolist()
        assert sum(counts) == position
        for count, weight in zip(counts, weights.tolist(), strict=True):
            # 1e-15: shares are rounded to doubles once, at the start, however far the position
            assert abs(count - position * Fraction(weight) / total) <= plan.bound + position * 1e-15


def test_tiny_weight_is_not_rounded_away() -> None:
    tiny = 2.158216478890831e-06
    plan = core_plan(Case(rows=(12_000_000, 3000), weights=(1 - tiny, tiny), seed=17))
    assert plan.counts(10_000_000)[1] in (21, 22)
    assert position_of(plan, 1, 0) <= 463_345


# --- one order, however it is asked


@settings(max_examples=100, deadline=None)
@given(case=cases(), steps=changes(), cuts=st.lists(st.integers(0, 1500), max_size=6))
def test_random_access_is_streaming_is_slicing(case: Case, steps: list[Change], cuts: list[int]) -> None:
    plan = changed(case, steps)
    stop = min(plan.end, 1500)
    whole = fill(plan, 0, stop)
    edges = [0, *sorted(min(cut, stop) for cut in cuts), stop]
    sliced = [fill(plan, first, last) for first, last in itertools.pairwise(edges)]
    assert (np.concatenate(sliced) == whole).all()
    for position in {min(cut, stop - 1) for cut in cuts}:
        assert plan.at(position) == tuple(whole[position])
        assert plan.source_at(position) == whole[position, 0]
        assert (plan.counts(position) == np.bincount(whole[:position, 0], minlength=plan.sources)).all()
        source = int(whole[position, 0])
        earlier = int(plan.counts(position)[source])
        assert position_of(plan, source, earlier) == position
        first, end = plan.window(position)
        assert first <= slot_of(plan, source, earlier) < end


@settings(max_examples=100, deadline=None)
@given(case=cases(), steps=changes(), at=st.integers(0, 1000))
def test_a_change_leaves_what_was_before_it(case: Case, steps: list[Change], at: int) -> None:
    plan = changed(case, steps)
    stop = min(plan.end, plan.last_change + at)
    before = fill(plan, 0, stop)
    change = Change(gap=at, weights=(1.0,) * 30)
    slot = slot_for(change, plan)
    if slot is not None:
        plan.set_weights(slot, np.ones(plan.sources))
        assert (fill(plan, 0, min(stop, slot)) == before[:slot]).all()


@pytest.mark.parametrize("count", [1, 2, 8, 130, 1024])
def test_threads_and_instruction_sets(count: int) -> None:
    rng = np.random.default_rng(count)
    case = Case(rows=tuple(rng.integers(1, 40_000, count).tolist()), weights=tuple(zipf(count)), epoch_rows=99_991)
    start, stop = 12_345, 312_345
    expected = fill(core_plan(case), start, stop)
    digest = xxhash.xxh3_128_hexdigest(draw_bytes(expected))
    for isa in _core.ISAS:
        plan = core_plan(case, isa=isa)
        for threads in (1, 2, 3, 7):
            assert (fill(plan, start, stop, threads=threads) == expected).all()
            assert plan.digest(start, stop, threads=threads) == digest


@pytest.mark.parametrize("start", [2**32 - 1000, 2**33 + 17, 2**40, 2**62])
def test_positions_above_32_bits(start: int) -> None:
    plan = core_plan(Case(rows=(2**41, 2**33 + 1, 2**45), weights=(0.5, 0.2, 0.3)))
    table = fill(plan, start, start + 3000)
    assert plan.at(start + 1234) == tuple(table[1234])
    drawn = plan.counts(start + 3000) - plan.counts(start)
    assert (drawn == np.bincount(table[:, 0], minlength=3)).all()
    assert table[:, 1].max() > 2**40


def test_window_only_permutes_within_itself() -> None:
    weights = tuple(zipf(7))
    dealt = fill(core_plan(Case(rows=(100,) * 7, weights=weights, window=1)), 0, 6400)[:, 0]
    mixed = fill(core_plan(Case(rows=(100,) * 7, weights=weights, window=64)), 0, 6400)[:, 0]
    assert (np.sort(dealt.reshape(-1, 64)) == np.sort(mixed.reshape(-1, 64))).all()
    assert (dealt != mixed).mean() > 0.3


def test_row_order_depends_on_the_key_alone() -> None:
    """Another source, other weights: the i-th draw of a source is the same row."""
    alone = fill(core_plan(Case(rows=(50,), weights=(1.0,))), 0, 200)
    among = fill(core_plan(Case(rows=(50, 7, 9), weights=(0.2, 1.0, 0.7))), 0, 3000)
    assert (among[among[:, 0] == 0][:200, 1:] == alone[:, 1:]).all()


@settings(max_examples=60, deadline=None)
@given(case=cases(), steps=changes(), gap=st.integers(0, 100))
def test_snapshot_goes_on_where_it_was_taken(case: Case, steps: list[Change], gap: int) -> None:
    plan, resumed = changed(case, steps), changed(case, steps)
    resumed.restore(plan.snapshot())
    at = plan.last_change + 1 + gap
    for weights in (None, np.ones(plan.sources)):
        if weights is not None and at < plan.end:
            plan.set_weights(at, weights, restart=True)
            resumed.set_weights(at, weights, restart=True)
        start, stop = plan.last_change, min(plan.end, plan.last_change + 200)
        assert (resumed.end, resumed.ended_by, resumed.last_change) == (plan.end, plan.ended_by, plan.last_change)
        assert (fill(resumed, start, stop) == fill(plan, start, stop)).all()
        assert (resumed.work(stop - 1) == plan.work(stop - 1)).all()
        assert (resumed.counts(stop) == plan.counts(stop)).all()
        assert resumed.rebased(stop - 1) == pytest.approx(plan.rebased(stop - 1), abs=1e-6)
        assert resumed.bound == plan.bound


@settings(max_examples=60, deadline=None)
@given(case=cases(), steps=changes(), more=changes())
def test_rewound_changes_leave_no_trace(case: Case, steps: list[Change], more: list[Change]) -> None:
    plan, untouched = changed(case, steps), changed(case, steps)
    first = plan.last_change + 1
    for at, change in enumerate(more, start=first):
        if at < plan.end and change.weights and any(change.weights[: plan.sources]):
            plan.set_weights(at, np.array(change.weights[: plan.sources]) + 0.01, restart=True)
    plan.rewind(first)
    assert (plan.end, plan.ended_by, plan.last_change) == (untouched.end, untouched.ended_by, untouched.last_change)
    assert (plan.segment_count, plan.bound) == (untouched.segment_count, untouched.bound)
    stop = min(plan.end, first + 300)
    assert (fill(plan, 0, stop) == fill(untouched, 0, stop)).all()
    assert (plan.work(stop - 1) == untouched.work(stop - 1)).all()
