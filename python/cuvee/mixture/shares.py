"""Weights as shares: checked, put in source order, normalised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..checks import as_weight, nearest
from ..errors import CuveeError
from .source import Source


def normalise(
    weights: Sequence[float], sources: Sequence[Source], label: str, error: type[CuveeError]
) -> NDArray[np.float64]:
    """Return checked weights divided by their sum over the sources that have rows; 0 for the others."""
    values = [as_weight(w, f"{label} of {s.name!r}", error) for w, s in zip(weights, sources, strict=True)]
    active = np.array([w if s.rows else 0.0 for w, s in zip(values, sources, strict=True)], dtype=np.float64)
    largest = float(active.max(initial=0.0))
    if largest == 0.0:
        raise error(f"{label} must have at least one above 0 among the sources that have rows, but got {values}")
    scaled = active / largest
    shares: NDArray[np.float64] = scaled / math.fsum(scaled)
    shares.flags.writeable = False
    return shares


def named_weights(
    weights: Mapping[str, float], sources: Sequence[Source], label: str, error: type[CuveeError]
) -> NDArray[np.float64]:
    """Return weights given by name in source order, normalised; every source must be named, and no other."""
    names = [source.name for source in sources]
    known = set(names)
    for name in weights:
        if name not in known:
            raise error(f"{label} must name the sources {_some(names)}, but got {name!r}{nearest(name, names)}")
    missing = [name for name in names if name not in weights]
    if missing:
        raise error(f"{label} must name every source, but got none for {_some(missing)}")
    return normalise([weights[name] for name in names], sources, label, error)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
