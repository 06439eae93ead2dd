"""One pass over an epoch: draws fetched in blocks, filtered, dealt to a rank in steps, each step's place remembered."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .errors import PlanError, StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .ledger import Ledger
    from .plan import Draws, Plan

FETCHED = 16_384  # positions fetched from the plan at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A boundary between two steps: positions scheduled and rows accepted before it, counted within the epoch."""

    position: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """A step takes `world_size * rows` accepted rows and gives each rank, in rank order, `rows` of them."""

    rank: int
    world_size: int
    rows: int
    drop_last: bool
    batched: bool  # an item is a list of `rows` packed draws; otherwise rows = 1 and an item is the packed draw itself

    @property
    def step(self) -> int:
        """Rows of one global batch."""
        return self.world_size * self.rows

    def steps(self, rows: int) -> int:
        """Return the number of steps that `rows` accepted rows make."""
        return rows // self.step if self.drop_last else -(-rows // self.step)

    def items(self, draws: Draws, full: NDArray[np.int64]) -> list[Any]:
        """Return this rank's items, one per step, of the full steps that `full` (indices into `draws`) makes."""
        keys = packed(draws, full.reshape(-1, self.world_size, self.rows)[:, self.rank].ravel())
        return [keys[i : i + self.rows] for i in range(0, len(keys), self.rows)] if self.batched else keys

    def tail(self, draws: Draws, short: NDArray[np.int64]) -> Any:
        """Return this rank's item of a short step, dealt contiguously in parts at most one row apart.

        A rank that is one row short repeats the step's last row as padding, marked by the complement of its key.
        """
        size, longer = divmod(len(short), self.world_size)
        first = self.rank * size + min(self.rank, longer)
        keys = packed(draws, short[first : first + size + (self.rank < longer)])
        if 0 < longer <= self.rank:
            keys += [~key for key in packed(draws, short[-1:])]
        return keys if self.batched else keys[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive steps of one rank, fetched together."""

    first: int  # steps of the course before this block
    start: Place
    items: list[Any]  # one per step
    ends: NDArray[np.int64]  # position after each step
    accepted: int  # rows that all its steps take, over all ranks
    version: int  # of the plan when this was fetched

    def after(self, steps: int, deal: Deal) -> Place:
        """Return the place after this many of its steps, at least one."""
        accepted = min(steps * deal.step, self.accepted)
        return Place(position=int(self.ends[steps - 1]), accepted=self.start.accepted + accepted)


class Course:
    """The steps of an epoch from `base` on, as an iterable of hand-outs: iterators over a few items each."""

    def __init__(self, plan: Plan, deal: Deal, base: Place) -> None:
        self._deal = deal
        self._rest: Iterator[Any] = iter(())  # the hand-out under way
        self.rebase(plan, base)

    def rebase(self, plan: Plan, base: Place) -> None:
        """Start over at `base` of `plan`; what is left of the hand-out under way is void."""
        deque(self._rest, maxlen=0)
        self.plan = plan
        self.base = base
        self.finished = False
        self.released = False  # whether nobody holds the iterator over this course any more
        self.accounted = base.position  # up to here a ledger knows what was scheduled
        self._given = 0  # steps up to the end of the hand-out under way
        self._block: Block | None = None
        self._marks: list[tuple[int, Place]] = []  # (steps before it, its start) of every block fetched

    @property
    def handed(self) -> int:
        """Steps handed out so far."""
        return self._given - operator.length_hint(self._rest)

    def __iter__(self) -> Iterator[Iterator[Any]]:
        while (block := self._next_block()).items:
            first = 0
            stops = self._stops(block)
            for stop, position in zip(stops.tolist(), block.ends[stops - 1].tolist(), strict=True):
                self._given = block.first + stop
                self._rest = iter(block.items[first:stop])
                self.plan.issue(position)
                yield self._rest
                if self._block is not block or self.plan.version != block.version:
                    break  # another place was loaded, or the plan changed beyond what is issued
                first = stop
        self.finished = True

    def place(self, steps: int) -> Place:
        """Return the place after `steps` of the steps handed out.

        Raises:
            StateError: if fewer were handed out.
        """
        if not 0 <= steps <= self.handed:
            raise StateError(f"batches must be in [0, {self.handed}], those handed out so far, but got {steps!r}")
        if steps == 0:
            return self.base
        first, start = self._marks[bisect_left(self._marks, steps, key=operator.itemgetter(0)) - 1]
        block = self._block
        if block is None or block.first != first:
            block = self._fetch(first, start)
        return block.after(steps - first, self._deal)

    def is_over(self) -> bool:
        """Return whether the epoch began before the base and no step is left from there on."""
        return self.base.position > 0 and not self._fetch(0, self.base).items

    def ends_at(self, steps: int) -> bool:
        """Return whether no step follows the first `steps`, which were handed out; deals with `drop_last` aside."""
        place, block = self.place(steps), self._block
        if place.position == len(self.plan):
            return True
        if block is not None and steps < block.first + len(block.items):
            return False
        return not self._fetch(steps, place).items

    def finish(self) -> None:
        """Count as finished if every step was handed out, even if nobody asked for one more."""
        if self.handed > 0 and not self._fetch(self.handed, self.place(self.handed)).items:
            self.finished = True

    def end(self) -> int:
        """Return the position up to which a finished course went, rows skipped at the epoch's end included."""
        return self.place(self.handed).position if self._deal.drop_last else len(self.plan)

    def _stops(self, block: Block) -> NDArray[np.int64]:
        """Return the steps after which a hand-out ends: each batch, but single rows only at the end of their window.

        No update can change the rest of a window that is begun, so issuing it as a whole refuses none.
        """
        if self._deal.batched:
            return np.arange(1, len(block.items) + 1)
        windows = (block.ends - 1) // self.plan.mixture.window
        return np.append(np.flatnonzero(np.diff(windows)) + 1, len(block.items))

    def _next_block(self) -> Block:
        start = self.place(self._given)
        self._block = self._fetch(self._given, start)
        self._marks.append((self._given, start))
        return self._block

    def _fetch(self, first: int, start: Place) -> Block:
        return fetch(self.plan, self._deal, first, start)


def fetch(plan: Plan, deal: Deal, first: int, start: Place) -> Block:
    """Return the steps of a rank from `start` on, the first of which is step `first`; none at the epoch's end."""
    version = plan.version
    draws, accepted = _accept(plan, deal, start.position)
    cut = len(accepted) - len(accepted) % deal.step
    full, short = accepted[:cut], accepted[cut:]
    items = deal.items(draws, full)
    ends = start.position + 1 + full[deal.step - 1 :: deal.step]
    stop = start.position + len(draws)
    at_end = stop == len(plan)
    if at_end and len(short) and not deal.drop_last:
        items.append(deal.tail(draws, short))
        ends = np.append(ends, stop)
        cut = len(accepted)
    elif at_end and items and not len(short):
        ends[-1] = stop  # what follows the last accepted row is filtered
    return Block(first=first, start=start, items=items, ends=ends, accepted=cut, version=version)


def _accept(plan: Plan, deal: Deal, start: int) -> tuple[Draws, NDArray[np.int64]]:
    """Return draws from `start` on and the indices that pass: a full step at least, unless the epoch ends first."""
    step, size = deal.step, len(plan)
    rows = max(FETCHED // step, 1) * step
    while True:
        stop = min(start + rows, size)
        draws = plan.draws(start, stop)
        accepted = np.flatnonzero(plan.passes(draws))
        if len(accepted) >= step or stop == size:
            return draws, accepted
        rows *= 2


def packed(draws: Draws, index: NDArray[np.int64]) -> list[int]:
    """Return the draws at `index`, one Python integer each."""
    return _core.pack(draws.source[index], draws.row[index], draws.cycle[index])


def count_passing(plan: Plan, start: int, stop: int) -> int:
    """Return how many of the positions start, ..., stop-1 hold a row within the length limit."""
    if plan.mixture.max_length is None:
        return stop - start
    spans = ((first, min(first + FETCHED, stop)) for first in range(start, stop, FETCHED))
    return sum(int(np.count_nonzero(plan.passes(plan.draws(*span)))) for span in spans)


def walk(plan: Plan, deal: Deal, position: int, steps: int) -> tuple[int, int]:
    """Return (position after `steps` more steps from `position` on, steps that no row of the epoch was left for).

    The position is the epoch's end where no row that passes follows.

    Raises:
        PlanError: if steps are asked of a whole epoch in which no row passes.
    """
    rows, start = steps * deal.step, position
    while rows and position < len(plan):
        stop = min(position + (rows if plan.mixture.max_length is None else FETCHED), len(plan))
        passing = np.flatnonzero(plan.passes(plan.draws(position, stop)))
        if len(passing) >= rows:
            position, rows = position + 1 + int(passing[rows - 1]), 0
        else:
            position, rows = stop, rows - len(passing)
    if start == 0 and steps and rows == steps * deal.step:
        raise PlanError(f"epoch {plan.epoch} must have rows within the length limit, but got none of {len(plan)}")
    if plan.mixture.max_length is not None and not _any_passes(plan, position):
        position = len(plan)
    return position, (rows + deal.step - 1 if deal.drop_last else rows) // deal.step


def _any_passes(plan: Plan, start: int) -> bool:
    spans = ((first, min(first + FETCHED, len(plan))) for first in range(start, len(plan), FETCHED))
    return any(bool(plan.passes(plan.draws(*span)).any()) for span in spans)


def count_scheduled(ledger: Ledger, plan: Plan, start: int, stop: int) -> None:
    """Add to `ledger` the rows at positions start, ..., stop-1, scheduled and filtered."""
    for first in range(start, stop, FETCHED):
        draws = plan.draws(first, min(first + FETCHED, stop))
        ledger.add_scheduled(draws.source, passed=plan.passes(draws))


def goes_on(plan: Plan) -> bool:
    """Return whether another epoch follows that of `plan`; none does once all sources are used up."""
    try:
        plan.next_epoch()
    except PlanError:
        return False
    return True
