"""Slices a plan's order by rank and batch into packed integers for torch's DataLoader, and remembers the place."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypeVar, cast

from .checks import as_int
from .course import Course, Deal, Place, count_passing, count_scheduled
from .delivery import DeliveryCheck, dealt_by, refuse_resharding, samplers_below
from .errors import INSTALL_HF, PlanError, StateError
from .mixture import Mixture
from .plan import Plan

if TYPE_CHECKING:
    from os import PathLike

    from .ledger import Ledger
    from .mixture import Source

try:
    from torch.utils.data import Sampler
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"MixtureSampler must have the package torch, but it is not installed; {INSTALL_HF}", name=missing.name
    ) from None

Batch = TypeVar("Batch")

STATE_VERSION = 1
END = 2**63
END_STEP = 2**31  # rows of a global batch stay below


class Items(itertools.chain[Any]):
    """What a loader iterates over: the items of a course one by one, as fast as a list's, and with a state."""

    sampler: MixtureSampler
    course: Course

    @classmethod
    def of(cls, sampler: MixtureSampler, course: Course) -> Self:
        """Return the items of `course`, to be read once."""
        items = cast("Self", cls.from_iterable(course))
        items.sampler, items.course = sampler, course
        return items

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the items taken from this iterator."""
        return state_at(self.course, self.course.handed)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`. If it is the end of an epoch nothing is left here; the next iterator begins the next."""
        self.sampler.load_state_dict(state)
        self.sampler.adopt(self.course)

    def __del__(self) -> None:
        self.course.released = True


class MixtureSampler(Sampler[Any]):
    """The order of a plan, dealt to ranks and batches, as a sampler for `torch.utils.data.DataLoader`.

    It yields integers, each a packed (source, row, cycle), which `MixedDataset` reads. With a `batch_size` it is a
    batch sampler and yields lists: a global batch is the next `batch_size * world_size` rows of the order, and rank r
    takes its r-th contiguous part, so reading by (step, rank, slot) gives back the global order. Without one it yields
    single integers, rank r every `world_size`-th row from the r-th on.

    Rows over the mixture's length limit are skipped before the order is dealt. All ranks take the same number of
    steps: a short last batch is dealt evenly, and a rank that gets one row less than others repeats one, marked as
    padding; `drop_last` leaves the short batch out.

    Iterating again after the end of an epoch gives the next epoch, with or without `set_epoch`. Iterating again after
    a `break` starts over where that iteration started.

    Args:
        plan: the plan of the epoch to begin with, `mixture.plan()`.
        rank: this process's place among those that train on different rows, 0 <= rank < world_size.
        world_size: their number.
        batch_size: rows per rank and step; None yields single rows.
        drop_last: whether a last batch that is short is left out.
        start: position of the plan, in rows over all ranks, to begin at.

    Raises:
        PlanError: naming the argument that is out of its range.
        IndexError: if `start` lies outside the plan.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        rank: int = 0,
        world_size: int = 1,
        batch_size: int | None = None,
        drop_last: bool = False,
        start: int = 0,
    ) -> None:
        if not isinstance(plan, Plan):
            cure = "pass mixture.plan()" if isinstance(plan, Mixture) else "mixture.plan() makes one"
            raise PlanError(f"plan must be a Plan, but got {type(plan).__name__}; {cure}")
        self.world_size = as_int(world_size, "world_size", 1, END, PlanError)
        self.rank = as_int(rank, "rank", 0, world_size, PlanError)
        self.batch_size = None if batch_size is None else as_int(batch_size, "batch_size", 1, END, PlanError)
        self.drop_last = bool(drop_last)
        if (self.batch_size or 1) * self.world_size >= END_STEP:
            raise PlanError(
                f"batch_size * world_size must be below 2**31, but got {self.batch_size or 1} * {self.world_size}"
            )
        start = _as_position(start)
        if not 0 <= start <= len(plan):
            raise IndexError(f"start must be in [0, {len(plan)}], the positions of the plan, but got {start!r}")
        self._deal = Deal(
            rank=self.rank,
            world_size=self.world_size,
            rows=self.batch_size or 1,
            drop_last=self.drop_last,
            batched=self.batch_size is not None,
        )
        self._course = Course(plan, self._deal, Place(position=start, accepted=count_passing(plan, 0, start)))
        self._loaded_epoch = 0
        self._taken: int | None = None  # steps of this iteration that `track` saw consumed
        self._verified = False  # whether an epoch was compared with the plan on its way to a loop
        self._unaccounted: list[tuple[Plan, int, int]] = []  # spans of earlier epochs that no ledger knows yet
        self._length: tuple[tuple[Plan, int, int], int] | None = None  # what it was counted for, items

    @property
    def plan(self) -> Plan:
        """The plan of the epoch under way."""
        return self._course.plan

    @property
    def epoch(self) -> int:
        """The number of the epoch under way."""
        return self.plan.epoch

    @property
    def upcoming(self) -> int:
        """The number of the epoch that the next iteration goes through: `epoch`, or the one after if that is over."""
        course = self._course
        over = course.finished or (course.ends_at(course.handed) if course.handed else course.is_over())
        consumed = self._taken is None or self._taken == course.handed
        return self.epoch + int(over and consumed)

    def __iter__(self) -> Items:
        refuse_resharding(self.world_size)
        self._course.finish()  # some trainers stop at `len` items and ask for no end
        if self._course.finished or self._course.is_over():
            self._enter(self.plan.next_epoch())
        self._taken = None
        self._course = Course(self.plan, self._deal, self._course.base)
        return Items.of(self, self._course)

    def __len__(self) -> int:
        """Return how many items the iteration under way yields in all; without one, how many the next will yield.

        That is less than an epoch's after a state within it was loaded.
        """
        course, plan, base = self._course, self.plan, self._course.base.position
        counted = (plan, plan.version, base)
        if self._length is None or self._length[0] != counted:
            if course.is_over():
                plan, base = plan.next_epoch(), 0
            self._length = (counted, self._deal.steps(count_passing(plan, base, len(plan))))
        return self._length[1]

    def set_epoch(self, epoch: int) -> None:
        """Begin epoch `epoch`. While that epoch is under way this changes nothing, so a loaded place is kept.

        Raises:
            StateError: if `epoch` lies before the epoch of the loaded state.
            PlanError: if there is no such epoch, or an earlier one is asked for after weights were updated.
        """
        epoch = as_int(epoch, "epoch", 0, END, PlanError)
        if epoch < self._loaded_epoch:
            raise StateError(
                f"epoch must be at least {self._loaded_epoch}, that of the loaded state, but got {epoch}; "
                "let the trainer count from sampler.epoch (Accelerate: loader.iteration = sampler.epoch)"
            )
        if epoch != self.epoch or self._course.finished:
            self._enter(self._plan_of(epoch))

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the place in the run and the plan's state; it can be loaded at any world size and batch size.

        A loader takes batches from the sampler before the training loop sees them, with workers long before. So loop
        over `track(loader)`, which counts, or say how many batches were trained on. StatefulDataLoader needs neither:
        save its own state.

        Args:
            batches: how many items of this iteration (single rows if there is no batch size) count as consumed.
                Default: those that `track` counted. It may be left out, too, before anything was handed out, and once
                the epoch was iterated to its end.

        Raises:
            StateError: if nothing says how many of the items handed out were consumed.
        """
        return state_at(self._course, self._consumed(batches))

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        *,
        accept_changes: Iterable[str] = (),
        add: Iterable[Source] = (),
        journal: str | PathLike[str] | None = None,
    ) -> None:
        """Go on where `state` was taken; a state from the end of an epoch goes on with the next one.

        Args:
            state: from `state_dict` of a sampler of any rank, world size and batch size; it is not modified.
            accept_changes: this and the next two as in `Plan.load_state_dict`.
            add: sources that joined during the run.
            journal: the journal's file, where the run has one.

        Raises:
            StateError: if the state is not a sampler's, or belongs to another mixture or other data.
        """
        place = place_of(state)
        plan = Plan.load_state_dict(
            self.plan.mixture, state["plan"], accept_changes=accept_changes, add=add, journal=journal
        )
        check_place(place, plan)
        self._course = Course(plan, self._deal, place)
        self._loaded_epoch = plan.epoch
        self._taken = None
        self._unaccounted = []

    def track(self, loader: Iterable[Batch], *, verify: bool = True) -> Iterator[Batch]:
        """Yield the loader's batches, each counted as consumed, so that `state_dict()` is right.

        In the first epoch each batch whose rows carry `__cuvee_meta__` is compared with what the plan has there, so
        that no tool around the sampler can change the order without being noticed.

        Args:
            loader: made with this sampler; also one that Accelerate's `prepare` deals to processes.
            verify: whether to compare; turn it off where batches are meant to lose or reorder rows.

        Raises:
            StateError: if the loader has another sampler.
            PlanError: while iterating, if a batch is not what the plan says.
        """
        feeding = samplers_below(loader)
        if feeding and not any(sampler is self for sampler in (loader, *feeding)):
            raise StateError(
                f"loader must take its batches from this sampler, but got one with a {type(feeding[-1]).__name__}; "
                "call track of the very sampler that the loader was made with"
            )
        return self._counting(loader, dealt_by(loader, self._deal), verify=verify and not self._verified)

    def _counting(self, loader: Iterable[Batch], deal: Deal, *, verify: bool) -> Iterator[Batch]:
        items = deal.step // self._deal.step  # of this sampler, that a batch takes over all processes
        if not deal.batched:
            items = int(getattr(loader, "batch_size", None) or 1)
        check = None
        for number, batch in enumerate(loader, start=1):
            if verify:
                check = check or DeliveryCheck(self.plan, deal, self._course.base)
                check.batch(batch, loader=loader)
                verify = not check.finished
            self._taken = min(number * items, self._course.handed)
            yield batch
        self._verified = True

    def keep_place(self) -> None:
        """Let the next iteration go on after the batches that `track` counted, where it would else start over."""
        course = self._course
        if self._taken and not (self._taken == course.handed and course.ends_at(course.handed)):
            self._course = Course(self.plan, self._deal, course.place(self._taken))
            self._unaccounted.append((self.plan, course.accounted, self._course.base.position))
            self._taken = None

    def account(self, ledger: Ledger, batches: int | None = None) -> None:
        """Add to `ledger` the rows scheduled and filtered since the last call.

        These are the same on every rank, so rank 0 alone adds them and a sum over ranks is exact.

        Args:
            ledger: this rank's ledger.
            batches: as in `state_dict`.
        """
        course, position = self._course, self._course.place(self._consumed(batches)).position
        spans = [*self._unaccounted, (course.plan, course.accounted, position)]
        self._unaccounted, course.accounted = [], position
        for plan, start, stop in spans if self.rank == 0 else ():
            count_scheduled(ledger, plan, start, stop)

    def adopt(self, course: Course) -> None:
        """Make `course`, whose iterator a loader already holds, the one under way."""
        course.rebase(self._course.plan, self._course.base)
        self._course = course

    def _consumed(self, batches: int | None) -> int:
        if batches is not None:
            return as_int(batches, "batches", 0, END, StateError)
        if self._taken is not None:
            return self._taken
        course = self._course
        if course.handed and not (course.finished and course.released) and not _asked_by_stateful_loader():
            raise StateError(
                f"batches must say how many of the {course.handed} handed out were trained on, but got None, and "
                "loaders fetch ahead; loop over sampler.track(loader), or pass batches=N (StatefulDataLoader: save its "
                "own state)"
            )
        return course.handed

    def _enter(self, plan: Plan) -> None:
        """Begin the epoch of `plan`."""
        if self._course.finished:
            self._unaccounted.append((self.plan, self._course.accounted, self._course.end()))
        self._course = Course(plan, self._deal, Place(position=0, accepted=0))

    def _plan_of(self, epoch: int) -> Plan:
        plan = self.plan
        if epoch == plan.epoch:
            return plan
        if epoch != plan.epoch + 1 and not plan.journal:
            return plan.mixture.plan(epoch)
        if epoch < plan.epoch:
            raise PlanError(
                f"epoch must be at least {plan.epoch} once weights were updated, but got {epoch}; load an earlier state"
            )
        while plan.epoch < epoch:
            plan = plan.next_epoch()
        return plan


def _asked_by_stateful_loader() -> bool:
    """Return whether the state is asked for by torchdata's StatefulDataLoader, just when it takes a batch."""
    caller = sys._getframe(3)  # noqa: SLF001  (who called state_dict or account)
    return str(caller.f_globals.get("__name__", "")).startswith("torchdata.")


def state_at(course: Course, steps: int) -> dict[str, Any]:
    """Return the state after `steps` steps of `course`."""
    place = course.place(steps)
    return {
        "version": STATE_VERSION,
        "position": place.position,
        "accepted": place.accepted,
        "plan": course.plan.state_dict(issued=place.position),
    }


def _as_position(value: object) -> int:
    try:
        return operator.index(cast("SupportsIndex", None if isinstance(value, bool) else value))
    except TypeError:
        raise PlanError(f"start must be an integer, a position of the plan, but got {value!r}") from None


def check_place(place: Place, plan: Plan) -> None:
    """Check that a sampler's place is that of its plan."""
    if place.position != plan.issued:
        raise StateError(f"state position must be {plan.issued}, as in its plan, but got {place.position}")
    filtered = plan.mixture.max_length is not None
    if place.accepted > place.position or (place.accepted < place.position and not filtered):
        rule = f"in [0, {place.position}]" if filtered else f"{place.position}, its position"
        raise StateError(f"state accepted must be {rule}, but got {place.accepted}")


def place_of(state: Mapping[str, Any]) -> Place:
    """Return the place that a sampler's state names, its form checked."""
    if not isinstance(state, Mapping):
        raise StateError(f"state must be from MixtureSampler.state_dict, but got {state!r}")
    missing = [name for name in ("version", "position", "accepted", "plan") if name not in state]
    if missing:
        raise StateError(f"state must be from MixtureSampler.state_dict, but got one without {missing}")
    if state["version"] != STATE_VERSION:
        raise StateError(f"state version must be {STATE_VERSION}, but got {state['version']!r}")
    return Place(
        position=as_int(state["position"], "state position", 0, END, StateError),
        accepted=as_int(state["accepted"], "state accepted", 0, END, StateError),
    )
