"""Searches with real proxy runs: what they find, what they spend, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from cuvee.errors import MixtureError
from cuvee.search import SyntheticDomain, optimize_mixture
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
        ({"domains": AMONG_NOISE[:1]}, "at least two"),
        ({"domains": [AMONG_NOISE[0], AMONG_NOISE[0]]}, "unique"),
    ],
)
def test_search_refuses(change: dict[str, object], told: str) -> None:
    arguments = {"domains": AMONG_NOISE, "proxy_steps": 2, "budget": 4, **change}
    with pytest.raises(MixtureError, match=told):
        optimize_mixture(**arguments)
