"""Settings of a study: others may take their place until a run was made, and one of two that race is refused."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee.errors import StateError
from cuvee.search import search
from cuvee.search.launch import Desk, run_search
from cuvee.search.neighbours import Heart, identity
from cuvee.search.plan import SearchPlan
from cuvee.search.space import Space
from cuvee.search.storage import open_storage
from cuvee.search.study import Study, Timing
from cuvee.search.terms import MADE, SETTINGS, in_force
from quadratic import NAMES, Noting, bowl

QUICK = Timing(beat=0.05, grace=0.5)
REFUSED = "seed of study 'test' must be {}, as it was begun with, but got {}; give the search another --study"


def plan_of(seed: int = 0, score: Any = bowl, **settings: Any) -> SearchPlan:
    given = {"budget": 16, "method": "bandit", "round_size": 4}
    return SearchPlan(score=score, space=Space(NAMES), seed=seed, **given | settings)


@pytest.fixture(params=["sqlite", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"sqlite": f"sqlite:///{tmp_path}/study.db", "journal": f"journal:{tmp_path}/study.log"}[request.param]


def opened(seed: int, storage: str) -> Study:
    return plan_of(seed).open(storage, "test", QUICK)


def planned(study: Study) -> Study:
    study.trials.plan(study.course.due(study.slots(), study.trials.dropped()))
    return study


def refused(kept: int, given: int) -> Any:
    return pytest.raises(StateError, match=REFUSED.format(kept, given))


def states(storage: str) -> list[str]:
    kept = open_storage(storage)
    return [trial.state.name for trial in kept.get_all_trials(kept.get_study_id_from_name("test")) if trial.params]


def test_a_study_without_a_run_takes_other_settings(storage: str, tmp_path: Path) -> None:
    old = planned(opened(0, storage))
    assert {slot.planned.training_seed for slot in old.slots()} == {0}
    new = opened(1, storage)
    assert new.slots() == []
    assert new.trials.dropped() == []
    assert set(states(storage)) == {"FAIL"}  # nothing of the old is left to be claimed
    with refused(1, 0):
        old.slots()
    plan = plan_of(1, Noting(tmp_path / "runs"))
    receipt = run_search(plan, Desk(storage=storage, study="test", timing=QUICK))
    assert {run.training_seed for run in receipt.of_kind("search")} == {1}
    assert len((tmp_path / "runs").read_text().splitlines()) == receipt.spent
    assert [run.weights for run in receipt.runs] == [
        run.weights for run in search(bowl, NAMES, 16, method="bandit", round_size=4, seed=1).runs
    ]


def test_a_study_with_a_run_keeps_its_settings(storage: str) -> None:
    study = planned(opened(0, storage))
    (first, second, *_) = study.slots()
    assert study.trials.claim(first, study.worker)
    assert study.trials.finish(first, np.ones(3), seconds=0.1)
    with refused(0, 1):
        opened(1, storage)
    assert opened(0, storage).slots()[0].state == "done"
    assert study.trials.claim(second, study.worker)


def test_a_run_that_failed_was_not_made(storage: str) -> None:
    def wrong(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_search(plan_of(0, wrong), Desk(storage=storage, study="test", timing=QUICK))
    receipt = run_search(plan_of(1), Desk(storage=storage, study="test", timing=QUICK))
    assert receipt.selection_seeds == ((1, 999_000),)


def test_a_worker_that_is_alive_keeps_a_study(storage: str) -> None:
    study = opened(0, storage)
    with Heart(study.write, study.worker, every=60), refused(0, 1):
        opened(1, storage)
    other = opened(1, storage)  # it has left
    gone = identity().rpartition("/")[0] + "/1"  # killed: its number belongs to another process
    other.write(f"worker {gone}", {"beat": 1, "busy": True, "gone": False})
    assert opened(2, storage).slots() == []
    elsewhere = "moon/1/5"  # and may be alive
    other.write(f"worker {elsewhere}", {"beat": 1, "busy": True, "gone": False})
    with refused(2, 3):
        opened(3, storage)


def test_a_late_run_under_old_settings_does_not_count(storage: str) -> None:
    old = planned(opened(0, storage))
    slot = old.slots()[0]
    assert old.trials.claim(slot, "slow")
    new = planned(opened(1, storage))
    with refused(1, 0):
        old.trials.finish(slot, np.ones(3), seconds=0.1)
    with refused(1, 0):
        old.work(plan_of(0).evaluate)
    assert {slot.state for slot in new.slots()} == {"waiting"}
    assert "COMPLETE" not in states(storage)
    assert opened(2, storage).slots() == []  # nor does it fix the settings that it was not made under


def test_what_a_stale_worker_plans_is_nobodys(storage: str) -> None:
    old = opened(0, storage)
    due = old.course.due([])
    new = opened(1, storage)
    old.trials.plan(due)
    assert new.slots() == []
    assert opened(1, storage).slots() == []
    assert set(states(storage)) == {"FAIL"}


@pytest.mark.parametrize("repeat", range(3))
def test_of_two_that_race_one_is_refused(storage: str, tmp_path: Path, repeat: int) -> None:
    barrier, ended = threading.Barrier(2), dict[int, object]()

    def go(number: int) -> None:
        barrier.wait()
        try:
            study = opened(number, storage)
            study.worker = f"moon/{number}/1"
            study.work(plan_of(number, Noting(tmp_path / f"runs-{number}")).evaluate)
            ended[number] = None
        except StateError as error:
            ended[number] = error

    threads = [threading.Thread(target=go, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (seed,) = [number for number, error in ended.items() if error is None]
    assert REFUSED.format(seed, 1 - seed) in str(ended[1 - seed])
    receipt = run_search(plan_of(seed), Desk(storage=storage, study="test", timing=QUICK))
    assert receipt.selection_seeds == ((seed, 999_000),)
    assert len((tmp_path / f"runs-{seed}").read_text().splitlines()) == receipt.spent


WAITING = """
import sys, time
from cuvee.search import search

def score(weights, budget, seed):
    print("at it", flush=True)
    time.sleep(600)

search(score, ["a", "b", "c"], 16, method="bandit", round_size=4, storage=sys.argv[1], study="test")
"""


def test_a_worker_that_was_killed_at_its_first_run_leaves_a_study_without_one(storage: str) -> None:
    command = [sys.executable, "-c", WAITING, storage]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "at it\n"
        with refused(0, 1):
            opened(1, storage)
        one.send_signal(signal.SIGKILL)
    receipt = run_search(plan_of(1), Desk(storage=storage, study="test", timing=QUICK))
    assert receipt.selection_seeds == ((1, 999_000),)
    assert "RUNNING" not in states(storage)


@given(st.lists(st.sampled_from(["a", "b", "made"]), max_size=12), st.integers(0, 2**32))
def test_settings_that_a_run_was_made_under_stay_in_force(kinds: list[str], seed: int) -> None:
    chance, entries = random.Random(seed), list[Any]()
    fixed = None
    for number, kind in enumerate(kinds):
        known = [each.number for each in entries if SETTINGS in each.user_attrs] or [0]
        entry = {MADE: chance.choice(known)} if kind == "made" else {SETTINGS: {"kind": kind}}
        entries.append(SimpleNamespace(number=number, user_attrs=entry))
        terms = in_force(entries)
        assert (terms is None) == (not any(SETTINGS in each.user_attrs for each in entries))
        assert fixed is None or terms == fixed
        if terms is not None and terms.fixed:
            fixed = terms
        elif terms is not None and kind != "made":
            assert terms.settings == {"kind": kind}
