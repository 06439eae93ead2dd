"""Plans under any updates: inside the certificate, independent of how they are read, saved and replayed."""

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuvee import Mixture, Plan, PlanError, Source, Stage

FRACTIONS = st.sampled_from([0.0, 0.0, 1e-300, 1e-9, 0.01, 0.3, 1.0, 1.0, 7.0, 1e9])


@dataclass
class Case:
    """A mixture, and updates as (epoch, part of the way from what is issued to the end, weights, a source joins)."""

    settings: dict[str, Any]
    sizes: list[int]
    weights: list[float]
    caps: list[int | None]
    updates: list[tuple[float, list[float], bool]] = field(default_factory=list)

    def mixture(self) -> Mixture:
        rows = zip(self.sizes, self.weights, self.caps, strict=True)
        sources = [
            Source(f"s{k}", rows=n, weight=w, max_epochs=cap, lengths=lengths(n, k))
            for k, (n, w, cap) in enumerate(rows)
        ]
        return Mixture(sources, **self.settings)


def lengths(rows: int, source: int) -> np.ndarray:
    """Return lengths of 1 to 60 tokens, longer in later sources."""
    return np.random.default_rng(source).integers(1, 10 * (source + 1), rows)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.integers(1, 90), min_size=count, max_size=count))
    policy = draw(st.sampled_from(["cycle", "stop", "renormalize"]))
    chosen: dict[str, Any] = {
        "exhaustion": policy,
        "window": draw(st.sampled_from([1, 2, 7, 64])),
        "control_interval": draw(st.sampled_from([1, 10, 100])),
        "seed": draw(st.integers(0, 99)),
        "shuffle_within_sources": draw(st.booleans()),
        "unit": draw(st.sampled_from(["rows", "rows", "tokens"])),
    }
    if policy == "cycle":
        chosen["samples_per_epoch"] = draw(st.integers(20, 400))
    weight_lists = st.lists(FRACTIONS, min_size=count, max_size=count)
    if draw(st.booleans()):
        places = sorted(draw(st.sets(st.integers(1, 300), min_size=1, max_size=3)))
        moves = st.sampled_from([None, "linear", "cosine"])
        chosen["stages"] = [
            Stage(
                at, dict(zip([f"s{k}" for k in range(count)], draw(weight_lists.filter(any)), strict=True)), draw(moves)
            )
            for at in places
        ]
    caps = draw(st.lists(st.sampled_from([None, None, 1, 2]), min_size=count, max_size=count))
    updates = st.tuples(st.floats(0, 1), st.lists(FRACTIONS, min_size=12, max_size=12), st.booleans())
    return Case(chosen, sizes, draw(weight_lists.filter(any)), caps, draw(st.lists(updates, max_size=5)))


def play(case: Case, *, look: bool, save: bool) -> list[Plan]:
    """Return the plans of two epochs after all updates; looking ahead and resuming must not matter."""
    plan = case.mixture().plan()
    done: list[Plan] = []
    joined: list[Source] = []
    for number, (part, weights, joins) in enumerate(case.updates):
        if look:
            plan.schedule_hash(first_held(plan))
        plan.issue(plan.issued + int(part * (len(plan) - plan.issued)))
        if save:
            plan = Plan.load_state_dict(case.mixture(), json.loads(json.dumps(plan.state_dict())), add=joined)
        added = [Source(f"new{number}", rows=5 + number, lengths=lengths(5 + number, number))] if joins else []
        joined += added
        with contextlib.suppress(PlanError):
            plan.update(weights[: len(plan.names) + len(added)], add=added, reason=str(number))
        if number == 2:
            done.append(plan)
            try:
                plan = plan.next_epoch()
            except PlanError:
                return done
    return [*done, plan]


def first_held(plan: Plan) -> int:
    """Return the first position a plan still holds after a resume."""
    return max(0, plan._epoch.stream.first - plan._epoch.offset)


def padded(*weights: float) -> list[float]:
    return [*weights, *[0.0] * (12 - len(weights))]


# A stage cuts a window in which, a slot later, a source would have been used up; an update comes at its position.
CUT_BEFORE_EXHAUSTION = Case(
    settings={
        "exhaustion": "renormalize",
        "control_interval": 1,
        "seed": 1,
        "unit": "tokens",
        "stages": [Stage(33, dict(zip([f"s{k}" for k in range(5)], [0, 0, 0, 0, 1], strict=True)))],
    },
    sizes=[20, 64, 11, 1, 1],
    weights=[0.0, 1e-300, 1e-9, 0.0, 0.0],
    caps=[None] * 5,
    updates=[
        (0.25, padded(7, 0, 0, 0, 0, 1), True),
        (0.5, padded(0, 0.3, 0, 0, 0, 0.01), False),
        (0.5, padded(0, 1), False),
    ],
)


@given(cases())
@example(CUT_BEFORE_EXHAUSTION)
@settings(max_examples=120)
def test_the_order_does_not_depend_on_how_it_is_looked_at_or_saved(case: Case) -> None:
    plain, looked, saved = (
        play(case, look=look, save=save) for look, save in [(False, False), (True, False), (True, True)]
    )
    assert len(plain) == len(looked) == len(saved)
    for one, two, three in zip(plain, looked, saved, strict=True):
        assert len(one) == len(two) == len(three)
        assert one.plan_hash == two.plan_hash == three.plan_hash
        assert one.schedule_hash() == two.schedule_hash()
        start = min(first_held(three), len(three))
        assert one.schedule_hash(start) == three.schedule_hash(start)


@given(cases())
@settings(max_examples=120)
def test_counts_stay_within_the_certificate(case: Case) -> None:
    for plan in play(case, look=False, save=False):
        report, draws = plan.summary(), plan.draws(0, len(plan))
        stream, offset = plan._epoch.stream, plan._epoch.offset
        position = 0
        while position < len(plan):
            source = draws.source[:position]
            assert plan.counts(position).tolist() == np.bincount(source, minlength=len(plan.names)).tolist()
            assert np.abs(plan.counts(position) - plan.work(position)).max() <= report["bound"] + 1e-6
            first, end = stream.core.window(offset + position)
            assert first == offset + position
            middle = position + (end - first) // 2
            assert np.abs(plan.counts(middle) - plan.work(middle)).max() <= report["bound_any_position"] + 1e-6
            position = end - offset
        assert position == len(plan)


@given(cases())
@settings(max_examples=60)
def test_every_cycle_is_a_permutation_and_caps_hold(case: Case) -> None:
    plans = play(case, look=False, save=False)
    streams = [plans] if case.settings["exhaustion"] == "cycle" else [[plan] for plan in plans]
    for stream in streams:
        parts = [plan.draws(0, len(plan)) for plan in stream]
        for k, source in enumerate(stream[-1].sources):
            rows = np.concatenate([part.row[part.source == k] for part in parts])
            cycles = np.concatenate([part.cycle[part.source == k] for part in parts])
            assert cycles.tolist() == [i // source.rows for i in range(len(rows))]
            assert len(rows) <= source.cap(stream[0].mixture.exhaustion)
            for cycle in range(int(cycles.max(initial=-1)) + 1):
                seen = rows[cycles == cycle].tolist()
                assert len(set(seen)) == len(seen)
                assert max(seen) < source.rows


@given(cases())
@settings(max_examples=60)
def test_a_refused_update_changes_nothing(case: Case) -> None:
    plan = play(case, look=False, save=False)[-1]
    before = plan.state_dict(), plan.schedule_hash(), plan.names
    bad: list[dict[str, Any]] = [
        {"weights": [0.0] * len(plan.names)},
        {"weights": [1.0] * len(plan.names), "at": len(plan) + 1},
        {"weights": [1.0] * (len(plan.names) + 1)},
        {"weights": [1.0] * (len(plan.names) + 1), "add": [Source("s0", rows=1)]},
        {"weights": [float("nan")] * len(plan.names)},
    ]
    if plan.issued:
        bad.append({"weights": [1.0] * len(plan.names), "at": plan.issued - 1})
    for arguments in bad:
        with pytest.raises(PlanError):
            plan.update(**arguments)
    assert (plan.state_dict(), plan.schedule_hash(), plan.names) == before


@pytest.mark.parametrize("sources", [3, 40])
def test_the_certificate_does_not_grow_with_time(sources: int) -> None:
    rng = np.random.default_rng(sources)
    plan = Mixture([Source(f"s{k}", rows=1000) for k in range(sources)], samples_per_epoch=2**40, window=8).plan()
    bounds = []
    for position in range(0, 160_000, 80):
        weights = rng.random(sources) * (rng.random(sources) < 0.7)
        weights[int(rng.integers(sources))] += 0.1
        plan.update(weights, at=position)
        if position in (20_000, 159_920):
            plan.counts(position + 80)
            bounds.append(plan._epoch.stream.core.bound)
    assert bounds[1] <= 1.6 * bounds[0]
    end = 160_000
    assert np.abs(plan.counts(end) - plan.work(end)).max() <= bounds[1]
