"""Which row of which category comes at each place of a run without an end: a plan, and updates of its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..mixture import Mixture, Source
from ..plan import Plan
from .packing import packed, unpacked

if TYPE_CHECKING:
    from numpy.typing import NDArray

WINDOW = 64  # rows after which an update takes effect at the latest, unless more of one category come in a row
AHEAD = 4096  # rows looked up at once
MOST_PASSES = 2**31  # over a category's rows
MOST_CHOICES = 2**48


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ahead:
    """A stretch of the order from place `first` on, as of a version of the plan."""

    version: int
    first: int
    categories: NDArray[np.int32]
    rows: NDArray[np.int64]


class Choices:
    """The order of rows: a pure function of the place, the seed and the updates so far.

    A plan chooses the category of every `interval` rows; the rows of a category come as its own plan has them, each
    once before one comes again. An update takes effect at a window start of the first plan.

    Args:
        sources: the categories: name, rows, fingerprint.
        probabilities: weights to begin with, shape (K,).
        seed: of the order.
        interval: rows of one category in a row.

    Raises:
        MixtureError: naming the category or setting that is wrong.
    """

    def __init__(
        self, sources: Sequence[Source], probabilities: NDArray[np.float64], *, seed: int, interval: int
    ) -> None:
        self.interval = interval
        weighted = [
            Source(source.name, weight=weight, rows=source.rows, fingerprint=source.fingerprint)
            for source, weight in zip(sources, probabilities.tolist(), strict=True)
        ]
        fewest = min(source.rows for source in sources)
        mixture = Mixture(
            weighted,
            seed=seed,
            shuffle_within_sources=interval == 1,
            samples_per_epoch=min(MOST_PASSES * fewest, MOST_CHOICES) // interval,
            window=max(WINDOW // interval, 1),
        )
        self.plan = mixture.plan()
        self._packed: dict[str, Any] = {}  # the journal's state as of its digest
        self._rows: list[Plan] = []  # per category, where a choice stands for several rows
        self._sizes = np.array([source.rows for source in sources], dtype=np.int64)
        self._window = mixture.window * interval  # rows
        for source in weighted if interval > 1 else ():
            alone = Source(source.name, rows=source.rows, fingerprint=source.fingerprint)
            self._rows.append(Mixture([alone], seed=seed, samples_per_epoch=MOST_PASSES * source.rows).plan())
        self._ahead = self._look_ahead(0)

    def __len__(self) -> int:
        return len(self.plan) * self.interval

    def block(self, position: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return category and row at `position` and the places after it, as many as no update can change any more."""
        ahead = self._ahead
        if ahead.version != self.plan.version or not 0 <= position - ahead.first < len(ahead.rows):
            self._ahead = ahead = self._look_ahead(position // self.interval)
        first = position - ahead.first
        change = (position // self._window + 1) * self._window  # the first window start after it
        here = slice(first, min(change - ahead.first, first + WINDOW))
        return ahead.categories[here], ahead.rows[here]

    def category(self, position: int) -> int:
        """Return the category at a place."""
        return self.plan[position // self.interval].source

    def counts(self, position: int) -> NDArray[np.int64]:
        """Return the rows of each category before a place, int64 of shape (K,)."""
        choice, more = divmod(position, self.interval)
        counts = self.plan.counts(choice) * self.interval
        if more:
            counts[self.category(position)] += more
        return counts

    def update(self, probabilities: NDArray[np.float64], position: int, reason: str) -> int:
        """Change the weights from the first window start at or after `position` on, and return that place."""
        issued = -(-position // self.interval)
        self.plan.issue(issued)
        at = self.plan.window_start(issued)
        self.plan.update(probabilities, at=at, reason=reason)
        return at * self.interval

    def state_dict(self, position: int) -> dict[str, Any]:
        """Return the plan's state at a place, its journal packed."""
        state = self.plan.state_dict(issued=-(-position // self.interval))
        digest = state["journal"]["digest"]
        if self._packed.get("digest") != digest:  # it changes with updates alone
            self._packed = packed(state["journal"], self.plan.names, self.plan.journal)
        return {**state, "journal": self._packed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the plan of a state; StateError if it is one of other categories or other data."""
        if isinstance(state, Mapping):
            state = {**state, "journal": unpacked(state.get("journal"), self.plan.names)}
        self.plan = Plan.load_state_dict(self.plan.mixture, state)
        self._ahead = self._look_ahead(self.plan.issued)

    def _look_ahead(self, start: int) -> _Ahead:
        """Return the rows from choice `start` on, under the weights in force."""
        choices = self.plan.draws(start, min(start + max(AHEAD // self.interval, 1), len(self.plan)))
        rows = choices.row
        if self.interval > 1:  # a choice's row is how often its category was chosen before, in its cycle
            before = choices.cycle * self._sizes[choices.source] + rows
            rows = np.empty((len(choices), self.interval), dtype=np.int64)
            for category in np.unique(choices.source).tolist():
                here = choices.source == category
                first, size = int(before[here.argmax()]) * self.interval, np.count_nonzero(here) * self.interval
                rows[here] = self._rows[category].draws(first, first + size).row.reshape(-1, self.interval)
        return _Ahead(
            version=self.plan.version,
            first=start * self.interval,
            categories=np.repeat(choices.source, self.interval),
            rows=rows.reshape(-1),
        )
