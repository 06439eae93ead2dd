"""The method to use if one has no reason for another: laws of all losses, knowledge gradient, and a doubt in itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from ...errors import MixtureError
from .belief import Belief, Joint
from .fidelity import Rungs
from .method import F64, Recommendation, Trial, pooled, same_mixture
from .searcher import Searcher, Settings, checked_count

if TYPE_CHECKING:
    from ..space import Space

FEWEST = 4  # runs from which there is a belief
DRAWS = 300  # of candidates from the whole space
STARTS, NEAR, ZOOMS = 3, 100, 6  # the search for the least expected objective: starts, moves from each, narrowings
FIRST_REACH, ZOOM = 0.5, 0.7  # of those moves, and what it shrinks by
AROUND, REACH = 150, 0.4  # candidates around each of the best
RIVALS = 150  # mixtures that a run may turn out to be in favour of
MOST_CORNERS = 64
MOST_WORK = 200_000_000  # losses x domains ** 3; beyond, one law of the objective stands for those of the losses
SURE_OF_ANSWER = 0.9  # probability of being better than the free baselines, below which one of them is recommended
SURE_OF_UNIFORM = 0.98  # of the uniform mixture being better than the prior, below which it is the prior
CAUTION = 1.0  # standard deviations of the difference to the prior, added to the objective of what is recommended
SETTLED = 1.25  # runs a domain, below which only mixtures that ran are recommended
NORMAL = np.polynomial.hermite_e.hermegauss(9)  # places and weights of a normal integral


class Auto(Searcher):
    """Bayesian search with a law of every loss.

    Runs the free baselines first (the prior, the uniform mixture), then the mixture of the domains that are measured,
    if losses are of domains. From then on it holds a `Belief`: per loss an effective-data law whose worths a priori say
    that data of a domain helps its own loss most, and a Gaussian process on the rest. It runs what promises the
    greatest knowledge gradient (Frazier, Powell, Dayanik 2009): how much lower the least expected objective will be, on
    average, once the run is known, noise and all. Trials of one `ask` take each other's results as come out as
    expected.

    It recommends the mixture of the least objective, a deviation of doubt added, and while runs are few only one of
    those that ran; but a free baseline unless that mixture is better than every one of them with a probability of 0.9:
    then the prior, or the uniform mixture if that is better than the prior with a probability of 0.98.

    Args:
        space, settings: as of `Searcher`.
        rungs: fidelities below 1 that mixtures run at first, as (0.3,); of three that have run at one, the best goes on
            to the next, at last to 1 (successive halving: Jamieson and Talwalkar 2016). Empty: all runs are full ones.

    Raises:
        MixtureError: a value is out of its range.
    """

    name = "auto"

    def __init__(self, space: Space, *, rungs: Sequence[float] = (), **settings: Unpack[Settings]) -> None:
        super().__init__(space, **settings)
        ladder = [0.0, *rungs, 1.0]
        if not all(isinstance(rung, Real) for rung in rungs) or any(low >= high for low, high in pairwise(ladder)):
            raise MixtureError(f"rungs must rise from above 0 to below 1, but got {[*rungs]}")
        self.rungs = Rungs(tuple(float(rung) for rung in rungs))

    def ask(self, n: int = 1) -> list[Trial]:
        """Return the baselines first, then mixtures of the greatest knowledge gradient and those that are promoted."""
        checked_count(n)
        first = self.history.next_number
        planned = self._design(n)
        trials = [Trial(number=first + i, weights=w, fidelity=f) for i, (w, f) in enumerate(planned)]
        if len(trials) == n:
            return trials
        joint = self._joint(self._rng())
        for number in range(first + len(trials), first + n):
            trials.append(self._proposal(joint, number, trials))
        return trials

    def recommend(self) -> Recommendation:
        """Return the mixture of the least objective, or a free baseline if it is not surely better than those."""
        if len(self.history) < FEWEST:
            return Recommendation(weights=self.space.prior, kind="baseline")
        joint = self._joint(self._rng(1))
        free = np.arange(len(self.baselines))  # candidates begin with the baselines
        sure = _confidence(joint, free, degrees=len(self.history) - 1)
        cautious = joint.mean + CAUTION * _deviation(joint, 0)
        if len(self.history) < SETTLED * self.space.size:
            ran = [same_mixture(w, self.history.weights).any() for w in joint.weights]
            cautious[~np.array(ran)] = np.inf
        best = int(np.argmin(cautious))
        if best in free or sure[best] < SURE_OF_ANSWER:
            best = 1 if len(free) > 1 and sure[1] >= SURE_OF_UNIFORM else 0
        return self._recommended(
            joint.weights[best],
            mean=float(joint.mean[best]),
            sd=float(np.sqrt(joint.variance[best])),
            confidence=float(sure[best]) if best not in free else float("nan"),
        )

    def _design(self, n: int) -> list[tuple[F64, float]]:
        """Return mixtures and fidelities that wait for no belief: the baselines, and draws while it lacks runs."""
        anchors = [(w, f) for w in self._anchors() for f in (1.0, *self.rungs.low) if not self._has_run(w, f)]
        lacking = n - len(anchors) if len(self.history) < FEWEST else 0
        if lacking <= 0:
            return anchors[:n]
        return [*anchors, *((w, self.rungs.first) for w in self.space.sample(lacking, self._rng(2)))]

    def _anchors(self) -> list[F64]:
        """Return the free baselines and the mixture of the domains that are measured."""
        anchors = list(self.baselines)
        own, targets = self._own_and_targets()
        measured = targets @ own
        if own.any():
            mixture = self.space.fit(np.where(measured > 0, measured, 0.0))
            if not same_mixture(mixture, self.baselines).any():
                anchors.append(mixture)
        return anchors

    def _own_and_targets(self) -> tuple[NDArray[np.bool_], F64]:
        """Return which loss is measured on which domain, (D, K), and the weights of the losses, (D,)."""
        own = np.asarray(self.history.own[:, None] == np.arange(self.space.size))
        return own, self.history.target_weights

    def _has_run(self, weights: F64, fidelity: float) -> bool:
        if not len(self.history):
            return False
        return bool((same_mixture(weights, self.history.weights) & (self.history.fidelities == fidelity)).any())

    def _belief(self) -> tuple[Belief, F64]:
        """Return what the runs say, and the weights of its losses."""
        weights, losses, variances = self.rungs.as_full(self.history)
        own, targets = self._own_and_targets()
        if losses.shape[1] * self.space.size**3 > MOST_WORK:
            losses, own, targets = (losses @ targets)[:, None], np.atleast_2d(own.any(axis=0)), np.ones(1)
        return Belief.of(weights, losses, own, variances), targets

    def _joint(self, rng: np.random.Generator) -> Joint:
        """Return the belief in candidates: baselines, mixtures that ran, draws, corners, and all around the best."""
        belief, targets = self._belief()
        space = self.space
        ran, _, _ = pooled(self.history.weights, self.history.objective)
        wide = [self.baselines, ran, space.sample(DRAWS, rng), space.corners()[:MOST_CORNERS]]
        pool = np.concatenate(wide)
        best = pool[np.argsort(belief.mean(pool, targets), kind="stable")[:STARTS]]
        for turn in range(ZOOMS):
            moves = [space.moves(w, NEAR, rng, size=FIRST_REACH * ZOOM**turn) for w in best]
            near = np.concatenate([best, *moves])
            best = near[np.argsort(belief.mean(near, targets), kind="stable")[:STARTS]]
        around = [space.moves(w, AROUND, rng, size=REACH) for w in best]
        return belief.joint(np.concatenate([pool, best, *around]), targets)

    def _proposal(self, joint: Joint, number: int, asked: Sequence[Trial]) -> Trial:
        """Return the next trial, and take its result in `joint` as come out as expected."""
        promoted = self.rungs.promoted(self.history, joint, asked)
        if promoted is not None:
            place, fidelity = promoted
        else:
            fidelity = self.rungs.first
            variance = self.rungs.variance(self.history, fidelity)
            place = int(np.argmin(_least_after(joint, joint.noise * variance)))
        joint.run(place, self.rungs.variance(self.history, fidelity))
        return Trial(number=number, weights=joint.weights[place], fidelity=fidelity)


def _least_after(joint: Joint, noise: float) -> F64:
    """Return for a run of each mixture what the least expected objective will be after it, on average, shape (m,)."""
    rivals = np.argsort(joint.mean, kind="stable")[:RIVALS]
    shift = joint.covariance(rivals) / np.sqrt(joint.variance + noise)
    expected = np.zeros(len(joint.mean))
    places, weights = NORMAL
    for place, weight in zip(places.tolist(), (weights / weights.sum()).tolist(), strict=True):
        expected += weight * (joint.mean[rivals][:, None] + place * shift).min(axis=0)
    return expected


def _deviation(joint: Joint, other: int) -> F64:
    """Return the standard deviation of every mixture's objective minus that of another, shape (m,)."""
    row = joint.covariance(np.array([other]))[0]
    return np.asarray(np.sqrt(np.maximum(joint.variance + joint.variance[other] - 2 * row, 1e-14)))


def _confidence(joint: Joint, free: NDArray[np.int64], degrees: int) -> F64:
    """Return a lower bound, over the baselines, of the probability that each mixture is better, shape (m,).

    Baselines are near each other, where a belief is surest of itself; so between two of them the noise of their own
    runs counts as well. The deviations were learned from few runs: their degrees of freedom are those of Student's t.
    """
    from scipy.special import stdtr

    bounds = []
    for other in free.tolist():
        variance = _deviation(joint, other) ** 2
        variance[free] += 2 * joint.noise
        better = stdtr(degrees, (joint.mean[other] - joint.mean) / np.sqrt(variance))
        better[other] = 1.0  # none is better than itself; the others decide
        bounds.append(better)
    return np.asarray(np.min(bounds, axis=0))
