"""Our side: the timed mixtures as Cuvée plans, and the name of the build."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import cuvee
from cuvee import _core
from workload import Float64, Int64, apportion, zipf


def mixture(rows: Int64, weights: Float64, samples: int | None = None) -> cuvee.Mixture:
    """Return a mixture of sources that have no data, only row counts."""
    sources = [
        cuvee.Source(f"s{index}", rows=int(count), weight=float(weight))
        for index, (count, weight) in enumerate(zip(rows, weights, strict=True))
    ]
    return cuvee.Mixture(sources, samples_per_epoch=samples)


def zipf_plan(k: int, n: int) -> cuvee.Plan:
    """Return a plan of n positions over k sources with Zipf weights and sizes; rows are shuffled."""
    return mixture(apportion(n, zipf(k)), zipf(k), n).plan()


def core_plan(k: int, n: int) -> _core.Plan:
    """Return the compiled plan of `zipf_plan(k, n)` itself, without the Python around it."""
    rows = apportion(n, zipf(k))
    return _core.Plan(
        rows=rows,
        caps=np.full(k, _core.ENDLESS, np.int64),
        weights=zipf(k),
        row_keys=np.array([_core.key64("rows", seed=42, name=f"s{index}") for index in range(k)], np.uint64),
        window=64,
        window_key=_core.key64("window", seed=42),
        epoch_rows=n,
    )


def build() -> str:
    """Return version, instruction set and compiler of the compiled core."""
    binary = Path(_core.__file__ or "").read_bytes()
    compiler = re.search(rb"(?:GCC: \([^)]*\) |clang version )[\d.]+", binary)
    named = compiler.group().decode() if compiler else "compiler unknown"
    return f"cuvee {cuvee.__version__}, order format {_core.ORDER_FORMAT}, {_core.ISAS[-1]}, {named}"
