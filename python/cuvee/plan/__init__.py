"""The plan of one epoch: draws by position, counts, hashes, updates of the weights, and its state."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ..checks import as_int
from ..errors import PlanError, StateError
from ..mixture import Mixture
from ..mixture.source import Source
from .change import Change
from .epoch import Epoch, History
from .journal import Journal, plan_hash
from .updating import check_update

AHEAD = 512  # draws made at once when positions are asked for one after the other
THREAD_DRAWS = 1 << 20  # from this many draws on, several threads make them
MAX_THREADS = 8


class Draw(NamedTuple):
    """What stands at a position: row `row` of source `source`, called `name`, in its cycle `cycle`."""

    source: int
    row: int
    cycle: int
    name: str


make_draw = tuple.__new__  # of (Draw, fields): what Draw(*fields) does, without a call into Python


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """What stands at consecutive positions, as three arrays of shape (n,)."""

    source: NDArray[np.int32]
    row: NDArray[np.int64]
    cycle: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.source)


class Plan:
    """The order of one epoch of a mixture. Made by `mixture.plan()`, `plan.next_epoch()` or `Plan.load_state_dict()`.

    Positions count from 0 within the epoch, and none is negative: `plan[-1]` is an IndexError. Reading changes nothing;
    `update` changes what lies ahead of `issued`, the position up to which a sampler has handed out rows.

    Args:
        mixture: the contract.
        epoch: which epoch.
        history: what happened before, if anything did.

    Raises:
        PlanError: if the epoch has no rows, or its positions would pass 2**63.
    """

    def __init__(self, mixture: Mixture, epoch: int = 0, *, history: History | None = None) -> None:
        history = history or History(sources=mixture.sources)
        self._epoch = Epoch(mixture, as_int(epoch, "epoch", 0, 2**62, PlanError), history)
        self._journal = history.journal
        self._parent = history.parent
        self._issued = history.issued
        self._names = _names_of(mixture, history.sources)
        self._version = 0
        self._chunk: tuple[int, Sequence[Draw]] = (0, ())  # first position and draws of a stretch made in advance
        self._expected = 1  # the position that would follow the last one asked for
        self._size = -1  # rows, once they are known

    # --- what it is

    @property
    def mixture(self) -> Mixture:
        """The contract this is a plan of."""
        return self._epoch.mixture

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch.number

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sources, those that joined included: `names[draw.source]`."""
        return self._names

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources, those that joined included."""
        return self._epoch.sources

    @property
    def journal(self) -> Journal:
        """All changes made in this run so far."""
        return self._journal

    @property
    def issued(self) -> int:
        """Position up to which a sampler has handed out rows: no update can change what lies before."""
        return self._issued

    @property
    def version(self) -> int:
        """Number of updates made to this object; draws ahead of `issued` may differ between versions."""
        return self._version

    def __len__(self) -> int:
        return self._epoch.size

    def __repr__(self) -> str:
        return f"Plan(epoch={self.epoch}, sources={len(self._names)}, issued={self._issued}, hash={self.plan_hash})"

    # --- reading

    def __getitem__(self, position: SupportsIndex) -> Draw:
        if type(position) is not int:  # others may wrap around when they are subtracted from
            position = _as_position(position)
        first, chunk = self._chunk
        place = position - first
        if 0 <= place < len(chunk):
            return chunk[place]
        return self._draw(position)

    def __iter__(self) -> Iterator[Draw]:
        for start in range(0, len(self), AHEAD):
            yield from self._draw_list(start, min(start + AHEAD, len(self)))

    def draws(self, start: int, stop: int, *, threads: int | None = None) -> Draws:
        """Return the draws at positions start, ..., stop-1.

        Args:
            start: first position, 0 <= start <= stop <= len(plan).
            stop: position after the last one.
            threads: None is one below 2**20 draws, else one per CPU this process may use, up to 8.

        Raises:
            IndexError: if positions lie outside the plan.
        """
        first, end = self._epoch.span(start, stop)
        size = end - first
        memory = np.empty(16 * size, dtype=np.uint8)  # one block: three would fault their pages in at every call
        draws = Draws(
            source=memory[8 * size : 12 * size].view(np.int32),
            row=memory[: 8 * size].view(np.int64),
            cycle=memory[12 * size :].view(np.int32),
        )
        self._epoch.stream.core.fill(
            first, source=draws.source, row=draws.row, cycle=draws.cycle, threads=_threads(threads, size)
        )
        return draws

    def counts(self, position: int) -> NDArray[np.int64]:
        """Return the draws each source gives before `position`, shape (K,)."""
        return self._epoch.within(self._epoch.stream.core.counts(self._epoch.slot(position)))

    def work(self, position: int) -> NDArray[np.float64]:
        """Return the draws each source is owed before `position`, what it carried into the epoch included, shape (K,).

        abs(counts - work) is at most `summary()["bound"]` at window boundaries.
        """
        return self._epoch.within(self._epoch.stream.core.work(self._epoch.slot(position)))

    def lengths_of(self, draws: Draws) -> NDArray[np.int32] | None:
        """Return the target tokens of each draw, shape (n,); None unless the lengths of every source are known."""
        if any(source.lengths is None and source.rows for source in self.sources):
            return None
        return self._epoch.stream.lengths.of(draws.source, draws.row)

    def passes(self, draws: Draws) -> NDArray[np.bool_]:
        """Return which draws are within the mixture's `max_length`, shape (n,)."""
        if self.mixture.max_length is None:
            return np.ones(len(draws), dtype=np.bool_)
        return self._epoch.stream.lengths.passes(draws.source, draws.row)

    # --- hashes and reports

    @property
    def spec_hash(self) -> str:
        """Hash of the mixture: all that determines the order of a run without updates."""
        return self.mixture.spec_hash

    @property
    def plan_hash(self) -> str:
        """Hash of the mixture, the epoch and the journal."""
        return plan_hash(self.spec_hash, self.epoch, self._journal)

    @property
    def parent(self) -> str | None:
        """`plan_hash` before the last update; None if there was none."""
        return self._parent

    def schedule_hash(self, start: int = 0, stop: int | None = None, *, threads: int | None = None) -> str:
        """Return the xxh3-128 of the draws at positions start, ..., stop-1.

        Each draw is 16 bytes, little-endian: source u32, cycle u32, row u64.
        """
        first, end = self._epoch.span(start, len(self) if stop is None else stop)
        return self._epoch.stream.core.digest(first, end, threads=_threads(threads, end - first))

    def summary(self) -> dict[str, Any]:
        """Return what this epoch gives: rows used, unused and repeated per source, shares, bound, warnings."""
        from .summary import summarise

        return summarise(self, self._epoch)

    # --- changing what lies ahead

    def issue(self, position: int) -> None:
        """Record that rows before `position` were handed out. For samplers; never goes back."""
        self._issued = max(self._issued, self._epoch.slot(position) - self._epoch.offset)

    def update(
        self,
        weights: Mapping[str, float] | Sequence[float] | NDArray[np.float64],
        at: int | None = None,
        *,
        add: Iterable[Source] = (),
        reason: str = "",
    ) -> Change:
        """Change the shares from position `at` on, and journal it.

        Args:
            weights: by name, or in the order of `names`; every source must have one, those in `add` included.
            at: a window start not yet issued; `len(plan)` is position 0 of the next epoch. None is the next one.
            add: sources that join.
            reason: kept in the journal.

        Returns:
            The journal's new entry.

        Raises:
            PlanError: if the position or a weight is out of its range, or nothing would be left to draw; then nothing
                was changed.
        """
        update = check_update(self._epoch, self._journal, self._issued, weights, at=at, add=add, reason=reason)
        parent = self.plan_hash
        self._journal.append(update.change)
        self._parent = parent
        self._epoch.apply(update.change, update.shares, update.added, self._journal)
        self._names += tuple(source.name for source in update.added)
        self._version += 1
        self._chunk, self._size = (0, ()), -1
        return update.change

    def window_start(self, position: int) -> int:
        """Return the first window start at or after `position`, where an update may take effect; `len(plan)` if none.

        Raises:
            PlanError: if `position` lies outside [0, len(plan)].
        """
        position = as_int(position, "position", 0, len(self) + 1, PlanError)
        return min(self._epoch.stream.window_start(self._epoch.offset + position) - self._epoch.offset, len(self))

    def from_start(self) -> Plan:
        """Return this epoch's plan with all its positions, made anew if a state was loaded in the middle of the epoch.

        A plan steered by tokens that goes on from a state does not hold the positions before it.
        """
        if self._epoch.stream.first <= self._epoch.offset:
            return self
        joined = self.sources[len(self.mixture.sources) :]
        return self.mixture.plan(self.epoch, journal=self.journal or None, add=joined)

    def next_epoch(self) -> Plan:
        """Return the plan of the next epoch, with the journal carried on.

        Raises:
            PlanError: if there is none, because all sources are used up.
        """
        return Plan(self.mixture, self.epoch + 1, history=self._epoch.next_history(self._journal, self._parent))

    # --- state

    def state_dict(self, *, issued: int | None = None) -> dict[str, Any]:
        """Return spec, epoch, issued position and journal as JSON values: all that is needed to go on.

        Args:
            issued: position to go on from; None is `plan.issued`. A loader that prefetches has been handed rows that
                were not trained on yet, and goes on before them.
        """
        from .checkpoint import state_of

        return state_of(self, self._epoch, self._issued if issued is None else issued)

    @classmethod
    def load_state_dict(
        cls,
        mixture: Mixture,
        state: Mapping[str, Any],
        *,
        accept_changes: Iterable[str] = (),
        add: Iterable[Source] = (),
        journal: str | os.PathLike[str] | Journal | None = None,
    ) -> Self:
        """Return the plan that a state was taken of.

        Args:
            mixture: must be the one of the state.
            state: what `state_dict` returned; it is not modified.
            accept_changes: names of sources whose data may differ (`"math"`, or one field of it: `"math.rows"`). A
                source whose number of rows changed starts a fresh cycle. Kept in the journal.
            add: sources that joined during the run, where they have data or lengths.
            journal: the journal's file, where the run has one; or the journal itself, as of the state.

        Raises:
            StateError: naming what differs (source, field, both values).
        """
        from .checkpoint import restore

        mixture, epoch, history = restore(
            mixture, state, accept_changes=frozenset(accept_changes), add=tuple(add), journal=journal
        )
        plan = cls(mixture, epoch, history=history)
        if plan.plan_hash == state["plan_hash"] and plan.issued > len(plan):
            raise StateError(f"state issued must be in [0, {len(plan)}], but got {plan.issued}")
        return plan

    def __reduce__(self) -> tuple[Any, ...]:
        history = self._epoch.history(self._journal, self._parent, self._issued)
        return partial(Plan, history=history), (self.mixture, self.epoch)

    # --- single draws

    def _draw(self, position: int) -> Draw:
        if position == self._expected or not 0 <= position < self._size:
            return self._draw_next(position)
        self._expected = position + 1
        epoch = self._epoch
        slot = epoch.offset + position
        epoch.stream.ensure(slot)
        return epoch.stream.core.draw(slot, self._names, Draw)

    def _draw_next(self, position: int) -> Draw:
        """Draw at the position that follows the last one, and make those after it in advance; or refuse a wrong one."""
        if self._size < 0:
            self._size = len(self)
            return self._draw(position)
        if not 0 <= position < self._size:
            raise IndexError(f"position must be in [0, {len(self)}), but got {position}")
        version = self._version
        chunk = self._draw_list(position, min(position + AHEAD, self._size))
        self._expected = position + len(chunk)
        self._chunk = (position, chunk)
        if version != self._version:  # another thread updated meanwhile
            self._chunk = (0, ())
        return chunk[0]

    def _draw_list(self, start: int, stop: int) -> list[Draw]:
        first, end = self._epoch.span(start, stop)
        return self._epoch.stream.core.draw_list(first, end, self._names, Draw)


def _names_of(mixture: Mixture, sources: tuple[Source, ...]) -> tuple[str, ...]:
    return mixture.names if sources is mixture.sources else tuple(source.name for source in sources)


def _as_position(position: SupportsIndex) -> int:
    try:
        return operator.index(position)
    except TypeError:
        raise TypeError(f"position must be an integer, but got {position!r}{_cure(position)}") from None


def _cure(position: object) -> str:
    if not isinstance(position, slice):
        return ""
    start, stop = position.start or 0, "len(plan)" if position.stop is None else position.stop
    return f"; plan.draws({start}, {stop}) returns many at once"


def _threads(threads: int | None, draws: int) -> int:
    if threads is not None:
        return as_int(threads, "threads", 1, 1025, PlanError)
    if draws < THREAD_DRAWS:
        return 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, MAX_THREADS)
