"""What a search asks about a mixture: any callable that trains on it and returns losses by domain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..checks import nearest
from ..errors import MixtureError

if TYPE_CHECKING:
    from .space import Space

F64 = NDArray[np.float64]
LARGEST = 1e30  # size of a loss, in nats: powers of larger ones are no numbers


class Score(Protocol):
    """A training run, as small as one likes: a user's own script, or the built-in proxy."""

    def __call__(self, weights: Mapping[str, float], budget: float, seed: int) -> Mapping[str, float]:
        """Return held-out losses in nats, lower is better.

        Args:
            weights: share of each domain, sum 1.
            budget: part of the full run to make, in (0, 1].
            seed: what to draw from; runs of one seed should share initial weights and the order of each domain's data.
        """
        ...


@runtime_checkable
class ManyScores(Protocol):
    """A score that makes many runs at once."""

    def many(self, weights: F64, budget: float, seed: int) -> Sequence[Mapping[str, float]]:
        """Return the losses of M mixtures, weights of shape (M, K) in the order of the space's names."""
        ...


@runtime_checkable
class HasRemarks(Protocol):
    """A score of whose runs something should be known, such as `Proxy`."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What should be known, one sentence each; for the receipt."""
        ...


def run_scores(
    score: Score | ManyScores,
    space: Space,
    weights: F64,
    *,
    budget: float = 1.0,
    seed: int = 0,
    losses: Sequence[str] | None = None,
    finite: bool = True,
) -> tuple[tuple[str, ...], F64]:
    """Return the names of a score's losses, and the losses of M mixtures.

    Args:
        score: makes the runs.
        space: what mixtures are of.
        weights: mixtures, shape (M, K), M at least 1.
        budget: part of the full run to make, in (0, 1].
        seed: given to the score.
        losses: names that must come, in this order; None: those of the first answer, in its order.
        finite: whether they must be finite and at most `LARGEST` in size; else a run may have diverged.

    Returns:
        D names, and float64 of shape (M, D).

    Raises:
        MixtureError: an answer lacks a loss, or one is no number, or not finite though it must be.
    """
    mixtures = np.asarray(weights, dtype=np.float64)
    if isinstance(score, ManyScores):
        answers = _listed(score.many(mixtures.copy(), budget, seed))
    else:
        answers = [score(dict(zip(space.names, row.tolist(), strict=True)), budget, seed) for row in mixtures]
    if len(answers) != len(mixtures):
        raise MixtureError(f"score must answer for each of {len(mixtures)} mixtures, but got {len(answers)} answers")
    names = tuple(losses) if losses is not None else tuple(_checked(answers[0]))
    return names, np.array([[_loss(_checked(answer), name, finite=finite) for name in names] for answer in answers])


def _listed(answers: object) -> list[Mapping[str, float]]:
    if not isinstance(answers, Iterable) or isinstance(answers, Mapping | str):
        raise MixtureError(f"score must answer with one mapping of losses a mixture, but got {answers!r:.200}")
    return list(answers)


def _checked(answer: object) -> Mapping[str, float]:
    if not isinstance(answer, Mapping) or not answer:
        raise MixtureError(f"score must return a mapping of losses by name, but got {answer!r:.200}")
    return answer


def _loss(answer: Mapping[str, float], name: str, *, finite: bool) -> float:
    if name not in answer:
        like = nearest(name, [key for key in answer if isinstance(key, str)])
        raise MixtureError(
            f"score must return a loss of {name!r}, but got {list(answer)!r:.200}{like}; name other losses in targets"
        )
    try:
        value = answer[name]
    except Exception as error:  # whatever a mapping of the user's raises
        reason = f"{type(error).__name__}: {error}"
        raise MixtureError(f"loss of {name!r} must be a finite number, but got {reason:.200}") from None
    loss = _number(value)
    if loss is None or (finite and not math.isfinite(loss)):
        raise MixtureError(f"loss of {name!r} must be a finite number, but got {value!r:.100}")
    if finite and abs(loss) > LARGEST:
        raise MixtureError(f"loss of {name!r} must be at most {LARGEST:g} in size, but got {loss!r}")
    return loss


def _number(value: object) -> float | None:
    """Return whatever has a value as a number, of whatever library; None for text, truth and all else that has none."""
    try:
        return None if isinstance(value, str | bytes | bool | np.bool_) else float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf
    except Exception:  # whatever a value of some library raises: a tensor without data, one of many numbers
        return None
