"""Runs that diverge: kept and paid for, told as bad as the worst of the others, and never recommended."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee.errors import CuveeError, StateError
from cuvee.search import Receipt, search
from cuvee.search.divergence import is_sound, with_losses
from cuvee.search.evidence import receipt_of
from cuvee.search.launch import Desk, run_search
from cuvee.search.methods import Observation, Recommendation, Trial
from cuvee.search.neighbours import place
from cuvee.search.plan import SearchPlan
from cuvee.search.receipt import FOUND, PROPORTIONAL, RECOMMENDED, UNIFORM, Comparison, Run
from cuvee.search.space import Space
from cuvee.search.study import Timing
from quadratic import NAMES, Noting, bowl
from searches import work_in_threads

QUICK = Timing(beat=0.05, grace=0.5)
NOT_FINITE = [math.nan, math.inf, -math.inf, 1e31, 10**400]


class Cliff:
    """A bowl over which trainings diverge in one loss, where the share of a domain is above a limit."""

    def __init__(self, value: float = math.nan, *, limit: float = 0.45, domain: str = "a") -> None:
        self.value, self.limit, self.domain = value, limit, domain

    def __call__(self, weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        losses = bowl(weights, budget, seed)
        return losses | {"b": self.value} if weights[self.domain] > self.limit else losses


class Steps:
    """A proxy of 100 steps whose losses fall with them, and are no numbers late in runs with much of `a`."""

    steps = 100

    def evaluate(self, weights: np.ndarray, *, fidelity: float, **seeds: int) -> np.ndarray:
        losses = np.stack([1 + (weights - 0.3)[:, place] ** 2 + fidelity**-0.5 for place in range(3)], axis=1)
        if fidelity in (0.5, 0.75):  # within the run alone: at its end all is well again
            losses[weights[:, 0] > 0.45] = np.nan
        return losses


def plan_of(score: Any, *, budget: int = 24, **settings: Any) -> SearchPlan:
    return SearchPlan(score=score, space=Space(NAMES), **{"budget": budget, "method": "bandit", **settings})


def strict(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt's JSON values without who ran what, which must be JSON to everybody."""
    document = json.loads(receipt.to_json(), parse_constant=pytest.fail)
    assert Receipt.from_document(document).to_json() == receipt.to_json()
    for run in document["runs"]:
        del run["worker"], run["seconds"]
    del document["summary"]["seconds"]
    return document


@pytest.mark.parametrize("method", ["auto", "bandit", "doe", "regmix"])
def test_a_search_goes_on_over_runs_that_diverge(method: str, tmp_path: Path) -> None:
    given = {"budget": 20, "method": method, "seed": 1, "audit_seeds": 2, "round_size": 4, "rows": (8.0, 1.0, 1.0)}
    score = Cliff()
    receipt = search(Noting(tmp_path / "runs", score), NAMES, **given)
    bad = [run for run in receipt.runs if run.diverged]
    sound = [run.losses for run in receipt.runs if not run.diverged and run.kind == "search"]
    assert bad
    assert receipt.spent == sum(run.fidelity for run in receipt.runs) <= 20
    assert len((tmp_path / "runs").read_text().splitlines()) == len(receipt.runs)
    for run in bad:
        assert math.isnan(run.measured[1])
        assert (
            run.measured[0] == score(dict(zip(NAMES, run.weights, strict=True)), run.fidelity, run.training_seed)["a"]
        )
        assert run.kind == "audit" or run.losses == tuple(np.max(sound, axis=0))
    assert receipt.weights not in {run.weights for run in bad if run.kind == "search"}
    counts = [sum(run.diverged for run in receipt.of_kind(kind)) for kind in ("search", "audit")]
    assert receipt.remarks[0].startswith(f"{counts[0]} of {receipt.search_runs} runs of the search")
    assert strict(receipt)["summary"]["diverged"] == sum(counts) == receipt.diverged


def test_doremi_goes_on_over_parts_of_runs_that_diverge() -> None:
    def score(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        losses = bowl(weights, budget, seed)
        return losses | {"b": math.nan} if budget == 0.25 else losses

    receipt = search(score, NAMES, budget=20, method="doremi", round_size=4)
    assert {run.fidelity for run in receipt.runs if run.diverged} == {0.25}
    assert sum(receipt.weights) == pytest.approx(1)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_whatever_is_no_loss_is_a_run_that_diverged(value: float) -> None:
    receipt = search(Cliff(value), NAMES, budget=16, method="bandit", round_size=4)
    other = search(Cliff(), NAMES, budget=16, method="bandit", round_size=4)
    assert [run.diverged for run in receipt.runs] == [run.diverged for run in other.runs]
    assert [run.losses for run in receipt.runs] == [run.losses for run in other.runs]
    own = [run["measured"][1] for run in strict(receipt)["runs"] if run["diverged"]]
    assert set(own) == ({value} if value == 1e31 else {None})


@pytest.mark.parametrize("storage", ["sqlite:///{}/study.db", "journal:{}/study.log"])
def test_any_number_of_workers_tells_the_same_in_their_place(storage: str, tmp_path: Path) -> None:
    plan = plan_of(Cliff(), round_size=6)
    alone = run_search(plan, Desk(storage=storage.format(tmp_path / "1"), study="test", timing=QUICK))
    desk = Desk(storage=storage.format(tmp_path / "3"), study="test", timing=QUICK)
    studies = [plan.open(desk.storage, desk.study, QUICK) for _ in range(3)]
    for number, study in enumerate(studies):
        study.worker = f"{place()}/{number}"
    work_in_threads(studies, plan.evaluate)
    together = run_search(plan, desk)
    assert alone.diverged
    assert strict(together) == strict(alone)


def run_of(number: int, *losses: float, kind: Any = "search", arm: str = "") -> Run:
    weights = (number / 10, 1 - number / 10)
    diverged = not is_sound(np.array(losses))
    return Run(number=number, kind=kind, arm=arm, weights=weights, losses=losses, training_seed=0, evaluation_seed=0,
               diverged=diverged)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, math.nan, math.inf]), st.floats(-5, 5)), min_size=1), st.randoms())
def test_what_stands_in_their_place_hangs_on_no_order(losses: list[tuple[float, float]], chance: random.Random) -> None:
    runs = [run_of(0, 1.5, 0.0), *(run_of(number, *each) for number, each in enumerate(losses, start=1))]
    told = {run.number: run for run in with_losses(runs, ["a", "b"])}
    sound = np.array([run.losses for run in runs if not run.diverged])
    for run in runs:
        assert told[run.number].losses == (tuple(sound.max(axis=0)) if run.diverged else run.losses)
        assert told[run.number].measured == (run.losses if run.diverged else ())
    audit = run_of(0, 9.0, 9.0, kind="audit", arm=RECOMMENDED)
    shuffled = [audit, *chance.sample(runs, len(runs))]
    assert {run.number: run for run in with_losses(shuffled, ["a", "b"])[1:]} == told


def test_a_run_of_the_audit_is_as_bad_as_any() -> None:
    runs = [run_of(0, 1.0, 4.0), run_of(1, 3.0, math.nan, kind="audit"), run_of(2, 2.0, 3.0, kind="audit")]
    assert with_losses(runs, ["a", "b"])[1].losses == (2.0, 4.0)


def always(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
    return {"a": 1.5, "b": math.nan, "c": 2.0}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_first_round_of_nothing_else_ends_the_search_and_keeps_it(workers: int, tmp_path: Path) -> None:
    storage = f"{tmp_path}/study.log"
    for _ in range(2):  # to call again makes no run
        with pytest.raises(CuveeError) as caught:
            search(Noting(tmp_path / "runs", always), NAMES, budget=16, method="bandit", round_size=3, storage=storage,
                   workers=workers)  # fmt: skip
        says = "losses must be finite in one run of the first round at least, but got 3 that diverged, the first with "
        assert f"{says}{{'a': 1.5, 'b': nan, 'c': 2.0}}; mend the score" in str(caught.value)
        assert "give the search another --study" in str(caught.value)
    assert len((tmp_path / "runs").read_text().splitlines()) == 3


class Stubborn:
    """A method that recommends the mixture of the run it was told last, whatever that brought."""

    name = "stubborn"

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def ask(self, n: int = 1) -> list[Trial]:
        raise NotImplementedError

    def tell(self, observations: Iterable[Observation]) -> None:
        self.seen += observations

    def recommend(self) -> Recommendation:
        return Recommendation(weights=self.seen[-1].trial.weights, mean=1.0, sd=0.1)


def test_a_mixture_that_diverged_is_not_recommended_though_the_method_would() -> None:
    course = replace(plan_of(bowl).course, make_method=lambda _: Stubborn(), targets={"a": 0.75, "b": 0.25})
    runs = [run_of(0, 2.0, 2.0), run_of(1, 1.0, 3.0), run_of(2, 3.0, 2.0), run_of(1, 1.0, math.nan)]
    part = replace(run_of(5, 0.0, 0.0), fidelity=0.5)  # better, but a whole run tells more
    for bad in (replace(runs[3], number=9), replace(runs[3], number=9, fidelity=0.5)):
        found = course.recommendation(course.told([*runs[:3], part, bad]))
        assert tuple(found.weights) == runs[0].weights  # that of run 1 is the one that diverged
        assert math.isnan(found.mean)
    found = course.recommendation(course.told([*runs[:2], part, replace(runs[3], weights=(1.0, 0.0)), runs[2]]))
    assert (tuple(found.weights), found.mean) == (runs[2].weights, 1.0)


def test_a_recommended_mixture_that_diverged_is_not_better_however_the_others_compare() -> None:
    sound = Comparison(other=UNIFORM, differences=(0.5, 0.6), by_target=())
    assert sound.better
    assert not replace(sound, diverged=1).better
    assert (
        replace(sound, diverged=1).sentence() == "not better than uniform: it diverged in 1 of 2 runs under fresh seeds"
    )


class Falls:
    """A bowl whose best mixture diverges under some seeds of the audit."""

    def __init__(self, bad: Callable[[Mapping[str, float]], bool], part: int) -> None:
        self.bad, self.part = bad, part

    def __call__(self, weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        losses = bowl(weights, budget, seed)
        return dict.fromkeys(losses, math.nan) if seed and self.bad(weights) and seed % self.part == 0 else losses


def test_an_answer_that_diverges_in_the_audit_gives_way() -> None:
    receipt = search(Falls(lambda weights: weights["a"] > 0.4, 2), NAMES, budget=40, method="bandit", audit_seeds=5)
    sound = search(bowl, NAMES, budget=40, method="bandit", audit_seeds=5)
    bad = sum(run.diverged for run in receipt.of_kind("audit", FOUND))
    assert 0 < bad < 5
    assert sound.comparisons[0].better
    assert receipt.weights == pytest.approx([1 / 3] * 3)
    assert not any(run.diverged for run in receipt.of_kind("audit", RECOMMENDED))
    assert f", diverged in {bad} of 5 runs: the uniform mixture is recommended in its place." in receipt.remarks[1]
    assert receipt.noise.run == pytest.approx(sound.noise.run, rel=1)  # of the runs that did not
    assert receipt.noise.difference < 1e-9
    assert [each["other"] for each in strict(receipt)["summary"]["comparisons"]] == [FOUND]
    assert math.isfinite(receipt.audit_loss)


def test_uniform_may_diverge_in_the_audit() -> None:
    receipt = search(Falls(lambda weights: weights["a"] < 0.4, 1), NAMES, budget=40, method="bandit", audit_seeds=5)
    assert all(run.diverged for run in receipt.of_kind("audit", UNIFORM))
    assert receipt.comparisons[0].gain > 0
    assert receipt.comparisons[0].diverged == 0


def test_curves_that_leave_the_numbers_on_their_way_are_of_runs_that_diverged() -> None:
    plan = plan_of(Steps(), target_steps=400, round_size=4, group_size=2)
    with_journal = search(Steps(), NAMES, budget=24, method="bandit", target_steps=400, round_size=4, group_size=2)
    bad = [run for run in with_journal.runs if run.diverged]
    assert bad
    assert plan.extrapolation is not None
    for run in with_journal.runs:
        assert all(np.isfinite(run.losses))
        assert all(np.isfinite(run.measured))
        assert run.diverged == (not np.isfinite(run.curve).all()) == (run.weights[0] > 0.45)
    worst = np.max([run.losses for run in with_journal.of_kind("search") if not run.diverged], axis=0)
    assert {run.losses for run in bad if run.kind == "search"} == {tuple(worst)}
    curve = next(run["curve"] for run in strict(with_journal)["runs"] if run["diverged"])
    assert curve[1] == [None, None, None]


@pytest.mark.parametrize("storage", ["sqlite:///{}/study.db", "journal:{}/study.log"])
def test_what_a_run_brought_that_diverged_is_known_when_it_is_asked_for_again(storage: str, tmp_path: Path) -> None:
    plan = plan_of(Steps(), target_steps=400, round_size=4)
    study = plan.open(storage.format(tmp_path), "test", QUICK)
    (first, *_) = plan.course.due([])
    losses = (1.0, math.nan, 3.0)
    known = replace(first, known=(1.0, 2.0, 3.0), known_curve=((2.0, 2.0, 2.0), losses, (math.inf, 1.0, 1.0)))
    study.trials.plan([known, replace(first, number=1, known=losses)])
    curved, bare = study.slots()
    assert (curved.state, curved.diverged, curved.planned.cost) == ("done", True, 0.0)
    assert np.array_equal(curved.curve, ((2.0, 2.0, 2.0), losses, (math.nan, 1.0, 1.0)), equal_nan=True)
    assert (bare.state, bare.diverged) == ("done", True)
    assert np.array_equal(bare.planned.known, losses, equal_nan=True)


def test_an_exception_still_ends_a_search() -> None:
    def score(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        if weights["a"] > 0.45:
            raise FloatingPointError("overflow")
        return bowl(weights, budget, seed)

    with pytest.raises(FloatingPointError, match="overflow"):
        search(score, NAMES, budget=16, method="bandit")


def test_a_receipt_of_a_run_that_diverged_has_its_own_losses() -> None:
    document = strict(search(Cliff(), NAMES, budget=16, method="bandit", round_size=4))
    for run in document["runs"]:
        run["measured"] = []
    with pytest.raises(StateError, match=r"another runs\.\d+\.measured: a run that diverged has its own losses there"):
        Receipt.from_document(document)


def test_a_search_under_way_has_a_receipt(tmp_path: Path) -> None:
    plan = plan_of(Cliff(), round_size=6, rows=(9.0, 1.0, 1.0))
    study = plan.open(f"{tmp_path}/study.log", "test", QUICK)
    study.trials.plan(plan.course.due([]))
    for slot in study.slots():
        study.trials.claim(slot, "me")
        study.trials.finish(slot, plan.evaluate(np.array([slot.planned.weights]), fidelity=1.0, training_seed=0,
                                                evaluation_seed=0)[0], seconds=0.0)  # fmt: skip
    receipt = receipt_of(plan, study.slots())
    assert 0 < receipt.diverged < 6
    assert receipt.audit_runs == 0
    assert PROPORTIONAL not in {run.arm for run in receipt.runs}
