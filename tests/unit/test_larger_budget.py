"""A larger budget goes on with a study: what was made is kept, and a new audit under fresh seeds decides."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cuvee.errors import CuveeError, MixtureError, StateError
from cuvee.search import Receipt, search
from cuvee.search.launch import Desk, run_search
from cuvee.search.neighbours import place
from cuvee.search.plan import SearchPlan
from cuvee.search.receipt import RECOMMENDED
from cuvee.search.rounds import audit_seeds_of
from cuvee.search.space import Space
from cuvee.search.study import Timing
from quadratic import NAMES, Breaking, Noting, bowl
from searches import work_in_threads

QUICK = Timing(beat=0.05, grace=0.5)


def plan_of(budget: int, score: Any = bowl, **settings: Any) -> SearchPlan:
    given = {"method": "bandit", "seed": 1}
    return SearchPlan(score=score, space=Space(NAMES), budget=budget, **given | settings)


@pytest.fixture(params=["sqlite", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"sqlite": f"sqlite:///{tmp_path}/study.db", "journal": f"journal:{tmp_path}/study.log"}[request.param]


def run(plan: SearchPlan, storage: str) -> Receipt:
    return run_search(plan, Desk(storage=storage, study="test", timing=QUICK))


def bare(receipt: Receipt) -> dict[str, Any]:
    document = json.loads(receipt.to_json())
    for each in document["runs"]:
        del each["worker"], each["seconds"]
    del document["summary"]["seconds"]
    return document


def test_a_larger_budget_keeps_what_was_made_and_audits_anew(storage: str, tmp_path: Path) -> None:
    first = run(plan_of(16, Noting(tmp_path / "runs")), storage)
    second = run(plan_of(40, Noting(tmp_path / "runs")), storage)
    lines = (tmp_path / "runs").read_text().splitlines()
    assert len(set(lines)) == len(lines) == second.spent == len(second.runs)
    searched = [run.weights for run in second.of_kind("search")]
    assert searched[: first.search_runs] == [run.weights for run in first.of_kind("search")]
    assert first.spent < second.spent <= 40
    assert second.search_runs > first.search_runs
    earlier = list(second.of_kind("earlier audit"))
    assert [each.weights for each in earlier] == [each.weights for each in first.of_kind("audit")]
    assert {(each.training_seed, each.evaluation_seed) for each in earlier} == set(first.audit_seeds)
    assert len(second.audit_seeds) == audit_seeds_of(40) == 3
    assert not set(second.audit_seeds) & {*first.audit_seeds, *second.selection_seeds}
    assert {each.weights for each in second.of_kind("audit", RECOMMENDED)} == {second.weights}
    assert second.comparisons[0].pairs == 3
    assert f"{len(earlier)} runs are of the audit at a budget of 16" in second.remarks[0]
    assert Receipt.from_document(json.loads(second.to_json())).to_json() == second.to_json()
    again = run(plan_of(40, Noting(tmp_path / "runs")), storage)
    assert again == second
    assert len((tmp_path / "runs").read_text().splitlines()) == second.spent


@pytest.mark.parametrize("left", [1, 2, 5, 8])  # the last two are of the audit
def test_when_it_was_stopped_and_raised_changes_nothing(left: int, storage: str, tmp_path: Path) -> None:
    after = round(run(plan_of(16), f"{storage}.whole").spent) - left
    whole = run(plan_of(24), f"{storage}.whole")
    with pytest.raises(KeyboardInterrupt):
        run(plan_of(16, Breaking(after + 1, KeyboardInterrupt())), storage)
    with pytest.raises(KeyboardInterrupt):
        run(plan_of(24, Breaking(3, KeyboardInterrupt())), storage)
    assert bare(run(plan_of(24, Noting(tmp_path / "runs")), storage)) == bare(whole)
    again = len((tmp_path / "runs").read_text().splitlines()) - (whole.spent - after - 2)
    assert again == (left == 1)  # the runs of an audit under one seed are a batch, whose first was lost as well


def test_any_number_of_workers_goes_on_alike(storage: str) -> None:
    for budget in (16, 28, 44):
        alone = run(plan_of(budget), f"{storage}.1")
    run(plan_of(16), storage)
    for budget in (28, 44):
        plan = plan_of(budget).at(storage, "test")
        studies = [plan.open(storage, "test", QUICK) for _ in range(3)]
        for number, study in enumerate(studies):
            study.worker = f"{place()}/{number}"
        work_in_threads(studies, plan.evaluate)
    together = run(plan_of(44), storage)
    assert bare(together) == bare(alone)
    assert "a budget of 16 and 28" in together.remarks[0]
    seeds = [each.training_seed for each in together.runs if each.kind != "search" and each.arm == RECOMMENDED]
    assert len(set(seeds)) == len(seeds) == 1 + 2 + 3


def test_rounds_stay_as_they_were_begun(storage: str) -> None:
    run(plan_of(16), storage)
    run(plan_of(64), storage)
    slots = plan_of(64).at(storage, "test").open(storage, "test").slots()
    assert max(slot.planned.of for slot in slots if slot.planned.kind == "search") == 2


@pytest.mark.parametrize("method", ["auto", "doe", "doremi"])
def test_other_methods_go_on(method: str, tmp_path: Path) -> None:
    storage, given = f"{tmp_path}/study.log", {"method": method, "audit_seeds": 1, "round_size": 3}
    first, second = run(plan_of(8, **given), storage), run(plan_of(14, **given), storage)
    assert first.spent < second.spent <= 14
    assert [each.losses for each in second.of_kind("search")][: first.search_runs] == [
        each.losses for each in first.of_kind("search")
    ]


def test_a_smaller_budget_is_refused_with_the_cure(storage: str) -> None:
    run(plan_of(16), storage)
    with pytest.raises(StateError) as caught:
        run(plan_of(12), storage)
    says = "budget of study 'test' must be 16, as it was begun with, or more, but got 12; give so much and begin again"
    assert says in str(caught.value)
    run(plan_of(30), storage)
    for budget in (16, 29):
        with pytest.raises(StateError, match=f"must be 30, as it was raised to, or more, but got {budget}; give so"):
            run(plan_of(budget), storage)


def test_other_options_are_refused_whatever_the_budget(storage: str) -> None:
    run(plan_of(16), storage)
    with pytest.raises(StateError, match="seed of study 'test' must be 1, as it was begun with, but got 2"):
        run(plan_of(32, seed=2), storage)
    with pytest.raises(StateError, match="audit seeds of study 'test' must be 1, as it was begun with, but got 2"):
        run(plan_of(32, audit_seeds=2), storage)
    with pytest.raises(StateError, match="of study 'test' must be 16, as it was begun with, but got 32"):
        run(plan_of(32, audit_seeds=9), storage)  # which is too many for 16 runs
    assert run(plan_of(16), storage).audit_runs == 2


def test_a_budget_that_leaves_no_run_is_refused_and_changes_nothing(storage: str) -> None:
    before = run(plan_of(16), storage)
    with pytest.raises(MixtureError) as caught:
        run(plan_of(17), storage)
    says = (
        "budget must leave a run for the search beside 2 of the audit and 16 that it had before, but got 17; give at "
    )
    assert f"{says}least 19" in str(caught.value)
    assert run(plan_of(16), storage) == before
    assert run(plan_of(19), storage).spent == 19


def test_a_worker_at_the_old_budget_is_told(storage: str) -> None:
    plan = plan_of(16)
    study = plan.open(storage, "test", QUICK)
    study.trials.plan(plan.course.due([]))
    (slot, *_) = study.slots()
    assert study.trials.claim(slot, study.worker)
    assert study.trials.finish(slot, plan.evaluate(*[[slot.planned.weights]], fidelity=1.0, training_seed=1,
                                                   evaluation_seed=0)[0], seconds=0.0)  # fmt: skip
    raised = plan_of(32).at(storage, "test")
    assert raised.earlier == (16,)
    with pytest.raises(StateError, match="must be 32, as it was raised to, or more, but got 16"):
        study.work(plan.evaluate)
    other = plan_of(24)
    with pytest.raises(StateError, match="must be 32, as it was raised to, or more, but got 24"):
        other.at(storage, "test")
    assert run(plan_of(32), storage).spent <= 32


def test_runs_that_diverged_stay_so(storage: str) -> None:
    def score(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        losses = bowl(weights, budget, seed)
        return losses | {"b": math.nan} if weights["a"] > 0.45 else losses

    first = run(plan_of(16, score, round_size=4), storage)
    second = run(plan_of(32, score, round_size=4), storage)
    assert 0 < first.diverged <= second.diverged
    bad = [each.diverged for each in second.of_kind("search")]
    assert bad[: first.search_runs] == [each.diverged for each in first.of_kind("search")]


def test_a_search_without_a_storage_has_one_budget() -> None:
    assert search(bowl, NAMES, 16, method="bandit").spent <= 16
    with pytest.raises(CuveeError, match="budget must leave a run"):
        search(bowl, NAMES, 3, method="bandit", audit_seeds=2)
