"""Weights that do not learn: fixed ones, and a curriculum by rows trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..checks import as_choice, as_int
from ..errors import MixtureError, StateError
from .checks import STATE_VERSION, as_counts, as_initial, as_scores, as_vector, checked_state, normalised

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MOST_ROWS = 2**62


class Fixed:
    """The weights it is given, whatever the scores are: what a policy that learns is compared with.

    Args:
        initial: weights, positive, shape (K,); or K, for equal ones.
    """

    algorithm = "fixed"

    def __init__(self, initial: ArrayLike | int) -> None:
        self._weights = as_initial(initial)

    @property
    def sources(self) -> int:
        """K."""
        return len(self._weights)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The weights, float64 of shape (K,), sum 1."""
        return self._weights.copy()

    def update(self, scores: ArrayLike, counts: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the weights."""
        as_scores(scores, self.sources)
        as_counts(counts, self.sources)
        return self.probabilities

    def state_dict(self) -> dict[str, Any]:
        """Return the weights, as JSON values."""
        return {"version": STATE_VERSION, "algorithm": self.algorithm, "weights": self._weights.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check that `state` has these weights; StateError if not."""
        checked_state(state, self.state_dict())


class Curriculum:
    """Weights by the number of rows trained on: stages, held or with a passage from one to the next.

    Args:
        initial: weights from row 0 on, positive, shape (K,); or K, for equal ones.
        stages: (rows, weights) each: how many rows, over all sources, the run has trained on when these weights hold;
            rising, above 0. A weight may be 0, but not all.
        passage: "hold" keeps a stage's weights until the next; "linear" and "cosine" lead from one to the next.

    Attributes:
        by_rows: whether weights go by the rows trained on, whatever scores are of: `update` always gets its counts.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    algorithm = "curriculum"
    by_rows = True

    def __init__(
        self, initial: ArrayLike | int, *, stages: Sequence[tuple[int, ArrayLike]], passage: str = "hold"
    ) -> None:
        first = as_initial(initial)
        self._rows = [0]
        self._weights = [first]
        for number, stage in enumerate(_pairs(stages)):
            name, (rows, weights) = f"stages[{number}]", stage
            self._rows.append(as_int(rows, f"{name} rows", self._rows[-1] + 1, MOST_ROWS, MixtureError))
            self._weights.append(_stage_weights(weights, name, len(first)))
        self._passage = as_choice(passage, "passage", ("hold", "linear", "cosine"), MixtureError)
        self._done = 0

    @property
    def sources(self) -> int:
        """K."""
        return len(self._weights[0])

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The weights in force, float64 of shape (K,), sum 1."""
        stage = int(np.searchsorted(self._rows, self._done, side="right")) - 1
        here = self._weights[stage]
        if self._passage == "hold" or stage + 1 == len(self._rows):
            return here.copy()
        way = (self._done - self._rows[stage]) / (self._rows[stage + 1] - self._rows[stage])
        if self._passage == "cosine":
            way = (1 - _core.cos_pi(way)) / 2
        return (1 - way) * here + way * self._weights[stage + 1]

    def update(self, scores: ArrayLike, counts: ArrayLike | None = None) -> NDArray[np.float64]:
        """Count the rows and return the weights; `counts` is needed."""
        as_scores(scores, self.sources)
        rows = as_counts(counts, self.sources)
        if rows is None:
            raise StateError("counts must be given to a curriculum, which goes by rows, but got None")
        self._done += int(rows.sum())
        return self.probabilities

    def state_dict(self) -> dict[str, Any]:
        """Return rows done and the stages, as JSON values."""
        return {**self._identity(), "done": self._done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; StateError if its stages are others."""
        checked_state(state, self._identity())
        self._done = as_int(state.get("done"), "state done", 0, MOST_ROWS, StateError)

    def _identity(self) -> dict[str, Any]:
        stages = [[rows, weights.tolist()] for rows, weights in zip(self._rows, self._weights, strict=True)]
        return {"version": STATE_VERSION, "algorithm": self.algorithm, "stages": stages, "passage": self._passage}


def _pairs(stages: object) -> Sequence[tuple[int, ArrayLike]]:
    """Return stages if they are pairs."""
    listed = stages if isinstance(stages, Sequence) and not isinstance(stages, str) else None
    if listed is None or not all(isinstance(stage, Sequence) and len(stage) == 2 for stage in listed):
        raise MixtureError(f"stages must be pairs (rows, weights), but got {stages!r:.100}")
    return listed


def _stage_weights(values: ArrayLike, name: str, sources: int) -> NDArray[np.float64]:
    weights = as_vector(values, f"{name} weights", sources)
    if not ((weights >= 0) & np.isfinite(weights)).all() or weights.max() == 0:
        raise MixtureError(f"{name} weights must be finite, at least 0, not all 0, but got {weights.tolist()!r:.100}")
    return normalised(weights)
