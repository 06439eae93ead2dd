"""A run with online mixing is one run: however its rows are dealt, fetched ahead, and whenever it is killed."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import online_runs as runs

MIXES = {
    "cycle": {},
    "filtered": {"max_length": 4},
    "stop": {"exhaustion": "stop", "samples_per_epoch": None},
    "renormalize": {"exhaustion": "renormalize", "samples_per_epoch": None, "max_length": 8},
    "all seen": {"samples_per_epoch": "all_seen"},
    "tokens": {"unit": "tokens", "control_interval": 64},
}
STEPS = 70
pytestmark = pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning")


def names() -> st.SearchStrategy[str]:
    return st.sampled_from(list(MIXES))


@cache
def whole(name: str, bandit: str) -> dict:
    run = runs.train(runs.begin(runs.mixture(**MIXES[name]), bandit=bandit), STEPS)
    return {**runs.outcome(run), "rows": run.rows}


@pytest.mark.parametrize("name", MIXES)
def test_weights_move_and_every_epoch_follows_them(name: str) -> None:
    found = whole(name, "exp3")
    plain = runs.mixture(**MIXES[name]).plan()
    assert len(found["decisions"]) == STEPS // runs.INTERVAL
    assert found["schedule_hash"] != plain.schedule_hash()
    assert len({decision["epoch"] for decision in found["decisions"]}) > 1


@settings(max_examples=25, deadline=None)
@given(
    name=names(),
    bandit=st.sampled_from(["exp3", "exp3_bounded", "odm", "doremi"]),
    micro_batches=st.sampled_from([1, 2, 4, 8]),
    fetched=st.integers(0, runs.LAG),
)
def test_micro_batches_and_fetching_ahead_change_nothing(name, bandit, micro_batches, fetched) -> None:
    run = runs.begin(runs.mixture(**MIXES[name]), bandit=bandit, micro_batches=micro_batches)
    runs.train(run, STEPS, fetched=fetched)
    assert {**runs.outcome(run), "rows": run.rows} == whole(name, bandit)


@settings(max_examples=25, deadline=None)
@given(
    name=names(),
    stops=st.lists(st.integers(1, STEPS - 1), max_size=3),
    fetched=st.integers(0, runs.LAG),
)
def test_a_run_killed_and_resumed_anywhere_is_the_same(name, stops, fetched) -> None:
    run = runs.begin(runs.mixture(**MIXES[name]), bandit="exp3_bounded")
    for stop in sorted(stops):
        run = runs.resumed(runs.train(run, stop, fetched=fetched))
    runs.train(run, STEPS, fetched=fetched)
    assert {**runs.outcome(run), "rows": run.rows} == whole(name, "exp3_bounded")
