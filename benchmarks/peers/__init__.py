"""The peers that are timed beside ours: one module each, which imports its package when it is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCHEDULERS = ("megatron_lm", "hf_datasets", "numpy_random", "torch_random", "grain_mix", "torchdata_nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One way of a peer to make a schedule of about `items` samples."""

    label: str
    items: int
    run: Callable[[], object]
    counts: Callable[[Any], NDArray[np.int64]]  # rows per source of what `run` returned
    within: float | None = None  # rows a count may stray; None = independent draws
    seconds: float = 0.0  # a rough forecast of one call; long ones get fewer rounds


def load(name: str, skipped: dict[str, str]) -> ModuleType | None:
    """Return the peer's module, or None with the reason in `skipped`."""
    try:
        return importlib.import_module(f"peers.{name}")
    except (ImportError, OSError) as error:
        skipped[name] = f"{type(error).__name__}: {error}"
        return None
