"""Runs of a study as Optuna trials: planned, claimed by one worker each, finished or dropped.

A planned run is a WAITING trial. A worker claims it by making it RUNNING, which succeeds for one of them; it ends
COMPLETE. A run whose worker is gone is made FAIL, which again succeeds for one only, and planned anew. Two workers may
happen to plan the same run: then the trial with the lower number stands for it, and whoever claims the other drops it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .receipt import F64, Kind, Run
from .storage import again

if TYPE_CHECKING:
    from optuna.study import Study as OptunaStudy
    from optuna.trial import FrozenTrial

State = Literal["waiting", "running", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A run that is to be made.

    Attributes:
        kind: "search" or "audit".
        number: its place among the runs of its kind, from 0 on.
        round: the runs of a round are proposed from the same knowledge; rounds follow one another.
        first, of: number of the round's first run, and how many it has.
        group: runs of a round with the same group are trained by one worker as one batch.
        weights: the mixture, K shares.
        fidelity: part of the steps to run, in (0, 1].
        training_seed, evaluation_seed: what to draw from.
        arm: the mixture's name in the audit.
        known, known_curve: what the same run brought when it was made before. It need not be made again: it is done at
            once, and costs nothing.
    """

    kind: Kind
    number: int
    round: int
    first: int
    of: int
    group: int
    weights: tuple[float, ...]
    fidelity: float
    training_seed: int
    evaluation_seed: int
    arm: str = ""
    known: tuple[float, ...] = ()
    known_curve: tuple[tuple[float, ...], ...] = ()

    @property
    def cost(self) -> float:
        """What it costs, in whole runs."""
        return 0.0 if self.known else self.fidelity


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A planned run and where it stands.

    Attributes:
        planned: what is to be run.
        trial: number of the Optuna trial that stands for it.
        state: "waiting", "running" or "done".
        worker: who claimed it; "" while it waits.
        losses: by target, once it is done.
        curve: losses after parts of the run, if they were measured.
        seconds: how long it took.
    """

    planned: Planned
    trial: int
    state: State
    worker: str
    losses: tuple[float, ...]
    seconds: float
    curve: tuple[tuple[float, ...], ...] = ()

    def run(self) -> Run:
        """Return the finished run for a receipt."""
        plan = self.planned
        return Run(
            number=plan.number,
            kind=plan.kind,
            weights=plan.weights,
            losses=self.losses,
            curve=self.curve,
            fidelity=plan.fidelity,
            training_seed=plan.training_seed,
            evaluation_seed=plan.evaluation_seed,
            arm=plan.arm,
            seconds=self.seconds,
            worker=self.worker,
        )


class Trials:
    """The trials of one Optuna study, as runs.

    Args:
        study: where they are kept.
        storage: that of the study, as it was opened.
        names: the K domains; each is a parameter of the trials, so that Optuna's own tools show them.
        target_weights: weight of each of the D losses in a trial's value.
    """

    def __init__(self, study: OptunaStudy, storage: Any, names: Sequence[str], target_weights: Sequence[float]) -> None:
        self._study = study
        self._storage = storage  # of `study`: its own writes are told apart from those of others
        self._study_id = again(lambda: storage.get_study_id_from_name(study.study_name))
        self._names = tuple(names)
        self._target_weights = np.array(target_weights)

    def slots(self) -> list[Slot]:
        """Return where every run stands, search first, in the order of their numbers."""
        standing: dict[tuple[str, int], Slot] = {}
        for trial in self._read():
            slot = _slot_of(trial)
            if slot is not None:  # trials come by number: the first one stands
                standing.setdefault((slot.planned.kind, slot.planned.number), slot)
        return sorted(standing.values(), key=lambda slot: (slot.planned.kind == "audit", slot.planned.number))

    def dropped(self) -> list[Planned]:
        """Return the plans of runs that were dropped and may have to be made again."""
        from optuna.trial import TrialState

        return [plan for trial in self._read() if trial.state == TrialState.FAIL and (plan := _plan_of(trial))]

    def plan(self, runs: Iterable[Planned]) -> None:
        """Add runs for workers to claim."""
        import optuna

        share = optuna.distributions.FloatDistribution(0.0, 1.0)
        for run in runs:
            weights = dict(zip(self._names, np.clip(run.weights, 0.0, 1.0).tolist(), strict=True))
            result = (
                {"result": {"losses": list(run.known), "curve": run.known_curve, "seconds": 0.0}} if run.known else {}
            )
            trial = optuna.trial.create_trial(
                state=optuna.trial.TrialState.COMPLETE if run.known else optuna.trial.TrialState.WAITING,
                value=self._value(run.known) if run.known else None,
                params=weights,
                distributions=dict.fromkeys(weights, share),
                user_attrs={"plan": asdict(run), **result},
            )
            again(lambda trial=trial: self._study.add_trial(trial))  # type: ignore[misc]

    def claim(self, slot: Slot, worker: str) -> bool:
        """Make a waiting run this worker's, and tell whether it is."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        trial = self._id(slot.trial)
        try:
            if not again(lambda: self._storage.set_trial_state_values(trial, TrialState.RUNNING)):
                return False
            again(lambda: self._storage.set_trial_user_attr(trial, "worker", worker))
        except UpdateFinishedTrialError:  # dropped by another, who took us for gone
            return False
        if any(other.trial == slot.trial for other in self.slots()):
            return True
        self.drop(slot, "another trial stands for this run")
        return False

    def finish(self, slot: Slot, losses: F64, *, seconds: float) -> bool:
        """Store what came of a claimed run, and tell whether it counts: not if others had given it up.

        Args:
            slot: the run.
            losses: at its end, shape (D,), or after parts of it and at its end, shape (P + 1, D).
            seconds: how long it took.
        """
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        trial, (*curve, last) = self._id(slot.trial), np.atleast_2d(losses)
        try:
            result = {"losses": last.tolist(), "curve": [part.tolist() for part in curve], "seconds": seconds}
            again(lambda: self._storage.set_trial_user_attr(trial, "result", result))
            again(lambda: self._storage.set_trial_state_values(trial, TrialState.COMPLETE, [self._value(last)]))
        except UpdateFinishedTrialError:
            return self._ended_well(slot)
        return True

    def drop(self, slot: Slot, reason: str) -> bool:
        """Give a run up, so that it is planned anew; False if it was ended already."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        trial = self._id(slot.trial)
        try:
            again(lambda: self._storage.set_trial_user_attr(trial, "dropped", reason))
            again(lambda: self._storage.set_trial_state_values(trial, TrialState.FAIL))
        except UpdateFinishedTrialError:
            return False
        return True

    def _value(self, losses: Sequence[float] | F64) -> float:
        return float(np.asarray(losses) @ self._target_weights)

    def _ended_well(self, slot: Slot) -> bool:
        """Tell whether a trial is COMPLETE: a write that was repeated finds its own first try."""
        from optuna.trial import TrialState

        state = again(lambda: self._storage.get_trial(self._id(slot.trial)).state)
        return bool(state == TrialState.COMPLETE)

    def _read(self) -> list[FrozenTrial]:
        return again(lambda: self._study.get_trials(deepcopy=False))

    def _id(self, number: int) -> int:
        return int(again(lambda: self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)))


def _plan_of(trial: FrozenTrial) -> Planned | None:
    """Return what a trial was to run; None if it is none of ours."""
    plan: Mapping[str, Any] | None = trial.user_attrs.get("plan")
    if plan is None:
        return None
    curve = tuple(map(tuple, plan["known_curve"]))
    return Planned(**{**plan, "weights": tuple(plan["weights"]), "known": tuple(plan["known"]), "known_curve": curve})


def _slot_of(trial: FrozenTrial) -> Slot | None:
    """Return the run that a trial stands for; None for one that was dropped or is none of ours."""
    from optuna.trial import TrialState

    states: dict[TrialState, State] = {
        TrialState.WAITING: "waiting",
        TrialState.RUNNING: "running",
        TrialState.COMPLETE: "done",
    }
    plan, state = _plan_of(trial), states.get(trial.state)
    if plan is None or state is None:
        return None
    result = trial.user_attrs.get("result", {}) if state == "done" else {}
    return Slot(
        planned=plan,
        trial=trial.number,
        state=state,
        worker=trial.user_attrs.get("worker", ""),
        losses=tuple(result.get("losses", ())),
        curve=tuple(map(tuple, result.get("curve", ()))),
        seconds=result.get("seconds", math.nan),
    )
