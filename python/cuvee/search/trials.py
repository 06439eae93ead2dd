"""Runs of a study as Optuna trials: planned, claimed by one worker each, finished or dropped.

A planned run is a WAITING trial. A worker claims it by making it RUNNING, which succeeds for one of them; it ends
COMPLETE, or PRUNED and without a value if it diverged. A run whose worker is gone is made FAIL, which again succeeds
for one only, and planned anew. Two workers may happen to plan the same run: then the trial with the lower number stands
for it, and whoever claims the other drops it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import StateError
from .divergence import is_sound
from .receipt import F64, Kind, Run, without_nan
from .storage import again
from .terms import MADE, SETTINGS, UNDER, Terms, are_same, check_budgets, check_same, in_force

if TYPE_CHECKING:
    from optuna.study import Study as OptunaStudy
    from optuna.trial import FrozenTrial, TrialState

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
        known, known_curve: what the same run brought when it was made before, NaN where it diverged. It need not be
            made again: it is done at once, and costs nothing.
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
        losses: by target, once it is done; NaN for those of a run that diverged which are not finite.
        curve: losses after parts of the run, if they were measured.
        seconds: how long it took.
        diverged: whether it is done and diverged.
    """

    planned: Planned
    trial: int
    state: State
    worker: str
    losses: tuple[float, ...]
    seconds: float
    curve: tuple[tuple[float, ...], ...] = ()
    diverged: bool = False

    def run(self) -> Run:
        """Return the finished run for a receipt."""
        plan = self.planned
        return Run(
            number=plan.number,
            kind=plan.kind,
            weights=plan.weights,
            losses=self.losses,
            curve=self.curve,
            diverged=self.diverged,
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
        settings: what the runs are made under; `begin` must be called before anything else is.
        raised: budgets that the study was raised to since it was begun.
    """

    def __init__(
        self,
        study: OptunaStudy,
        storage: Any,
        names: Sequence[str],
        target_weights: Sequence[float],
        *,
        settings: Mapping[str, Any],
        raised: Sequence[int] = (),
    ) -> None:
        self._study = study
        self._storage = storage  # of `study`: its own writes are told apart from those of others
        self._study_id = again(lambda: storage.get_study_id_from_name(study.study_name))
        self._names = tuple(names)
        self._target_weights = np.array(target_weights)
        self._settings = dict(settings)
        self._terms = Terms(number=-1, settings=self._settings, raised=tuple(raised))

    def begin(self, *, alone: Callable[[], bool]) -> None:
        """Begin the study with these settings, or make sure that it was; runs planned under others are given up.

        Args:
            alone: tells whether no other worker is at the study.

        Raises:
            StateError: it has others, and a run was made under them or somebody is at it; names the first that differs.
        """
        found = in_force(self._all())
        if found is None or (not found.fixed and not are_same(found.settings, self._settings) and alone()):
            add_entry(self._study, {SETTINGS: self._settings})
        for trial in self._read():
            if not trial.state.is_finished() and trial.user_attrs.get(UNDER, self._terms.number) != self._terms.number:
                self._fail(trial.number, "planned under other settings")

    def slots(self) -> list[Slot]:
        """Return where every run stands, search first, in the order of their numbers."""
        standing: dict[tuple[str, int], Slot] = {}
        for trial in self._read():
            slot = self._slot(trial) if trial.user_attrs.get(UNDER) == self._terms.number else None
            if slot is not None:  # trials come by number: the first one stands
                standing.setdefault((slot.planned.kind, slot.planned.number), slot)
        return sorted(standing.values(), key=lambda slot: (slot.planned.kind == "audit", slot.planned.number))

    def _slot(self, trial: FrozenTrial) -> Slot | None:
        """Return the run that a trial stands for, None if there is none.

        Raises:
            StateError: it is written otherwise than searches write it.
        """
        try:
            slot = _slot_of(trial)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _edited(trial, f"{type(error).__name__}: {error}") from None
        if slot is None:
            return None
        table = (*slot.curve, slot.losses) if slot.state == "done" else ()
        if any(len(losses) != len(self._target_weights) for losses in table):
            raise _edited(trial, f"other losses than {len(self._target_weights)}")
        return slot

    def dropped(self) -> list[Planned]:
        """Return the plans of runs that were dropped and may have to be made again."""
        from optuna.trial import TrialState

        failed = [trial for trial in self._read() if trial.state == TrialState.FAIL]
        ours = [trial for trial in failed if trial.user_attrs.get(UNDER) == self._terms.number]
        return [plan for trial in ours if (plan := _plan_of(trial))]

    def plan(self, runs: Iterable[Planned]) -> None:
        """Add runs for workers to claim."""
        import optuna

        share = optuna.distributions.FloatDistribution(0.0, 1.0)
        for run in runs:
            weights = dict(zip(self._names, np.clip(run.weights, 0.0, 1.0).tolist(), strict=True))
            state, values, ended = optuna.trial.TrialState.WAITING, None, {}
            if run.known:
                state, values, result = self._ended([*run.known_curve, run.known], seconds=0.0)
                ended = {"result": result}
            trial = optuna.trial.create_trial(
                state=state,
                values=values,
                params=weights,
                distributions=dict.fromkeys(weights, share),
                user_attrs={"plan": without_nan(asdict(run)), UNDER: self._terms.number, **ended},
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

        From the first run on that was made, its settings are those of the study.

        Args:
            slot: the run.
            losses: at its end, shape (D,), or after parts of it and at its end, shape (P + 1, D).
            seconds: how long it took.

        Raises:
            StateError: others have begun the study anew, with other settings.
        """
        from optuna.exceptions import UpdateFinishedTrialError

        if not self._terms.fixed:
            add_entry(self._study, {MADE: self._terms.number})
            self._read()
        trial = self._id(slot.trial)
        state, values, result = self._ended(np.atleast_2d(losses).tolist(), seconds=seconds)
        try:
            again(lambda: self._storage.set_trial_user_attr(trial, "result", result))
            again(lambda: self._storage.set_trial_state_values(trial, state, values))
        except UpdateFinishedTrialError:
            return self._ended_well(slot)
        return True

    def drop(self, slot: Slot, reason: str) -> bool:
        """Give a run up, so that it is planned anew; False if it was ended already."""
        return self._fail(slot.trial, reason)

    def _fail(self, number: int, reason: str) -> bool:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        trial = self._id(number)
        try:
            again(lambda: self._storage.set_trial_user_attr(trial, "dropped", reason))
            again(lambda: self._storage.set_trial_state_values(trial, TrialState.FAIL))
        except UpdateFinishedTrialError:
            return False
        return True

    def _ended(
        self, losses: Sequence[Sequence[float]], *, seconds: float
    ) -> tuple[TrialState, list[float] | None, dict[str, Any]]:
        """Return state, value and result of a trial whose run had these losses after its parts and at its end."""
        from optuna.trial import TrialState

        *curve, last = losses
        result: dict[str, Any] = without_nan({"losses": last, "curve": curve, "seconds": seconds})
        if not is_sound(np.array(losses)):
            return TrialState.PRUNED, None, result
        return TrialState.COMPLETE, [float(np.array(last) @ self._target_weights)], result

    def _ended_well(self, slot: Slot) -> bool:
        """Tell whether a trial's run was made: a write that was repeated finds its own first try."""
        from optuna.trial import TrialState

        state = again(lambda: self._storage.get_trial(self._id(slot.trial)).state)
        return state in (TrialState.COMPLETE, TrialState.PRUNED)

    def _read(self) -> list[FrozenTrial]:
        """Return all trials; raise unless the settings in force are ours."""
        trials = self._all()
        found = in_force(trials)
        if found is not None:
            check_same(self._study.study_name, found.settings, self._settings)
            if found.raised != self._terms.raised:
                check_budgets(self._study.study_name, found.budgets, self._terms.budgets)
            self._terms = found
        return trials

    def _all(self) -> list[FrozenTrial]:
        return again(lambda: self._study.get_trials(deepcopy=False))

    def _id(self, number: int) -> int:
        return int(again(lambda: self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)))


def add_entry(study: OptunaStudy, entry: Mapping[str, Any]) -> None:
    """Add an entry of `cuvee.search.terms` to a study: a trial that nobody can claim."""
    import optuna

    trial = optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL, user_attrs=dict(entry))
    again(lambda: study.add_trial(trial))


def _plan_of(trial: FrozenTrial) -> Planned | None:
    """Return what a trial was to run; None if it is none of ours."""
    plan: Mapping[str, Any] | None = trial.user_attrs.get("plan")
    if plan is None:
        return None
    curve = tuple(map(_losses, plan["known_curve"]))
    return Planned(**{**plan, "weights": tuple(plan["weights"]), "known": _losses(plan["known"]), "known_curve": curve})


def _losses(kept: Iterable[float | None]) -> tuple[float, ...]:
    losses = tuple(math.nan if loss is None else loss for loss in kept)
    for loss in losses:
        if not isinstance(loss, int | float) or isinstance(loss, bool):
            raise TypeError(f"{loss!r:.100} among its losses")
    return losses


def _edited(trial: FrozenTrial, reason: str) -> StateError:
    return StateError(
        f"storage must be as searches wrote it, but got trial {trial.number} with {reason:.200}; give the search "
        "another --study, or another --storage"
    )


def _slot_of(trial: FrozenTrial) -> Slot | None:
    """Return the run that a trial stands for; None for one that was dropped or is none of ours."""
    from optuna.trial import TrialState

    states: dict[TrialState, State] = {
        TrialState.WAITING: "waiting",
        TrialState.RUNNING: "running",
        TrialState.COMPLETE: "done",
        TrialState.PRUNED: "done",
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
        losses=_losses(result.get("losses", ())),
        curve=tuple(map(_losses, result.get("curve", ()))),
        seconds=result.get("seconds", math.nan),
        diverged=trial.state == TrialState.PRUNED,
    )
