"""Laws over size, tokens and repetition: known laws come back, extrapolations hold, bad input is refused."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest

import cuvee.search.laws
from cuvee.errors import CuveeError
from cuvee.search.laws import (
    PowerLaw,
    ScaleLaw,
    ScaleModel,
    StepLaw,
    effective_tokens,
    effective_weights,
    grown_shares,
)
from cuvee.search.laws.scale_terms import ScaleTerms
from cuvee.search.surrogates.transfer_terms import Terms

SIZES, TOKENS = (1e8, 3e8), np.linspace(2e9, 2e10, 8)


# --- repetition
def test_fresh_tokens_count_as_they_are() -> None:
    assert effective_tokens([0, 5, 10], 10).tolist() == [0, 5, 10]
    assert effective_tokens(7.0, np.inf) == 7


def test_a_law_of_scale_needs_two_sizes() -> None:
    with pytest.raises(CuveeError, match=r"parameters must be of 2 sizes or more, but got 1e\+06 alone"):
        ScaleLaw().fit([[0.5, 0.5]] * 3, 1e6, [1e8, 2e8, 3e8], [[3.0], [2.9], [2.8]])


def test_repeated_tokens_lose_their_worth() -> None:
    # five epochs are four repeats: 1 + 15.4 (1 - exp(-4 / 15.4)) = 4.52272
    assert effective_tokens(50, 10) == pytest.approx(45.2272, abs=1e-3)
    assert effective_tokens(1e9, 10) == pytest.approx(10 * 16.4)


def test_effective_weights_are_worth_in_fresh_tokens() -> None:
    weights = effective_weights([[0.5, 0.5]], 100, [50, 10])
    assert weights[0, 0] == pytest.approx(0.5)
    assert weights[0, 1] == pytest.approx(effective_tokens(50, 10) / 100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1), "tokens must be finite"),
        ((np.inf, 1), "tokens must be finite"),
        ((1, 0), "unique must be positive"),
        ((1, np.nan), "unique must be positive"),
    ],
)
def test_tokens_must_be_possible(arguments: Any, message: str) -> None:
    with pytest.raises(CuveeError, match=message):
        effective_tokens(*arguments)
    with pytest.raises(CuveeError, match="repeats must be positive"):
        effective_tokens(1, 1, repeats=0)


# --- power laws
def chinchilla(parameters: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return 1.8 + 0.6 * (parameters / 1e8) ** -0.34 + 0.9 * (tokens / 1e9) ** -0.28


def grid() -> tuple[np.ndarray, np.ndarray]:
    sizes, tokens = np.meshgrid(np.geomspace(1e7, 1e9, 5), np.geomspace(2e8, 5e10, 6))
    return sizes.ravel(), tokens.ravel()


def test_a_power_law_comes_back() -> None:
    sizes, tokens = grid()
    model = PowerLaw().fit(sizes, tokens, chinchilla(sizes, tokens))
    assert model.exponents == pytest.approx((0.34, 0.28), abs=0.01)
    assert model.floor == pytest.approx(1.8, abs=0.03)
    assert model.predict([1e10], [1e12]) == pytest.approx(chinchilla(np.array([1e10]), np.array([1e12])), rel=0.003)


def test_outliers_do_not_move_a_power_law() -> None:
    sizes, tokens = grid()
    losses = chinchilla(sizes, tokens)
    losses[::9] += 0.5
    model = PowerLaw().fit(sizes, tokens, losses)
    assert model.predict([1e10], [1e12]) == pytest.approx(chinchilla(np.array([1e10]), np.array([1e12])), rel=0.01)


def test_repetition_explains_what_more_epochs_do_not_give() -> None:
    sizes, tokens = grid()
    unique = np.full_like(tokens, 1e9)
    losses = chinchilla(sizes, effective_tokens(tokens, unique))
    model = PowerLaw().fit(sizes, tokens, losses, unique=unique)
    assert model.predict(sizes, tokens, unique=unique) == pytest.approx(losses, rel=1e-3)
    assert model.predict([1e8], [1e12], unique=[1e9]) > model.predict([1e8], [1e12])


def test_the_bootstrap_covers_the_law() -> None:
    sizes, tokens = grid()
    noisy = chinchilla(sizes, tokens) * np.exp(0.004 * np.random.default_rng(0).standard_normal(len(sizes)))
    low, high = PowerLaw(draws=40).fit(sizes, tokens, noisy).interval(sizes, tokens, level=0.95)
    inside = (low <= chinchilla(sizes, tokens)) & (chinchilla(sizes, tokens) <= high)
    assert inside.mean() > 0.7
    assert (low < high).all()


def test_power_laws_refuse_what_cannot_be() -> None:
    with pytest.raises(CuveeError, match="runs must be at least 6"):
        PowerLaw().fit([1e8] * 5, [1e9] * 5, [2.0] * 5)
    with pytest.raises(CuveeError, match="must be positive and finite"):
        PowerLaw().fit([1e8] * 6, [1e9] * 6, [0.0] * 6)
    model = PowerLaw().fit(*grid(), chinchilla(*grid()))
    with pytest.raises(CuveeError, match="draws must be at least 1"):
        model.interval([1e8], [1e9])
    with pytest.raises(CuveeError, match="level must be in"):
        model.interval([1e8], [1e9], level=1.0)


# --- steps
def curves(runs: int, steps: np.ndarray, noise: float = 0.0) -> np.ndarray:
    """Losses (M, T, 2) whose level rises from run to run."""
    rng = np.random.default_rng(0)
    level = 2 + 0.02 * np.arange(runs)
    table = level[:, None] + 0.8 * (steps / steps[-1]) ** -0.5
    both = np.stack([table, 1.2 * table], axis=2)
    return both + noise * rng.standard_normal(both.shape)


def test_curves_are_extrapolated_to_the_target() -> None:
    steps = np.arange(10.0, 110, 10)
    model = StepLaw(burn_in=0.0, draws=10).fit(steps, curves(6, steps))
    mean, deviation = model.predict(1000)
    truth = 2 + 0.02 * np.arange(6) + 0.8 * 10**-0.5
    assert mean[:, 0] == pytest.approx(truth, rel=0.02)
    assert mean.shape == deviation.shape == (6, 2)
    assert model.exponents == pytest.approx([0.5, 0.5], abs=0.1)


def test_noise_makes_comparisons_doubtful_and_differences_sure() -> None:
    steps = np.arange(10.0, 110, 10)
    model = StepLaw(draws=60).fit(steps, curves(12, steps, noise=0.01))
    assert model.better(1000, 0, 11) > 0.95
    assert model.better(1000, 11, 0) < 0.05
    assert model.better(1000, 3, 3) == 0.5
    assert (model.predict(1000)[1] > 0).all()


def test_pooled_curves_rank_better_than_last_losses() -> None:
    steps, wins = np.arange(10.0, 110, 10), 0
    table = curves(15, steps)
    for seed in range(10):
        noisy = table + 0.03 * np.random.default_rng(seed).standard_normal(table.shape)
        pooled = StepLaw(draws=0).fit(steps, noisy).predict(1000)[0].mean(1)
        by_curve, by_last = (np.corrcoef(score, np.arange(15))[0, 1] for score in (pooled, noisy[:, -1].mean(1)))
        wins += by_curve > by_last
    assert wins >= 8


@pytest.mark.parametrize(
    ("steps", "shape", "message"),
    [
        ([1, 2, 2], (1, 3, 1), "steps must be positive and increasing"),
        ([0, 1, 2], (1, 3, 1), "steps must be positive and increasing"),
        ([1, 2, 3], (1, 2, 1), "losses must be positive and of shape"),
        ([1, 9, 10], (1, 3, 1), "checkpoints after the burn-in must be at least 3"),
    ],
)
def test_step_laws_refuse_what_cannot_be(steps: Any, shape: Any, message: str) -> None:
    with pytest.raises(CuveeError, match=message):
        StepLaw().fit(steps, np.ones(shape))


def test_targets_must_be_possible() -> None:
    model = StepLaw(draws=0).fit([1, 2, 3, 4], np.ones((2, 4, 1)))
    with pytest.raises(CuveeError, match="target_steps must be positive"):
        model.predict(0)
    with pytest.raises(CuveeError, match="draws must be at least 1"):
        model.better(10, 0, 1)


# --- scale
def runs_of(sizes: tuple[float, ...], mixtures: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    weights = np.random.default_rng(3).dirichlet(np.ones(3), mixtures)
    rows = [(m, n, d) for m in range(mixtures) for n in sizes for d in TOKENS]
    which, size, tokens = (np.array(column) for column in zip(*rows, strict=True))
    return weights[which], size.astype(float), tokens.astype(float)


def scaled_losses(weights: np.ndarray, sizes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    worth = np.array([[1, 0.2, 0.05], [0.2, 1, 0.05], [0.05, 0.05, 1]])
    data = (0.02 + weights**0.6 @ worth.T) ** -0.25
    return 1.0 + 0.4 * (sizes[:, None] / 1e8) ** -0.22 + data * (tokens[:, None] / 1e10) ** -0.3


@pytest.fixture(scope="module")
def scale_model() -> ScaleModel:
    runs = runs_of(SIZES)
    noise = 0.004 * np.random.default_rng(4).standard_normal((len(runs[0]), 3))
    return ScaleLaw().fit(*runs, scaled_losses(*runs) + noise)


def test_larger_runs_are_predicted_with_honest_intervals(scale_model: ScaleModel) -> None:
    runs = runs_of((1e9,), mixtures=30)
    last = runs[2] == TOKENS[-1]
    weights, sizes, tokens = (part[last] for part in runs)
    truth = scaled_losses(weights, sizes, tokens)
    mean, deviation = scale_model.predict(weights, sizes, tokens)
    assert np.abs(mean / truth - 1).mean() < 0.006
    assert np.corrcoef(mean.mean(1), truth.mean(1))[0, 1] > 0.97
    low, high = scale_model.interval(weights, sizes, tokens)
    assert np.mean((low <= truth) & (truth <= high)) > 0.8
    assert (deviation > 0).all()


def test_doubt_grows_with_the_distance(scale_model: ScaleModel) -> None:
    equal = np.full((1, 3), 1 / 3)
    near, far = (scale_model.predict(equal, size, 2e10)[1] for size in (3e8, 3e10))
    assert (far > near).all()


def test_the_mean_of_losses_scales_as_they_do(scale_model: ScaleModel) -> None:
    weights = np.random.default_rng(5).dirichlet(np.ones(3), 4)
    mean, deviation = scale_model.predict_mean(weights, 1e9, 2e10, [1, 1, 0])
    assert mean == pytest.approx(scale_model.predict(weights, 1e9, 2e10)[0][:, :2].mean(1))
    assert (deviation > 0).all()


def test_scale_terms_have_exact_derivatives() -> None:
    mix = Terms(own=np.array([0, -1]), domains=3, rank=2)
    terms = ScaleTerms(mix=mix, reference=np.full(3, 1 / 3))
    rng = np.random.default_rng(6)
    vector, lowest = rng.normal(0, 0.3, terms.size), np.array([1.0, 2.0])
    inputs = np.column_stack([rng.dirichlet(np.ones(3), 5), rng.standard_normal((5, 2))])
    losses, slopes = terms.slopes(vector, inputs, lowest)
    assert losses == pytest.approx(terms.losses(vector, inputs, lowest))
    for place in range(terms.size):
        move = np.zeros(terms.size)
        move[place] = 1e-6
        change = (terms.losses(vector + move, inputs, lowest) - terms.losses(vector - move, inputs, lowest)) / 2e-6
        for loss, columns in enumerate(terms.columns):
            mine = slopes[loss][:, columns == place].sum(1)
            assert mine == pytest.approx(change[:, loss], abs=1e-7)


def test_scale_laws_refuse_what_cannot_be(scale_model: ScaleModel) -> None:
    weights, sizes, tokens = runs_of(SIZES, mixtures=2)
    losses = scaled_losses(weights, sizes, tokens)
    with pytest.raises(CuveeError, match="losses must be positive"):
        ScaleLaw().fit(weights, sizes, tokens, losses - 5)
    with pytest.raises(CuveeError, match="parameters must be positive"):
        ScaleLaw().fit(weights, -sizes, tokens, losses)
    with pytest.raises(CuveeError, match="tokens must be positive"):
        ScaleLaw().fit(weights, sizes, tokens[:3], losses)
    with pytest.raises(CuveeError, match="burn_in must be in"):
        ScaleLaw(burn_in=1.0).fit(weights, sizes, tokens, losses)
    with pytest.raises(CuveeError, match="level must be in"):
        scale_model.interval(weights, sizes, tokens, level=0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: effective_tokens("x", 1), "tokens must be numbers, but got 'x'"),
        (lambda: effective_tokens([1, 2], [1, 2, 3]), "unique must be of the shape of tokens"),
        (lambda: effective_tokens(1, 1, repeats=[1, 2]), "repeats must be positive and finite, but got [1, 2]"),
        (lambda: effective_weights([0.5, 0.5], 1, [1, 1]), "weights must be of shape (n, K), but got (2,)"),
        (lambda: effective_weights([[0.5, 0.5]], 0, [1, 1]), "tokens must be positive and finite, but got 0.0"),
        (lambda: effective_weights([[0.5, 0.5]], 9, [1, 1, 1]), "unique must be of shape (2,), but got (3,)"),
        (lambda: PowerLaw().fit([1.0] * 6, [1.0] * 7, [1.0] * 6), "tokens must be 6 numbers, as many as parameters"),
        (lambda: PowerLaw().fit([[1.0] * 6], [1.0] * 6, [1.0] * 6), "parameters must be of shape (n,), but got (1, 6)"),
        (
            lambda: PowerLaw().fit([1e40] * 6, [1.0] * 6, [1.0] * 6),
            "parameters must be in [1e-30, 1e+30], but got 1e+40",
        ),
        (lambda: PowerLaw(huber=0).fit([1.0] * 6, [1.0] * 6, [1.0] * 6), "huber must be above 0 and at most 1000"),
        (lambda: PowerLaw(seed=-1).fit([1.0] * 6, [1.0] * 6, [1.0] * 6), "seed must be an integer in [0, 2**63)"),
        (lambda: PowerLaw().fit(*grid(), chinchilla(*grid()), unique=[1e9]), "unique must be of shape (30,), or one"),
        (lambda: StepLaw().fit([1, 2, 3], np.ones((0, 3, 1))), "losses must be positive and of shape (M, 3, D)"),
        (lambda: StepLaw().fit([[1, 2], [3]], np.ones((1, 3, 1))), "steps must be numbers, but got [[1, 2], [3]]"),
        (lambda: StepLaw(burn_in="x").fit([1, 2, 3], np.ones((1, 3, 1))), "burn_in must be in [0, 1), but got 'x'"),
        (lambda: grown_shares([[1.0]], [[1.0]], None), "growth must be finite and at least 1, but got None"),
        (lambda: grown_shares([[1.0]], [[1e40]], 2), "losses must be at most 1e+30 in size, but got 1e+40"),
    ],
)
def test_what_laws_are_given_must_be_numbers_of_one_shape(call: Any, says: str) -> None:
    with pytest.raises(CuveeError) as caught:
        call()
    assert says in str(caught.value)


def test_what_models_are_asked_must_be_possible(scale_model: ScaleModel) -> None:
    model = PowerLaw(draws=2).fit(*grid(), chinchilla(*grid()))
    with pytest.raises(CuveeError, match="parameters must be positive and finite, but got 0"):
        model.predict([0.0], [1e9])
    with pytest.raises(CuveeError, match=r"tokens must be as many as parameters, \(2,\), but got \(3,\)"):
        model.predict([1e8, 1e8], [1e9] * 3)
    with pytest.raises(CuveeError, match=r"level must be in \(0, 1\), but got 'x'"):
        model.interval([1e8], [1e9], level="x")
    steps = StepLaw(draws=2).fit([1, 2, 3, 4], np.ones((2, 4, 1)))
    with pytest.raises(CuveeError, match=r"second must be an integer in \[0, 2\), but got 2"):
        steps.better(10, 0, 2)
    with pytest.raises(CuveeError, match="target_steps must be positive and finite"):
        steps.predict([10, 20])
    with pytest.raises(CuveeError, match="weights must be numbers, but got 'x'"):
        scale_model.predict("x", 1e8, 1e9)
    with pytest.raises(CuveeError, match="parameters must be within a factor of 1e"):
        ScaleLaw().fit(np.ones((2, 1)), [1e-20, 1e20], 1e9, np.ones((2, 1)))


def test_runs_that_are_all_the_same_have_a_law_of_steps() -> None:
    model = StepLaw(draws=3).fit(np.arange(1.0, 6), np.full((8, 5, 2), 1e25))
    assert model.predict(100)[0] == pytest.approx(np.full((8, 2), 1e25))


# --- spread
def test_wide_losses_count_less_for_larger_models() -> None:
    weights = np.random.default_rng(7).dirichlet(np.ones(2), 20)
    losses = np.column_stack([weights[:, 0], 4 * weights[:, 1]])
    assert grown_shares(weights, losses, 1) == pytest.approx([0.5, 0.5])
    shares = grown_shares(weights, losses, 100)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] / shares[1] == pytest.approx(4 ** (0.04 * np.log(100)))
    with pytest.raises(CuveeError, match="growth must be finite and at least 1"):
        grown_shares(weights, losses, 0.5)


def test_examples_in_the_documentation_run() -> None:
    assert doctest.testmod(cuvee.search.laws).failed == 0
