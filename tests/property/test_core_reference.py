"""The core against the plain exact reference, draw by draw."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_bijection
from cuvee import _core
from plan_cases import (
    Case,
    Change,
    add_to_core,
    add_to_reference,
    cases,
    changes,
    core_plan,
    draw_bytes,
    fill,
    reference_plan,
    slot_for,
    zipf,
)
from reference import ENDLESS, ReferencePlan

keys = st.integers(0, 2**64 - 1)


def apply_changes(case: Case, steps: Sequence[Change], cores: Sequence[_core.Plan], reference: ReferencePlan) -> None:
    for change in steps:
        assert cores[0].end == reference.end  # this one has found its later exhaustions before it is changed
        for core in cores if change.joining else []:
            add_to_core(core, case, change.joining)
        if change.joining:
            add_to_reference(reference, case, change.joining)
        at = slot_for(change, reference)
        if at is None:
            return
        if change.weights is None:
            reference.restart(at)
            for core in cores:
                core.restart(at)
            continue
        weights = change.weights[: reference.sources]
        try:
            reference.set_weights(at, weights, restart=change.stage)
        except ValueError:
            for core in cores:
                with pytest.raises(ValueError, match="must"):
                    core.set_weights(at, np.array(weights), restart=change.stage)
        else:
            for core in cores:
                core.set_weights(at, np.array(weights), restart=change.stage)


def assert_same_outline(core: _core.Plan, reference: ReferencePlan) -> None:
    assert core.sources == reference.sources
    assert (core.end, core.ended_by) == (reference.end, reference.ended_by)
    assert core.last_change == reference.last_change
    slots, sources = core.exhaustions()
    assert (slots.tolist(), sources.tolist()) == reference.exhaustions()
    assert core.bound == pytest.approx(reference.bound, rel=1e-12)


def assert_same_draws(core: _core.Plan, reference: ReferencePlan, start: int, stop: int) -> None:
    expected = reference.draws(start, stop)
    for threads in (1, 2):
        assert list(map(tuple, fill(core, start, stop, threads=threads).tolist())) == expected
        assert core.digest(start, stop, threads=threads) == xxhash.xxh3_128_hexdigest(draw_bytes(expected))


def assert_same_at(core: _core.Plan, reference: ReferencePlan, position: int) -> None:
    """What can be asked of one position."""
    draw = reference.at(position)
    assert core.at(position) == draw
    assert core.source_at(position) == draw[0]
    assert core.window(position) == reference.window(position)
    assert core.counts(position).tolist() == reference.counts(position)
    assert core.weights(position).tolist() == pytest.approx(reference.weights(position), rel=1e-12)
    for ours, exact in zip(core.work(position).tolist(), reference.work(position), strict=True):
        assert abs(ours - exact) <= math.ulp(exact)
    near = 1e-9 + position * 1e-14
    assert core.rebased(position).tolist() == pytest.approx(reference.rebased(position), abs=near)


def assert_same_places(core: _core.Plan, reference: ReferencePlan, start: int, draw: int) -> None:
    """What is found by climbing the tree."""
    sources = range(reference.sources)
    draws = np.full(reference.sources, draw, np.int64)
    assert core.slots_of(draws).tolist() == [reference.slot_of(source, draw) for source in sources]
    assert core.positions_of(draws).tolist() == [reference.position_of(source, draw) for source in sources]
    assert core.seen_all(start) == reference.seen_all(start)


@settings(max_examples=150, deadline=None)
@given(case=cases(), steps=changes(), data=st.data())
def test_core_equals_reference(case: Case, steps: list[Change], data: st.DataObject) -> None:
    reference = reference_plan(case)
    cores = [core_plan(case, isa=isa) for isa in _core.ISAS]
    apply_changes(case, steps, cores, reference)
    length = min(reference.end, reference.last_change + 200)
    start = data.draw(st.integers(0, length), label="start")
    stop = data.draw(st.integers(start, length), label="stop")
    position = data.draw(st.integers(0, length - 1), label="position")
    draw = data.draw(st.integers(0, 300), label="draw")
    for core in cores:
        assert_same_outline(core, reference)
        assert_same_draws(core, reference, start, stop)
        assert_same_at(core, reference, position)
    assert_same_places(cores[-1], reference, position, draw)
    assert cores[-1].counts(length).tolist() == reference.counts(length)


@pytest.mark.parametrize("window", [1, 64])
@pytest.mark.parametrize("near", [2**32, 2**40, 2**56])
def test_far_positions(near: int, window: int) -> None:
    case = Case(rows=(2**30, 3 * 10**9, 2**41 + 1, 2**31 - 1, 10**8), weights=tuple(zipf(5)), window=window, seed=7)
    core, reference = core_plan(case), reference_plan(case)
    assert_same_draws(core, reference, near - 100, near + 100)
    at = near - near % 64 + 128
    for change in (
        Change(gap=at, weights=(0.1, 0.0, 3.0, 0.2, 1e-12)),
        Change(gap=100, weights=(0.1, 2.0, 0.0, 0.2, 0.7), stage=True),
        Change(gap=at, weights=(1e-9, 1e-6, 1.0, 0.2, 0.0)),
    ):
        apply_changes(case, [change], [core], reference)
        assert_same_outline(core, reference)
        assert_same_draws(core, reference, reference.last_change - 70, reference.last_change + 70)
        assert_same_at(core, reference, reference.last_change + 1001)


@pytest.mark.parametrize(
    "weights",
    [
        [1.0] * 50,
        list(zipf(60)),
        [2.0**-k for k in range(40)],
        [1.618**-k for k in range(50)],
        [1.0, *[1e-300 * (k % 3 + 1) for k in range(30)]],
    ],
    ids=["equal", "zipf", "halving", "fibonacci", "tiny"],
)
def test_many_sources_used_up(weights: list[float]) -> None:
    rows = tuple(1 + k * 7 % 5 for k in range(len(weights)))
    case = Case(rows=rows, weights=tuple(weights), policy="renormalize", seed=3)
    core, reference = core_plan(case), reference_plan(case)
    assert_same_outline(core, reference)
    assert_same_draws(core, reference, 0, reference.end)
    assert_same_at(core, reference, reference.end // 2)


@pytest.mark.parametrize("window", [1, 7])
def test_many_abrupt_changes(window: int) -> None:
    """Residuals of several rows, so that the clamp of section 3 binds."""
    rng = random.Random(window)
    rows = tuple(rng.randint(1, 400) for _ in range(10))
    case = Case(rows=rows, weights=tuple([1.0] * 10), policy="cycle", passes=3, window=window)
    cores, reference = [core_plan(case, isa=isa) for isa in _core.ISAS], reference_plan(case)
    for _ in range(70):
        weights = tuple((rng.random() > 0.03) * rng.choice([1e-9, rng.random() ** 6, 1.0]) for _ in range(10))
        apply_changes(case, [Change(gap=rng.randint(0, 12), weights=weights)], cores, reference)
    assert reference.bound > 2
    for core in cores:
        assert_same_outline(core, reference)
        assert_same_draws(core, reference, 0, min(reference.end, reference.last_change + 300))
        assert_same_at(core, reference, reference.last_change)


def test_restart_just_before_an_exhaustion() -> None:
    case = Case(rows=(1, 1), weights=(0.5, 0.5), policy="renormalize", window=1)
    core, reference = core_plan(case), reference_plan(case)
    apply_changes(case, [Change(gap=0, weights=None)], [core], reference)
    assert_same_outline(core, reference)
    assert_same_draws(core, reference, 0, 2)


@pytest.mark.parametrize("policy", ["cycle", "renormalize"])
def test_resized_source(policy: str) -> None:
    case = Case(rows=(10, 20, 7), weights=(0.5, 0.3, 0.2), window=7, policy=policy, passes=3)
    core, reference = core_plan(case), reference_plan(case)
    for source, rows, cap, at_draw, cycle in ((1, 31, 77, 13, 1), (0, 5, 100, 22, 3)):
        for plan in (core, reference):
            plan.resize_source(source, rows=rows, cap=cap, at_draw=at_draw, cycle=cycle)
        assert_same_outline(core, reference)
        assert_same_draws(core, reference, 0, reference.end)
        for position in range(0, reference.end, 17):
            assert_same_at(core, reference, position)


@settings(max_examples=200, deadline=None)
@given(
    n=st.one_of(st.integers(1, 40), st.integers(1, 5000), st.integers(1, 2**62)),
    key=keys,
    data=st.data(),
)
def test_bijection_equals_reference(n: int, key: int, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20), label="index")
    expected = [reference_bijection.permute(n, key, i) for i in index]
    assert _core.permute_at(n, np.array(index, np.int64), key=key).tolist() == expected
    assert _core.permute_inverse(n, np.array(expected, np.int64), key=key).tolist() == index
    assert [reference_bijection.permute_inverse(n, key, value) for value in expected] == index
    start = index[0]
    stop = min(n, start + 50)
    block = [reference_bijection.permute(n, key, i) for i in range(start, stop)]
    for isa in _core.ISAS:
        assert _core.permute(n, key=key, start=start, stop=stop, isa=isa).tolist() == block


@given(
    purpose=st.sampled_from(["rows", "window"]),
    seed=st.integers(0, 2**63 - 1),
    name=st.text(max_size=20).filter(lambda name: name.isprintable()),
    epoch=st.none() | st.integers(0, 2**64 - 2),
)
def test_keys_equal_reference(purpose: str, seed: int, name: str, epoch: int | None) -> None:
    expected = reference_bijection.key64(purpose, seed=seed, name=name, epoch=epoch)
    assert _core.key64(purpose, seed=seed, name=name, epoch=epoch) == expected


@given(parts=st.lists(st.binary(max_size=3000), max_size=5))
def test_hashes_equal_the_xxhash_package(parts: list[bytes]) -> None:
    digest = _core.Digest()
    for part in parts:
        digest.update(part)
    whole = b"".join(parts)
    assert digest.hexdigest() == _core.xxh3_128(whole) == xxhash.xxh3_128_hexdigest(whole)


def test_endless_is_the_same_number() -> None:
    assert _core.ENDLESS == ENDLESS
    assert _core.ORDER_FORMAT == 1
