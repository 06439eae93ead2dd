"""A search that many processes on many machines work on, each as long as it lives.

Everything is in one Optuna storage: settings, runs, signs of life of the workers. A worker claims runs, makes them and
stores their losses; one of those who wait plans the next round. Nothing but the storage connects them, so any may be
killed at any time: its runs are found by its missing signs of life, and made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import CuveeError, StateError
from .neighbours import BEAT_SECONDS, GRACE_SECONDS, Heart, Neighbours, identity
from .receipt import F64
from .rounds import Course
from .storage import again, open_storage, quiet
from .terms import RAISED, UNDER, Terms, in_force
from .trials import Slot, Trials, add_entry

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from optuna.storages import BaseStorage
    from optuna.study import Study as OptunaStudy

LONGEST_NAME = 512  # of a study, in a database
POLL_SECONDS = (0.1, 2.0)  # between two looks at a study where nothing is to be done: at first, and at last


class Evaluate(Protocol):
    """Makes proxy runs."""

    def __call__(self, weights: F64, *, fidelity: float, training_seed: int, evaluation_seed: int) -> F64:
        """Return the losses of runs.

        Args:
            weights: M mixtures, shape (M, K).
            fidelity: part of the steps to run.
            training_seed: what weights and training text are drawn from.
            evaluation_seed: what held-out text is drawn from.

        Returns:
            Losses by target in nats at the end of each run, shape (M, D); or after parts of it and at its end, of shape
            (M, P + 1, D).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How patient the workers of a study are, in seconds.

    Args:
        beat: between two signs of life.
        grace: without one, after which a worker is taken for gone. On one machine its process is looked for, too.
    """

    beat: float = BEAT_SECONDS
    grace: float = GRACE_SECONDS


@dataclass(slots=True)
class Study:
    """One search in a storage, as this process sees it; made by `open_study`."""

    name: str
    names: tuple[str, ...]
    course: Course
    trials: Trials
    timing: Timing
    read: Callable[[], Mapping[str, Any]]
    write: Callable[[str, Any], None]
    worker: str = field(default_factory=identity)
    _nameless: dict[int, float] = field(default_factory=dict)  # running trials without a worker, and since when

    def slots(self) -> list[Slot]:
        """Return where every run stands."""
        return self.trials.slots()

    @property
    def finished(self) -> bool:
        """Whether every run is done, the audit included."""
        return self.course.finished(self.slots())

    def work(self, evaluate: Evaluate, *, watch: Callable[[Sequence[Slot]], None] | None = None) -> None:
        """Make runs until the search is finished.

        Args:
            evaluate: makes proxy runs.
            watch: called with the runs whenever this worker looks at them.

        Raises:
            CuveeError: a run failed, or the storage is lost. The study can be gone on with.
            KeyboardInterrupt: as it came; the run that it stopped can be made again at once.
        """
        neighbours, pause = Neighbours(self.read, grace=self.timing.grace), POLL_SECONDS[0]
        with Heart(self.write, self.worker, every=self.timing.beat) as heart:
            self._give_up("its worker begins anew")  # of an earlier search here, whose storage was lost just then
            try:
                while True:
                    if heart.failure is not None:
                        raise CuveeError(
                            f"storage must take signs of life, but got: {heart.failure}"
                        ) from heart.failure
                    slots = self.slots()
                    if watch is not None:
                        watch(slots)
                    if self.course.finished(slots):
                        return
                    if self._went_on(evaluate, slots, neighbours, heart):
                        pause = POLL_SECONDS[0]
                    else:
                        time.sleep(pause)
                        pause = min(1.5 * pause, POLL_SECONDS[1])
            except (KeyboardInterrupt, SystemExit):  # which may come between a claim and its run
                self._give_up("its worker was stopped")
                raise

    def _give_up(self, reason: str) -> None:
        """Give up the runs that this worker has claimed."""
        for slot in self.slots():
            if slot.state == "running" and slot.worker == self.worker:
                self.trials.drop(slot, reason)

    def _went_on(self, evaluate: Evaluate, slots: Sequence[Slot], neighbours: Neighbours, heart: Heart) -> bool:
        """Do what there is to do for this worker, and tell whether there was anything."""
        alive = neighbours.alive()
        if self._drop_stale(slots, alive):
            return True
        group = self._claimed(slots)
        if group:
            heart.busy(busy=True)
            try:
                self._make(evaluate, group)
            finally:
                heart.busy(busy=False)
            return True
        idle = [worker for worker, busy in alive.items() if not busy or worker == self.worker]
        if idle[:1] != [self.worker]:  # the first of those who wait plans; if two think so, trials tell them apart
            return False
        due = self.course.due(slots, self.trials.dropped())
        self.trials.plan(due)
        return bool(due)

    def _drop_stale(self, slots: Sequence[Slot], alive: Mapping[str, bool]) -> bool:
        """Give up runs whose worker is gone, and tell whether there were any."""
        stale, now = [], time.monotonic()
        for slot in slots:
            if slot.state == "running" and not slot.worker:  # claimed just now, or by one who was killed just then
                if now - self._nameless.setdefault(slot.trial, now) > self.timing.grace:
                    stale.append(slot)
            elif slot.state == "running" and slot.worker not in alive:
                stale.append(slot)
        return sum(self.trials.drop(slot, f"worker {slot.worker} is gone") for slot in stale) > 0

    def _claimed(self, slots: Sequence[Slot]) -> list[Slot]:
        """Claim the first group of runs that nobody is at; whoever has its first run may have the others."""
        groups: dict[tuple[int, int], list[Slot]] = {}
        for slot in slots:
            if slot.state != "done":
                groups.setdefault((slot.planned.round, slot.planned.group), []).append(slot)
        for _, (head, *others) in sorted(groups.items()):
            if head.state == "waiting" and self.trials.claim(head, self.worker):
                waiting = [slot for slot in others if slot.state == "waiting"]
                return [head, *(slot for slot in waiting if self.trials.claim(slot, self.worker))]
        return []

    def _make(self, evaluate: Evaluate, group: Sequence[Slot]) -> None:
        """Make the runs of a group as one batch and store their losses."""
        plan, began = group[0].planned, time.perf_counter()
        weights = np.array([slot.planned.weights for slot in group])
        try:
            losses = _checked(
                evaluate(
                    weights,
                    fidelity=plan.fidelity,
                    training_seed=plan.training_seed,
                    evaluation_seed=plan.evaluation_seed,
                ),
                group,
                len(self.course.targets),
            )
        except BaseException as error:
            for slot in group:
                self.trials.drop(slot, f"{type(error).__name__}: {error}"[:1000])
            raise
        seconds = (time.perf_counter() - began) / len(group)
        for slot, of_run in zip(group, losses, strict=True):
            self.trials.finish(slot, of_run, seconds=seconds)


def _checked(losses: ArrayLike, group: Sequence[Slot], targets: int) -> F64:
    """Return losses as float64; raise unless there is a number for each run and target, which may be NaN."""
    try:
        table = np.asarray(losses, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    shape = (len(group), targets)
    if not (table.ndim in (2, 3) and (table.shape[0], table.shape[-1]) == shape):
        plan = group[0].planned
        raise CuveeError(
            f"losses of runs {plan.number} to {group[-1].planned.number} must be numbers, of shape {shape}, but got "
            f"{getattr(losses, 'tolist', lambda: losses)()!r:.200}"
        )
    return table


def open_study(
    url: str,
    name: str,
    settings: Mapping[str, Any],
    *,
    names: Sequence[str],
    course: Course,
    raised: Sequence[int] = (),
    timing: Timing | None = None,
) -> Study:
    """Return a study, made in its storage if it is not there yet.

    Args:
        url: where it is kept, see `open_storage`.
        name: of the study in the storage.
        settings: all that its runs depend on, as JSON values. A study that is there must have the same; if no run of it
            was made and no other worker is at it, they take the place of its own.
        names: the K domains.
        course: which runs come next.
        raised: budgets that a study was raised to since it was begun with the one of its settings.
        timing: how patient to be with other workers.

    Raises:
        CuveeError: the storage cannot be opened.
        StateError: the study was begun with other settings, and the sentence names the first that differs; or it is
            none of a search.
    """
    study, storage = _in_storage(url, name)
    trials = Trials(study, storage, names, tuple(course.targets.values()), settings=settings, raised=raised)
    neighbours = Neighbours(lambda: again(lambda: study.user_attrs))
    trials.begin(alone=lambda: not neighbours.alive())
    return Study(
        name=name,
        names=tuple(names),
        course=course,
        trials=trials,
        timing=timing or Timing(),
        read=lambda: again(lambda: study.user_attrs),
        write=lambda key, value: again(lambda: study.set_user_attr(key, value)),
    )


def terms_of(url: str, name: str) -> Terms | None:
    """Return the settings in force of a study; None if it has none yet.

    Raises:
        CuveeError: the storage cannot be opened.
    """
    study, _ = _in_storage(url, name)
    return in_force(again(lambda: study.get_trials(deepcopy=False)))


def raise_budget(url: str, name: str, terms: Terms, budget: int) -> None:
    """Give a study a larger budget; if another gave it one as large at this moment, that stands."""
    add_entry(_in_storage(url, name)[0], {RAISED: budget, UNDER: terms.number})


def _in_storage(url: str, name: str) -> tuple[OptunaStudy, BaseStorage]:
    """Return a study, made if it is not there, and its storage.

    Raises:
        CuveeError: the name is none, or the storage cannot be opened.
        StateError: something else made a study of that name.
    """
    import optuna

    if not (isinstance(name, str) and 0 < len(name) <= LONGEST_NAME):
        raise CuveeError(f"study must be a name of 1 to {LONGEST_NAME} characters, but got {name!r:.100}")
    storage = open_storage(url)
    with quiet():
        study = again(
            lambda: optuna.create_study(storage=storage, study_name=name, direction="minimize", load_if_exists=True)
        )
    directions = again(lambda: study.directions)
    if directions != [optuna.study.StudyDirection.MINIMIZE]:  # made by something else, and joined as it is
        shown = ", ".join(direction.name.lower() for direction in directions)
        raise StateError(
            f"study {name!r} must be one that minimises a loss, as searches do, but got one of {shown}; give the "
            "search another --study, or another --storage"
        )
    return study, storage
