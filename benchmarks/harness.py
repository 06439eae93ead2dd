"""Fair timing: cases take turns in rounds, and a ratio is taken inside one round.

Noise on a shared machine then hits both sides of a ratio. Garbage collection is off while a case runs. On one core the
clock is CPU time, which leaves out what other processes take; beside a case on several cores it is the wall's.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SINGLE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "PYTHONHASHSEED": "0",
}
OURS = "cuvee"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to time: `run` makes `items` items a call."""

    run: Callable[[], object]
    items: int
    rounds: int | None = None  # fewer than the group's, for a slow case
    cores: int = 1
    wall: bool = False  # time by the wall's clock, not by CPU time


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One row of the table."""

    name: str  # "schedule/N=1e6/K=8/cuvee": what, parameters, who
    value: float  # median
    unit: str
    low: float | None = None
    high: float | None = None
    speedup: float | None = None  # time of this case / time of ours, median over rounds
    note: str = ""


@dataclass(slots=True)
class Report:
    """What one benchmark measured, and which peers it had to leave out."""

    rounds: int
    quick: bool
    measures: list[Measure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, measure: Measure) -> None:
        """Keep a measure and print it."""
        self.measures.append(measure)
        spread = "" if measure.low is None else f"  [{measure.low:.4g} .. {measure.high:.4g}]"
        ratio = "" if measure.speedup is None else f"  ours is {measure.speedup:.3g}x faster"
        print(f"{measure.name:80s} {measure.value:10.4g} {measure.unit}{spread}{ratio}  {measure.note}", flush=True)

    def value(self, name: str, value: float, unit: str, note: str = "") -> None:
        """Keep a single value, such as megabytes."""
        self.add(Measure(name=name, value=value, unit=unit, note=note))

    def compare(self, prefix: str, cases: Mapping[str, Case], *, unit: str = "ns/draw", ours: str = OURS) -> None:
        """Time all cases of a group and keep one measure for each, with its ratio to `ours`."""
        seconds = time_in_turns(cases, self.rounds)
        per_item = {name: [s * 1e9 / cases[name].items for s in runs] for name, runs in seconds.items()}
        for name, nanoseconds in per_item.items():
            pairs = zip(nanoseconds, per_item.get(ours, []), strict=False)
            ratios = [theirs / mine for theirs, mine in pairs] if name != ours else []
            self.add(
                Measure(
                    name=f"{prefix}/{name}",
                    value=statistics.median(nanoseconds),
                    unit=unit,
                    low=min(nanoseconds),
                    high=max(nanoseconds),
                    speedup=statistics.median(ratios) if ratios else None,
                )
            )


def time_in_turns(cases: Mapping[str, Case], rounds: int) -> dict[str, list[float]]:
    """Return seconds per round of every case; each goes once untimed before."""
    names = list(cases)
    for name in names:
        if cases[name].rounds != 1:
            timed(cases[name])
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if number < (cases[name].rounds or rounds):
                seconds[name].append(timed(cases[name]))
    return seconds


def timed(case: Case) -> float:
    """Return the seconds of one call, on as many cores as the case asks for."""
    clock = time.perf_counter if case.wall else time.process_time
    with on_cores(case.cores):
        gc.collect()
        gc.disable()
        try:
            start = clock()
            result = case.run()
            elapsed = clock() - start
        finally:
            gc.enable()
        del result
    return elapsed


def cores() -> list[int]:
    """Return the cores this process may use; one made-up core where the system cannot pin."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


ALL_CORES = cores()


@contextlib.contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Pin the process to `count` cores, the last ones."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ALL_CORES[-count:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def resident_megabytes(key: str = "VmRSS") -> float:
    """Return the process's resident memory (`VmRSS`) or its peak since the last reset (`VmHWM`); NaN where unknown."""
    with contextlib.suppress(OSError), Path("/proc/self/status").open(encoding="ascii") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
    return float("nan")


def peak_growth_megabytes(run: Callable[[], object]) -> float:
    """Return by how much resident memory rose at most while `run` ran."""
    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    before = resident_megabytes()
    result = run()
    peak = resident_megabytes("VmHWM")
    del result
    return peak - before


def main(measure: Callable[[Report], None]) -> None:
    """Run one benchmark as a script, in a process of its own: single-threaded environment, one core."""
    if any(os.environ.get(key) != value for key, value in SINGLE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **SINGLE_THREAD})
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the measures to this file")
    arguments = parser.parse_args()
    report = Report(rounds=2 if arguments.quick else arguments.rounds, quick=arguments.quick)
    try:
        with on_cores(1):
            measure(report)
    finally:  # what a failed benchmark had measured is kept
        if arguments.json:
            measures = [dataclasses.asdict(each) for each in report.measures]
            arguments.json.write_text(json.dumps({"measures": measures, "skipped": report.skipped}), encoding="utf-8")
    for peer, reason in report.skipped.items():
        print(f"left out: {peer} ({reason})")
