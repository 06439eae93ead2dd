"""Where one epoch lies in its stream: its first slot, its end, and the stream itself with all changes so far."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..errors import PlanError
from ..mixture import Mixture
from ..mixture.shares import named_weights
from ..mixture.source import Source
from .change import Change
from .journal import Journal
from .stream import Resume, Stream

Array = TypeVar("Array", NDArray[np.int64], NDArray[np.float64])

LAST_POSITION = 2**63 - 2**17  # positions stay below, so that a window and a control interval more still fit 63 bits


@dataclass(frozen=True, kw_only=True)
class History:
    """What happened before a plan was made, as far as it bears on its order.

    Attributes:
        sources: the mixture's and those that joined.
        journal: all changes so far.
        parent: plan hash before the last change.
        issued: position up to which rows were handed out.
        origins: run positions at which the epochs so far began; only for stages over fresh epochs.
        resume: where to go on in a stream that is built step by step.
        base: draws per source before the epoch, where the stream does not hold them any more.
    """

    sources: tuple[Source, ...]
    journal: Journal = field(default_factory=Journal)
    parent: str | None = None
    issued: int = 0
    origins: tuple[int, ...] = ()
    resume: Resume | None = None
    base: tuple[int, ...] | None = None


class Epoch:
    """One epoch of a mixture: positions 0, 1, ... are slots `offset`, `offset` + 1, ... of `stream`.

    Under `cycle` there is one stream for all epochs; under `stop` and `renormalize` each epoch has its own.

    Raises:
        PlanError: if nothing is left to draw in the epoch, or its positions would pass 2**63.
    """

    def __init__(self, mixture: Mixture, number: int, history: History) -> None:
        self.mixture = mixture
        self.number = number
        self.sources = history.sources
        self.origins = history.origins or self._find_origins(history)
        self.stream = self._find_stream(history)
        self._base = history.base
        self.offset = self._find_offset()
        self._end: int | None = None
        self._check_size()

    @property
    def end(self) -> int:
        """Slot at which the epoch ends."""
        if self._end is None:
            self._end = self._find_end()
        return self._end

    @property
    def size(self) -> int:
        """Rows of the epoch."""
        return self.end - self.offset

    @property
    def base(self) -> NDArray[np.int64]:
        """Draws given before the epoch, shape (K,)."""
        if self.offset == 0:
            return np.zeros(len(self.sources), dtype=np.int64)
        if self._base is None:
            return self.stream.core.counts(self.offset)
        return np.pad(np.array(self._base, dtype=np.int64), (0, len(self.sources) - len(self._base)))

    def within(self, given: Array) -> Array:
        """Return what was given since the epoch began of what was given in all; a source that joins meanwhile has 0."""
        base, size = self.base, len(given)
        within: Array = given - np.pad(base[:size], (0, max(size - len(base), 0)))
        return within

    def slot(self, position: int) -> int:
        """Return the slot of a boundary between positions, everything before it being final."""
        position = operator.index(position)
        if not 0 <= position <= self.size:
            raise IndexError(f"position must be in [0, {self.size}], but got {position}")
        self.stream.ensure(self.offset + position)
        return self.offset + position

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the slots of positions start and stop, everything between them being final."""
        start, stop = operator.index(start), operator.index(stop)
        if not 0 <= start <= stop <= self.size:
            raise IndexError(
                f"positions must satisfy 0 <= start <= stop <= {self.size}, but got start={start}, stop={stop}"
            )
        self.stream.ensure(self.offset + stop)
        return self.offset + start, self.offset + stop

    def place(self, position: int) -> tuple[int | None, int]:
        """Return (epoch, position) as the journal counts them: of the stream under `cycle`, the epoch being None."""
        if self.mixture.exhaustion == "cycle":
            return None, self.offset + position
        return (self.number + 1, 0) if position == self.size else (self.number, position)

    def apply(self, change: Change, shares: NDArray[np.float64], added: Sequence[Source], journal: Journal) -> None:
        """Put the newest change of `journal` into force."""
        self.sources += tuple(added)
        if self.stream.shared:
            self.stream = self._own_stream(journal)
        else:
            if added:
                self.stream.add(added)
            if change.epoch in (None, self.number):
                self.stream.update(change.position, shares)
        self._end = None

    def history(self, journal: Journal, parent: str | None, issued: int) -> History:
        """Return what makes this epoch again."""
        return History(
            sources=self.sources, journal=journal.copy(), parent=parent, issued=issued, origins=self.origins,
            resume=self.stream.resume, base=self._base,
        )  # fmt: skip

    def next_history(self, journal: Journal, parent: str | None) -> History:
        """Return what makes the next epoch."""
        cycle = self.mixture.exhaustion == "cycle"
        return History(
            sources=self.sources, journal=journal.copy(), parent=parent,
            origins=(*self.origins, self.origins[-1] + self.size) if self.origins else (),
            resume=self.stream.snapshot(self.end) if cycle else None,
        )  # fmt: skip

    def _find_origins(self, history: History) -> tuple[int, ...]:
        """Return where in the run each epoch so far began, if a stage depends on it."""
        if self.mixture.exhaustion == "cycle" or not self.mixture.stages:
            return ()
        origins: tuple[int, ...] = (0,)
        for number in range(self.number):
            known = History(sources=history.sources, journal=history.journal, origins=origins)
            origins += (origins[-1] + Epoch(self.mixture, number, known).size,)
        return origins

    def _find_stream(self, history: History) -> Stream:
        plain = not (history.journal or history.resume or self.mixture.steered)
        if plain and self.mixture.exhaustion == "cycle":
            return self.mixture.stream
        return self._own_stream(history.journal, history.resume)

    def _own_stream(self, journal: Journal, resume: Resume | None = None) -> Stream:
        cycle = self.mixture.exhaustion == "cycle"
        changes = [change for change in journal if cycle or change.epoch == self.number]
        return Stream(
            self.mixture,
            self.sources,
            self._updates(journal),
            epoch=None if cycle else self.number,
            shift=self.origins[-1] if self.origins else 0,
            accepted=[accepted for change in changes for accepted in change.accepted],
            resume=resume,
        )

    def _updates(self, journal: Journal) -> list[tuple[int, NDArray[np.float64]]]:
        """Return (slot, shares) of the changes up to this epoch; those of earlier fresh epochs have negative slots."""
        updates = []
        joined = len(self.mixture.sources)
        for change in journal:
            joined += len(change.added)
            epoch = self.number if change.epoch is None else change.epoch
            if change.weights is None or epoch > self.number:
                continue
            slot = change.position
            if epoch < self.number:
                slot = slot + self.origins[epoch] - self.origins[-1] if self.origins else -1
            shares = named_weights(change.weights, self.sources[:joined], "weights in the journal", PlanError)
            updates.append((slot, shares))
        return updates

    def _find_offset(self) -> int:
        budget = self.mixture.samples_per_epoch
        if budget is None:
            return 0
        if budget == "all_seen":
            offset = self.stream.all_seen_epoch(self.number)[0] if self.number else 0
        else:
            offset = self.number * budget
            if offset + budget >= LAST_POSITION:
                raise PlanError(
                    f"epoch must end before position 2**63 - 2**17, but got number {self.number} of {budget} rows each"
                )
        if self.stream.may_end and self.stream.ends_by(offset + 1) <= offset:
            raise PlanError(
                f"epoch must begin before position {self.stream.end} of the stream, at which all sources are used up, "
                f"but got epoch {self.number}, which would begin at {offset}"
            )
        return offset

    def _check_size(self) -> None:
        """Check that a fresh epoch's positions fit; it is counted only where all rows together might not."""
        exhaustion = self.mixture.exhaustion
        rows = 0 if exhaustion == "cycle" else sum(source.cap(exhaustion) for source in self.sources)
        if rows >= LAST_POSITION and self.end >= LAST_POSITION:
            raise PlanError(
                f"epoch must end before position 2**63 - 2**17, but got sources of {rows} rows in all; give the "
                "largest ones fewer max_epochs"
            )

    def _find_end(self) -> int:
        budget = self.mixture.samples_per_epoch
        if budget is None:
            return self.stream.ends_by(_core.ENDLESS)
        if budget != "all_seen":
            return self.stream.ends_by(self.offset + budget) if self.stream.may_end else self.offset + budget
        end = self.stream.all_seen_epoch(self.number)[1]
        if end == _core.ENDLESS:
            raise PlanError(
                'an "all_seen" epoch must see every row of every source before position 2**63, but got shares '
                f"{self.stream.shares(self.offset).tolist()}"
            )
        return end
