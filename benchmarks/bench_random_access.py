"""One position at a time: the core in a loop of its own, `plan[i]` from Python, and grain's mix."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import ours
import peers
from harness import OURS, Case, Report, main
from workload import positions, zipf

SOURCES = (2, 8, 32, 128, 1024)
CORE_LOOP = Path(sys.prefix) / "bin" / "core_loop"  # setup.sh compiles core_loop.cpp
POSITIONS = 100_000_000  # of the plan


def exhaust(results: Iterable[object]) -> None:
    """Run an iterator to its end at C speed."""
    deque(results, maxlen=0)


def getter(indexable: Any, where: Iterable[int]) -> Callable[[], None]:
    """Return a call that reads `indexable[i]` for every i."""

    def run() -> None:
        for index in where:
            indexable[index]

    return run


def check_core(k: int, where: list[int]) -> None:
    """Raise AssertionError unless single positions agree with blocks."""
    plan = ours.core_plan(k, POSITIONS)
    source, row, cycle = np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int32)
    for position in where[:500]:
        plan.fill(position, source=source, row=row, cycle=cycle)
        assert plan.at(position) == (source[0], row[0], cycle[0])
        assert plan.source_at(position) == source[0]


def measure_core(report: Report, k: int, where: list[int]) -> None:
    """Time the core: through a Python call, and in a C++ loop where that was compiled."""
    plan = ours.core_plan(k, POSITIONS)
    cases = {
        "source_at, called from Python": Case(run=lambda: exhaust(map(plan.source_at, where)), items=len(where)),
        "at, called from Python": Case(run=lambda: exhaust(map(plan.at, where)), items=len(where)),
    }
    report.compare(f"random access/K={k}", cases, unit="ns/position")
    if not CORE_LOOP.exists():
        report.skipped["core_loop"] = "not compiled; run benchmarks/setup.sh"
        return
    output = subprocess.run([CORE_LOOP, str(k), str(POSITIONS)], capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        name, nanoseconds = line.rsplit(" ", 1)
        report.value(f"random access/K={k}/{name}", float(nanoseconds), "ns/position")


def compare_indexing(report: Report, k: int, where: list[int]) -> None:
    """Time `plan[i]` beside grain."""
    plan = ours.zipf_plan(k, POSITIONS)
    draws = plan.draws(where[0], where[0] + 1)
    assert (plan[where[0]].source, plan[where[0]].row) == (draws.source[0], draws.row[0])
    cases = {OURS: Case(run=getter(plan, where), items=len(where))}
    grain_mix = peers.load("grain_mix", report.skipped)
    if grain_mix:
        mixed = grain_mix.mix(zipf(k))
        few = where[: len(where) // 10]
        source, row = mixed._selection_map[few[0]]
        assert mixed[few[0]] == source * grain_mix.SOURCE_ROWS + row
        cases["grain mix selection"] = Case(run=getter(mixed._selection_map, few), items=len(few))
        cases["grain mix ds[i]"] = Case(run=getter(mixed, few), items=len(few))
    report.compare(f"plan[i] random/K={k}", cases, unit="ns/position")


def measure_sequential(report: Report, k: int, count: int) -> None:
    """Time `plan[i]` for i one after the other."""
    plan = ours.zipf_plan(k, POSITIONS)
    start = POSITIONS // 2
    where = range(start, start + count)
    expected = plan.draws(start, start + count)
    assert np.array_equal([plan[i].row for i in itertools.islice(where, 500)], expected.row[:500])
    report.compare(f"plan[i] sequential/K={k}", {OURS: Case(run=getter(plan, where), items=count)}, unit="ns/position")


def measure(report: Report) -> None:
    """Measure every K."""
    where = positions(2_000 if report.quick else 50_000, POSITIONS)
    for k in SOURCES:
        check_core(k, where)
        measure_core(report, k, where)
        if k in (8, 1024):
            compare_indexing(report, k, where)
        measure_sequential(report, k, len(where))


if __name__ == "__main__":
    main(measure)
