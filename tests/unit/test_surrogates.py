"""Models of losses over the simplex: known laws come back, derivatives are exact, bad input is refused."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest

import cuvee.search.surrogates
from cuvee.errors import CuveeError
from cuvee.search.surrogates import (
    Boosted,
    EffectiveDataLaw,
    ExponentialLaw,
    GaussianProcess,
    Surrogate,
    TransferLaw,
    choose_runs,
)
from cuvee.search.surrogates.effective_data_law import EffectiveDataCurve
from cuvee.search.surrogates.exponential_law import ExponentialCurve
from cuvee.search.surrogates.gaussian_process import evidence
from cuvee.search.surrogates.transfer_terms import Terms

DOMAINS = 4
OPTIONS: dict[str, Surrogate] = {
    "process": GaussianProcess(),
    "shared": GaussianProcess(shared=True),
    "exponential": ExponentialLaw(),
    "effective": EffectiveDataLaw(),
    "boosted": Boosted(rounds=60, rate=0.1),
    "transfer": TransferLaw(),
}


def mixtures(runs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(DOMAINS, 0.7), runs)


def true_losses(weights: np.ndarray) -> np.ndarray:
    """Losses of a transfer law: own data worth 1, others 0.05, the first two domains 0.4 to one another."""
    worth = np.full((DOMAINS, DOMAINS), 0.05)
    worth[0, 1] = worth[1, 0] = 0.4
    np.fill_diagonal(worth, 1)
    return 1.5 + (0.02 + weights**0.6 @ worth.T) ** -0.3


def slopes_by_differences(function: Any, vector: np.ndarray, step: float = 1e-6) -> np.ndarray:
    columns = []
    for place in range(len(vector)):
        move = np.zeros_like(vector)
        move[place] = step
        columns.append((function(vector + move) - function(vector - move)) / (2 * step))
    return np.stack(columns, axis=-1)


# --- all
@pytest.mark.parametrize("name", OPTIONS)
def test_models_predict_runs_they_never_saw(name: str) -> None:
    seen, unseen = mixtures(60), mixtures(100, seed=1)
    mean, deviation = OPTIONS[name].fit(seen, true_losses(seen)).predict(unseen)
    truth = true_losses(unseen)
    assert mean.shape == deviation.shape == truth.shape
    assert (deviation >= 0).all()
    missed = np.sqrt(((mean - truth) ** 2).mean()) / truth.std()
    assert missed < {"boosted": 0.6, "exponential": 0.6, "effective": 0.4}.get(name, 0.2)


@pytest.mark.parametrize("name", OPTIONS)
def test_fits_are_deterministic(name: str) -> None:
    seen = mixtures(24)
    first, second = (OPTIONS[name].fit(seen, true_losses(seen)).predict(mixtures(5, seed=2)) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("name", OPTIONS)
def test_losses_that_do_not_differ_are_predicted_as_they_are(name: str) -> None:
    mean, deviation = OPTIONS[name].fit(mixtures(12), np.full((12, 2), 3.0)).predict(mixtures(4, seed=3))
    assert np.isfinite(deviation).all()
    assert mean == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize(
    ("weights", "losses", "message"),
    [
        ([[0.5, 0.6]], [[1.0]], "weights must be at least 0 and of sum 1"),
        ([[1.5, -0.5]], [[1.0]], "weights must be at least 0 and of sum 1"),
        ([0.5, 0.5], [[1.0]], "weights must be of shape"),
        ([[0.5, 0.5]], [1.0], "losses must be of shape"),
        ([[0.5, 0.5]], [[1.0], [2.0]], "losses must be of shape"),
        ([[0.5, 0.5]], [[np.nan]], "losses must be finite"),
        ([["a", "b"]], [[1.0]], "weights must be numbers"),
        ([[0.5, 0.5]], [[1.0], [2.0, 3.0]], "losses must be numbers"),
    ],
)
def test_bad_tables_are_refused(weights: Any, losses: Any, message: str) -> None:
    for surrogate in OPTIONS.values():
        with pytest.raises(CuveeError, match=message):
            surrogate.fit(weights, losses)


def test_trees_need_two_runs() -> None:
    with pytest.raises(CuveeError, match="runs must be at least 2, but got 1"):
        Boosted().fit([[0.5, 0.5]], [[1.0]])


def test_mixtures_of_other_domains_are_refused() -> None:
    model = TransferLaw().fit(mixtures(6), true_losses(mixtures(6)))
    with pytest.raises(CuveeError, match="weights must be of shape"):
        model.predict([[0.5, 0.5]])


@pytest.mark.parametrize("noise", [0.0, -1.0, np.nan, [1.0, 2.0, 3.0]])
def test_noise_must_be_positive(noise: Any) -> None:
    with pytest.raises(CuveeError, match="noise must be positive"):
        GaussianProcess().fit(mixtures(6), true_losses(mixtures(6)), noise=noise)


# --- derivatives
@pytest.mark.parametrize("curve", [ExponentialCurve(), EffectiveDataCurve()])
def test_curves_have_exact_derivatives(curve: Any) -> None:
    vector = np.random.default_rng(0).normal(0, 0.3, len(curve.bounds(np.ones(3), DOMAINS)))
    weights = mixtures(5)
    numeric = slopes_by_differences(lambda v: curve.values(v, weights)[0], vector)
    assert curve.values(vector, weights)[1] == pytest.approx(numeric, abs=1e-7)


def test_evidence_has_its_exact_gradient() -> None:
    rng = np.random.default_rng(1)
    inputs = np.sqrt(mixtures(8))
    squares, targets = (inputs[:, None] - inputs[None]) ** 2, rng.standard_normal((8, 2))
    logs = rng.normal(0, 0.3, DOMAINS + 4)
    numeric = slopes_by_differences(lambda v: np.array(evidence(v, squares, targets)[0]), logs)
    assert evidence(logs, squares, targets)[1] == pytest.approx(numeric, rel=1e-4, abs=1e-5)


def test_transfer_law_has_exact_derivatives() -> None:
    terms = Terms(own=np.array([0, 2, -1]), domains=DOMAINS, rank=2)
    vector, lowest = np.random.default_rng(2).normal(0, 0.4, terms.size), np.array([1.0, 2.0, 3.0])
    weights = np.vstack([mixtures(3), [[0, 0.5, 0.5, 0]]])
    losses, slopes = terms.slopes(vector, weights, lowest)
    numeric = slopes_by_differences(lambda v: terms.losses(v, weights, lowest), vector)  # (n, D, P)
    assert losses == pytest.approx(terms.losses(vector, weights, lowest))
    for loss, columns in enumerate(terms.columns):
        assert slopes[loss] == pytest.approx(numeric[:, loss, columns], abs=1e-7)
        others = np.setdiff1d(np.arange(terms.size), columns)
        assert not numeric[:, loss, others].any()


# --- the transfer law
def test_few_runs_tell_the_transfer_law_more_than_the_others() -> None:
    seen, unseen = mixtures(10, seed=4), mixtures(200, seed=5)
    truth = true_losses(unseen)
    missed = {}
    for name in ("transfer", "process", "effective"):
        mean, _ = OPTIONS[name].fit(seen, true_losses(seen)).predict(unseen)
        missed[name] = float(((mean - truth) ** 2).mean())
    assert missed["transfer"] < 0.5 * min(missed["process"], missed["effective"])


def test_transfer_is_found_where_it_is() -> None:
    seen = mixtures(40, seed=6)
    worth = TransferLaw(rest=False).fit(seen, true_losses(seen)).transfer
    assert np.diag(worth) == pytest.approx(1.0)
    assert min(worth[0, 1], worth[1, 0]) > 3 * max(worth[0, 2:].max(), worth[2:, 0].max())


def test_before_it_learns_the_law_prefers_equal_weights_for_the_mean() -> None:
    equal = np.full((1, DOMAINS), 1 / DOMAINS)
    model = TransferLaw().fit(equal, [[3.0] * DOMAINS])
    mean, deviation = model.predict_mean(np.vstack([equal, np.eye(DOMAINS)]))
    assert mean[0] < mean[1:].min()
    assert deviation[0] < deviation[1:].min()


def test_the_mean_of_losses_is_the_mean_of_predictions() -> None:
    seen = mixtures(8)
    model = TransferLaw().fit(seen, true_losses(seen))
    points, shares = mixtures(5, seed=7), np.array([1.0, 0, 2, 1])
    mean, deviation = model.predict_mean(points, shares)
    assert mean == pytest.approx(model.predict(points)[0] @ shares / 4)
    assert (deviation > 0).all()
    alone, of_one = model.predict_mean(points, [0, 1, 0, 0])
    assert alone == pytest.approx(model.predict(points)[0][:, 1])
    assert of_one == pytest.approx(model.predict(points)[1][:, 1])


def test_samples_scatter_around_the_mean() -> None:
    seen = mixtures(20)
    model = TransferLaw().fit(seen, true_losses(seen))
    points = mixtures(3, seed=8)
    draws = model.sample(points, 100, seed=0)
    assert draws.shape == (100, 3, DOMAINS)
    assert np.array_equal(draws, model.sample(points, 100, seed=0))
    assert not np.array_equal(draws, model.sample(points, 100, seed=1))
    assert np.abs(np.median(draws, 0) - model.predict(points)[0]).mean() < 0.03


def test_one_broken_run_spoils_little() -> None:
    seen, unseen = mixtures(24, seed=9), mixtures(50, seed=10)
    losses = true_losses(seen)
    losses[3, 1] += 3
    mean, _ = TransferLaw().fit(seen, losses).predict(unseen)
    assert np.sqrt(((mean - true_losses(unseen)) ** 2).mean()) < 0.25 * true_losses(unseen).std()


def test_known_noise_is_no_misfit() -> None:
    seen = mixtures(12, seed=11)
    noisy = true_losses(seen) + 0.05 * np.random.default_rng(0).standard_normal((12, DOMAINS))
    model = TransferLaw().fit(seen, noisy, noise=0.1)  # more than there is: nothing is left for misfit
    assert model.predict(seen)[1] == pytest.approx(np.sqrt(model.posterior.moments(seen)[1]))
    unknown = TransferLaw().fit(seen, noisy)
    assert (unknown.predict(seen)[1] > np.sqrt(unknown.posterior.moments(seen)[1])).all()


def test_losses_below_zero_are_no_matter() -> None:
    seen = mixtures(10)
    high, _ = TransferLaw().fit(seen, true_losses(seen) - 6).predict(seen)
    assert high == pytest.approx(true_losses(seen) - 6, abs=0.3)


@pytest.mark.parametrize("own", [[0], [0, 1, 2, 4], [0, 1, 2, -2], [0.0, 1, 2, 3]])
def test_own_names_a_domain_for_each_loss(own: Any) -> None:
    with pytest.raises(CuveeError, match="own must be 4 numbers of domains"):
        TransferLaw(own=own).fit(mixtures(6), true_losses(mixtures(6)))


# --- designs
def test_chosen_runs_tell_more_than_the_first_ones() -> None:
    pool, unseen = mixtures(60, seed=12), mixtures(200, seed=13)
    chosen = choose_runs(pool, 8, own=range(DOMAINS))
    assert len(set(chosen.tolist())) == 8

    def missed(rows: np.ndarray) -> float:
        mean, _ = TransferLaw().fit(pool[rows], true_losses(pool[rows])).predict(unseen)
        return float(((mean - true_losses(unseen)) ** 2).mean())

    rng = np.random.default_rng(0)
    assert missed(chosen) < np.median([missed(rng.permutation(60)[:8]) for _ in range(9)])


def test_a_model_asks_for_what_it_does_not_know() -> None:
    near = np.array([0.7, 0.1, 0.1, 0.1]) + 0.02 * (mixtures(12, seed=14) - 0.25)
    model = TransferLaw().fit(near, true_losses(near))
    corners = np.eye(DOMAINS)
    chosen = choose_runs(np.vstack([near, corners]), 2, own=range(DOMAINS), model=model)
    assert (chosen >= len(near)).all()


def test_designs_refuse_what_cannot_be() -> None:
    with pytest.raises(CuveeError, match="count must be an integer"):
        choose_runs(mixtures(4), 5, own=range(DOMAINS))
    model = TransferLaw().fit(mixtures(6), true_losses(mixtures(6)))
    with pytest.raises(CuveeError, match="candidates must have the model's 4 domains"):
        choose_runs([[0.5, 0.5]], 1, own=[0, 1], model=model)


def test_examples_in_the_documentation_run() -> None:
    assert doctest.testmod(cuvee.search.surrogates).failed == 0
