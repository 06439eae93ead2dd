"""Cycles, epochs and the ends of plans; what is refused; integers for samplers."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cuvee import _core
from plan_cases import Case, Change, cases, changed, changes, core_plan, fill, int64, slot_of
from reference import ENDLESS


def ordinals(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each draw from position 0 on, how many of its source came before."""
    seen: Counter[int] = Counter()
    result = np.empty(len(table), np.int64)
    for i, source in enumerate(table[:, 0].tolist()):
        result[i] = seen[source]
        seen[source] += 1
    return result


@settings(max_examples=100, deadline=None)
@given(case=cases(), steps=changes())
def test_no_row_repeats_before_all_were_used(case: Case, steps: list[Change]) -> None:
    """Each cycle of each source is a permutation of its rows, and cycles follow one another without overlap."""
    plan = changed(case, steps)
    rows = [*case.rows, *itertools.chain.from_iterable(change.joining for change in steps)]
    table = fill(plan, 0, min(plan.end, 4000))
    size = int64(rows)[table[:, 0]]
    ordinal = ordinals(table)
    assert (table[:, 2] == ordinal // size).all()
    assert (table[:, 1] < size).all()
    assert len(np.unique(table, axis=0)) == len(table)
    if not case.shuffle:
        assert (table[:, 1] == ordinal % size).all()


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_renormalize_hands_out_every_row_once(case: Case) -> None:
    weights = tuple(weight or 0.5 for weight in case.weights)
    plan = core_plan(Case(rows=case.rows, weights=weights, policy="renormalize", window=case.window))
    assert plan.end == sum(case.rows)
    table = fill(plan, 0, plan.end)
    assert (plan.counts(plan.end) == int64(case.rows)).all()
    assert len(np.unique(table[:, :2], axis=0)) == plan.end
    assert sorted(plan.exhaustions()[1].tolist()) == list(range(len(weights)))
    assert plan.ended_by == plan.exhaustions()[1][-1]


@settings(max_examples=100, deadline=None)
@given(case=cases(), passes=st.sampled_from([1, 2]))
def test_stop_ends_with_the_first_source_emptied(case: Case, passes: int) -> None:
    plan = core_plan(
        Case(rows=case.rows, weights=case.weights, policy="stop", passes=passes, window=case.window, seed=case.seed)
    )
    caps = passes * int64(case.rows)
    counts = plan.counts(plan.end)
    assert counts[plan.ended_by] == caps[plan.ended_by]
    assert (np.delete(counts < caps, plan.ended_by)).all()
    assert (plan.counts(plan.window(plan.end - 1)[0]) < caps).all()
    with pytest.raises(IndexError):
        plan.at(plan.end)


@given(
    rows=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    weights=st.lists(st.floats(0.05, 1.0), min_size=6, max_size=6),
    window=st.sampled_from([1, 7, 64]),
)
def test_epochs_until_every_source_gave_all_its_rows(rows: list[int], weights: list[float], window: int) -> None:
    weights = weights[: len(rows)]
    plan = core_plan(Case(rows=tuple(rows), weights=tuple(weights), window=window))
    dealt = core_plan(Case(rows=tuple(rows), weights=tuple(weights), window=1))
    start = 0
    for epoch in range(4):
        end = plan.seen_all(start)
        plan.restart(end)
        drawn = plan.counts(end) - plan.counts(start)
        assert (drawn >= int64(rows)).all()
        assert (dealt.counts(end - 1) - dealt.counts(start) < int64(rows)).any()
        if epoch == 0:
            assert len(np.unique(fill(plan, 0, end)[:, :2], axis=0)) == sum(rows)
        start = end


def test_ends_of_three_equal_sources() -> None:
    sizes = (3, 4, 5)
    for order in itertools.permutations(sizes):
        for weights in ((1.0, 1.0, 1.0), (1 / 3, 1 / 3, 1 / 3)):
            stop = core_plan(Case(rows=order, weights=weights, policy="stop"))
            assert 7 <= stop.end <= 9
            assert stop.ended_by == order.index(3)
            assert core_plan(Case(rows=order, weights=weights, policy="renormalize")).end == 12
            assert 13 <= core_plan(Case(rows=order, weights=weights)).seen_all(0) <= 15
    last = core_plan(Case(rows=(3, 4, 3), weights=(1.0, 1.0, 1.0), policy="renormalize"))
    assert last.end == 10
    assert last.at(9)[0] == 1
    assert core_plan(Case(rows=(632, 3893), weights=(0.5, 0.5), policy="stop")).end in (1263, 1264)


def test_zero_weights_and_empty_sources_are_never_drawn() -> None:
    plan = core_plan(Case(rows=(5, 5, 0), weights=(1.0, 0.0, 1.0), policy="renormalize"))
    assert plan.end == 5
    assert plan.counts(5).tolist() == [5, 0, 0]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_weights_that_say_nothing_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="must"):
        core_plan(Case(rows=(5, 5), weights=tuple(weights)))
    plan = core_plan(Case(rows=(5, 5), weights=(0.5, 0.5)))
    before = fill(plan, 0, 200)
    with pytest.raises(ValueError, match="must"):
        plan.set_weights(64, np.array(weights))
    assert (fill(plan, 0, 200) == before).all()
    assert plan.last_change == 0


def test_changes_only_at_window_starts_and_forward() -> None:
    plan = core_plan(Case(rows=(5, 5), weights=(0.5, 0.5)))
    with pytest.raises(ValueError, match="must"):
        plan.set_weights(65, np.ones(2))
    plan.set_weights(128, np.ones(2))
    with pytest.raises(ValueError, match="must"):
        plan.set_weights(64, np.ones(2))
    plan.set_weights(129, np.ones(2), restart=True)
    assert plan.window(130) == (129, 193)
    assert plan.window(100) == (64, 128)


# --- integers for samplers


@given(
    draws=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 2**17), st.integers(0, 2**31 - 1)),
            st.one_of(st.integers(0, 2**39), st.integers(0, 2**62)),
            st.one_of(st.integers(0, 2**10), st.integers(0, 2**31 - 1)),
        ),
        max_size=20,
    )
)
def test_packing_is_reversible(draws: list[tuple[int, int, int]]) -> None:
    table = int64([x for draw in draws for x in draw]).reshape(-1, 3)
    source, row, cycle = table[:, 0].astype(np.int32), table[:, 1].copy(), table[:, 2].astype(np.int32)
    packed = _core.pack(source, row, cycle)
    assert len(set(packed)) == len(set(draws))
    for number, (k, i, c) in zip(packed, draws, strict=True):
        assert 2**54 <= number < 2**128
        assert (number < 2**63) == (k < 2**16 and i < 2**38 and c + 1 < 2**9)
    assert list(zip(*(part.tolist() for part in _core.unpack(packed)), strict=True)) == draws


def test_endless_plans_say_so() -> None:
    plan = core_plan(Case(rows=(5, 5), weights=(0.5, 0.5)))
    assert plan.end == ENDLESS == _core.ENDLESS
    assert plan.ended_by == -1
    assert slot_of(plan, 0, 10) < 25
    assert slot_of(core_plan(Case(rows=(5, 5), weights=(1.0, 0.0))), 1, 0) == ENDLESS
