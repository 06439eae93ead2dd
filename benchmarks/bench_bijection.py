"""The keyed bijection of [0, n) beside stored permutations: nanoseconds an index, and memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import peers
from cuvee import _core
from harness import OURS, Case, Report, main, peak_growth_megabytes
from peers import numpy_random

BLOCK = 1 << 18


def in_blocks(n: int) -> int:
    """Permute [0, n) block by block, as a reader does; return a sum that depends on every block."""
    total = 0
    for start in range(0, n, BLOCK):
        total += int(_core.permute(n, key=1, start=start, stop=min(start + BLOCK, n))[0])
    return total


def check(n: int) -> None:
    """Raise AssertionError unless it is a permutation, and its blocks and inverse agree with the whole."""
    seen = np.zeros(n, np.bool_)
    for start in range(0, n, BLOCK):
        index = np.arange(start, min(start + BLOCK, n))
        values = _core.permute(n, key=1, start=start, stop=int(index[-1]) + 1)
        seen[values] = True
        if start == 0:
            assert np.array_equal(_core.permute_inverse(n, values, key=1), index)
    assert seen.all()


def permutations(n: int, report: Report) -> dict[str, Callable[[], object]]:
    """Return everyone's way to permute n rows."""
    ways: dict[str, Callable[[], object]] = {
        OURS: lambda: in_blocks(n),
        "cuvee, whole array": lambda: _core.permute(n, key=1),
        "numpy permutation": lambda: numpy_random.permutation(n),
    }
    torch_random = peers.load("torch_random", report.skipped)
    if torch_random:
        ways["torch randperm"] = lambda: torch_random.permutation(n)
    return ways


def measure(report: Report) -> None:
    """Measure time and memory at every size."""
    for n in (100_000,) if report.quick else (1_000_000, 100_000_000):
        check(n)
        ways = permutations(n, report)
        rounds = 3 if n > 10_000_000 else None
        cases = {name: Case(run=run, items=n, rounds=rounds) for name, run in ways.items()}
        report.compare(f"permutation/n={n:.0e}", cases, unit="ns/index")
        for name, run in ways.items():
            report.value(f"permutation memory/n={n:.0e}/{name}", peak_growth_megabytes(run), "MB")


if __name__ == "__main__":
    main(measure)
