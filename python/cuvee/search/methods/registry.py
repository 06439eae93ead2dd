"""Search methods by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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
from .searcher import Settings

if TYPE_CHECKING:
    from ..space import Space

METHODS: Mapping[str, Callable[..., Method]] = MappingProxyType(
    {"auto": Auto, "bandit": Bandit, "doe": Doe, "regmix": RegMix, "doremi": DoReMi}
)


def make_method(name: str, space: Space, **options: Any) -> Method:
    """Return a method of `METHODS` as it is before any run.

    Args:
        name: its name.
        space: where mixtures lie.
        options: those of `Settings` and those that its class adds.

    Raises:
        MixtureError: there is no method or option of that name, or a value is out of its range.
    """
    make = METHODS[as_choice(name, "method", list(METHODS), MixtureError)]
    own = inspect.signature(make).parameters.values()
    taken = [*Settings.__annotations__, *(o.name for o in own if o.kind is o.KEYWORD_ONLY)]
    for option in options:
        as_choice(option, f"option of {name}", taken, MixtureError)
    return make(space, **options)
