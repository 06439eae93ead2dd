"""`schedule_hash` beside plain XXH3 over the same bytes; sums per source beside NumPy's."""

from __future__ import annotations

import numpy as np

import ours
from cuvee import _core
from harness import OURS, Case, Report, main
from peers import numpy_random

RECORD = np.dtype([("source", "<u4"), ("cycle", "<u4"), ("row", "<u8")])


def compare_hashes(report: Report, n: int) -> None:
    """Time the digest of draws that are never stored, beside the bare hash of stored ones."""
    plan = ours.zipf_plan(8, n)
    draws = plan.draws(0, n)
    records = np.zeros(n, RECORD)
    records["source"], records["cycle"], records["row"] = draws.source, draws.cycle, draws.row
    raw = records.tobytes()
    assert plan.schedule_hash(0, n) == _core.xxh3_128(raw)
    cases = {
        OURS: Case(run=lambda: plan.schedule_hash(0, n), items=n),
        "XXH3 of stored draws": Case(run=lambda: _core.xxh3_128(raw), items=n),
        "cuvee, draws only": Case(run=lambda: plan.draws(0, n), items=n),
    }
    report.compare(f"schedule hash/N={n:.0e}/K=8", cases)


def compare_tallies(report: Report, n: int, k: int) -> None:
    """Time rows and token sums per source."""
    source = ours.zipf_plan(k, n).draws(0, n).source
    tokens = np.random.default_rng(1).integers(1, 4096, n)
    rows, sums = _core.tally(source, tokens, k=k)
    expected_rows, expected_sums = numpy_random.tally(source, tokens, k)
    assert np.array_equal(rows, expected_rows) and np.array_equal(sums, expected_sums)
    cases = {
        OURS: Case(run=lambda: _core.tally(source, tokens, k=k), items=n),
        "numpy bincount": Case(run=lambda: numpy_random.tally(source, tokens, k), items=n),
    }
    report.compare(f"tally/N={n:.0e}/K={k}", cases)


def measure(report: Report) -> None:
    """Measure hashes and tallies."""
    n = 20_000 if report.quick else 10_000_000
    compare_hashes(report, n)
    for k in (8, 128):
        compare_tallies(report, n, k)


if __name__ == "__main__":
    main(measure)
