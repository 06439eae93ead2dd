"""Rewards of what training measures anyway: its loss and its gradient norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..errors import CuveeError
from .estimate import LastEstimate, report_column, report_mean
from .registry import Reward, register_reward

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .estimate import Report

LEAST_NORM = 1e-4  # added to a gradient norm before it divides


@register_reward(Reward.TRAIN_LOSS)
class TrainLoss(LastEstimate):
    """Mean training loss per target token, in nats: what is not learnt yet is worth more."""

    needs = frozenset({"loss_sum", "tokens"})

    def measure(self, report: Report) -> NDArray[np.float64]:
        """Return each source's mean loss in the report."""
        return report_mean(report, "loss_sum", "tokens", self.sources)


@register_reward(Reward.GRADNORM)
class GradNorm(LastEstimate):
    """The inverse of the gradient norm: what disturbs the model less is worth more."""

    needs = frozenset({"gradnorm"})

    def measure(self, report: Report) -> NDArray[np.float64]:
        """Return the inverse of each source's gradient norm in the report."""
        return inverse_norm(report_column(report, "gradnorm", self.sources))


def inverse_norm(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (norm + `LEAST_NORM`), float64 of the same shape; NaN of norms that are not finite.

    Raises:
        CuveeError: if a norm is negative.
    """
    if (norms < 0).any():
        raise CuveeError(f"gradient norms must be at least 0, but got {norms[norms < 0][0].item()!r}")
    return np.where(np.isfinite(norms), 1.0 / (norms + LEAST_NORM), math.nan)
