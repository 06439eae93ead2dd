"""A stream: the core's plan with the changes of weight that curriculum, updates and token control put into it."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..errors import StateError
from ..mixture import Mixture
from ..mixture.length_table import LengthTable
from ..mixture.source import Source
from .change import Accepted, Span
from .control import F64, Curriculum, TokenControl

ENDLESS = _core.ENDLESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A control point: a slot where weights changed, the shares asked for from there on and the token debts there."""

    slot: int
    shares: F64
    debts: F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Where to go on with a stream whose segments were built step by step.

    Attributes:
        slot: the last control point.
        snapshot: the core there.
        debts: tokens owed there, per source.
        counted: position up to which rows were handed out.
        given: tokens per source from the control point up to there, by the lengths the rows had.
    """

    slot: int
    snapshot: bytes
    debts: tuple[float, ...]
    counted: int
    given: tuple[int, ...]


class Stream:
    """The draws of all epochs under `cycle`, of one epoch otherwise, by slot and position from 0 on.

    Changes are put into the core in order, and only as far as somebody looks: `ensure(slot)` makes everything before
    `slot` final. One thread may update while others read.

    Args:
        mixture: the contract.
        sources: the mixture's sources and those that joined later.
        updates: (slot, shares) in order.
        epoch: its number where epochs are fresh, None under `cycle`.
        shift: run position of slot 0.
        accepted: changes of row counts, allowed by the user.
        resume: where to go on instead of at slot 0; earlier slots are then not held.
        shared: whether several plans read it, so that nobody may update it.
    """

    def __init__(
        self,
        mixture: Mixture,
        sources: Sequence[Source],
        updates: Sequence[tuple[int, F64]] = (),
        *,
        epoch: int | None = None,
        shift: int = 0,
        accepted: Sequence[Accepted] = (),
        resume: Resume | None = None,
        shared: bool = False,
    ) -> None:
        self.mixture = mixture
        self.sources = tuple(sources)
        self.epoch = epoch
        self.shift = shift
        self.accepted = tuple(accepted)
        self.resume = resume
        self.shared = shared
        self._curriculum = Curriculum(mixture, shift=shift)
        for slot, shares in updates:
            self._curriculum.update(slot, shares)
        self._window = mixture.window
        self._all_seen = mixture.samples_per_epoch == "all_seen"
        self._lock = threading.RLock()
        self.core: _core.Plan
        self._caps: NDArray[np.int64]  # draws each source may give, 0 for an empty one
        self._points: list[Point]  # control points so far, the last change of weights last
        self._epochs: list[int]  # first slots of `all_seen` epochs so far
        self._next: int  # slot of the next change
        self._cut: int  # slot at which a stage leaves nothing to draw
        self._start()

    # --- reading

    @property
    def end(self) -> int:
        """Slot at which the stream ends, as far as is known; ENDLESS if never."""
        return min(self.core.end, self._cut)

    @property
    def first(self) -> int:
        """First slot that is held."""
        return self.resume.slot if self.resume else 0

    @property
    def may_end(self) -> bool:
        """Whether the stream may ever end: a source may be emptied."""
        return self._capped

    def ensure(self, slot: int) -> None:
        """Make everything at positions before `slot` final: put in all changes up to a window beyond it."""
        if self._next > slot + self._window:
            return
        with self._lock:
            while self._next <= slot + self._window and self._next < self.end:
                self._advance()

    def ends_by(self, slot: int) -> int:
        """Return `slot`, or the slot at which the stream ends if that comes before."""
        self.ensure(slot)
        return min(slot, self.end)

    def all_seen_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (first slot, end) of an epoch that ends when every row was seen; the end may be ENDLESS."""
        with self._lock:
            while len(self._epochs) <= epoch + 1 and self._next < self.end:
                self._advance()
        starts = [*self._epochs, self.end]
        return (starts[epoch], starts[epoch + 1]) if epoch + 1 < len(starts) else (self.end, self.end)

    def window_start(self, slot: int) -> int:
        """Return the first window start at or after `slot`; ENDLESS if the stream ends before."""
        self.ensure(slot)
        return self._window_start(slot)

    def shares(self, slot: int) -> F64:
        """Return the shares asked for at `slot`, shape (K,), normalised over the sources that are not emptied."""
        self.ensure(slot)
        return self._active(slot)

    def emptied(self, slot: int) -> NDArray[np.bool_]:
        """Return which sources have given all they may before `slot`, shape (K,)."""
        self.ensure(slot)
        return self.core.counts(slot) >= self._caps

    def spans(self, source: int) -> list[Span]:
        """Return how a source's draws become cycles: one span, and one more for each change of its row count."""
        name, rows = self.sources[source].name, self.sources[source].rows
        changes = [change for change in self.accepted if change.field == "rows" and change.name == name]
        first = Span(first_draw=0, first_cycle=0, rows=changes[0].was if changes else rows)
        return [first, *(change.span for change in changes)]

    def change_slots(self, start: int, stop: int) -> list[int]:
        """Return the slots in (start, stop) at which the set of weights changes, in order."""
        slots, _ = self.core.exhaustions(until=stop)
        changed = {*slots.tolist(), *(point.slot for point in self._points)}
        return sorted(slot for slot in changed if start < slot < stop)

    def snapshot(self, slot: int) -> Resume | None:
        """Return where to go on for positions from `slot` on; None where going on begins at the start."""
        if not self.mixture.steered or self._all_seen or slot == 0:
            return self.resume
        if self.resume is not None and slot < self.resume.counted:
            raise IndexError(f"position must be at least {self.resume.counted}, where the run went on, but got {slot}")
        with self._lock:
            self.ensure(slot)
            point = next((point for point in reversed(self._points) if point.slot < slot), self._points[0])
            return Resume(
                slot=point.slot,
                snapshot=self.core.snapshot(slot=point.slot),
                debts=tuple(point.debts.tolist()),
                counted=slot,
                given=tuple(self._given(point.slot, slot).tolist()),
            )

    # --- changing

    def add(self, sources: Sequence[Source]) -> None:
        """Append sources, with share 0 until an update gives them one."""
        with self._lock:
            added = tuple(sources)
            rows, caps, keys = self._columns(added)
            self.core.add_sources(rows=rows, caps=caps, row_keys=keys)
            self.sources += added
            self.__dict__.pop("lengths", None)
            self._caps = np.concatenate([self._caps, caps])
            self._capped = bool((self._caps < ENDLESS).any())
            self._tokens = self._token_control()
            pad = (0, len(added))
            if self.resume is not None:  # pickles and copies go on from there with all sources
                self.resume = replace(self.resume, snapshot=self.core.snapshot(slot=self.resume.slot))
            self._points = [
                Point(slot=point.slot, shares=np.pad(point.shares, pad), debts=np.pad(point.debts, pad))
                for point in self._points
            ]

    def update(self, slot: int, shares: F64) -> None:
        """Ask for `shares` from `slot` on, a window start that is not before the last update."""
        with self._lock:
            self._curriculum.update(slot, shares)
            if slot == 0:
                self._start()
                return
            if self.core.last_change >= slot:
                self.core.rewind(slot)
                self._points = [point for point in self._points if point.slot < slot]
                self._epochs = [start for start in self._epochs if start < slot]
                self._next = slot
            self._next = min(self._next, slot)
            self._cut = ENDLESS

    # --- building

    def _start(self) -> None:
        rows, caps, _ = self._columns(self.sources)
        self._caps = np.where(rows > 0, caps, 0)
        self._capped = bool((self._caps < ENDLESS).any())
        self._tokens = self._token_control()
        self._cut = ENDLESS
        self._epochs = [0]
        shares = self._curriculum.asked(0, len(self.sources))
        debts = np.zeros(len(self.sources))
        self.core = self._new_core(self._rates(shares, debts, debts))
        self._resize()
        point = Point(slot=0, shares=shares, debts=debts)
        if self.resume is not None:
            try:
                self.core.restore(self.resume.snapshot)
            except ValueError as err:
                raise StateError(f"state stream.snapshot must be one of this run, but got another: {err}") from None
            debts[: len(self.resume.debts)] = self.resume.debts
            point = Point(slot=self.resume.slot, shares=self._active(self.resume.slot), debts=debts)
        self._points = [point]
        self._next = self._next_change(point.slot)

    def _new_core(self, weights: F64) -> _core.Plan:
        mixture = self.mixture
        budget = mixture.samples_per_epoch
        rows, caps, keys = self._columns(self.sources)
        return _core.Plan(
            rows=rows,
            caps=caps,
            row_keys=keys,
            weights=weights,
            window=mixture.window,
            window_key=_core.key64("window", seed=mixture.seed, epoch=self.epoch),
            epoch_rows=budget if isinstance(budget, int) else 0,
            stop=mixture.exhaustion == "stop",
            shuffle=mixture.shuffle_within_sources,
        )

    def _columns(self, sources: Sequence[Source]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """Return rows, caps and row keys of sources, each of shape (K,), as they were when the run began."""
        seed, exhaustion = self.mixture.seed, self.mixture.exhaustion
        original = {change.name: change.was for change in reversed(self.accepted) if change.field == "rows"}
        rows = [original.get(source.name, source.rows) for source in sources]
        caps = [source.cap(exhaustion, count) for source, count in zip(sources, rows, strict=True)]
        keys = [_core.key64("rows", seed=seed, name=source.name, epoch=self.epoch) for source in sources]
        return np.array(rows, dtype=np.int64), np.array(caps, dtype=np.int64), np.array(keys, dtype=np.uint64)

    def _resize(self) -> None:
        index = {source.name: k for k, source in enumerate(self.sources)}
        for change in self.accepted:
            if change.field == "rows" and change.at_draw < change.cap:  # else used up: it draws no row any more
                k = index[change.name]
                try:
                    self.core.resize_source(
                        k, rows=change.now, cap=change.cap, at_draw=change.at_draw, cycle=change.cycle
                    )
                except (ValueError, IndexError, OverflowError) as err:
                    raise StateError(f"journal must be one of this run, but got for {change.name!r}: {err}") from None
                self._caps[k] = change.cap

    def _token_control(self) -> TokenControl | None:
        if self.mixture.unit == "rows":
            return None
        return TokenControl(self.lengths.tokens_per_row, self.mixture.control_interval)

    @cached_property
    def lengths(self) -> LengthTable:
        """The lengths of all sources' rows."""
        known = self.sources == self.mixture.sources
        return self.mixture.lengths if known else LengthTable(self.sources, self.mixture.max_length)

    def _advance(self) -> None:
        """Put the next change into the core and find the one after it."""
        at, before = self._next, self._points[-1]
        epoch = self._all_seen and self.core.seen_all(self._epochs[-1]) == at
        control = not epoch or self._is_control(at)
        restart = epoch or self._curriculum.starts_stage(at)
        if restart:
            self.core.restart(at)  # first: it cuts the window before it, whose draws are counted below
        if epoch:
            self._epochs.append(at)
        if control and not self._change_weights(before, at, restart=restart):
            self._cut = self._next = at
            return
        self._next = self._next_change(at)

    def _change_weights(self, before: Point, at: int, *, restart: bool) -> bool:
        """Put the weights from `at` on into the core; False if they leave nothing to draw."""
        shares = self._active(at)
        if not shares.any():
            return False
        debts = self._settled(before, at, shares)
        rates = self._rates(shares, debts, self._residuals(before, at))
        try:
            self.core.set_weights(at, rates, restart=restart)
        except ValueError as err:
            raise StateError(f"journal must be one of this run, but got an entry that does not fit it: {err}") from None
        self._points.append(Point(slot=at, shares=shares, debts=debts))
        return True

    def _is_control(self, slot: int) -> bool:
        """Return whether weights change at `slot`, which may be the start of an epoch as well."""
        last = self._points[-1].slot
        if self._curriculum.next_change(last) == slot or self._control_slot(last) <= slot:
            return True
        return self._controlled(last) and slot >= last + self._curriculum.interval

    def _next_change(self, slot: int) -> int:
        last = self._points[-1].slot
        upcoming = min(self._curriculum.next_change(max(slot, last)), self._control_slot(last))
        if self._all_seen:
            upcoming = min(upcoming, self.core.seen_all(self._epochs[-1]))
        return upcoming

    def _control_slot(self, last: int) -> int:
        """Return the next slot that is a control point by itself, `last` being the last one."""
        if not self._controlled(last):
            return ENDLESS
        upcoming = self._window_start(last + self._curriculum.interval)
        if self._tokens is not None and self._capped:
            slots, _ = self.core.exhaustions(until=upcoming)
            emptied = slots[slots > last]
            upcoming = min(upcoming, int(emptied[0])) if len(emptied) else upcoming
        return upcoming

    def _controlled(self, slot: int) -> bool:
        """Return whether weights move by themselves from `slot` on."""
        return self._tokens is not None or self._curriculum.moving(slot)

    def _window_start(self, slot: int) -> int:
        if slot >= self.end:
            return ENDLESS
        first, end = self.core.window(slot)
        return slot if first == slot else end

    def _active(self, slot: int) -> F64:
        """Return the shares asked for at `slot` over the sources that are not emptied there; all 0 if none is left."""
        shares = self._curriculum.asked(slot, len(self.sources))
        if self._capped:
            shares = np.where(self.core.counts(slot) < self._caps, shares, 0.0)
            total = math.fsum(shares)
            shares = shares / total if total else shares
        return shares

    def _rates(self, shares: F64, debts: F64, residuals: F64) -> F64:
        return shares if self._tokens is None else self._tokens.rates(debts, shares, residuals)

    def _settled(self, before: Point, at: int, shares: F64) -> F64:
        """Return the token debts at `at`: settled since the last control point, dropped where a source leaves."""
        if self._tokens is None:
            return before.debts
        debts = self._tokens.settle(before.debts, before.shares, self._given(before.slot, at))
        return np.where(shares > 0, debts, 0.0)

    def _given(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the tokens each source gives at positions start, ..., stop-1, `start` being a control point."""
        given = np.zeros(len(self.sources), dtype=np.int64)
        if self._tokens is None:
            return given
        if self.resume is not None and start == self.resume.slot:
            start = self.resume.counted
            given[: len(self.resume.given)] = self.resume.given
        for first in range(start, stop, 1 << 16):
            source, row = self._draws(first, min(stop, first + (1 << 16)))
            given += self.lengths.tokens(source, row)
        return given

    def _residuals(self, before: Point, at: int) -> F64:
        """Return the row residuals at `at`, 0 for a source that joins there; shape (K,)."""
        if self._tokens is None:
            return before.debts
        return np.where(before.shares > 0, self.core.work(at) - self.core.counts(at), 0.0)

    def _draws(self, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        source, row = np.empty(stop - start, dtype=np.int32), np.empty(stop - start, dtype=np.int64)
        self.core.fill(start, source=source, row=row, cycle=np.empty(stop - start, dtype=np.int32))
        return source, row
