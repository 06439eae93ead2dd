"""A decision of online mixing: what was reported, the weights that followed, and where they take effect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import as_int
from ..errors import StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One update: what was reported, what followed from it, and where it takes effect.

    Attributes:
        update: its number in the run, from 1 on.
        step: optimizer steps made when it was decided.
        epoch: the plan's epoch in which it takes effect.
        position: the position of that epoch, a window start.
        report: per name an array of shape (K,), or a number of the run; NaN or None where it is not known.
        probabilities: the new weights, float64 of shape (K,).
    """

    update: int
    step: int
    epoch: int
    position: int
    report: Mapping[str, Any]
    probabilities: NDArray[np.float64]

    @property
    def reason(self) -> str:
        """What the journal keeps beside the weights."""
        return f"online update {self.update} at step {self.step}"

    def record(self) -> dict[str, Any]:
        """Return the decision as JSON values, floats to the bit."""
        return {
            "update": self.update,
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            "report": {name: _plain(value) for name, value in self.report.items()},
            "probabilities": self.probabilities.tolist(),
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Decision:
        """Return the decision that a record is of.

        Raises:
            StateError: if it is none.
        """
        try:
            probabilities = np.array(record["probabilities"], dtype=np.float64)
            if probabilities.ndim != 1:
                raise ValueError("probabilities are no list")
            numbers = {name: as_int(record[name], name, 0, 2**63, StateError) for name in ("update", "step", "epoch")}
            return cls(
                **numbers,
                position=as_int(record["position"], "position", 0, 2**63, StateError),
                report=report_of(record["report"]),
                probabilities=probabilities,
            )
        except StateError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise StateError(f"decision must be a record of one, but got {record!r:.120} ({error})") from None


def report_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report as rewards take it; what is not finite becomes NaN in arrays and None elsewhere.

    Raises:
        StateError: if something in it is no number, nor an array of numbers.
    """
    report = {}
    for name, value in values.items():
        try:
            report[name] = _known(_plain(value))
        except (TypeError, ValueError, OverflowError, RuntimeError):
            raise StateError(f"{name} in a report must be numbers, but got {value!r:.60}") from None
    return report


def _plain(value: Any) -> Any:
    """Return a value of a report as JSON has it; None for what is not finite."""
    if value is None or isinstance(value, int | str):
        return value
    listed = np.asarray(value).tolist()
    if isinstance(listed, list):
        return [None if each is None or not math.isfinite(each) else each for each in listed]
    return listed if math.isfinite(listed) else None


def _known(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    whole = all(isinstance(each, int) for each in value)
    return np.array(value, dtype=np.int64 if whole else np.float64)  # None becomes NaN
