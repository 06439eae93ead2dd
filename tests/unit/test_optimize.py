"""Searches with real proxy runs: what they find, what they spend, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cuvee.errors import MixtureError
from cuvee.search import SyntheticDomain, optimize_mixture
from cuvee.search.methods import METHODS
from cuvee.search.proxy import proxy_run_score, proxy_run_scores

AMONG_NOISE = [SyntheticDomain("informative", 20, 2), SyntheticDomain("x", 20, None), SyntheticDomain("y", 20, None)]
SMALL = {"block": 16, "eval_tokens": 256}


@pytest.mark.parametrize("method", ["bandit", "doe"])
@pytest.mark.parametrize("budget", [10, 24])
def test_search_finds_the_informative_domain_among_noise(method: str, budget: int) -> None:
    weights, receipt = optimize_mixture(AMONG_NOISE, 20, budget, method=method, proxy_kwargs=SMALL, return_receipt=True)
    assert weights.dtype == np.float64
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert weights.argmax() == 0
    assert weights[0] > 1 / 3 + 0.1
    assert receipt.search_runs < budget
    both = np.array([proxy_run_scores([weights, [1, 1, 1]], AMONG_NOISE, 20, seed=s, eval_seed=s, **SMALL).mean(1)
                     for s in range(100, 106)])  # fmt: skip
    gains = both[:, 1] - both[:, 0]
    assert gains.mean() > 3 * gains.std(ddof=1) / np.sqrt(len(gains))


def test_receipt_tells_what_was_run() -> None:
    settings = {"eval_seed": 123, "eval_tokens": 64}
    weights, receipt = optimize_mixture(AMONG_NOISE, 4, 9, proxy_kwargs=settings, seed=4, return_receipt=True)
    assert receipt.method == "bandit"
    assert receipt.weights == tuple(weights.tolist())
    assert receipt.selection_eval_seed == 123
    assert receipt.audit_eval_seed not in {run.evaluation_seed for run in receipt.of_kind("search")}
    assert receipt.audit_training_seed not in {run.training_seed for run in receipt.of_kind("search")}
    assert receipt.search_runs + receipt.audit_runs <= 9
    (audit,) = receipt.of_kind("audit")
    loss, by_domain = proxy_run_score(
        weights, AMONG_NOISE, 4, eval_tokens=64, seed=audit.training_seed, eval_seed=audit.evaluation_seed,
        return_detail=True,
    )  # fmt: skip
    assert receipt.audit_loss == pytest.approx(loss, abs=1e-12)
    assert dict(receipt.audit_per_domain) == by_domain
    first = next(receipt.of_kind("search"))
    again = proxy_run_scores([first.weights], AMONG_NOISE, 4, seed=first.training_seed, **settings)[0]
    assert first.losses == tuple(again.tolist())


def test_search_is_deterministic_and_leaves_random_states_alone() -> None:
    import torch

    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    found = [optimize_mixture(AMONG_NOISE, 3, 8, seed=1, proxy_kwargs={"eval_tokens": 64}) for _ in range(2)]
    assert np.array_equal(*found)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002


def test_mixture_that_only_chance_favours_gives_way_to_uniform() -> None:
    alike = [SyntheticDomain(name, 20, None) for name in "abc"]  # nothing to learn: no mixture is better
    answers = [
        optimize_mixture(alike, 10, 12, seed=seed, proxy_kwargs={"eval_tokens": 64}, return_receipt=True)
        for seed in range(6)
    ]
    kept = [receipt for weights, receipt in answers if receipt.remarks]
    assert kept
    assert all(receipt.weights == pytest.approx([1 / 3] * 3) for receipt in kept)


def test_least_budget_is_one_run_and_its_audit() -> None:
    _, receipt = optimize_mixture(AMONG_NOISE, 2, 2, proxy_kwargs={"eval_tokens": 32}, return_receipt=True)
    assert (receipt.search_runs, receipt.audit_runs) == (1, 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [2, 3, 5, 9])
def test_budget_bounds_all_runs_whatever_their_length(method: str, budget: int) -> None:
    weights, receipt = optimize_mixture(
        AMONG_NOISE, 4, budget, method=method, proxy_kwargs={"eval_tokens": 32}, return_receipt=True
    )
    assert receipt.search_runs + receipt.audit_runs <= budget
    assert weights.sum() == pytest.approx(1, abs=1e-12)


def test_imports_of_a_method_leave_the_random_state_alone(fresh_python: Callable[..., str]) -> None:
    code = """
import random
from cuvee.search.surrogates import Boosted
before = random.getstate()
Boosted(rounds=1).fit([[0.2, 0.8], [0.5, 0.5], [0.8, 0.2]], [[1.0], [2.0], [3.0]])
print(random.getstate() == before)
"""
    assert fresh_python(code).split() == ["True"]


class Windows:
    """A domain of texts that gives whatever it is told to."""

    name, vocab = "w", 20

    def __init__(self, give: Callable[[int, int], object]) -> None:
        self._give = give

    def windows(self, count: int, length: int, *, seed: int, held_out: bool) -> object:
        return self._give(count, length)


@pytest.mark.parametrize(
    ("give", "told"),
    [
        (lambda count, length: np.zeros((count - 1, length), int), r"must have shape \(8, 9\), but got \(7, 9\)"),
        (lambda count, length: np.zeros((count, length - 1), int), r"must have shape \(8, 9\), but got \(8, 8\)"),
        (lambda count, length: None, r"must have shape \(8, 9\), but got \(\)"),
        (lambda count, length: [[0], [0, 1]], r"must have shape .*, but got \(\)"),
        (lambda count, length: np.zeros((count, length)), "must be integers of shape .* but got float64"),
        (lambda count, length: np.full((count, length), 20), r"must be in \[0, 20\), but got values from 20 to 20"),
        (lambda count, length: np.full((count, length), -1), r"must be in \[0, 20\), but got values from -1"),
    ],
)
def test_domains_that_give_something_else_are_told(give: Callable[[int, int], object], told: str) -> None:
    with pytest.raises(MixtureError, match=rf"domain 'w': windows\(8, 9\) {told}"):
        optimize_mixture([AMONG_NOISE[0], Windows(give)], 4, 4, proxy_kwargs={"batch_size": 2})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"budget": 1}, "budget must be an integer in"),
        ({"method": "bandid"}, "did you mean 'bandit'"),
        ({"seed": -1}, "seed must be"),
        ({"proxy_steps": 0}, "proxy_steps must be"),
        ({"return_receipt": 1}, "return_receipt must be True or False"),
        ({"proxy_kwargs": {"seed": 1}}, "proxy_kwargs must not have 'seed'"),
        ({"proxy_kwargs": {"return_detail": True}}, "proxy_kwargs must not have 'return_detail'"),
        ({"proxy_kwargs": {"batchsize": 1}}, "did you mean 'batch_size'"),
        ({"proxy_kwargs": [1]}, "proxy_kwargs must be a mapping"),
        ({"proxy_kwargs": {1: 2}}, "proxy settings must be of .* but got 1"),
        ({"proxy_kwargs": {"domains": 1}}, "proxy settings must be of .* but got 'domains'"),
        ({"proxy_kwargs": {"steps": 1}}, "proxy settings must be of .* but got 'steps'"),
        ({"proxy_kwargs": {"lr": 1e300}}, "lr must be above 0 and at most"),
        ({"domains": None}, "domains must be a sequence of domains, but got None"),
        ({"domains": AMONG_NOISE[:1]}, "at least two"),
        ({"domains": [AMONG_NOISE[0], AMONG_NOISE[0]]}, "unique"),
    ],
)
def test_search_refuses(change: dict[str, object], told: str) -> None:
    arguments = {"domains": AMONG_NOISE, "proxy_steps": 2, "budget": 4, **change}
    with pytest.raises(MixtureError, match=told):
        optimize_mixture(**arguments)
