"""Search methods by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...checks import as_choice
from ...errors import MixtureError
from .auto import Auto
from .bandit import Bandit
from .doe import Doe
from .doremi import DoReMi
from .method import Method
from .regmix import RegMix

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..space import Space

METHODS: Mapping[str, Callable[..., Method]] = MappingProxyType(
    {"auto": Auto, "bandit": Bandit, "doe": Doe, "regmix": RegMix, "doremi": DoReMi}
)


def make_method(
    name: str,
    space: Space,
    *,
    seed: int = 0,
    targets: ArrayLike | None = None,
    losses: Sequence[str] | None = None,
    **options: Any,
) -> Method:
    """Return a method of `METHODS` as it is before any run.

    Args:
        name: its name.
        space: where mixtures lie.
        seed: of all that is drawn.
        targets: weight of each loss in the objective, shape (D,); None: all the same.
        losses: names of the D losses; None: those of the domains, if there are as many.
        options: as its class takes them; all take `budget`.

    Raises:
        MixtureError: there is no method or option of that name, or a value is out of its range.
    """
    make = METHODS[as_choice(name, "method", list(METHODS), MixtureError)]
    taken = list(inspect.signature(make).parameters)[1:]
    for option in options:
        as_choice(option, f"option of {name}", taken, MixtureError)
    return make(space, seed=seed, targets=targets, losses=losses, **options)
