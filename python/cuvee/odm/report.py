"""What a reward is told at an update, from the trainer's log and from evaluation rows."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import CuveeError
from .evaluation import ENTROPY, LOSS, measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .categories import Category
    from .history import Logged

    F64 = NDArray[np.float64]

FROM_EXAMPLES = frozenset({"zero_shot_loss", "few_shot_loss"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What is known at an update.

    Attributes:
        logged: of the trainer's log.
        sums: over evaluation rows and all ranks, float64 of shape (K,) each; those of templated rows begin with `few_`.
        category: the one trained on last, None before any.
        categories: K.
    """

    logged: Logged
    sums: dict[str, F64]
    category: int | None
    categories: int

    def report(self, needs: Set[str]) -> dict[str, Any]:
        """Return what of `needs` is known, as `cuvee.rewards.RewardFunction` describes it."""
        logged, alone = self.logged, np.arange(self.categories) == self.category
        told = np.array(logged.eval_losses)
        zero, few = self._mean(""), self._mean("few_")
        report: dict[str, Any] = {
            **self.sums,
            "loss_sum": np.where(alone, np.nan_to_num(logged.loss), 0.0),
            "tokens": np.where(alone & math.isfinite(logged.loss), 1.0, 0.0),
            "gradnorm": np.where(alone & (logged.grad_norm >= 0), logged.grad_norm, np.nan),
            "eval_loss": np.where(np.isnan(told), zero, told),
            "zero_shot_loss": zero,
            "few_shot_loss": few,
            "step": logged.step,
            "total_steps": None if logged.step is None else logged.total_steps,
        }
        return {name: report[name] for name in needs if name in report}

    def count(self, needs: Set[str]) -> F64:
        """Return how many values stand for each category, float64 of shape (K,)."""
        return self.sums["entropy_rows"] if needs & set(ENTROPY) else np.ones(self.categories)

    def _mean(self, prefix: str) -> F64:
        """Return each category's mean loss, NaN where there were no target tokens."""
        mean = np.full(self.categories, np.nan)
        if f"{prefix}tokens" in self.sums:
            tokens = self.sums[f"{prefix}tokens"]
            np.divide(self.sums[f"{prefix}loss_sum"], tokens, out=mean, where=tokens > 0)
        return mean


def measured(
    model: Any, categories: Sequence[Category], needs: Set[str], *, size: int, device: Any, logged: Logged
) -> dict[str, F64]:
    """Return this rank's sums over evaluation rows and templated ones; none are made that nobody needs.

    Args:
        model: as `measure` takes it.
        categories: with their evaluation rows.
        needs: what the reward asks for.
        size: rows of a batch.
        device: where the model is.
        logged: evaluation losses found there are not measured again, if all are.
    """
    entropies, sums = bool(needs & set(ENTROPY)), {}
    unknown = any(math.isnan(loss) for loss in logged.eval_losses)
    loss = "zero_shot_loss" in needs or ("eval_loss" in needs and unknown)
    options: dict[str, Any] = {"size": size, "device": device}
    if entropies or loss:
        sums = measure(model, [each.evaluation for each in categories], entropies=entropies, loss=loss, **options)
    if "few_shot_loss" in needs:
        examples = measure(model, [each.templated for each in categories], entropies=False, loss=True, **options)
        sums |= {f"few_{name}": examples[name] for name in LOSS}
    return sums


def refuse_silence(state: Any, logged: Logged, categories: Sequence[Category], needs: Set[str], *, reward: str) -> None:
    """Raise if a reward can never learn anything: without the log or the evaluation rows that it needs."""
    if needs & {*LOSS, "gradnorm"} and state is None:
        raise CuveeError(
            f"state must have log_history for reward {reward.upper()}, but got None; give the trainer's state, or an "
            "object with a list of dicts"
        )
    told = "eval_loss" in needs and not all(math.isnan(loss) for loss in logged.eval_losses)
    if needs & {*ENTROPY, *FROM_EXAMPLES, "eval_loss"} and not told and not any(each.evaluation for each in categories):
        raise CuveeError(
            f"eval_dataset_dict must have rows of the categories for reward {reward.upper()}, but got none; give some, "
            "or a reward of training such as train_loss"
        )


def total(parts: Sequence[dict[str, F64]]) -> dict[str, F64]:
    """Return sums of all ranks, added in their order."""
    added = dict(parts[0])
    for part in parts[1:]:
        added = {name: added[name] + part[name] for name in added}
    return added
