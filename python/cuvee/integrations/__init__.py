"""Cuvée in the training loops of other libraries: one module each, which imports its library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import PlanError

ORDERING = ("batch_sampler", "sampler", "shuffle")  # what a DataLoader takes to make an order of its own


def refuse_orders(options: Mapping[str, Any]) -> None:
    """Raise if options for a DataLoader over a mixture would make another order than the plan's.

    Raises:
        PlanError: naming the option.
    """
    for name in ORDERING:
        if name in options:
            raise PlanError(f"options must leave the order to the plan, but got {name}={options[name]!r}; leave it out")
