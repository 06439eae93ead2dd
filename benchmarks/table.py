"""Goals, verdicts and the Markdown table."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

PACKAGES = (
    "cuvee", "numpy", "torch", "transformers", "datasets", "grain", "torchdata", "megatron-core", "pyarrow",
)  # fmt: skip
HEAD = "| what | result | range | ours is faster by | goal | verdict |\n|---|---:|---:|---:|---:|---|\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the benchmarks brought: measures, peers left out and why, benchmarks that failed."""

    measures: tuple[Mapping[str, Any], ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            measures=self.measures + other.measures,
            skipped={**self.skipped, **other.skipped},
            failed=self.failed + other.failed,
        )

    def once(self) -> Outcome:
        """Return each measure once: of one name the last."""
        return replace(self, measures=tuple({measure["name"]: measure for measure in self.measures}.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A promise about every measure whose name fits the pattern; exactly one of the two bounds is given."""

    measures: str
    source: str
    speedup_at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if (self.speedup_at_least is None) == (self.at_most is None):
            raise ValueError(f"goal must have speedup_at_least or at_most, but got {self}")

    def __str__(self) -> str:
        return f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.speedup_at_least:g}x"

    def fits(self, measure: Mapping[str, Any]) -> bool:
        """Tell whether the goal speaks of this measure."""
        return fnmatchcase(measure["name"], self.measures)

    def is_met(self, measure: Mapping[str, Any]) -> bool:
        """Tell whether the measure keeps the promise."""
        if self.at_most is not None:
            return bool(measure["value"] <= self.at_most)
        return measure["speedup"] is not None and bool(measure["speedup"] >= self.speedup_at_least)


def load_goals(path: Path) -> tuple[Goal, ...]:
    """Return the goals of a TOML file; unknown fields are a TypeError."""
    with path.open("rb") as file:
        return tuple(Goal(**goal) for goal in tomllib.load(file)["goal"])


def missed(outcome: Outcome, goals: Sequence[Goal]) -> list[str]:
    """Return a line for every measure that misses its goal, and for every goal without a measure."""
    lines = []
    for goal in goals:
        measures = [measure for measure in outcome.measures if goal.fits(measure)]
        lines += [f"{m['name']}: goal {goal}, but got {_got(m, goal)}" for m in measures if not goal.is_met(m)]
        if not measures:
            lines.append(f"{goal.measures}: not measured")
    return lines


def render(outcome: Outcome, goals: Sequence[Goal]) -> str:
    """Return the whole Markdown page."""
    rows = "".join(_row(measure, goals) for measure in outcome.measures)
    notes = [f"- **failed: `bench_{name}.py`**; what it had measured before is above" for name in outcome.failed]
    notes += [f"- left out: {name} ({reason})" for name, reason in outcome.skipped.items()]
    unmeasured = [goal for goal in goals if not any(map(goal.fits, outcome.measures))]
    notes += [f"- goal not measured: {goal.measures}, {goal}" for goal in unmeasured]
    return "\n".join([*_head(), "", HEAD + rows, *notes, ""]).rstrip() + "\n"


def _head() -> list[str]:
    today = dt.datetime.now(dt.UTC).date()
    return [
        "# Benchmark results",
        "",
        "One core, CPU time; medians; a ratio is their time over ours inside one round. Weights: Zipf(1.0).",
        "",
        f"- {today}, {_processor()}, {os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}",
        f"- {_build()}",
        f"- {', '.join(f'{name} {_version(name)}' for name in PACKAGES)}",
    ]


def _row(measure: Mapping[str, Any], goals: Sequence[Goal]) -> str:
    ours = [goal for goal in goals if goal.fits(measure)]
    spread = f"{measure['low']:.3g} to {measure['high']:.3g}" if measure["low"] is not None else ""
    ratio = f"{measure['speedup']:.3g}x" if measure["speedup"] is not None else ""
    verdict = ("met" if all(goal.is_met(measure) for goal in ours) else "**missed**") if ours else ""
    what = measure["name"].replace("/", " / ") + (f" ({measure['note']})" if measure["note"] else "")
    cells = (what, f"{measure['value']:.4g} {measure['unit']}", spread, ratio, ", ".join(map(str, ours)), verdict)
    return "| " + " | ".join(cells) + " |\n"


def _got(measure: Mapping[str, Any], goal: Goal) -> str:
    if goal.at_most is not None:
        return f"{measure['value']:.4g} {measure['unit']}"
    return "no ratio" if measure["speedup"] is None else f"{measure['speedup']:.3g}x"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _build() -> str:
    try:
        import ours  # needs the compiled core
    except ImportError as error:
        return f"cuvee cannot be imported: {error}"
    return ours.build()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "processor unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
