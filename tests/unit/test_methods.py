"""Search methods: what they ask for, what they make of answers, and what they recommend."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuvee.search.methods
from cuvee.errors import MixtureError
from cuvee.search.methods import METHODS, Auto, Bandit, DoReMi, Method, Observation, Trial, make_method
from cuvee.search.methods.method import History, pooled
from cuvee.search.score import run_scores
from cuvee.search.space import Space

NAMES = ("web", "code", "math", "noise")
SPACE = Space(NAMES, prior=[4, 2, 1, 1])
BOUNDED = Space(NAMES, lower={"web": 0.1}, upper={"code": 0.4}, fixed={"noise": 0.05}, prior=[4, 2, 1, 1])


def losses_of(weights: np.ndarray, fidelity: float = 1.0) -> np.ndarray:
    """Three domains that learn from their own data, and one that nobody learns."""
    learned = np.array([2.0, 1.5, 1.0]) + np.array([0.5, 0.8, 0.4]) * (weights[:3] + 0.01) ** -0.3
    return np.append(learned + 0.3 * (1 - fidelity), 3.0)


def played(method: Any, runs: int, batch: int = 1, noise: float = 0.01, seed: int = 0) -> list[Observation]:
    """Run a method, and return all it was told."""
    rng, told = np.random.default_rng(seed), []
    while len(told) < runs:
        for trial in method.ask(min(batch, runs - len(told))):
            losses = losses_of(trial.weights, trial.fidelity) + noise * rng.standard_normal(4)
            told.append(Observation(trial, losses))
        method.tell(told[len(method.history) :])
    return told


# --- all methods
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("space", [SPACE, BOUNDED], ids=["simplex", "bounds"])
def test_trials_are_numbered_in_the_space_and_asking_changes_nothing(name: str, space: Space) -> None:
    method = make_method(name, space, seed=3, budget=12)
    assert isinstance(method, Method)
    assert method.name == name
    assert method.recommend().weights == pytest.approx(space.prior)
    told: list[Observation] = []
    for size in (3, 1, 4, 2):
        trials = method.ask(size)
        again = method.ask(size)
        assert [trial.number for trial in trials] == list(range(len(told), len(told) + size))
        assert all(space.contains(trial.weights) and 0 < trial.fidelity <= 1 for trial in trials)
        assert [t.weights.tolist() for t in trials] == [t.weights.tolist() for t in again]
        fresh = [Observation(trial, losses_of(trial.weights, trial.fidelity)) for trial in trials]
        method.tell(fresh)
        told += fresh
    answer = method.recommend()
    assert space.contains(answer.weights)
    assert answer.kind in {"baseline", "trial", "model"}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_made_anew_goes_on_as_the_first_would(name: str) -> None:
    options: dict[str, Any] = {"rungs": (0.3,)} if name == "auto" else {}
    method = make_method(name, BOUNDED, seed=5, budget=16, **options)
    told = played(method, 11, batch=3)
    rebuilt = make_method(name, BOUNDED, seed=5, budget=16, **options)
    rebuilt.tell(told[::-1])  # in whatever order
    for mine, theirs in zip(method.ask(3), rebuilt.ask(3), strict=True):
        assert (mine.number, mine.fidelity) == (theirs.number, theirs.fidelity)
        assert mine.weights.tolist() == theirs.weights.tolist()
    assert method.recommend().weights.tolist() == rebuilt.recommend().weights.tolist()
    other = make_method(name, BOUNDED, seed=6, budget=16, **options)
    other.tell(told)
    if name != "doremi":  # draws nothing
        assert any(a.weights.tolist() != b.weights.tolist() for a, b in zip(method.ask(3), other.ask(3), strict=True))


@pytest.mark.parametrize("name", ["auto", "bandit", "doe"])
def test_the_free_baselines_run_first(name: str) -> None:
    first, second, *_ = make_method(name, SPACE, budget=12).ask(4)
    assert first.weights == pytest.approx(SPACE.prior)
    assert second.weights == pytest.approx(SPACE.uniform)


@pytest.mark.parametrize("name", METHODS)
def test_what_is_recommended_beats_the_free_baselines_where_there_is_much_to_gain(name: str) -> None:
    runs = 18 if name == "doe" else 30  # its proposals take a second each
    method = make_method(name, SPACE, seed=1, budget=runs)
    played(method, runs, batch=6)
    free = min(losses_of(SPACE.prior).mean(), losses_of(SPACE.uniform).mean())
    gain = free - losses_of(method.recommend().weights).mean()
    assert gain > (0.02 if name == "auto" else 0.0), gain


@pytest.mark.parametrize("name", METHODS)
def test_a_space_of_one_mixture_and_one_of_two_domains(name: str) -> None:
    for space in (Space(["all"]), Space(["a", "b"])):
        method = make_method(name, space, budget=6)
        for _ in range(3):
            trials = method.ask(2)
            assert all(space.contains(trial.weights) for trial in trials)
            method.tell(Observation(trial, 2.0 + trial.weights) for trial in trials)
        assert space.contains(method.recommend().weights)


def test_unknown_methods_and_options_are_named() -> None:
    with pytest.raises(MixtureError, match=r"method must be one of .* but got 'bandits'; did you mean 'bandit'\?"):
        make_method("bandits", SPACE)
    with pytest.raises(MixtureError, match=r"option of bandit must be one of .* but got 'rungs'"):
        make_method("bandit", SPACE, rungs=(0.3,))
    with pytest.raises(MixtureError, match=r"budget must be an integer in .* but got 0"):
        make_method("auto", SPACE, budget=0)
    with pytest.raises(MixtureError, match=r"n must be an integer in .* but got 0"):
        make_method("doe", SPACE).ask(0)


# --- history
def test_history_orders_pools_and_weighs() -> None:
    history = History(SPACE, targets=[1, 0, 0, 3])
    history.add([Observation(Trial(number=4, weights=SPACE.prior), np.array([1.0, 9, 9, 2.0]))])
    history.add([Observation(Trial(number=1, weights=SPACE.uniform), np.array([2.0, 9, 9, 2.0]))])
    assert history.next_number == 5
    assert history.objective.tolist() == [2.0, 1.75]
    assert history.own.tolist() == [0, 1, 2, 3]
    assert History(SPACE, losses=["math", "elsewhere"]).own.tolist() == [2, -1]
    weights, means, counts = pooled(history.weights[[1, 0, 1]], np.array([1.0, 5.0, 2.0]))
    assert weights.tolist() == [SPACE.prior.tolist(), SPACE.uniform.tolist()]
    assert means.tolist() == [1.5, 5.0]
    assert counts.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("trial", "losses", "text"),
    [
        ({"weights": np.ones(3) / 3}, [1.0] * 4, r"weights of trial 0 must be finite, of shape \(4,\), but got"),
        ({}, [1.0, math.nan, 1, 1], "losses of trial 0 must be finite, of shape .* but got"),
        ({}, [1.0] * 3, r"losses of trial 0 must be finite, of shape \(4,\), but got"),
        ({"fidelity": 0.0}, [1.0] * 4, r"fidelity of trial 0 must be in \(0, 1\], but got 0.0"),
        ({"number": -1}, [1.0] * 4, "trial number must be an integer in .* but got -1"),
    ],
)
def test_what_history_refuses(trial: dict, losses: list[float], text: str) -> None:
    told = Trial(**{"number": 0, "weights": SPACE.prior} | trial)
    with pytest.raises(MixtureError, match=text):
        make_method("auto", SPACE, losses=NAMES).tell([Observation(told, np.array(losses))])


def test_targets_are_one_for_each_loss() -> None:
    with pytest.raises(MixtureError, match="targets must have one weight for each of 4 losses, but got 2"):
        Auto(SPACE, targets=[1, 1], losses=NAMES)
    with pytest.raises(MixtureError, match="targets must be finite weights, at least 0 and not all 0, but got"):
        Auto(SPACE, targets=[0, 0])


# --- bandit
def test_bandit_never_returns_an_arm_that_did_not_run() -> None:
    """Losses are about 5: a posterior mean of 0 for arms that never ran would look best of all."""
    bandit = Bandit(SPACE, degree=4, seed=2)
    assert len(bandit.arms) > 30
    ran = []
    for _ in range(6):
        (trial,) = bandit.ask()
        ran.append(trial.weights.tolist())
        bandit.tell([Observation(trial, losses_of(trial.weights) + 3)])
        assert bandit.recommend().weights.tolist() in ran


def test_bandit_posterior_by_hand() -> None:
    bandit = Bandit(Space(["a", "b"]), degree=1)  # arms: half and half, a, b
    runs = [(bandit.arms[0], 1.0), (bandit.arms[1], 3.0), (bandit.arms[1], 2.0)]
    bandit.tell(Observation(Trial(number=i, weights=w), np.array([y, y])) for i, (w, y) in enumerate(runs))
    pulls, mean, count, shape, rate = bandit._posterior()
    sd = np.std([1.0, 3.0, 2.0])  # rewards: (2 - y) / sd
    assert pulls.tolist() == [1, 2, 0]
    assert mean == pytest.approx([(1 / sd) / 1.1, (-0.5 / sd * 2) / 2.1, 0])
    assert count == pytest.approx([1.1, 2.1, 0.1])
    assert shape == pytest.approx([1.5, 2.0, 1.0])
    squares = 2 * (0.5 / sd) ** 2
    assert rate == pytest.approx(
        [1 + 0.5 * 0.1 / 1.1 / sd**2, 1 + 0.5 * squares + 0.5 * 0.1 * 2 / 2.1 * (0.5 / sd) ** 2, 1]
    )


# --- DoReMi
def test_doremi_step_by_hand() -> None:
    space = Space(["a", "b"], prior=[3, 1])
    method = DoReMi(space, step=0.5, smoothing=0.1)
    reference = Trial(number=0, weights=space.prior)
    assert method.ask(2)[0].fidelity == 1
    assert method.ask(2)[1].fidelity < 1
    method.tell([Observation(reference, np.array([2.0, 2.0]))])
    method.tell([Observation(Trial(number=1, weights=space.prior, fidelity=0.5), np.array([2.1, 2.7]))])
    raised = np.array([0.75 * math.exp(0.05), 0.25 * math.exp(0.35)])
    moved = 0.9 * raised / raised.sum() + 0.05
    assert method.ask()[0].weights == pytest.approx(moved)
    assert method.recommend().weights == pytest.approx((space.prior + moved) / 2)


def test_doremi_needs_losses_of_domains() -> None:
    with pytest.raises(MixtureError, match="losses must name at least one of the domains"):
        DoReMi(SPACE, losses=["benchmark"])


# --- auto
def test_auto_recommends_a_free_baseline_where_all_mixtures_are_alike() -> None:
    rng, baselines = np.random.default_rng(7), 0
    for seed in range(6):
        method = Auto(SPACE, seed=seed)
        for _ in range(8):
            (trial,) = method.ask()
            method.tell([Observation(trial, 3.0 + 0.05 * rng.standard_normal(4))])
        baselines += method.recommend().kind == "baseline"
    assert baselines >= 5  # each has a chance of less than one in ten to be taken in


def test_auto_falls_back_on_the_better_free_baseline() -> None:
    names = ["functions", "reference", "facts"]
    method = make_method("auto", Space(names, rows=[3000, 800, 120]), losses=names)
    for _ in range(16):  # the uniform mixture is best, and 0.1 nats better than the prior
        trials = method.ask(1)
        method.tell(Observation(trial, 2 + (trial.weights - 0.5) ** 2) for trial in trials)
    weights = method.recommend().weights
    assert np.abs(weights - 1 / 3).max() < 0.02


def test_auto_tells_the_measured_domains_from_the_others() -> None:
    method = Auto(SPACE, losses=("code", "math"), targets=[3, 1])
    assert method.ask(3)[2].weights == pytest.approx([0, 0.75, 0.25, 0], abs=1e-6)


def test_auto_promotes_one_of_three() -> None:
    method = Auto(SPACE, seed=4, rungs=(0.3,))
    told = played(method, 24, batch=4)
    low = {tuple(seen.trial.weights.round(6)) for seen in told if seen.trial.fidelity == 0.3}
    full = {tuple(seen.trial.weights.round(6)) for seen in told if seen.trial.fidelity == 1}
    assert full <= low  # all that ran in full had run at 0.3 too, the baselines among them
    assert 4 <= len(full) <= 1 + len(low) / 2
    spent = sum(seen.trial.fidelity for seen in told)
    assert spent < 0.7 * len(told)
    free = min(losses_of(SPACE.prior).mean(), losses_of(SPACE.uniform).mean())
    assert losses_of(method.recommend().weights).mean() < free


def test_auto_without_names_and_with_one_law_for_all_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuvee.search.methods.auto.MOST_WORK", 1)
    method = Auto(SPACE, seed=1)
    played(method, 14, batch=2)
    free = min(losses_of(SPACE.prior).mean(), losses_of(SPACE.uniform).mean())
    assert losses_of(method.recommend().weights).mean() < free


@pytest.mark.parametrize("rungs", [(0.0,), (0.5, 0.3), (1.0,), (0.3, 0.3)])
def test_rungs_rise(rungs: tuple[float, ...]) -> None:
    with pytest.raises(MixtureError, match="rungs must rise from above 0 to below 1, but got"):
        Auto(SPACE, rungs=rungs)


# --- scores
def test_run_scores_takes_one_run_or_many_at_once() -> None:
    def score(weights: dict[str, float], budget: float, seed: int) -> dict[str, float]:
        return {"web": weights["web"] + budget, "code": float(seed)}

    class Many:
        def many(self, weights: np.ndarray, budget: float, seed: int) -> list[dict[str, float]]:
            return [score(dict(zip(NAMES, row, strict=True)), budget, seed) for row in weights]

    mixtures = np.stack([SPACE.prior, SPACE.uniform])
    for one in (score, Many()):
        names, losses = run_scores(one, SPACE, mixtures, budget=0.5, seed=3)
        assert names == ("web", "code")
        assert losses.tolist() == [[1.0, 3.0], [0.75, 3.0]]
        assert run_scores(one, SPACE, mixtures, losses=("code",))[1].shape == (2, 1)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda: None, "score must return a mapping of losses by name, but got None"),
        (lambda: {"web": math.inf}, "loss of 'web' must be a finite number, but got inf"),
        (lambda: {"web": "low"}, "loss of 'web' must be a finite number, but got 'low'"),
        (lambda: {"code": 1.0}, "score must return a loss of 'web', but got"),
    ],
)
def test_run_scores_refuses_what_is_no_loss(answer: Callable[[], Any], text: str) -> None:
    with pytest.raises(MixtureError, match=text):
        run_scores(lambda *_: answer(), SPACE, SPACE.prior[None], losses=("web",))


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(cuvee.search.methods).failed == 0
