"""What all built-in methods share: a space, a seed, the history, and the two free baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from ...checks import as_int
from ...errors import MixtureError
from .method import F64, MOST_TRIALS, History, Observation, Recommendation, Trial, pooled, same_mixture

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..space import Space

USUAL_BUDGET = 64  # if nobody says how many runs there will be


class Settings(TypedDict, total=False):
    """What every method may be told besides the space.

    Attributes:
        seed: of all that is drawn.
        targets: weight of each loss in the objective, shape (D,); None: all the same.
        losses: names of the D losses; None: those of the domains, if there are as many.
        budget: whole runs that are planned; a hint.
    """

    seed: int
    targets: ArrayLike | None
    losses: Sequence[str] | None
    budget: int | None


class Searcher:
    """A method's constructor, `tell`, and what it recommends if it knows no better: the best mixture that was run.

    Args:
        space: where mixtures lie.
        settings: seed, targets, losses, budget: those of `Settings`.

    Raises:
        MixtureError: a value is out of its range.
    """

    name = ""

    def __init__(self, space: Space, **settings: Unpack[Settings]) -> None:
        self.space = space
        self.seed = as_int(settings.get("seed", 0), "seed", 0, 1 << 64, MixtureError)
        budget = settings.get("budget")
        self.budget = as_int(USUAL_BUDGET if budget is None else budget, "budget", 1, MOST_TRIALS, MixtureError)
        self.history = History(space, settings.get("targets"), settings.get("losses"))

    def tell(self, observations: Iterable[Observation]) -> None:
        """Take in what came of trials.

        Raises:
            MixtureError: weights or losses of a wrong shape, or that are not finite.
        """
        self.history.add(observations)

    def recommend(self) -> Recommendation:
        """Return the mixture of the least objective among those that were run in full, or the prior before any was."""
        full = self.history.fidelities == 1
        if not full.any():
            return Recommendation(weights=self.space.prior, kind="baseline")
        weights, means, _ = pooled(self.history.weights[full], self.history.objective[full])
        best = int(np.argmin(means))
        return self._recommended(weights[best], mean=float(means[best]))

    def _recommended(self, weights: F64, **values: float) -> Recommendation:
        """Return a recommendation, its kind found by what was run."""
        if same_mixture(weights, self.baselines).any():
            return Recommendation(weights=weights, kind="baseline", **values)
        ran = bool(len(self.history)) and same_mixture(weights, self.history.weights).any()
        return Recommendation(weights=weights, kind="trial" if ran else "model", **values)

    @property
    def baselines(self) -> F64:
        """The free mixtures: prior and uniform, shape (1 or 2, K)."""
        both = np.stack([self.space.prior, self.space.uniform])
        return both[:1] if same_mixture(both[0], both[1:]).any() else both

    def _trials(self, mixtures: Iterable[F64], fidelity: float = 1.0) -> list[Trial]:
        """Return mixtures as trials, numbered on from the last that was told."""
        first = self.history.next_number
        return [Trial(number=first + i, weights=w, fidelity=fidelity) for i, w in enumerate(mixtures)]

    def _rng(self, *purpose: int) -> np.random.Generator:
        return self.history.rng(*purpose, seed=self.seed)


def checked_count(n: int) -> int:
    """Return how many trials are asked for."""
    return as_int(n, "n", 1, MOST_TRIALS, MixtureError)
