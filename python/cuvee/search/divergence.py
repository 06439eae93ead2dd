"""Runs that diverged, whose losses are not all numbers of a sensible size, and what a search reckons with instead.

A mixture may be one that trains badly, and that must not end the search that finds out. A run that diverged is kept and
paid for like any other, and counts as bad as the worst of the others: for each target, their highest loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..errors import StateError
from .receipt import F64, Run
from .score import LARGEST
from .space import mixture


def is_sound(losses: F64) -> bool:
    """Tell whether all losses of a run are finite and at most `LARGEST` in size."""
    return bool((np.abs(losses) <= LARGEST).all())


def with_losses(runs: Sequence[Run], targets: Sequence[str]) -> list[Run]:
    """Return runs with finite losses: those that diverged with the worst of the others, by target.

    The others of a run of the search are all of the search, whatever order they ended in; those of a run of an audit
    are all there are, so that an audit changes nothing of what the search goes by.

    Args:
        runs: with their losses, those of sound runs extrapolated or not.
        targets: names of the D losses.

    Raises:
        StateError: all runs of the search diverged.
    """
    sound = [run for run in runs if not run.diverged]
    if len(sound) == len(runs):
        return list(runs)
    searched = [run.losses for run in sound if run.kind == "search"]
    if not searched:
        raise _none_sound(runs, targets)
    of_search, of_all = _worst(searched), _worst([run.losses for run in sound])
    return [
        replace(run, losses=of_search if run.kind == "search" else of_all, measured=run.losses) if run.diverged else run
        for run in runs
    ]


def best_sound(runs: Sequence[Run], target_weights: Sequence[float]) -> Run | None:
    """Return the run of the lowest loss, of those that ran longest, among mixtures of which none diverged, if any."""
    bad = {mixture(run.weights) for run in runs if run.diverged}
    sound = [run for run in runs if mixture(run.weights) not in bad]
    return min(sound, key=lambda run: (-run.fidelity, float(np.dot(run.losses, target_weights))), default=None)


def _worst(losses: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(np.max(np.array(losses), axis=0).tolist())


def _none_sound(runs: Sequence[Run], targets: Sequence[str]) -> StateError:
    first: Mapping[str, float] = dict(zip(targets, runs[0].losses, strict=True))
    return StateError(
        f"losses must be finite in one run of the first round at least, but got {len(runs)} that diverged, the first "
        f"with {first!r:.200}; mend the score, and give the search another --study, or another --output-dir"
    )
