"""Rewards of what a model can do on data kept aside, and of how fast it gets better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import as_choice, as_weight
from ..errors import CuveeError, StateError
from .estimate import STATE_VERSION, LastEstimate, check_state, report_column, report_number
from .registry import Reward, register_reward
from .training import TrainLoss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .estimate import Report


@register_reward(Reward.VALIDATION_LOSS)
class ValidationLoss(LastEstimate):
    """Mean loss on the source's evaluation data."""

    needs = frozenset({"eval_loss"})
    from_training = False

    def measure(self, report: Report) -> NDArray[np.float64]:
        """Return each source's evaluation loss in the report."""
        return report_column(report, "eval_loss", self.sources)


@register_reward(Reward.LEARNABILITY)
class Learnability(LastEstimate):
    """1 - loss with examples / loss without: what examples help with can be learnt."""

    needs = frozenset({"zero_shot_loss", "few_shot_loss"})
    from_training = False

    def measure(self, report: Report) -> NDArray[np.float64]:
        """Return by which part examples lower each source's loss in the report."""
        few, zero = (report_column(report, key, self.sources) for key in ("few_shot_loss", "zero_shot_loss"))
        return relative_drop(few, zero)


@register_reward(Reward.VELOCITY)
class Velocity(LastEstimate):
    """1 - loss now / loss before: what is being learnt is worth more. 0 when a source is first measured.

    Args:
        sources: number of sources, K.
        loss: "eval" for the loss on evaluation data; "train" for that of training, which costs no forward pass.
    """

    needs = ValidationLoss.needs
    from_training = False
    keeps = ("scores", "before")

    def __init__(self, sources: int, *, loss: str = "eval") -> None:
        super().__init__(sources)
        self._loss = _LOSSES[as_choice(loss, "loss", list(_LOSSES), CuveeError)](sources)
        self.needs, self.from_training = self._loss.needs, self._loss.from_training

    def measure(self, report: Report) -> NDArray[np.float64]:
        """Return by which part each source's loss in the report is below the one before."""
        now, before = self._loss.measure(report), self.kept("before")
        return np.where(np.isfinite(now) & np.isnan(before), 0.0, relative_drop(now, before))

    def observe(self, report: Report) -> None:
        """Learn from a report; sources whose loss it lacks keep their scores, and the loss before."""
        super().observe(report)
        self.keep("before", self._loss.measure(report))


_LOSSES: Mapping[str, type[LastEstimate]] = {"eval": ValidationLoss, "train": TrainLoss}


@register_reward(Reward.COMBINED)
class Combined:
    """a * learnability + (1 - a) * velocity, where a = exp(-beta * step / total_steps) falls from 1.

    A source has a score once both have one. Without a known number of steps a stays 1.

    Args:
        sources: number of sources, K.
        beta: how fast a falls, at least 0.
        loss: as for `Velocity`.
    """

    needs = Learnability.needs | Velocity.needs | {"step", "total_steps"}
    from_training = False

    def __init__(self, sources: int, *, beta: float = 1.0, loss: str = "eval") -> None:
        self._beta = as_weight(beta, "beta", CuveeError)
        self._loss = loss
        self.sources = sources
        self._parts = self._new_parts()
        self._share = 1.0  # learnability's, as of the last report
        self.needs = self.needs - Velocity.needs | self._parts["velocity"].needs

    def observe(self, report: Report) -> None:
        """Learn from a report, as both parts do.

        Raises:
            CuveeError: as `Learnability` and `Velocity` do; nothing has changed then.
        """
        share = learnability_share(self._beta, report_number(report, "step"), report_number(report, "total_steps"))
        for part in self._parts.values():
            part.measure(report)  # both know that the report is right before one of them changes
        for part in self._parts.values():
            part.observe(report)
        self._share = share

    def scores(self) -> NDArray[np.float64]:
        """Return each source's score, float64 of shape (K,); NaN of those that nothing is known of yet."""
        learnability, velocity = (part.scores() for part in self._parts.values())
        return combine(self._share, learnability, velocity)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        return {"version": STATE_VERSION, "reward": type(self).__name__, "share": self._share, **parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            StateError: if it is of another reward or of another number of sources; nothing has changed then.
        """
        check_state(state, self)
        share = as_weight(state.get("share"), "share in a reward's state", StateError)
        parts = self._new_parts()
        for name, part in parts.items():
            part.load_state_dict(state.get(name, {}))
        self._parts, self._share = parts, share

    def _new_parts(self) -> dict[str, LastEstimate]:
        return {"learnability": Learnability(self.sources), "velocity": Velocity(self.sources, loss=self._loss)}


def relative_drop(now: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 - now / before; 0 where there was no loss to lower, NaN where one is not finite."""
    with np.errstate(all="ignore"):  # what is not finite is left out by those who keep estimates
        drop = np.where(before > 0, 1.0 - now / before, 0.0)
    return np.where(np.isfinite(now) & np.isfinite(before), drop, math.nan)


def learnability_share(beta: float, step: float | None, total_steps: float | None, *, name: str = "step") -> float:
    """Return exp(-beta * step / total_steps), learnability's share in `Combined`; 1 if the steps are not known.

    Args:
        beta: how fast it falls.
        step: optimizer steps made.
        total_steps: optimizer steps to make; None or 0 if unknown.
        name: what the user calls `step`.

    Raises:
        CuveeError: if there is a number of steps but no step.
    """
    if not total_steps:
        return 1.0
    if step is None:
        raise CuveeError(f"{name} must be a number where total_steps is one, but got None")
    return math.exp(-beta * step / total_steps)


def combine(
    share: float | NDArray[np.float64], learnability: NDArray[np.float64], velocity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return share * learnability + (1 - share) * velocity."""
    return share * learnability + (1.0 - share) * velocity
