"""The audit overturns an answer that a free mixture beats beyond noise, and no other."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee.search import search
from cuvee.search.receipt import FOUND, PROPORTIONAL, RECOMMENDED, UNIFORM, Receipt, Run
from cuvee.search.verdict import settled

MIXTURES = {RECOMMENDED: (0.8, 0.2), UNIFORM: (0.5, 0.5), PROPORTIONAL: (0.3, 0.7)}
FREE = {name: MIXTURES[name] for name in (UNIFORM, PROPORTIONAL)}


def run(number: int, weights: tuple[float, ...], loss: float, *, arm: str = "", seed: int = 0) -> Run:
    kind = "audit" if arm else "search"
    return Run(
        number=number, kind=kind, weights=weights, losses=(loss,), training_seed=seed, evaluation_seed=1, arm=arm
    )


def receipt(**losses: list[float]) -> Receipt:
    """Return a receipt of an audit, given the losses of its arms."""
    runs = [
        run(number, MIXTURES[arm], loss, arm=arm, seed=10 + number)
        for arm, values in losses.items()
        for number, loss in enumerate(values)
    ]
    return Receipt(
        method="auto",
        names=("a", "b"),
        targets=("val",),
        target_weights=(1.0,),
        weights=MIXTURES[RECOMMENDED],
        runs=tuple(runs),
        predicted=2.0,
        predicted_sd=0.1,
    )


def test_what_is_surely_worse_than_a_free_mixture_gives_way_to_it() -> None:
    given_ = receipt(recommended=[2.2, 2.3, 2.25], uniform=[2.1, 2.19, 2.16], proportional=[2.4, 2.5, 2.45])
    said = settled(given_, FREE)
    assert said.weights == MIXTURES[UNIFORM]
    assert math.isnan(said.predicted)
    assert [(each.other, round(each.gain, 4)) for each in said.comparisons] == [(PROPORTIONAL, 0.3), (FOUND, 0.1)]
    assert {run.arm: run.weights for run in said.runs} == {
        FOUND: MIXTURES[RECOMMENDED],
        RECOMMENDED: MIXTURES[UNIFORM],
        PROPORTIONAL: MIXTURES[PROPORTIONAL],
    }
    (remark,) = said.remarks
    assert remark.startswith(
        "The search's own answer, a 80.0%, b 20.0%, was worse than uniform by 0.1000 nats in 3 pairs"
    )
    assert remark.endswith(", beyond noise: the uniform mixture is recommended in its place.")
    assert "better than what the search found: 0.1000 nats below what the search found" in said.verdict
    assert Receipt.from_document(said.document()).document() == said.document()
    assert settled(said, FREE) is said


def test_of_two_that_are_better_the_best_is_taken() -> None:
    given_ = receipt(recommended=[2.2, 2.3], uniform=[2.1, 2.2], proportional=[2.0, 2.1])
    assert settled(given_, FREE).weights == MIXTURES[PROPORTIONAL]


@pytest.mark.parametrize(
    "losses",
    [
        {"recommended": [2.0, 2.1], "uniform": [2.1, 2.2]},  # it is better
        {"recommended": [2.0, 2.2, 2.1], "uniform": [2.1, 1.9, 2.05]},  # worse on average, not beyond noise
        {"recommended": [2.2], "uniform": [2.0]},  # a pair, which says nothing of noise
        {"recommended": [2.2, 2.3]},  # nothing to compare it with
    ],
)
def test_else_the_answer_stands(losses: dict[str, list[float]]) -> None:
    given_ = receipt(**losses)
    assert settled(given_, FREE) is given_


def test_runs_of_the_search_count_between_free_mixtures_alone() -> None:
    searched = (run(0, (0.3, 0.7), 2.31), run(1, (0.5, 0.5), 2.1), run(2, (0.8, 0.2), 2.0))
    given_ = receipt(recommended=[2.2], uniform=[2.0])
    given_ = replace(given_, runs=(*searched, *given_.runs))
    assert settled(given_, FREE) is given_  # the search chose it for its runs
    free = replace(
        given_,
        weights=(0.3, 0.7),
        runs=tuple(replace(each, weights=(0.3, 0.7)) if each.arm == RECOMMENDED else each for each in given_.runs),
    )
    said = settled(free, FREE)
    assert said.weights == MIXTURES[UNIFORM]
    assert [(each.other, each.pairs) for each in said.comparisons] == [(PROPORTIONAL, 1)]
    assert "the proportional one, was worse than uniform by 0.2050 nats in 2 pairs" in said.remarks[0]


def test_an_answer_that_diverged_gives_way_to_one_that_did_not() -> None:
    given_ = receipt(recommended=[2.0, 2.1], uniform=[2.3, 2.4], proportional=[2.2, 2.2])
    bad = {0: (RECOMMENDED, PROPORTIONAL), 1: ()}
    runs = tuple(replace(each, diverged=each.arm in bad[each.number]) for each in given_.runs)
    said = settled(replace(given_, runs=runs), FREE)
    assert said.weights == MIXTURES[UNIFORM]
    assert "diverged in 1 of 2 runs: the uniform mixture is recommended" in said.remarks[0]


@given(
    ours=st.lists(st.floats(1, 4), min_size=1, max_size=6),
    theirs=st.lists(st.floats(1, 4), min_size=6, max_size=6),
)
def test_it_is_never_overturned_for_one_of_a_higher_loss(ours: list[float], theirs: list[float]) -> None:
    given_ = receipt(recommended=ours, uniform=theirs[: len(ours)])
    said = settled(given_, FREE)
    if said is not given_:
        assert said.audit_loss < given_.audit_loss
        assert np.mean(theirs[: len(ours)]) == pytest.approx(said.audit_loss)


def test_a_search_never_returns_what_its_audit_shows_to_be_surely_worse_than_uniform() -> None:
    def score(weights: dict[str, float], budget: float, seed: int) -> dict[str, float]:
        return {name: 2 + 3 * (weights[name] - best) ** 2 for name, best in zip("abc", (0.6, 0.3, 0.1), strict=True)}

    said = search(score, ["a", "b", "c"], 40, method="regmix", audit_seeds=3)
    assert all(each.gain >= 0 for each in said.comparisons)
    assert "Losses were the same under every seed: the pairs say no more than one." in said.remarks
