"""`plan.draws` with row shuffling beside everything that makes a weighted schedule; then two threads beside one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import cuvee
import ours
import peers
from harness import OURS, Case, Report, main
from workload import check_shares, zipf

SOURCES = (2, 8, 32, 128, 1024)
SIZES = (1_000_000, 10_000_000)
LONG = 1.5  # seconds of a call from which it is run once only


def check_plan(plan: cuvee.Plan, k: int, n: int) -> None:
    """Raise AssertionError unless the draws have the counts, rows and digest that the plan promises."""
    draws = plan.draws(0, n)
    counts = np.bincount(draws.source, minlength=k)
    assert np.array_equal(counts, plan.counts(n))
    check_shares(counts, zipf(k), within=plan.summary()["bound_any_position"])
    keys = draws.source.astype(np.int64) << 40 | draws.cycle.astype(np.int64) << 32 | draws.row
    assert len(np.unique(keys)) == n, "a row came twice within a cycle"


def peer_cases(k: int, n: int, report: Report) -> dict[str, Case]:
    """Return every peer's cases, each run once and checked; the largest size is left to the fast ones."""
    cases: dict[str, Case] = {}
    for name in peers.SCHEDULERS:
        slow_peer = name in ("grain_mix", "torchdata_nodes", "hf_datasets")
        module = None if slow_peer and n > SIZES[0] else peers.load(name, report.skipped)
        for schedule in module.schedules(n, zipf(k)) if module else ():
            check_shares(schedule.counts(schedule.run()), zipf(k), schedule.within)
            rounds = 1 if schedule.seconds > LONG else None
            cases[schedule.label] = Case(run=schedule.run, items=schedule.items, rounds=rounds)
    return cases


def compare_schedules(report: Report, n: int) -> None:
    """Time one size at every K."""
    for k in SOURCES[1:4:2] if report.quick else SOURCES:
        plan = ours.zipf_plan(k, n)
        check_plan(plan, k, n)
        cases = {OURS: Case(run=partial(plan.draws, 0, n), items=n)} | peer_cases(k, n, report)
        report.compare(f"schedule/N={n:.0e}/K={k}", cases)


def fill(k: int, n: int, threads: int) -> Callable[[], None]:
    """Return a call that fills arrays made beforehand."""
    plan = ours.core_plan(k, n)
    source, row, cycle = np.zeros(n, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int32)
    return lambda: plan.fill(0, source=source, row=row, cycle=cycle, threads=threads)


def compare_threads(report: Report, n: int) -> None:
    """Time the core on one and on two cores."""
    for k in (8, 128):
        one, two = ours.core_plan(k, n), ours.core_plan(k, n)
        assert one.digest(0, n) == two.digest(0, n, threads=2)
        cases = {f"{count} threads": Case(run=fill(k, n, count), items=n, cores=count, wall=True) for count in (1, 2)}
        report.compare(f"threads/N={n:.0e}/K={k}", cases, ours="2 threads")


def measure(report: Report) -> None:
    """Measure all of it."""
    for n in (20_000,) if report.quick else SIZES:
        compare_schedules(report, n)
    compare_threads(report, 20_000 if report.quick else 10_000_000)


if __name__ == "__main__":
    main(measure)
