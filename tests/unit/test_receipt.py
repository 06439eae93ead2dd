"""A receipt says what runs were worth: paired differences, noise, and "not better" where that is so."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # noqa: TID253

from cuvee.errors import StateError
from cuvee.search.receipt import PROPORTIONAL, RECOMMENDED, UNIFORM, Comparison, Receipt, Run

FRESH = tuple((1000 + number, 2000 + number) for number in range(5))


def run(number: int, *losses: float, kind="search", arm="", seeds=(0, 999_000), fidelity=1.0) -> Run:
    return Run(
        number=number,
        kind=kind,
        weights=(0.5, 0.5),
        losses=losses,
        training_seed=seeds[0],
        evaluation_seed=seeds[1],
        fidelity=fidelity,
        arm=arm,
        seconds=2.0,
        worker="w",
    )


def receipt_of(gains: list[float], *, others: dict[str, list[float]] | None = None) -> Receipt:
    """Return the receipt of two search runs and of an audit in which uniform is worse by `gains`."""
    runs = [run(0, 3.0, 1.0), run(1, 3.5, 1.0, fidelity=0.25)]
    arms = {UNIFORM: gains, **(others or {})}
    for seeds, place in zip(FRESH, range(len(gains)), strict=False):
        level = 2.0 + 0.1 * place
        runs.append(run(len(runs), level, level, kind="audit", arm=RECOMMENDED, seeds=seeds))
        for arm, differences in arms.items():
            worse = level + differences[place]
            runs.append(run(len(runs), worse, worse, kind="audit", arm=arm, seeds=seeds))
    return Receipt(
        method="auto",
        names=("a", "b"),
        targets=("a", "b"),
        target_weights=(0.75, 0.25),
        weights=(0.6, 0.4),
        low=(0.5, 0.3),
        high=(0.7, 0.5),
        runs=tuple(runs),
    )


def test_what_was_spent_counts_parts_of_runs() -> None:
    receipt = receipt_of([0.1, 0.2])
    assert (receipt.search_runs, receipt.audit_runs) == (2, 4)
    assert receipt.spent == 5.25
    assert receipt.seconds == 12.0


def test_seeds_of_selection_and_audit_are_told_apart() -> None:
    receipt = receipt_of([0.1, 0.2])
    assert receipt.selection_seeds == ((0, 999_000),)
    assert receipt.selection_eval_seed == 999_000
    assert receipt.audit_seeds == FRESH[:2]
    assert (receipt.audit_training_seed, receipt.audit_eval_seed) == FRESH[0]


def test_the_loss_is_the_weighted_mean_of_the_targets() -> None:
    receipt = receipt_of([0.1])
    assert receipt.loss(receipt.runs[0]) == 0.75 * 3.0 + 0.25 * 1.0
    assert receipt.audit_loss == pytest.approx(2.0)
    assert receipt.audit_per_domain == (("a", 2.0), ("b", 2.0))


def test_confidence_and_interval_are_those_of_a_paired_t_test() -> None:
    gains = [0.11, 0.08, 0.14, 0.02, 0.09]
    (comparison,) = receipt_of(gains).comparisons
    test = stats.ttest_1samp(gains, 0.0, alternative="greater")
    assert comparison.differences == pytest.approx(gains)
    assert comparison.confidence == pytest.approx(1 - test.pvalue)
    low, high = stats.ttest_1samp(gains, 0.0).confidence_interval(0.9)
    assert comparison.interval == pytest.approx((low, high))
    assert comparison.better


def test_pairs_share_their_seeds_whatever_order_they_come_in() -> None:
    receipt = receipt_of([0.11, 0.08, 0.14])
    shuffled = replace(receipt, runs=tuple(reversed(receipt.runs)))
    assert sorted(shuffled.comparisons[0].differences) == sorted(receipt.comparisons[0].differences)


@pytest.mark.parametrize(
    ("gains", "says"),
    [
        ([0.1, 0.11, 0.12], "better than uniform: 0.1100 nats below uniform"),
        ([0.1, -0.2, 0.12], "not better than uniform beyond noise: 0.0067 nats below uniform"),
        ([-0.1, -0.11, -0.12], "not better than uniform beyond noise: 0.1100 nats above uniform"),
        ([0.1], "0.1000 nats below uniform in one pair of runs, which says nothing of noise: more audit seeds would"),
    ],
)
def test_the_verdict_says_what_the_pairs_say(gains: list[float], says: str) -> None:
    receipt = receipt_of(gains)
    assert says in receipt.verdict
    assert receipt.comparisons[0].better == says.startswith("better")


def test_a_receipt_prints_as_its_answer() -> None:
    receipt = replace(receipt_of([0.1, 0.11, 0.12]), method="auto", names=("a", "b"), weights=(0.25, 0.75))
    said = "auto: a 25.00%, b 75.00%. The recommended mixture is better than uniform: 0.1100 nats"
    assert str(receipt).startswith(said)


def test_both_free_mixtures_are_compared_with() -> None:
    receipt = receipt_of([0.1, 0.11, 0.12], others={PROPORTIONAL: [-0.1, 0.1, 0.05]})
    assert [comparison.other for comparison in receipt.comparisons] == [UNIFORM, PROPORTIONAL]
    assert "; not better than proportional beyond noise" in receipt.verdict


def test_an_answer_that_was_not_compared_says_so() -> None:
    receipt = receipt_of([])
    assert receipt.verdict == "The recommended mixture is not compared: no other mixture ran in the audit."
    assert math.isnan(receipt.audit_loss)
    assert receipt.noise.seeds == 0


def test_noise_is_pooled_within_arms_and_within_pairs() -> None:
    gains = [0.1, 0.3, 0.2]
    noise = receipt_of(gains).noise
    ours, theirs = np.array([2.0, 2.1, 2.2]), np.array([2.1, 2.4, 2.4])
    assert noise.run == pytest.approx(math.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / 2))
    assert noise.difference == pytest.approx(np.std(gains, ddof=1))
    assert noise.seeds == 3


def test_differences_without_any_noise_are_certain() -> None:
    assert Comparison(other=UNIFORM, differences=(0.5, 0.5), by_target=()).confidence == 1.0
    assert Comparison(other=UNIFORM, differences=(0.0, 0.0), by_target=()).confidence == 0.5
    assert Comparison(other=UNIFORM, differences=(-0.5, -0.5), by_target=()).confidence == 0.0


@given(st.lists(st.floats(-10, 10), max_size=5), st.floats(allow_nan=True, allow_infinity=False))
def test_a_receipt_survives_json(gains: list[float], predicted: float) -> None:
    receipt = replace(receipt_of(gains), predicted=predicted, remarks=("one",))
    document = json.loads(receipt.to_json())
    again = Receipt.from_document(document)
    assert again.to_json() == receipt.to_json()
    assert again.runs[0] == receipt.runs[0]
    assert document["summary"]["verdict"] == receipt.verdict


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(weights="x"), "another weights: Input should be a valid array"),
        (lambda d: d.update(weights=[1.0]), "another weights: 1 numbers where there must be 2"),
        (lambda d: d.update(low=[]), "another low: 0 numbers where there must be 2"),
        (lambda d: d.update(target_weights=[True, 0.5]), "another target_weights.0: Input should be a valid number"),
        (lambda d: d.update(runs={}), "another runs: Input should be a valid array"),
        (lambda d: d["runs"].append(5), "another runs.6"),
        (
            lambda d: d["runs"][1].update(kind="Search"),
            "another runs.1.kind: Input should be 'search', 'audit' or 'earlier audit'",
        ),
        (lambda d: d["runs"][1].update(fidelity=0), "another runs.1.fidelity: 0.0 is not in (0, 1]"),
        (lambda d: d["runs"][1].update(losses=[1.0]), "another runs.1.losses: 1 numbers where there must be 2"),
        (lambda d: d["runs"][1].update(curve=[[1.0, 2.0], [1.0]]), "another runs.1.curve: 1 numbers"),
        (lambda d: d["runs"][1].update(training_seed=None), "another runs.1.training_seed"),
        (lambda d: d["runs"][1].update(notes="mine"), "another runs.1.notes: no receipt has that field"),
        (lambda d: d.update(notes="mine"), "another notes: no receipt has that field"),
        (lambda d: d.update(method={1, 2}), "another values: "),
        (lambda d: d.update(weights=[-5.0, 6.0]), "another weights: [-5.0, 6.0] are not shares with the sum 1"),
        (lambda d: d.update(weights=[0.5, 0.6]), "another weights: [0.5, 0.6] are not shares with the sum 1"),
        (lambda d: d.update(weights=[None, 1.0]), "another weights: [nan, 1.0] are not shares"),
        (lambda d: d.update(target_weights=[0.0, 0.0]), "another target_weights: [0.0, 0.0] are not shares"),
        (lambda d: d["runs"][1].update(weights=[2.0, -1.0]), "another runs.1.weights: [2.0, -1.0] are not shares"),
        (lambda d: d.update(names=["a", "a"]), "another names: ['a', 'a'] are not one or more names"),
        (lambda d: d.update(targets=["a", "a"]), "another targets: ['a', 'a'] are not one or more names"),
        (lambda d: d["runs"][1].update(number=0), "another runs.1.number: there is another search run 0"),
        (lambda d: d["runs"][3].update(arm="mine"), "another runs.3.arm: 'mine' is none of ['recommended', "),
        (lambda d: d["runs"][1].update(losses=[None, 1.0]), "another runs.1.losses: null in a run that did not"),
    ],
)
def test_a_receipt_that_was_edited_says_where(change, says: str) -> None:
    document = receipt_of([0.1, 0.2]).document()
    change(document)
    with pytest.raises(StateError) as caught:
        Receipt.from_document(document)
    assert says in str(caught.value)


def test_losses_that_are_no_numbers_are_null_in_json_and_come_back() -> None:
    receipt = receipt_of([0.1, 0.2])
    diverged = replace(receipt.runs[0], measured=(math.nan, math.inf), diverged=True)
    broken = replace(receipt, runs=(diverged, *receipt.runs[1:]))
    text = broken.to_json()
    again = Receipt.from_document(json.loads(text, parse_constant=pytest.fail))
    assert all(math.isnan(loss) for loss in again.runs[0].measured)
    assert again.to_json() == text


@pytest.mark.parametrize("document", [[], "receipt", None, 5])
def test_what_is_no_object_is_no_receipt(document: object) -> None:
    with pytest.raises(StateError, match="receipt must be a JSON object, but got"):
        Receipt.from_document(document)


def test_what_is_no_receipt_is_refused() -> None:
    document = receipt_of([0.1]).document()
    with pytest.raises(StateError, match="receipt must be of format 1, but got 2"):
        Receipt.from_document(document | {"format": 2})
    with pytest.raises(StateError, match="receipt must be what a search wrote, but got one with"):
        Receipt.from_document({key: value for key, value in document.items() if key != "runs"})
