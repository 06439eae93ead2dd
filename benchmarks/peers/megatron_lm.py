"""Megatron-LM `build_blending_indices`: the largest deficit first, O(K) a sample; rows in order, not shuffled."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from peers import Schedule


def _load_helpers() -> ModuleType:
    """Load the compiled helper by its path: `import megatron.core` would need the whole framework."""
    package = importlib.util.find_spec("megatron")
    if package is None or not package.submodule_search_locations:
        raise ImportError("megatron-core is not installed")
    folder = Path(next(iter(package.submodule_search_locations))) / "core" / "datasets"
    found = sorted(folder.glob("helpers_cpp*.so"))
    if not found:
        raise ImportError(f"no helpers_cpp in {folder}")
    spec = importlib.util.spec_from_file_location("helpers_cpp", found[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HELPERS = _load_helpers()


def schedules(n: int, weights: NDArray[np.float64]) -> Iterator[Schedule]:
    """Yield the two steps of BlendedDataset: allocate, fill."""
    k = len(weights)

    def run() -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        source = np.zeros(n, dtype=np.int16)
        row = np.zeros(n, dtype=np.int64)
        HELPERS.build_blending_indices(source, row, weights.tolist(), k, n, False)
        return source, row

    yield Schedule(
        label="Megatron-LM build_blending_indices",
        items=n,
        run=run,
        counts=lambda result: np.bincount(result[0], minlength=k),
        within=2.0,
        seconds=n * k * 1e-9,
    )
