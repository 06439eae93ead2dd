"""A run's optimizer steps, one plan epoch after the other, for training loops that count epochs themselves."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import Sampler  # noqa: TID253  (whoever imports this module trains)

from .checks import as_int
from .course import Course, Deal, Place, count_passing, count_scheduled, walk
from .delivery import refuse_resharding
from .errors import PlanError, StateError
from .plan import Plan
from .sampler import END, END_STEP, check_place, place_of, state_at

if TYPE_CHECKING:
    from os import PathLike

    from .ledger import Ledger
    from .mixture import Source
    from .plan.journal import Journal

START = Place(position=0, accepted=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leg:
    """One plan epoch of the run, or what was left of it when a state was loaded."""

    course: Course
    first: int  # steps of the run before it

    def place(self, step: int) -> Place:
        """Return the place after `step` steps of the run."""
        return self.course.place(step - self.first)


class StepSampler(Sampler[list[int]]):
    """The order of a run as optimizer steps, each dealt to ranks and cut into micro-batches.

    A step is the next `rows` rows of the global order that pass the length filter; rank r of R trains on its r-th
    contiguous part, in `micro_batches` lists of packed draws that `MixedDataset` reads. So what a step trains on does
    not depend on the number of ranks or micro-batches. The last step of a plan epoch may be short: it is dealt as
    evenly as can be, and a list without a row repeats the one before, marked as padding.

    Iterating yields the micro-batches of one loop epoch, `steps_per_epoch` steps: as many as the run's first plan
    epoch has. The next iteration goes on where the last one stopped, inside a plan epoch or at its end, so the n-th
    step of a run is the same whatever the loop calls an epoch.

    The loop calls `advance()` after every optimizer step: that, not what a loader has fetched ahead, is what
    `state_dict` and `account` go by.

    Attributes:
        step: optimizer steps that the run has made.
        last: the run's last step, beyond which nothing is handed out; None if nothing limits it.

    Args:
        plan: the plan of the first epoch, `mixture.plan()`.
        rows: rows of an optimizer step over all ranks, a multiple of `world_size * micro_batches`.
        rank: this process's place among those that train on different rows, 0 <= rank < world_size.
        world_size: their number.
        micro_batches: lists that this rank's part of a step comes in (gradient accumulation).

    Raises:
        PlanError: naming the argument that is out of its range.
    """

    def __init__(self, plan: Plan, *, rows: int, rank: int = 0, world_size: int = 1, micro_batches: int = 1) -> None:
        self.world_size = as_int(world_size, "world_size", 1, END, PlanError)
        self.rank = as_int(rank, "rank", 0, world_size, PlanError)
        self.micro_batches = as_int(micro_batches, "micro_batches", 1, END, PlanError)
        self.rows = as_int(rows, "rows", 1, END_STEP, PlanError)
        parts = self.world_size * self.micro_batches
        if self.rows % parts:
            raise PlanError(
                f"rows must be a multiple of world_size * micro_batches = {self.world_size} * {self.micro_batches}, "
                f"but got {self.rows}; nearest: {max(self.rows // parts, 1) * parts}"
            )
        self.deal = Deal(
            rank=self.rank,
            world_size=self.world_size,
            rows=self.rows // self.world_size,
            drop_last=False,
            batched=True,
        )
        self.step = 0  # optimizer steps that the run has made
        self.last: int | None = None  # the run's last step, beyond which nothing is handed out
        self.steps_per_epoch = self._steps_of(plan)
        if not self.steps_per_epoch:
            raise _no_rows(plan)
        self._passed = 0  # steps of the loop epoch under way that were made before a state was loaded
        self._unaccounted: list[tuple[Plan, int, int]] = []  # spans of ended epochs that no ledger knows yet
        self._begin(plan, START)

    @property
    def plan(self) -> Plan:
        """The plan of the epoch that the run is in."""
        return self._legs[0].course.plan

    @property
    def place(self) -> Place:
        """The place in that epoch after the steps made so far."""
        return self._legs[0].place(self.step)

    def __len__(self) -> int:
        """Return the number of micro-batches of a loop epoch."""
        return self.steps_per_epoch * self.micro_batches

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the micro-batches of a loop epoch.

        After a state was loaded within one, those made before come first, empty: a loop that skips what it has done, as
        trainers do, skips them at no cost.
        """
        refuse_resharding(self.world_size)
        if self._handed != self.step:  # a loop that broke off: what was handed out but not trained on comes again
            self._rewind()
        passed, self._passed = self._passed, 0
        yield from itertools.repeat([], passed * self.micro_batches)
        left = self.steps_per_epoch - passed
        if self.last is not None:
            left = min(left, max(self.last - self.step, 0))
        for part in itertools.islice(self._parts, left):
            self._handed += 1
            yield from split(part, self.micro_batches)

    def advance(self) -> Plan | None:
        """Count one optimizer step as made, and return the plan whose epoch ended with it, if one did.

        Raises:
            StateError: if it was not handed out.
        """
        if self.step == self._handed:
            raise StateError(f"step must be one that was handed out, but got step {self.step + 1} of {self._handed}")
        self.step += 1
        leg = self._legs[0]
        if not leg.course.ends_at(self.step - leg.first):
            return None
        plan = leg.course.plan
        self._unaccounted.append((plan, leg.course.accounted, len(plan)))
        leg.course.accounted = len(plan)
        self._drop_ended()
        return plan

    def ahead(self, steps: int) -> tuple[Plan, int] | None:
        """Return where an update may take effect once `steps` more steps were made: a plan, and a place in it.

        The place is a window start, in the epoch under way or in one that follows; that is a matter of what was trained
        on alone, however far a loader has fetched ahead. None if all sources are used up before.
        """
        position = self.place.position
        for number in itertools.count():
            plan = self.plan_after(number)
            if plan is None:
                return None
            position, steps = walk(plan, self.deal, position, steps)
            if (start := plan.window_start(position)) < len(plan):
                return plan, start
            position = 0
        raise AssertionError  # unreachable: the count is endless

    def plan_after(self, epochs: int) -> Plan | None:
        """Return the plan of the epoch that is this many after the one under way; None if all sources are used up."""
        if epochs < len(self._legs):
            return self._legs[epochs].course.plan
        coming = epochs - len(self._legs)
        while len(self._coming) <= coming:
            last = self._coming[-1] if self._coming else self._legs[-1].course.plan
            following = _following(last)
            if following is None:
                return None
            self._coming.append(following)
        return self._coming[coming]

    def steps_in(self, epochs: int) -> int:
        """Return the number of steps in this many plan epochs from the one under way on, counted from its start.

        Where all sources are used up before, those that are left.
        """
        plan, steps = self.plan, 0
        for remaining in range(as_int(epochs, "epochs", 1, END, PlanError) - 1, -1, -1):
            steps += self._steps_of(plan)
            following = _following(plan) if remaining else None
            if following is None:
                break
            plan = following
        return steps

    def account(self, ledger: Ledger) -> None:
        """Add to `ledger` the rows scheduled and filtered since the last call, by the steps made; on rank 0 alone."""
        course, position = self._legs[0].course, self.place.position
        spans = [*self._unaccounted, (course.plan, course.accounted, position)]
        self._unaccounted, course.accounted = [], position
        for plan, start, stop in spans if self.rank == 0 else ():
            count_scheduled(ledger, plan, start, stop)

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the steps made, as `MixtureSampler.state_dict` does, and their number.

        It can be loaded at any world size and number of micro-batches.
        """
        leg = self._legs[0]
        state = state_at(leg.course, self.step - leg.first)
        return {**state, "step": self.step, "steps_per_epoch": self.steps_per_epoch, "rows": self.rows}

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        *,
        accept_changes: Iterable[str] = (),
        add: Iterable[Source] = (),
        journal: str | PathLike[str] | Journal | None = None,
    ) -> None:
        """Go on where `state` was taken.

        Args:
            state: from `state_dict` at the same number of rows per step.
            accept_changes: this and the next two as in `Plan.load_state_dict`.
            add: sources that joined during the run.
            journal: the journal's file, where the run has one.

        Raises:
            StateError: if the state is not a StepSampler's, or belongs to steps of another size, another mixture or
                other data.
        """
        place = place_of(state)
        counts = {name: state.get(name) for name in ("step", "steps_per_epoch", "rows")}
        step, per_epoch, rows = (
            as_int(count, f"state {name}", int(name != "step"), END, StateError) for name, count in counts.items()
        )
        if rows != self.rows:
            raise StateError(
                f"rows of an optimizer step must be {rows}, as in the state, but got {self.rows}; change the rows per "
                "rank or the accumulation so that the step keeps its size"
            )
        plan = Plan.load_state_dict(
            self.plan.mixture, state["plan"], accept_changes=accept_changes, add=add, journal=journal
        )
        check_place(place, plan)
        self.step, self.steps_per_epoch, self._passed = step, per_epoch, step % per_epoch
        self._unaccounted = []
        self._begin(plan, place)

    def _begin(self, plan: Plan, place: Place) -> None:
        """Hand out next what lies at `place` of `plan`."""
        course = Course(plan, self.deal, place)
        following = _following(plan) if course.is_over() else None
        if following is not None:
            course = Course(following, self.deal, START)
        self._handed = self.step  # steps of the run handed to a loader
        self._legs = deque([_Leg(course=course, first=self.step)])
        self._coming: deque[Plan] = deque()  # plans of later epochs, made before a loader got there
        self._parts = self._run_on()

    def _rewind(self) -> None:
        """Take back what was handed out beyond the steps made."""
        leg, *others = self._legs
        accounted, coming = leg.course.accounted, [*(other.course.plan for other in others), *self._coming]
        self._begin(leg.course.plan, leg.place(self.step))
        self._coming = deque(plan for plan in coming if plan is not self.plan)  # their weights may have been updated
        if self.plan is leg.course.plan:
            self._legs[0].course.accounted = accounted

    def _run_on(self) -> Iterator[list[int]]:
        """Yield this rank's parts of the steps, from epoch to epoch."""
        while True:
            leg = self._legs[-1]
            for hand_out in leg.course:
                yield from hand_out
            if not leg.course.handed and leg.course.base == START:
                raise _no_rows(leg.course.plan)
            plan = self._coming.popleft() if self._coming else _following(leg.course.plan)
            if plan is None:
                return
            self._legs.append(_Leg(course=Course(plan, self.deal, START), first=leg.first + leg.course.handed))
            self._drop_ended()

    def _drop_ended(self) -> None:
        while len(self._legs) > 1 and self._legs[1].first <= self.step:
            self._legs.popleft()

    def _steps_of(self, plan: Plan) -> int:
        return self.deal.steps(count_passing(plan, 0, len(plan)))


def split(keys: list[int], parts: int) -> list[list[int]]:
    """Return `keys` in `parts` contiguous lists at most one apart; a list without any repeats the last key as padding.

    Padding is marked as a sampler's is: by the complement of the key.
    """
    size, longer = divmod(len(keys), parts)
    ends = [size * part + min(part, longer) for part in range(parts + 1)]
    padding = [key if key < 0 else ~key for key in keys[-1:]]
    return [keys[start:end] or padding for start, end in itertools.pairwise(ends)]


def _following(plan: Plan) -> Plan | None:
    """Return the plan of the next epoch, None where all sources are used up."""
    try:
        return plan.next_epoch()
    except PlanError:
        return None


def _no_rows(plan: Plan) -> PlanError:
    return PlanError(f"epoch {plan.epoch} must have rows within the length limit, but got none of {len(plan)}")
