"""The ranks of a run, where torch.distributed runs: values of all of them, in their order."""

from __future__ import annotations

import sys
from typing import Any


def place() -> tuple[int, int]:
    """Return this process's rank and the number of ranks."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def gathered(value: Any) -> list[Any]:
    """Return every rank's value, in the order of ranks; every rank must call."""
    _, ranks = place()
    if ranks == 1:
        return [value]
    torch = sys.modules["torch"]
    values: list[Any] = [None] * ranks
    torch.distributed.all_gather_object(values, value)
    return values
