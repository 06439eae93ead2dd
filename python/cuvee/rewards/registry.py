"""Rewards by name: the protocol that each follows, and the table of those there are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from ..checks import as_choice, as_int, nearest
from ..errors import CuveeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    RewardClass = TypeVar("RewardClass", bound=type)

MOST_SOURCES = 2**31


class Reward(StrEnum):
    """The names of the rewards that come with the package."""

    ENTROPY = "entropy"
    ENTROPY3_VARENT1 = "entropy3_varent1"
    ENTROPY_LAST_TOKEN = "entropy_last_token"  # noqa: S105  (a token of text)
    TRAIN_LOSS = "train_loss"
    VALIDATION_LOSS = "validation_loss"
    GRADNORM = "gradnorm"
    LEARNABILITY = "learnability"
    VELOCITY = "velocity"
    COMBINED = "combined"


@runtime_checkable
class RewardFunction(Protocol):
    """Scores each source from what training reported, and owns the history that it needs for that.

    It is made with the number of sources, K, and options of its own: `make_reward(name, K, **options)`. A report covers
    the training steps since the one before, summed over ranks, so that every rank keeps the same scores. It holds what
    `needs` names, of these; arrays have shape (K,), in the order of the sources' names:

    - `loss_sum`, `tokens`: training loss of the source's target tokens in nats, and their number;
    - `entropy_sum`, `varentropy_sum`, `last_entropy_sum`: sums over the source's sequences of what `sequence_entropies`
      returns, each value in [0, 1]; `entropy_rows`: the number of these sequences, those without positions left out;
    - `gradnorm`: mean over the source's rows of the gradient norm of the step that each was in, before it is clipped;
      NaN without rows;
    - `eval_loss`: mean loss on the source's evaluation data, NaN if it was not measured;
    - `zero_shot_loss`, `few_shot_loss`: the same without and with examples before each sequence;
    - `step`, `total_steps`: numbers, optimizer steps made and to make; `total_steps` None if unknown.

    Where a source was not seen (a count of 0) or a value is not finite, the source keeps its last score.
    """

    @property
    def from_training(self) -> bool:
        """Whether scores come from the rows trained on; False if from evaluation data, which all sources have alike.

        Where they do, the score of a source that no row came from is no news, and leaves its weight alone.
        """
        ...

    @property
    def needs(self) -> Collection[str]:
        """What a report must hold; whoever makes reports measures nothing else."""
        ...

    def observe(self, report: Mapping[str, ArrayLike | None]) -> None:
        """Learn from a report; one that is wrong is an error and changes nothing."""
        ...

    def scores(self) -> NDArray[np.float64]:
        """Return each source's score, float64 of shape (K,); NaN of those that nothing is known of yet."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive in a checkpoint, as JSON values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        ...


METHODS = ("needs", "from_training", "observe", "scores", "state_dict", "load_state_dict")
_REWARDS: dict[str, Callable[..., RewardFunction]] = {}  # grows by `register_reward` alone


def register_reward(name: str) -> Callable[[RewardClass], RewardClass]:
    """Return a class decorator that enters a reward under `name`.

    Args:
        name: lower-case letters, digits and underscores; not yet taken by another class.

    Raises:
        CuveeError: if the name is not such a name, or the class lacks a method of `RewardFunction`.
    """
    if not (isinstance(name, str) and name.isascii() and name.isidentifier() and name == name.lower()):
        raise CuveeError(f"reward name must be of lower-case letters, digits and underscores, but got {name!r}")

    def enter(reward: RewardClass) -> RewardClass:
        missing = [method for method in METHODS if not hasattr(reward, method)]
        if missing:
            raise CuveeError(f"reward {name!r} must have {', '.join(METHODS)}, but {reward.__name__} lacks {missing}")
        taken = _REWARDS.get(name)
        if taken is not None and _full_name(taken) != _full_name(reward):  # a module may be loaded again
            raise CuveeError(f"reward name must not be taken, but got {name!r}, the name of {_full_name(taken)}")
        _REWARDS[str(name)] = reward
        return reward

    return enter


def make_reward(name: str, sources: int, **options: Any) -> RewardFunction:
    """Return a new reward.

    Args:
        name: a member of `Reward`, its name or value, or a name given to `register_reward`; case does not matter.
        sources: number of sources, K.
        options: the reward's own.

    Raises:
        CuveeError: if there is no such reward, or it has no such option.
    """
    key = as_choice(_lower(name), "reward", reward_names(), CuveeError)
    make = _REWARDS[key]
    parameters = list(inspect.signature(make).parameters.values())[1:]
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    unknown = [] if len(known) < len(parameters) else [option for option in options if option not in known]
    if unknown:
        given = f"{unknown[0]!r}{nearest(unknown[0], known)}"
        raise CuveeError(f"options of reward {key!r} must be among {known}, but got {given}")
    return make(as_int(sources, "sources", 1, MOST_SOURCES, CuveeError), **options)


def as_reward(value: str) -> Reward:
    """Return the member of `Reward` that `value` is, or is the name of; case does not matter."""
    return Reward(as_choice(_lower(value), "reward_type", [str(reward) for reward in Reward], CuveeError))


def reward_names() -> list[str]:
    """Return the names that `make_reward` takes."""
    return sorted(_REWARDS)


def _lower(name: object) -> object:
    return name.lower() if isinstance(name, str) else name


def _full_name(made: Callable[..., object]) -> str:
    return f"{made.__module__}.{made.__qualname__}"
