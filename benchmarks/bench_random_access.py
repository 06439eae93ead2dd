"""One position at a time: the core in a loop of its own, `plan[i]` from Python, and grain's mix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

import ours
import peers
from cuvee import _core
from harness import OURS, Case, Report, main
from workload import Int64, positions, zipf

SOURCES = (2, 8, 32, 128, 1024)
POSITIONS = 100_000_000  # of the plan


def read_each(indexable: Any, where: Iterable[int]) -> None:
    """Read `indexable[i]` for every i, in a Python loop."""
    for index in where:
        indexable[index]


def check_core(plan: _core.Plan, where: Int64) -> None:
    """Raise AssertionError unless single positions agree with blocks."""
    source, row, cycle = plan.at_each(where)
    assert np.array_equal(source, plan.sources_at(where))
    one = (np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int32))
    for index, position in enumerate(where[:500].tolist()):
        plan.fill(position, source=one[0], row=one[1], cycle=one[2])
        expected = tuple(int(column[0]) for column in one)
        assert plan.at(position) == expected == (source[index], row[index], cycle[index])


def measure_core(report: Report, k: int, where: list[int]) -> None:
    """Time the core at random positions: in its own loop, and called from Python for each."""
    plan = ours.core_plan(k, POSITIONS)
    array = np.array(where)
    check_core(plan, array)
    calls: dict[str, Callable[[], object]] = {
        "source alone": partial(plan.sources_at, array),
        "whole draw": partial(plan.at_each, array),
        "source alone, a call each": lambda: [plan.source_at(i) for i in where],
        "whole draw, a call each": lambda: [plan.at(i) for i in where],
    }
    cases = {name: Case(run=run, items=len(where)) for name, run in calls.items()}
    report.compare(f"core, random positions/K={k}", cases, unit="ns/position")


def compare_indexing(report: Report, k: int, where: list[int]) -> None:
    """Time `plan[i]` at random positions beside grain."""
    plan = ours.zipf_plan(k, POSITIONS)
    for i in where[:100]:
        draws = plan.draws(i, i + 1)
        assert (plan[i].source, plan[i].row) == (draws.source[0], draws.row[0])
    cases = {OURS: Case(run=partial(read_each, plan, where), items=len(where))}
    grain_mix = peers.load("grain_mix", report.skipped)
    if grain_mix:
        mixed, few = grain_mix.mix(zipf(k)), where[: len(where) // 10]
        source, row = mixed._selection_map[few[0]]
        assert mixed[few[0]] == source * grain_mix.SOURCE_ROWS + row
        cases["grain mix selection"] = Case(run=partial(read_each, mixed._selection_map, few), items=len(few))
        cases["grain mix ds[i]"] = Case(run=partial(read_each, mixed, few), items=len(few))
    report.compare(f"plan[i], random/K={k}", cases, unit="ns/position")


def measure_sequential(report: Report, k: int, count: int) -> None:
    """Time `plan[i]` for one i after the other."""
    plan = ours.zipf_plan(k, POSITIONS)
    where = range(POSITIONS // 2, POSITIONS // 2 + count)
    assert np.array_equal([plan[i].row for i in where], plan.draws(where.start, where.stop).row)
    cases = {OURS: Case(run=partial(read_each, plan, where), items=count)}
    report.compare(f"plan[i], sequential/K={k}", cases, unit="ns/position")


def measure(report: Report) -> None:
    """Measure every K."""
    where = positions(2_000 if report.quick else 50_000, POSITIONS)
    for k in SOURCES:
        measure_core(report, k, where)
        if k in (8, 1024):
            compare_indexing(report, k, where)
        measure_sequential(report, k, len(where))


if __name__ == "__main__":
    main(measure)
