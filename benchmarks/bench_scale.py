"""Large plans: 3.5e9 rows in 10,000 sources, and 93,000,000 rows of 3 sources written out."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cuvee
import ours
from cuvee import _core
from harness import Report, main, peak_growth_megabytes, resident_megabytes
from workload import apportion, zipf

ROWS, SOURCES, FAR = 3_500_000_000, 10_000, 1_000_000_000
WRITTEN = 93_000_000


def clocked(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of one call and its milliseconds of CPU time."""
    start = time.process_time()
    result = run()
    return result, (time.process_time() - start) * 1e3


def large_mixture() -> cuvee.Mixture:
    """Return the mixture of many sources: even sizes, Zipf weights."""
    return ours.mixture(np.full(SOURCES, ROWS // SOURCES), zipf(SOURCES), ROWS)


def measure_large(report: Report) -> None:
    """Measure building, first draw, memory, and resuming far into the run."""
    gc.collect()
    _, collecting_before = clocked(gc.collect)
    resident = resident_megabytes()
    (mixture, plan), building = clocked(lambda: (mixture := large_mixture(), mixture.plan()))
    first, drawing = clocked(lambda: plan[0])
    report.value("scale/10,000 sources/build", building, "ms")
    report.value("scale/10,000 sources/first draw", drawing, "ms")
    report.value("scale/10,000 sources/memory", resident_megabytes() - resident, "MB")
    _, collecting = clocked(gc.collect)
    report.value("scale/10,000 sources/gc.collect() added", collecting - collecting_before, "ms")
    assert (first.source, first.row) == (plan.draws(0, 1).source[0], plan.draws(0, 1).row[0])
    measure_resume(report, mixture, plan)


def measure_resume(report: Report, mixture: cuvee.Mixture, plan: cuvee.Plan) -> None:
    """Measure a sampler that goes on at position 1e9: loading its state, and its first batch."""
    state = cuvee.MixtureSampler(plan, batch_size=256, start=FAR).state_dict()
    sampler = cuvee.MixtureSampler(mixture.plan(), batch_size=256)
    _, loading = clocked(lambda: sampler.load_state_dict(state))
    batch, reading = clocked(lambda: next(iter(sampler)))
    source, row, _ = _core.unpack(batch)
    expected = plan.draws(FAR, FAR + 256)
    assert np.array_equal(source, expected.source) and np.array_equal(row, expected.row)
    report.value("scale/10,000 sources/resume at 1e9, load state", loading, "ms")
    report.value("scale/10,000 sources/resume at 1e9, first batch of 256", reading, "ms")


def measure_written(report: Report, n: int) -> None:
    """Measure writing a whole plan out."""
    weights = np.array([0.5, 0.3, 0.2])
    plan = ours.mixture(apportion(n, np.array([0.6, 0.3, 0.1])), weights, n).plan()
    draws, writing = clocked(lambda: plan.draws(0, n))
    assert np.array_equal(np.bincount(draws.source, minlength=3), plan.counts(n))
    report.value(f"scale/{n:,} rows of 3 sources/written out", writing / 1e3, "s", f"{writing * 1e6 / n:.2f} ns/row")
    del draws
    blocks = range(0, n, 1 << 20)
    growth = peak_growth_megabytes(lambda: [len(plan.draws(a, min(a + (1 << 20), n)).row) for a in blocks])
    report.value(f"scale/{n:,} rows of 3 sources/memory, read block by block", growth, "MB")


def measure(report: Report) -> None:
    """Measure both plans."""
    measure_large(report)
    measure_written(report, WRITTEN // 1000 if report.quick else WRITTEN)


if __name__ == "__main__":
    main(measure)
