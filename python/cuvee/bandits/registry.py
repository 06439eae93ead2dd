"""What every bandit offers, and the bandits by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ..checks import as_choice
from ..errors import MixtureError
from .ado import ADO
from .exponential import EXP3, ODM, DoReMi
from .given import Curriculum, Fixed
from .learning_speed import LearningSpeed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Bandit(Protocol):
    """Weights of K sources that follow their scores; its state is its own, and equal states give equal bits."""

    @property
    def sources(self) -> int:
        """K."""
        ...

    @property
    def algorithm(self) -> str:
        """Its name in `BANDITS`, or a name of the user's."""
        ...

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The weights in force, float64 of shape (K,), sum 1."""
        ...

    def update(self, scores: ArrayLike, counts: ArrayLike | None = None) -> NDArray[np.float64]:
        """Learn from scores and return the new weights.

        Args:
            scores: a reward's estimate per source, shape (K,); what is not finite is not known.
            counts: rows of each source since the last update, integers of shape (K,). None: every score is new.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that later updates depend on, as JSON values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; StateError if it is of another algorithm, K or other settings."""
        ...


BANDITS: Mapping[str, Callable[..., Bandit]] = MappingProxyType(
    {
        "learning_speed": LearningSpeed,
        "exp3": partial(EXP3, normalize="none"),
        "exp3_bounded": partial(EXP3, normalize="quantile"),
        "odm": ODM,
        "doremi": DoReMi,
        "ado": ADO,
        "fixed": Fixed,
        "curriculum": Curriculum,
    }
)


def make_bandit(name: str, initial: ArrayLike | int, **options: Any) -> Bandit:
    """Return a bandit of `BANDITS`.

    Args:
        name: its name.
        initial: weights to begin with, positive, shape (K,); or K, for equal ones.
        options: as its class takes them.

    Raises:
        MixtureError: if there is no bandit or option of that name, or a value is out of its range.
    """
    make = BANDITS[as_choice(name, "algorithm", list(BANDITS), MixtureError)]
    taken = list(inspect.signature(make).parameters)[1:]
    for option in options:
        as_choice(option, f"option of {name}", taken, MixtureError)
    return make(initial, **options)
