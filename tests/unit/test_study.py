"""Studies: every run is made once, whoever is killed; the answer is the same for any number of workers."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee.errors import CuveeError, MixtureError, StateError
from cuvee.search import search
from cuvee.search.launch import Desk, run_search
from cuvee.search.neighbours import Heart, Neighbours, identity, place
from cuvee.search.plan import SearchPlan
from cuvee.search.receipt import RECOMMENDED, UNIFORM, Receipt
from cuvee.search.rounds import audit_seeds_of, round_size_of
from cuvee.search.space import Space
from cuvee.search.storage import open_storage
from cuvee.search.study import Study, Timing
from cuvee.search.trials import Planned, Slot
from quadratic import BEST, NAMES, Breaking, Noting, bowl, noise
from searches import work_in_threads

LOSSES = np.array([1.0, 2.0, 3.0])
QUICK = Timing(beat=0.05, grace=0.5)


def plan_of(score: Callable[..., dict[str, float]] = bowl, *, budget: int = 16, **settings) -> SearchPlan:
    settings.setdefault("method", "bandit")
    settings.setdefault("round_size", 4)
    return SearchPlan(score=score, space=Space(NAMES), budget=budget, **settings)


@pytest.fixture(params=["sqlite", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"sqlite": f"sqlite:///{tmp_path}/study.db", "journal": f"journal:{tmp_path}/study.log"}[request.param]


def study_of(plan: SearchPlan, storage: str, worker: str | None = None) -> Study:
    """Return a study as a worker of that name sees it."""
    study = plan.open(storage, "test", QUICK)
    if worker is not None:
        study.worker = f"{place()}/{worker}"
    return study


def without_workers(receipt: Receipt) -> Receipt:
    """Return a receipt without what may differ from one repeat to the next: who ran what, and how fast."""
    return replace(receipt, runs=tuple(replace(run, worker="", seconds=0.0) for run in receipt.runs))


def test_a_search_finds_the_bottom_of_a_bowl(tmp_path: Path) -> None:
    receipt = search(bowl, NAMES, budget=40, method="bandit", storage=f"{tmp_path}/study.log")
    assert math.dist(receipt.weights, BEST) < 0.2
    assert receipt.audit_runs == 6
    assert receipt.spent == receipt.search_runs + 6 <= 40
    assert [one.other for one in receipt.comparisons] == [UNIFORM]
    assert receipt.comparisons[0].better
    assert not {seed for seeds in receipt.audit_seeds for seed in seeds} & {0, 999_000}
    assert all(
        low <= share <= high for low, share, high in zip(receipt.low, receipt.weights, receipt.high, strict=True)
    )


def test_a_mixture_that_is_no_better_says_so() -> None:
    receipt = search(noise, NAMES, budget=36, method="bandit", seed=3)
    assert "not better than uniform beyond noise" in receipt.verdict or "is the uniform one" in receipt.remarks[0]


def test_a_mixture_that_is_asked_for_again_is_not_run_again(tmp_path: Path) -> None:
    receipt = search(Noting(tmp_path / "runs"), NAMES, budget=60, method="bandit", audit_seeds=1)
    runs = (tmp_path / "runs").read_text().splitlines()
    assert max(Counter(runs).values()) == 1
    assert len(runs) == receipt.spent < 60  # the lattice has no more mixtures, and the search ends


def test_the_proportional_mixture_is_audited_where_rows_are_known() -> None:
    receipt = search(bowl, NAMES, budget=24, method="bandit", rows=(5.0, 3.0, 2.0))
    arms = Counter(run.arm for run in receipt.of_kind("audit"))
    assert arms == {RECOMMENDED: 2, UNIFORM: 2, "proportional": 2}
    assert not receipt.comparisons[1].better  # nothing is better than the bottom


def test_the_answer_is_the_same_in_every_storage_and_with_any_number_of_workers(storage: str) -> None:
    plan = plan_of()
    alone = run_search(plan, Desk(storage=f"{storage}.1", study="test", timing=QUICK))
    work_in_threads([study_of(plan, storage, str(n)) for n in range(3)], plan.evaluate)
    together = run_search(plan, Desk(storage=storage, study="test", timing=QUICK))
    assert without_workers(together) == without_workers(alone)


def test_a_finished_study_is_not_worked_on_again(storage: str, tmp_path: Path) -> None:
    plan = plan_of(Noting(tmp_path / "runs"))
    first = run_search(plan, Desk(storage=storage, study="test"))
    assert run_search(plan, Desk(storage=storage, study="test")) == first
    lines = (tmp_path / "runs").read_text().splitlines()
    assert len(lines) == first.spent


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the card fell off")])
def test_an_interrupted_study_goes_on_and_loses_one_run(storage: str, error: BaseException, tmp_path: Path) -> None:
    whole = run_search(plan_of(), Desk(storage=f"{storage}.1", study="test"))
    with pytest.raises(type(error)):
        run_search(plan_of(Breaking(6, error)), Desk(storage=storage, study="test"))
    slots = study_of(plan_of(), storage).slots()
    done = [slot for slot in slots if slot.state == "done" and not slot.planned.known]
    assert len(done) == 5
    rest = plan_of(Noting(tmp_path / "runs"))
    assert without_workers(run_search(rest, Desk(storage=storage, study="test"))) == without_workers(whole)
    assert len((tmp_path / "runs").read_text().splitlines()) == whole.spent - 5


def test_a_worker_that_is_stopped_between_a_claim_and_its_run_gives_it_back(storage: str) -> None:
    plan = plan_of()
    study = study_of(plan, storage)
    write = study.write

    def stopped(key: str, value: dict[str, object]) -> None:
        if value.get("busy") and threading.current_thread() is threading.main_thread():  # where a signal is heard
            raise SystemExit(143)  # a run is claimed, and not yet made
        write(key, value)

    study.write = stopped
    with pytest.raises(SystemExit):
        study.work(plan.evaluate)
    slots = study_of(plan, storage).slots()
    assert slots == [] or all(slot.state == "waiting" for slot in slots)
    assert any(trial.state.name == "FAIL" for trial in study.trials._read())


def test_a_run_is_claimed_by_one_of_many(storage: str) -> None:
    plan = plan_of(budget=64, round_size=8)
    first = study_of(plan, storage)
    first.trials.plan(plan.course.due([]))
    slots, claimed = first.slots(), list[int]()
    barrier = threading.Barrier(4)

    def claim_all(worker: int) -> None:
        study = study_of(plan, storage, str(worker))  # with connections of its own
        barrier.wait()
        for slot in random.Random(worker).sample(slots, len(slots)):
            if study.trials.claim(slot, study.worker):
                claimed.append(slot.planned.number)

    threads = [threading.Thread(target=claim_all, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == [slot.planned.number for slot in slots]
    assert {slot.state for slot in first.slots()} == {"running"}


def test_a_run_that_was_planned_twice_is_made_once(storage: str) -> None:
    plan = plan_of()
    study, due = study_of(plan, storage), plan.course.due([])
    study.trials.plan(due)
    study.trials.plan(due)  # as another would who does not see the first yet
    slots = study.slots()
    assert [slot.planned for slot in slots] == due
    twin = replace(slots[0], trial=slots[0].trial + len(due))
    assert not study.trials.claim(twin, "another")
    assert study.trials.claim(slots[0], "one")
    assert study.trials.finish(slots[0], LOSSES, seconds=0.1)
    assert study.slots()[0].state == "done"


def test_what_comes_after_a_run_was_given_up_does_not_count(storage: str) -> None:
    plan = plan_of()
    study = study_of(plan, storage)
    study.trials.plan(plan.course.due([]))
    slot = study.slots()[0]
    assert study.trials.claim(slot, "slow")
    assert study.trials.drop(slot, "taken for gone")
    assert not study.trials.drop(slot, "again")
    assert not study.trials.finish(slot, LOSSES, seconds=0.1)
    assert [plan.number for plan in study.trials.dropped()] == [0]
    assert [due.number for due in plan.course.due(study.slots(), study.trials.dropped())] == [0]


def test_runs_of_a_worker_that_is_gone_are_made_by_others(storage: str) -> None:
    plan = plan_of()
    dead = study_of(plan, storage, "999999999/1")  # there is no such process
    with Heart(dead.write, dead.worker, every=60):
        dead.trials.plan(plan.course.due([]))
        assert dead.trials.claim(dead.slots()[0], dead.worker)
        receipt = run_search(plan, Desk(storage=storage, study="test", timing=QUICK))
    assert {run.worker for run in receipt.runs} == {identity()}
    assert 6 < receipt.search_runs <= 14


def test_a_worker_elsewhere_is_gone_when_its_signs_stop() -> None:
    signs = {"worker moon/1/5": {"beat": 1, "busy": True, "gone": False}, "settings": {}}
    neighbours = Neighbours(lambda: signs, grace=0.1)
    assert neighbours.alive() == {"moon/1/5": True}
    time.sleep(0.15)
    assert neighbours.alive() == {}
    signs["worker moon/1/5"] = {"beat": 2, "busy": False, "gone": False}
    assert neighbours.alive() == {"moon/1/5": False}
    signs["worker moon/1/5"] = {"beat": 3, "busy": False, "gone": True}
    assert neighbours.alive() == {}


def test_a_worker_here_is_gone_with_its_process() -> None:
    here = identity()
    other_life = here.rpartition("/")[0] + "/1"  # the same number, another process
    signs = {f"worker {worker}": {"beat": 1, "busy": False, "gone": False} for worker in (here, other_life)}
    assert Neighbours(lambda: signs).alive() == {here: False}


def test_a_run_between_claim_and_name_is_waited_for_and_then_made_again(storage: str) -> None:
    import optuna

    plan = plan_of()
    study = study_of(plan, storage)
    study.trials.plan(plan.course.due([]))
    kept, first = open_storage(storage), study.slots()[0].trial
    number = kept.get_trial_id_from_study_id_trial_number(kept.get_study_id_from_name("test"), first)
    assert kept.set_trial_state_values(number, optuna.trial.TrialState.RUNNING)
    assert run_search(plan, Desk(storage=storage, study="test", timing=QUICK)).search_runs > 6


@given(seed=st.integers(0, 2**32 - 1), workers=st.integers(1, 5))
def test_any_order_of_finishing_and_dropping_leads_to_the_same_runs(seed: int, workers: int) -> None:
    chance, course = random.Random(seed), plan_of(budget=12).course
    slots, dropped = dict[tuple[str, int], Slot](), list[Planned]()
    for _ in range(10_000):
        due = course.due(list(slots.values()), dropped)
        for planned in due[: chance.randint(0, len(due))] if chance.random() < 0.3 else due:
            slots[planned.kind, planned.number] = slot_of(planned)
        waiting = [key for key, slot in slots.items() if slot.state == "waiting"]
        for key in chance.sample(waiting, min(workers, len(waiting))):
            if chance.random() < 0.2:
                dropped.append(slots.pop(key).planned)
            else:
                slots[key] = done(slots[key])
        if course.finished(list(slots.values())):
            break
    assert [slots[key].planned for key in sorted(slots)] == undisturbed(course)


def slot_of(planned: Planned) -> Slot:
    return Slot(planned=planned, trial=0, state="waiting", worker="", losses=(), seconds=0.0)


def done(slot: Slot) -> Slot:
    plan = slot.planned
    losses = bowl(dict(zip(NAMES, plan.weights, strict=True)), plan.fidelity, plan.training_seed)
    return replace(slot, state="done", losses=tuple(losses.values()))


def undisturbed(course) -> list[Planned]:
    slots: dict[tuple[str, int], Slot] = {}
    while not course.finished(list(slots.values())):
        for planned in course.due(list(slots.values())):
            slots[planned.kind, planned.number] = done(slot_of(planned))
    return [slots[key].planned for key in sorted(slots)]


def make_one(study: Study) -> None:
    """Plan the first round and make its first run."""
    study.trials.plan(study.course.due(study.slots()))
    assert study.trials.claim(study.slots()[0], study.worker)
    assert study.trials.finish(study.slots()[0], LOSSES, seconds=0.1)


def test_rounds_and_audits_follow_the_budget() -> None:
    assert [round_size_of(budget) for budget in (2, 10, 24, 64, 1000)] == [1, 1, 3, 8, 8]
    assert [audit_seeds_of(budget) for budget in (2, 10, 24, 64, 1000)] == [1, 1, 2, 5, 8]


def test_groups_are_runs_of_one_fidelity_and_their_heads_come_first(tmp_path: Path) -> None:
    due = plan_of(budget=64, round_size=8, group_size=3).course.due([])
    assert [plan.group for plan in due] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert {(plan.first, plan.of, plan.round) for plan in due} == {(0, 8, 0)}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"method": "doe"}, 'method of study \'test\' must be "bandit", as it was begun with, but got "doe"'),
        ({"budget": 20}, "budget of study 'test' must be 16, as it was begun with, but got 20"),
        ({"seed": 1}, "seed of study 'test' must be 0"),
        ({"about": {"fingerprint": "f"}}, "fingerprint of study 'test' must be null, as it was begun with, but got"),
        ({"targets": {"a": 1.0, "b": 1.0, "c": 2.0}}, "targets of study 'test' must be"),
        ({"audit_seeds": 2}, "audit seeds of study 'test' must be 1"),
    ],
)
def test_a_study_goes_on_only_with_its_settings(storage: str, changed: dict, says: str) -> None:
    study = study_of(plan_of(), storage)
    make_one(study)
    with pytest.raises(StateError) as caught:
        plan_of(**changed).open(storage, "test")
    assert says in str(caught.value)
    assert "give the search another --study" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("study", "--storage must be sqlite:///FILE.db, FILE.db, journal:FILE, FILE.log, or postgresql://USER@HOST"),
        ("http://host/study", "but got 'http://host/study'"),
        ("sqlite:////proc/none/study.db", "--storage must be a storage that can be opened, but got 'sqlite:////proc"),
        ("postgresql+nothing://host/db", "--storage must be a storage that can be opened, but got 'postgresql+not"),
    ],
)
def test_what_is_no_storage_is_refused(url: str, says: str) -> None:
    with pytest.raises(CuveeError) as caught:
        open_storage(url)
    assert says in str(caught.value)


def test_a_file_that_is_no_database_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("this is not a database, however long it is " * 100)
    began = time.monotonic()
    with pytest.raises(CuveeError, match="--storage must be a storage that can be opened"):
        open_storage(str(tmp_path / "study.db"))
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ({"a": 1.0, "b": 2.0}, "score must return a loss of 'c'"),
        ({"a": 1.0, "b": 2.0, "c": "nan"}, "loss of 'c' must be a finite number, but got 'nan'"),
        ([1.0, 2.0, 3.0], "score must return a mapping of losses by name"),
    ],
)
def test_scores_that_are_none_are_told(losses: object, says: str) -> None:
    with pytest.raises(MixtureError, match=says):
        search(lambda weights, budget, seed: losses, NAMES, budget=8, method="bandit")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"budget": 1}, "budget must be an integer in [2, 1000000), but got 1"),
        ({"budget": 3, "audit_seeds": 2}, "budget must leave a run for the search beside 4 of the audit, but got 3"),
        ({"method": "bandits"}, "method must be one of"),
        ({"seed": -1}, "seed must be an integer in [0, 2**32), but got -1"),
        ({"targets": {"a": -1.0}}, "weight of target 'a' must be a finite number and at least 0, but got -1.0"),
        ({"targets": {"a": 0.0}}, "targets must not all have weight 0"),
        ({"round_size": 0}, "round_size must be an integer in [1"),
    ],
)
def test_settings_that_are_out_of_range_are_told(settings: dict, says: str) -> None:
    with pytest.raises(MixtureError) as caught:
        plan_of(**settings)
    assert says in str(caught.value)


def test_targets_are_the_losses_that_count(tmp_path: Path) -> None:
    receipt = search(bowl, NAMES, budget=24, method="bandit", targets={"a": 1.0})
    assert receipt.targets == ("a",)
    assert abs(receipt.weights[0] - BEST[0]) < 0.2


def test_progress_is_told_while_runs_are_made() -> None:
    seen: list[int] = []

    def watch(slots: Sequence[Slot]) -> None:
        seen.append(sum(slot.state == "done" for slot in slots))

    search(bowl, NAMES, budget=8, method="bandit", watch=watch)
    assert seen[0] == 0
    assert seen[-1] >= 8
    assert seen == sorted(seen)
