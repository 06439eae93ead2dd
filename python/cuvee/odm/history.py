"""What a trainer's state has logged since the last update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CuveeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """Values of a trainer's log; NaN where there is none.

    Attributes:
        seen: what tells this log from a later one: number of entries, and the last one.
        loss: the last training loss that was not there at the last update.
        grad_norm: the same of the gradient norm.
        eval_losses: the last `eval_NAME_loss` of each category, NAME being its name.
        step: optimizer steps made, None if the state does not say.
        total_steps: optimizer steps to make.
    """

    seen: list[Any]
    loss: float
    grad_norm: float
    eval_losses: list[float]
    step: int | None
    total_steps: int | None


def read_state(state: Any, names: Sequence[Sequence[str]], *, seen: Sequence[Any]) -> Logged:
    """Return what a trainer's state says.

    Args:
        state: an object with `log_history`, and optionally `global_step` and `max_steps`; None says nothing.
        names: of each category the names that it may have in the log.
        seen: of the log at the last update, empty before the first; a shorter log is another one, and new as a whole.

    Raises:
        CuveeError: if the log is no list of mappings.
    """
    history = getattr(state, "log_history", None) or []
    if isinstance(history, str | Mapping) or not isinstance(history, Sequence):
        raise CuveeError(f"state.log_history must be a list of mappings, but got {history!r:.60}")
    fresh = _fresh(history, seen)
    step, total = (getattr(state, name, None) for name in ("global_step", "max_steps"))
    return Logged(
        seen=[len(history), repr(history[-1]) if history else ""],
        loss=_last(fresh, ["loss"]),
        grad_norm=_last(fresh, ["grad_norm"]),
        eval_losses=[_last(history, [f"eval_{name}_loss" for name in each]) for each in names],
        step=step,
        total_steps=total if total and total > 0 else None,
    )


def _fresh(history: Sequence[Any], seen: Sequence[Any]) -> Sequence[Any]:
    """Return the entries that were not there before; a log kept at one length has a new last one."""
    if not seen or len(history) < seen[0]:
        return history
    if len(history) == seen[0] and history and repr(history[-1]) != seen[1]:
        return history[-1:]
    return history[seen[0] :]


def _last(history: Sequence[Any], keys: Sequence[str]) -> float:
    """Return the last value in a log that stands under one of `keys`."""
    for entry in reversed(history):
        for key in keys:
            if isinstance(entry, Mapping) and key in entry:
                try:
                    return float(entry[key])
                except (TypeError, ValueError, RuntimeError):
                    raise CuveeError(f"{key} in log_history must be a number, but got {entry[key]!r:.60}") from None
    return math.nan
