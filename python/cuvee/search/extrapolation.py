"""Losses of short runs, carried on to the length of the training that a mixture is for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .receipt import F64, PARTS, Run

if TYPE_CHECKING:
    from .laws import StepModel

BURN_IN = 0.2  # share of a run that laws leave out


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """Extrapolates by `StepLaw`: each run has a curve of its own, all of them fall alike.

    Args:
        steps: optimizer steps of a whole run.
        target_steps: those of the training that the mixture is for.
    """

    steps: int
    target_steps: int

    def __call__(self, runs: Sequence[Run]) -> list[Run]:
        """Return runs with extrapolated losses, and those at their ends as `measured`.

        Runs of the search are fitted by themselves, so that an audit changes nothing of what the method was told; those
        of the audit together with them.

        Args:
            runs: with curves, as they were measured.
        """
        moved: dict[int, F64] = {}
        for fidelity in dict.fromkeys(run.fidelity for run in runs):
            places = [place for place, run in enumerate(runs) if run.fidelity == fidelity]
            searched = [place for place in places if runs[place].kind == "search"]
            for fitted in (searched, places) if len(searched) < len(places) else (places,):
                if fitted:
                    losses = self.law([runs[place] for place in fitted]).predict(self.target_steps)[0]
                    moved = {**dict(zip(fitted, losses, strict=True)), **moved}
        return [
            replace(run, losses=tuple(moved[place].tolist()), measured=run.losses) for place, run in enumerate(runs)
        ]

    def law(self, runs: Sequence[Run], draws: int = 0) -> StepModel:
        """Return the law of runs of one fidelity, extrapolated or not.

        Args:
            runs: with curves.
            draws: samples of the bootstrap that deviations come from.
        """
        from .laws import StepLaw

        steps = self.checkpoints(runs[0].fidelity)
        curves = np.array([(*run.curve, run.measured or run.losses) for run in runs])
        return StepLaw(burn_in=BURN_IN, draws=draws).fit(steps, curves)

    def checkpoints(self, fidelity: float) -> F64:
        """Return the steps after which a run of a fidelity was measured, shape (P + 1,)."""
        return np.array([math.ceil(part * fidelity * self.steps - 1e-9) for part in (*PARTS, 1.0)], dtype=np.float64)
