"""What a run folder tells: its sessions, its plans, and the counts, losses and metrics over its steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateError
from ..run_log import METRICS_FILE, START, read_events

MOST_POINTS = 500  # points a run is drawn with; more would not be seen
MOST = 2**63  # counts are below
LARGEST = 1e100  # of what is measured; sums of more could overflow
COUNTS = ("scheduled_rows", "filtered_rows", "trained_rows", "target_tokens")
MEASURED = ("loss", "weight", "score")  # of a source, at a logged step
PROGRESS, EPOCH_END, MAX_STEPS, RUN_END = (
    "dataset_mix_progress",
    "dataset_mix_epoch_end",
    "max_steps_reached",
    "run_end",
)

PLAN_FIELDS: Mapping[str, type] = {
    "epoch": int,
    "planned_rows": int,
    "plan_hash": str,
    "schedule_hash": str,
    "mix_spec_hash": str,
    "warnings": list,
    "sources": list,
}

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One process of a run, from its start or resumption on."""

    step: int
    time: float  # Unix seconds
    resumed_from: str | None
    facts: Mapping[str, Any]
    last_step: int
    last_time: float
    reached_max_steps: bool
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan that was put into force at optimizer step `step`."""

    step: int
    document: Mapping[str, Any]  # the event, whose fields are those of the plan file
    spec: Mapping[str, Any] | None  # the contract, from the plan file; None where that is gone

    @property
    def epoch(self) -> int:
        """The epoch it is of."""
        return int(self.document["epoch"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The run at T logged steps, for K sources.

    Attributes:
        step, epoch, position, session: int64 of shape (T,).
        time: Unix seconds, float64 of shape (T,).
        counts: scheduled, filtered, trained rows and target tokens since the run began, int64 of shape (4, T, K).
        losses: nats per token since the point before, float64 of shape (T, K); NaN where there is none.
        weights, scores: of weights that learn, those in force and what they follow, as `losses`.
        metrics: float64 of shape (T,) by name; NaN where there is none.
        every: how many logged steps a point stands for; metrics and losses are means over them.
    """

    step: I64
    epoch: I64
    position: I64
    session: I64
    time: F64
    counts: I64
    losses: F64
    weights: F64
    scores: F64
    metrics: Mapping[str, F64]
    every: int = 1

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that a run folder tells."""

    folder: Path
    names: tuple[str, ...]
    sessions: tuple[Session, ...]
    plans: tuple[PlanRecord, ...]
    points: Points
    not_finite: Mapping[str, tuple[int, int]]  # metric -> how often it was no number, and the first step where it was

    @property
    def learns(self) -> bool:
        """Whether its weights learnt while the model trained."""
        return bool(np.isfinite(self.points.weights).any())

    @property
    def facts(self) -> Mapping[str, Any]:
        """The settings of the last session."""
        return self.sessions[-1].facts


def read_run(folder: str | PathLike[str]) -> Run:
    """Return what a run folder tells.

    Raises:
        StateError: if the folder holds no run, or an event lacks what it must have.
    """
    folder = Path(folder).absolute()
    events = read_events(folder)
    if not events:
        raise StateError(
            f"run folder must hold a run's events, but got an empty {METRICS_FILE} in {str(folder)!r}; training writes "
            "it when it begins"
        )
    try:
        names = _names(events)
        points = _points(_snapshots(events), names)
        return Run(
            folder=folder,
            names=names,
            sessions=tuple(_sessions(events)),
            plans=tuple(_plans(events, folder)),
            points=_thinned(points, MOST_POINTS),
            not_finite=_not_finite(events),
        )
    except _Missing as missing:
        raise StateError(f"{str(folder / METRICS_FILE)!r}: {missing}") from None


class _Missing(Exception):  # noqa: N818 - never leaves this module
    """An event lacks a field, or has another type there."""


def _field(event: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """Return a field of an event; an integer is a count or a position, so neither negative nor beyond all bounds."""
    value = event.get(name)
    in_range = kind is not int or (isinstance(value, int) and 0 <= value < MOST)
    if isinstance(value, kind) and not isinstance(value, bool) and in_range:
        return value
    raise _Missing(
        f"{name} in {event['stage']} of step {event['step']} must be as cuvee train writes it, but got {value!r:.80}"
    )


def _names(events: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the sources' names in the order of their appearance."""
    names: dict[str, None] = {}
    for event in events:
        if event["stage"] == START:
            names |= dict.fromkeys(map(str, _field(event, "names", list)))
        elif "sources" in event and event["stage"] != "dataset_mix_plan":
            names |= dict.fromkeys(_field(event, "sources", dict))
    return tuple(names)


def _sessions(events: Sequence[Mapping[str, Any]]) -> Iterable[Session]:
    starts = [place for place, event in enumerate(events) if event["stage"] == START]
    for first, end in zip(starts, [*starts[1:], len(events)], strict=True):
        start, own = events[first], events[first:end]
        stages = {event["stage"] for event in own}
        known = {"stage", "time", "step", "version", "resumed_from", "names"}
        yield Session(
            step=start["step"],
            time=float(_field(start, "time", (int, float))),
            resumed_from=start["resumed_from"],
            facts={name: value for name, value in start.items() if name not in known},
            last_step=own[-1]["step"],
            last_time=float(_field(own[-1], "time", (int, float))),
            reached_max_steps=MAX_STEPS in stages,
            ended=RUN_END in stages,
        )


def _plans(events: Iterable[Mapping[str, Any]], folder: Path) -> Iterable[PlanRecord]:
    for event in events:
        if event["stage"] == "dataset_mix_plan":
            for name, kind in PLAN_FIELDS.items():
                _field(event, name, kind)
            for source in event["sources"]:
                if not _is_source(source):
                    raise _Missing(
                        f"sources of the plan of step {event['step']} must be records, but got {source!r:.80}"
                    )
            yield PlanRecord(step=event["step"], document=event, spec=_spec(folder, event))


def _is_source(record: object) -> bool:
    """Tell whether an entry of a plan has what a report reads of it."""
    if not isinstance(record, dict) or not isinstance(record.get("name"), str):
        return False
    numbers = [record.get("weight_requested"), record.get("rows_available")]
    return all(isinstance(number, int | float) and 0 <= number < MOST for number in numbers)


def _spec(folder: Path, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the contract in an event's plan file, if that is there and of this plan."""
    name = event.get("plan_file")
    if not isinstance(name, str) or Path(name).name != name:
        return None
    try:
        document = json.loads((folder / name).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("plan_hash") != event.get("plan_hash"):
        return None
    spec = document.get("mix_spec")
    return spec if isinstance(spec, dict) else None


@dataclass(slots=True, kw_only=True)
class _Snapshot:
    """The counts at a step, and what was measured up to it."""

    session: int
    step: int
    time: float
    epoch: int
    position: int
    sources: Mapping[str, Mapping[str, Any]]
    measured: Mapping[str, Mapping[str, Any]]  # of each of MEASURED, what was measured of each source
    metrics: Mapping[str, Any]


def _snapshots(events: Iterable[Mapping[str, Any]]) -> list[_Snapshot]:
    """Return the counts at each logged step; where two events tell of one step, the later counts hold."""
    found: list[_Snapshot] = []
    session = -1
    for event in events:
        session += event["stage"] == START
        if event["stage"] not in (PROGRESS, EPOCH_END, MAX_STEPS):
            continue
        sources = _field(event, "sources", dict)
        before = found[-1] if found else None
        again = before is not None and before.step == event["step"]
        epoch, position = _place(event, before)
        snapshot = _Snapshot(
            session=session,
            step=event["step"],
            time=float(_field(event, "time", (int, float))),
            epoch=epoch,
            position=position,
            sources=sources,
            measured={
                what: {name: counts.get(what) for name, counts in sources.items() if isinstance(counts, dict)}
                for what in MEASURED
            },
            metrics=_field(event, "metrics", dict) if "metrics" in event else {},
        )
        if again and before is not None:
            found.pop()
            if event["stage"] != PROGRESS:
                snapshot.measured, snapshot.metrics = before.measured, before.metrics
        found.append(snapshot)
    return found


def _place(event: Mapping[str, Any], before: _Snapshot | None) -> tuple[int, int]:
    """Return the epoch, and the rows of it that were scheduled."""
    if event["stage"] == PROGRESS:
        return _field(event, "epoch", int), _field(event, "position", int)
    if event["stage"] == EPOCH_END:
        return _field(event, "epoch", int), _field(event, "planned_rows", int)
    return (before.epoch, before.position) if before is not None else (0, 0)


def _points(snapshots: Sequence[_Snapshot], names: Sequence[str]) -> Points:
    ids = {name: place for place, name in enumerate(names)}
    counts = np.zeros((len(COUNTS), len(snapshots), len(names)), dtype=np.int64)
    measured = {what: np.full((len(snapshots), len(names)), np.nan) for what in MEASURED}
    keys = dict.fromkeys(name for snapshot in snapshots for name in snapshot.metrics)
    metrics = {name: np.full(len(snapshots), np.nan) for name in keys}
    for place, snapshot in enumerate(snapshots):
        for name, values in snapshot.sources.items():
            counts[:, place, ids[name]] = _counts(values, name, snapshot.step)
        for what, values in snapshot.measured.items():
            for name, value in values.items():
                measured[what][place, ids[name]] = _measured(value)
        for name, value in snapshot.metrics.items():
            metrics[name][place] = _measured(value)
    return Points(
        step=np.array([snapshot.step for snapshot in snapshots], dtype=np.int64),
        epoch=np.array([snapshot.epoch for snapshot in snapshots], dtype=np.int64),
        position=np.array([snapshot.position for snapshot in snapshots], dtype=np.int64),
        session=np.array([snapshot.session for snapshot in snapshots], dtype=np.int64),
        time=np.array([snapshot.time for snapshot in snapshots], dtype=np.float64),
        counts=counts,
        losses=measured["loss"],
        weights=measured["weight"],
        scores=measured["score"],
        metrics=metrics,
    )


def _counts(values: object, name: str, step: int) -> list[int]:
    found = [values.get(count) for count in COUNTS] if isinstance(values, dict) else []
    counts = [count for count in found if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < MOST]
    if len(counts) < len(COUNTS):
        raise _Missing(f"counts of source {name!r} at step {step} must be integers, but got {values!r:.80}")
    return counts


def _measured(value: object) -> float:
    """Return a number that a chart can show, or NaN."""
    measured = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    return float(value) if measured else np.nan  # type: ignore[arg-type]


def _thinned(points: Points, most: int) -> Points:
    """Return at most `most` points: the last of each group for what is summed up, its mean for what is measured."""
    every = -(-len(points) // most)
    if every <= 1:
        return points
    starts = np.arange(0, len(points), every)
    last = np.append(starts[1:], len(points)) - 1
    return Points(
        step=points.step[last],
        epoch=points.epoch[last],
        position=points.position[last],
        session=points.session[last],
        time=points.time[last],
        counts=points.counts[:, last],
        losses=_means(points.losses, starts),
        weights=_means(points.weights, starts),
        scores=_means(points.scores, starts),
        metrics={name: _means(values, starts) for name, values in points.metrics.items()},
        every=every,
    )


def _means(values: F64, starts: I64) -> F64:
    """Return the means of groups of rows that begin at `starts`, NaN left out; NaN where nothing else is there."""
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts, axis=0)
    sizes = np.add.reduceat(known.astype(np.int64), starts, axis=0)
    means: F64 = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)
    return means


def _not_finite(events: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for event in events:
        if event["stage"] == PROGRESS:
            for name, value in _field(event, "metrics", dict).items():
                if value is None and name in ("loss", "grad_norm"):
                    times, first = found.get(name, (0, event["step"]))
                    found[name] = (times + 1, first)
    return found
