"""What `auto` believes: laws and their slopes, the joint posterior against the plain formula, early runs."""

from __future__ import annotations

import numpy as np
import pytest

from cuvee.search.methods import Observation, Trial
from cuvee.search.methods.belief import Belief, alikeness
from cuvee.search.methods.effective_data import CONCAVITY, Laws, fit_laws
from cuvee.search.methods.fidelity import Rungs
from cuvee.search.methods.method import History
from cuvee.search.space import Space

SPACE = Space(["web", "code", "math", "noise"])
OWN = np.eye(3, 4, dtype=bool)


def truth(weights: np.ndarray) -> np.ndarray:
    """Losses of three domains, each of which learns from its own data and a little from the others'."""
    worth = np.array([[1, 0.1, 0.02, 0.01], [0.05, 2, 0.1, 0.01], [0.02, 0.02, 0.7, 0.01]])
    data = weights**CONCAVITY @ worth.T
    return np.array([1.0, 2.0, 0.5]) + np.array([1.0, 0.5, 1.5]) * data**-0.25


def runs(n: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = SPACE.sample(n, rng, strengths=(1, 20))
    return weights, truth(weights) + noise * rng.standard_normal((n, 3))


def test_slopes_are_derivatives_of_the_losses() -> None:
    weights, losses = runs(12, 0.01)
    laws = fit_laws(weights, losses, OWN, np.ones(12))
    slopes, step = laws.slopes(weights), 1e-6
    for parameter in range(laws.mode.shape[1]):
        shift = step * np.eye(laws.mode.shape[1])[parameter]
        ends = [Laws(mode=laws.mode + side * shift, mean=laws.mean, sd=laws.sd, noise=laws.noise) for side in (1, -1)]
        numeric = (ends[0].losses(weights) - ends[1].losses(weights)) / (2 * step)
        assert slopes[:, :, parameter] == pytest.approx(numeric, rel=1e-5, abs=1e-7)


def test_laws_find_what_made_the_runs() -> None:
    weights, losses = runs(60, 0.01)
    laws = fit_laws(weights, losses, OWN, np.ones(60))
    fresh, _ = runs(200, 0.0, seed=1)
    assert np.abs(laws.losses(fresh).T - truth(fresh)).max() < 0.1
    assert (laws.noise < 0.02).all()
    assert (laws.mode[:, 3:].argmax(axis=1) == [0, 1, 2]).all()  # own data is worth most


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_one_run_that_is_far_noisier_counts_for_little(noise: float) -> None:
    weights, losses = runs(20, noise)
    spoiled = losses.copy()
    spoiled[7] += 3
    variances = np.ones(20)
    variances[7] = 1e8
    wrong, right = (fit_laws(weights, each, OWN, variances) for each in (spoiled, losses))
    assert np.abs(wrong.losses(weights) - right.losses(weights)).max() < 0.02


def test_joint_is_the_posterior_of_the_plain_formula() -> None:
    weights, losses = runs(9, 0.05)
    variances = np.linspace(1, 3, 9)
    belief = Belief.of(weights, losses, OWN, variances)
    targets, points = np.array([0.5, 0.2, 0.3]), SPACE.sample(6, np.random.default_rng(5))
    joint = belief.joint(points, targets)
    mean, covariance = np.zeros(6), np.zeros((6, 6))
    everything = np.concatenate([weights, points])
    for loss, target in enumerate(targets):
        slopes = belief.laws.slopes(everything)[loss]
        prior = slopes @ np.diag(belief.laws.sd[loss] ** 2) @ slopes.T
        prior += belief.rest[loss] * alikeness(everything, everything, belief.length)
        expected = belief.laws.losses(everything)[loss] - slopes @ belief.laws.offset[loss]
        seen = prior[:9, :9] + belief.noise[loss] * np.diag(variances)
        gain = np.linalg.solve(seen, prior[:9, 9:]).T
        mean += target * (expected[9:] + gain @ (losses[:, loss] - expected[:9]))
        covariance += target**2 * (prior[9:, 9:] - gain @ prior[:9, 9:])
    assert joint.mean == pytest.approx(mean, abs=1e-6)
    assert belief.mean(points, targets) == pytest.approx(mean, abs=1e-6)
    assert joint.covariance(np.arange(6)) == pytest.approx(covariance, abs=1e-6)
    assert joint.variance == pytest.approx(np.diag(covariance), abs=1e-6)
    joint.run(2, variance=2.0)
    row = covariance[2]
    after = covariance - np.outer(row, row) / (row[2] + 2 * joint.noise)
    assert joint.covariance(np.arange(6)) == pytest.approx(after, abs=1e-6)


def test_losses_that_never_change_and_equal_runs_do_no_harm() -> None:
    weights = np.repeat(SPACE.prior[None], 5, axis=0)
    belief = Belief.of(weights, np.full((5, 3), 2.0), OWN, np.ones(5))
    joint = belief.joint(SPACE.sample(4, np.random.default_rng(0)), np.ones(3) / 3)
    assert np.isfinite(joint.mean).all()
    assert joint.mean == pytest.approx(2.0, abs=0.05)


def test_early_runs_are_moved_onto_full_ones() -> None:
    history, rng = History(SPACE), np.random.default_rng(3)
    mixtures = SPACE.sample(6, rng)
    for place, mixture in enumerate(mixtures):
        full = np.append(truth(mixture[None])[0], 3.0)
        history.add([Observation(Trial(number=2 * place, weights=mixture, fidelity=0.3), 0.4 + 1.5 * full)])
        if place < 4:
            history.add([Observation(Trial(number=2 * place + 1, weights=mixture), full)])
    weights, losses, variances = Rungs((0.3,)).as_full(history)
    assert len(weights) == 6  # one a mixture: the early run of one that ran in full is left out
    assert (variances == 1).sum() == 4
    assert (variances[variances != 1] > 1).all()
    for mixture, loss in zip(weights, losses, strict=True):
        assert loss == pytest.approx(np.append(truth(mixture[None])[0], 3.0), abs=0.02)
