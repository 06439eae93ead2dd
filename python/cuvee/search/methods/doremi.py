"""DoReMi by proxy runs: domains that a small run has most left to learn of are given more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np

from ...errors import MixtureError
from .method import F64, SAME, Recommendation, Trial
from .searcher import Searcher, Settings, checked_count

if TYPE_CHECKING:
    from ..space import Space

FIDELITIES = (0.5, 0.25, 0.75)  # of the proxy runs in turn: places on the course of one training


class DoReMi(Searcher):
    """Domain reweighting with minimax optimisation (Xie et al. 2023, algorithm 1), with whole runs for steps.

    The paper (2305.10429) trains a reference model on the prior, then a proxy whose mixture moves while it trains:

        excess_k = max(loss_k of the proxy - loss_k of the reference, 0)
        p' proportional to p * exp(step * excess),      p = (1 - smoothing) * p' + smoothing * uniform

    and answers with the mean of p. A score trains one mixture from scratch, so here the first trial, of fidelity 1, is
    the reference, and each further one a run of a lower fidelity at the mixture of the moment: half-way through its
    training it has an excess over the finished reference in what there is still to learn, and none in noise. Trials of
    one `ask` share their mixture and differ in fidelity; each makes a step of its own excess.

    Args:
        space, settings: as of `Searcher`. Only losses of a domain's own name have an excess, and
            the objective's weights multiply it.
        step: eta, above 0.
        smoothing: c, in [0, 1).

    Raises:
        MixtureError: no loss is one of a domain, or a value is out of its range.
    """

    name = "doremi"

    def __init__(
        self, space: Space, *, step: float = 1.0, smoothing: float = 1e-3, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(space, **settings)
        if not 0 < step < np.inf:
            raise MixtureError(f"step must be finite and above 0, but got {step!r}")
        if not 0 <= smoothing < 1:
            raise MixtureError(f"smoothing must be in [0, 1), but got {smoothing!r}")
        self.step, self.smoothing = float(step), float(smoothing)
        named = self.history.losses
        if named is not None and (self.history.own < 0).all():
            raise MixtureError(f"losses must name at least one of the domains {list(space.names)}, but got {[*named]}")

    def ask(self, n: int = 1) -> list[Trial]:
        """Return the reference if it has not run, then proxy runs at the mixture of the moment."""
        first = self.history.next_number
        lacking = self._reference() is None
        at = self._course()[-1]
        trials = []
        for number in range(first, first + checked_count(n)):
            if lacking and number == first:
                trials.append(Trial(number=number, weights=self.space.prior))
            else:
                trials.append(Trial(number=number, weights=at, fidelity=FIDELITIES[number % len(FIDELITIES)]))
        return trials

    def recommend(self) -> Recommendation:
        """Return the mean of the mixtures along the course; the prior before there is one."""
        return self._recommended(self.space.fit(self._course().mean(axis=0)))

    def _reference(self) -> F64 | None:
        """Return the losses of the first full run of the prior, shape (D,)."""
        for seen in self.history.observations:
            if seen.trial.fidelity == 1 and np.abs(seen.trial.weights - self.space.prior).max() < SAME:
                return seen.losses
        return None

    def _course(self) -> F64:
        """Return the mixtures before and after each proxy run told, shape (t, K)."""
        reference, course = self._reference(), [self.space.prior]
        if reference is None:
            return np.array(course)
        own, targets = self.history.own, self.history.target_weights
        if (own < 0).all():
            raise MixtureError(f"losses must be of domains {list(self.space.names)}, but got {len(own)} of other names")
        for seen in self.history.observations:
            if seen.trial.fidelity == 1:
                continue
            excess = np.zeros(self.space.size)
            over = np.maximum(seen.losses - reference, 0) * targets * len(targets)
            np.add.at(excess, own[own >= 0], over[own >= 0])
            course.append(self._moved(course[-1], excess))
        return np.array(course)

    def _moved(self, at: F64, excess: F64) -> F64:
        log_weights = np.log(np.maximum(at, 1e-300)) + self.step * excess
        moved = np.exp(log_weights - log_weights.max())
        return self.space.fit((1 - self.smoothing) * moved / moved.sum() + self.smoothing / self.space.size)
