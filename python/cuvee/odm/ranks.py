"""This process's place among those that train together, and values of all of them."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist  # noqa: TID253  (whoever imports this module trains)


def place() -> tuple[int, int]:
    """Return (rank, number of ranks)."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gathered(value: Any) -> list[Any]:
    """Return every rank's value, in the order of ranks; every rank must call."""
    _, ranks = place()
    if ranks == 1:
        return [value]
    values: list[Any] = [None] * ranks
    dist.all_gather_object(values, value)
    return values
