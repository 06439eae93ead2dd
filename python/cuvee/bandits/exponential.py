"""Weights that are exponentials of what the scores add up to: EXP3, ODM and DoReMi, one compiled update."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..checks import as_choice, as_int
from ..errors import MixtureError, StateError
from .arms import make_arms
from .checks import STATE_VERSION, as_bounds, as_initial, as_number, as_vector, checked_state, state_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LOW_ENTROPY = 0.2  # share of the greatest entropy below which a warning is given
MOST_UPDATES = 2**63


class LowEntropyWarning(UserWarning):
    """The weights have come to lie on few sources; given once by each bandit."""


class ExponentialWeights:
    """What EXP3, ODM and DoReMi share; a class of its own only adds its rule and its settings."""

    def __init__(
        self,
        algorithm: str,
        initial: NDArray[np.float64],
        state: NDArray[np.float64],
        settings: dict[str, Any],
        *,
        floor: ArrayLike | None,
        cap: ArrayLike | None,
        entropy_floor: float = 0.0,
        device: str = "cpu",
    ) -> None:
        self.algorithm = algorithm
        self.updates = 0
        self._initial = initial
        self._settings = settings
        bounds = as_bounds(floor, cap, len(initial))
        share = as_number(entropy_floor, "entropy_floor", 0, 0.99)
        self._limits = {
            "floor": None if bounds[0] is None else bounds[0].tolist(),
            "cap": None if bounds[1] is None else bounds[1].tolist(),
            "entropy_floor": share,
        }
        self._alarm = most_collision(max(share, LOW_ENTROPY), self.sources)
        self._warned = False
        collision = most_collision(share, self.sources)
        self._arms = make_arms(initial, state, {**settings, "max_collision": collision}, bounds, device)

    @property
    def sources(self) -> int:
        """K."""
        return len(self._initial)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The weights in force, float64 of shape (K,), sum 1. On a GPU this waits for their copy."""
        return self._arms.probabilities()

    @property
    def effective_sources(self) -> float:
        """1 / sum of the squared weights, in [1, K]: of how many sources of equal weight they would be."""
        p = self.probabilities
        return 1.0 / math.fsum(p * p)

    def queue(self, scores: ArrayLike, counts: ArrayLike | None = None) -> None:
        """Update without waiting for the weights: on a GPU one launch, in the current stream; `update`'s arguments."""
        self._arms.update(scores, counts)
        self.updates += 1

    def update(self, scores: ArrayLike, counts: ArrayLike | None = None) -> NDArray[np.float64]:
        """Learn from scores and return the new weights, float64 of shape (K,).

        Args:
            scores: a reward's estimate per source, shape (K,). What is not finite is not known: such a source's log
                weight stays, and its weight changes only as those of the others do.
            counts: rows of each source since the last update, integers of shape (K,); the log weight of a source
                without rows stays too. None: every score is new, as those of rewards on evaluation data are.

        Raises:
            StateError: if their shape or dtype is another, or a count negative.
        """
        self.queue(scores, counts)
        if not self._warned and self._arms.collision() > self._alarm:
            self._warn()
        return self._arms.probabilities()

    def state_dict(self) -> dict[str, Any]:
        """Return all that later updates depend on, as JSON values."""
        p, state, summary = self._arms.get()
        arrays = {"probabilities": p, "log_weights": state, "summary": summary, **self._more()}
        return {
            **self._identity(),
            "updates": self.updates,
            "warned": self._warned,
            **{name: array.tolist() for name, array in arrays.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            StateError: if it is of another algorithm, K or other settings, or broken.
        """
        checked_state(state, self._identity())
        p = state_array(state, "probabilities", (self.sources,))
        if not ((p >= 0).all() and abs(math.fsum(p) - 1) < 1e-9):
            raise StateError(f"state probabilities must be at least 0 with sum 1, but got {p.tolist()!r:.100}")
        log_weights = state_array(state, "log_weights", (self.sources,))
        summary = state_array(state, "summary", (4,))
        more = {name: state_array(state, name, array.shape) for name, array in self._more().items()}
        self.updates = as_int(state.get("updates"), "state updates", 0, MOST_UPDATES, StateError)
        self._warned = state.get("warned") is True
        self._arms.put(p, log_weights, summary)
        for name, array in more.items():
            self._more()[name][:] = array

    def _identity(self) -> dict[str, Any]:
        settings = {name: list(value) if isinstance(value, tuple) else value for name, value in self._settings.items()}
        return {
            "version": STATE_VERSION,
            "algorithm": self.algorithm,
            "sources": self.sources,
            "settings": {**settings, **self._limits},
        }

    def _more(self) -> dict[str, NDArray[np.float64]]:
        """Return arrays of a subclass that belong to its state."""
        return {}

    def _warn(self) -> None:
        """Warn, once, that the weights lie on few sources."""
        self._warned = True
        if self.sources > 1:
            p = self.probabilities
            warnings.warn(
                f"{self.algorithm}: the weights' entropy fell below {self._alarm_share():.2f} of the greatest, source "
                f"{int(p.argmax())} has {p.max():.3f} of the weight; raise gamma or entropy_floor, or give cap",
                LowEntropyWarning,
                stacklevel=3,
            )

    def _alarm_share(self) -> float:
        return max(float(self._limits["entropy_floor"] or 0.0), LOW_ENTROPY)


def most_collision(share: float, sources: int) -> float:
    """Return the sum of squared probabilities at which the Renyi entropy of order 2 is `share` of ln(sources)."""
    return _core.exp(-share * _core.log(sources)) if share > 0 else 1.0


class EXP3(ExponentialWeights):
    """Exponential weights for exploration and exploitation (Auer, Cesa-Bianchi, Freund, Schapire 2002).

    Each update multiplies the weight of a source by exp(eta * score / p / K), p being its probability, and

        p = (1 - gamma) * w / sum(w) + gamma / K.

    The paper has eta = gamma; it asks for rewards in [0, 1]. With normalize="none" scores enter as they are, as
    Albalak et al. 2023 and others use it on losses. With normalize="quantile", the default, they are first scaled to
    [0, 1] between running quantiles of all sources' scores, so that their unit and drift do not matter; log weights
    stay within 30 of the largest, so that no source is lost for good; and the entropy has a floor.

    Args:
        initial: weights to begin with, positive, shape (K,); or K, for equal ones.
        eta: learning rate, over 0.
        gamma: share of the rows that is spread evenly, 0..1; p is never below gamma / K without floor and cap.
        normalize: "quantile" or "none".
        floor: least probability, a number or shape (K,). It is kept by scaling the other sources' probabilities.
        cap: greatest probability, likewise.
        entropy_floor: least entropy of the probabilities, Renyi's of order 2 (Shannon's is greater), as a share of
            ln K; what is missing is mixed in from the uniform distribution before floor and cap. None: 0.2 with
            "quantile", 0 with "none".
        quantiles: low and high quantile, which become 0 and 1.
        rate: how fast the quantiles move, over 0, at most 1.
        device: "cpu", or "cuda" for arrays on a GPU.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    def __init__(
        self,
        initial: ArrayLike | int,
        *,
        eta: float = 0.3,
        gamma: float = 0.1,
        normalize: str = "quantile",
        floor: ArrayLike | None = None,
        cap: ArrayLike | None = None,
        entropy_floor: float | None = None,
        quantiles: tuple[float, float] = (0.1, 0.9),
        rate: float = 0.1,
        device: str = "cpu",
    ) -> None:
        bounded = as_choice(normalize, "normalize", ("quantile", "none"), MixtureError) == "quantile"
        weights = as_initial(initial)
        settings: dict[str, Any] = {
            "rule": "bounded" if bounded else "exp3",
            "eta": as_number(eta, "eta", 0, math.inf, above=True),
            "gamma": as_number(gamma, "gamma", 0, 1),
        }
        if bounded:
            if not isinstance(quantiles, Sequence) or len(quantiles) != 2:
                raise MixtureError(f"quantiles must be a low and a high one, but got {quantiles!r:.60}")
            low = as_number(quantiles[0], "quantiles[0]", 0, 1)
            settings["quantiles"] = (low, as_number(quantiles[1], "quantiles[1]", low, 1, above=True))
            settings["rate"] = as_number(rate, "rate", 0, 1, above=True)
        if entropy_floor is None:
            entropy_floor = LOW_ENTROPY if bounded else 0.0
        super().__init__(
            "exp3_bounded" if bounded else "exp3",
            mixed(weights, settings["gamma"]),
            logs(weights),
            settings,
            floor=floor,
            cap=cap,
            entropy_floor=entropy_floor,
            device=device,
        )


class ODM(ExponentialWeights):
    """Online data mixing (Albalak, Pan, Raffel, Wang 2023).

    A moving average of importance-weighted rewards, and an exploration that shrinks with the number t of the turn:

        R <- decay * R + (1 - decay) * score / p
        p = (1 - K * eps(t)) * softmax(eps(t - 1) * R) + eps(t),   eps(t) = min(1 / K, sqrt(ln K / (K t)))

    The paper's reward is the training loss and its decay 0.9. The first turns are uniform, until t > K ln K.

    Args:
        initial: weights of the first `warmup` updates, positive, shape (K,); or K, for equal ones.
        decay: of the moving average, 0..1, 1 excluded.
        warmup: updates that learn but leave the weights at `initial`; the paper has 1 % of the run's steps.
        floor: as in `EXP3`.
        cap: as in `EXP3`.
        device: as in `EXP3`.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    def __init__(
        self,
        initial: ArrayLike | int,
        *,
        decay: float = 0.9,
        warmup: int = 0,
        floor: ArrayLike | None = None,
        cap: ArrayLike | None = None,
        device: str = "cpu",
    ) -> None:
        weights = as_initial(initial)
        settings = {
            "rule": "odm",
            "eta": 0.0,
            "gamma": 0.0,
            "decay": as_number(decay, "decay", 0, math.nextafter(1, 0)),
        }
        super().__init__("odm", weights, np.zeros(len(weights)), settings, floor=floor, cap=cap, device=device)
        self._log_sources = _core.log(self.sources)
        self._warmup = as_int(warmup, "warmup", 0, MOST_UPDATES, MixtureError)
        self._limits["warmup"] = self._warmup

    def queue(self, scores: ArrayLike, counts: ArrayLike | None = None) -> None:
        """Update without waiting for the weights, as `EXP3.queue`."""
        turn = self.updates + 1  # rewards of this turn give the weights of the next
        self._arms.schedule(self.exploration(turn), len(self._initial) * self.exploration(turn + 1))
        super().queue(scores, counts)
        if self.updates <= self._warmup:
            self._arms.put(self._initial)

    def exploration(self, turn: int) -> float:
        """Return eps of a turn, from 1 on: each source's least probability."""
        sources = len(self._initial)
        return min(1 / sources, math.sqrt(self._log_sources / (sources * turn)))


class DoReMi(ExponentialWeights):
    """Domain reweighting with minimax optimisation (Xie et al. 2023).

    Exponentiated gradient ascent on the excess loss over a reference model, smoothed:

        w = p * exp(eta * max(excess, 0)),   p <- (1 - smoothing) * w / sum(w) + smoothing / K

    The answer of a run is `average`, the mean of p over its updates. The paper clips the excess of each token; a score
    that is a mean of clipped excesses is taken as it is, and one that is not is clipped per source.

    Args:
        initial: weights to begin with, positive, shape (K,); or K, for equal ones.
        eta: step size, over 0; the paper has 1.
        smoothing: share of the uniform distribution, over 0, at most 1; the paper has 1e-3.
        reference: the reference model's loss per source, shape (K,), when scores are losses. None: scores are excesses.
        floor: as in `EXP3`.
        cap: as in `EXP3`.
        device: as in `EXP3`.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    def __init__(
        self,
        initial: ArrayLike | int,
        *,
        eta: float = 1.0,
        smoothing: float = 1e-3,
        reference: ArrayLike | None = None,
        floor: ArrayLike | None = None,
        cap: ArrayLike | None = None,
        device: str = "cpu",
    ) -> None:
        weights = as_initial(initial)
        settings = {
            "rule": "doremi",
            "eta": as_number(eta, "eta", 0, math.inf, above=True),
            "gamma": as_number(smoothing, "smoothing", 0, 1, above=True),
        }
        super().__init__("doremi", weights, logs(weights), settings, floor=floor, cap=cap, device=device)
        self._reference = None if reference is None else as_vector(reference, "reference", self.sources)
        self._limits["reference"] = None if self._reference is None else self._reference.tolist()
        self._total = np.zeros(self.sources)

    @property
    def average(self) -> NDArray[np.float64]:
        """The mean of the weights over all updates, float64 of shape (K,); the initial ones before the first."""
        return self._total / self.updates if self.updates else self.probabilities

    def queue(self, scores: ArrayLike, counts: ArrayLike | None = None) -> None:
        """Update; `average` needs the weights, so that this waits for them."""
        losses = scores if self._reference is None else np.asarray(scores, dtype=np.float64) - self._reference
        super().queue(losses, counts)
        self._arms.add_to(self._total)

    def _more(self) -> dict[str, NDArray[np.float64]]:
        return {"total": self._total}


def mixed(weights: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Return weights of sum 1 with a share `gamma` of the uniform distribution."""
    return np.asarray((1 - gamma) * weights + gamma / len(weights))


def logs(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithms of weights, the same bits on every machine; the largest is 0."""
    values = np.array([_core.log(weight) for weight in weights.tolist()])
    return values - float(values.max())
