"""The record of a run: what was planned and what was trained, as events in a file that can be read at any time."""

from __future__ import annotations

import json
import math
import mmap
import os
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checks import as_int, nearest
from .errors import StateError
from .ledger import json_text

if TYPE_CHECKING:
    from .ledger import Ledger
    from .plan import Plan

VERSION = 1
METRICS_FILE = "metrics.jsonl"
START = "run_start"
FIRST_BYTES = b'{"stage": "run_start"'  # of every run's file
MOST_STEPS = 2**63


class RunLog:
    """Writes the events of a run to `metrics.jsonl`, and a file for each plan beside it.

    Each event is one line of JSON, appended in one piece before the call returns, and what marks a stage of the run
    (its start, its end, the end of an epoch) is synced to the disk. A resumed run appends to the file of the run it
    goes on with: see `read_events`. On ranks other than 0 every method does nothing.

    Args:
        folder: where the files go; made by `start` if missing.
        rank: this process's rank.
        names: the sources' names, in the order of the mixture.
    """

    def __init__(self, folder: str | os.PathLike[str], *, rank: int = 0, names: Sequence[str]) -> None:
        self.folder = Path(folder)
        self.names = tuple(names)
        self._writes = rank == 0
        self._started = False

    @property
    def path(self) -> Path:
        """The file that holds the events."""
        return self.folder / METRICS_FILE

    def start(self, *, step: int = 0, resumed_from: str | None = None, **facts: Any) -> None:
        """Begin the run, or go on with it at optimizer step `step` of the checkpoint called `resumed_from`.

        A line that the run before did not finish is cut off.

        Args:
            step: optimizer steps trained so far.
            resumed_from: name of the checkpoint; None begins a new run, which replaces what the file told so far.
            facts: more JSON values to keep, as `world_size` and `rows_per_step`.

        Raises:
            StateError: if the folder cannot be written, or its `metrics.jsonl` is not of such a run; it is not touched.
        """
        own = {"version": VERSION, "cuvee": version("cuvee"), "resumed_from": resumed_from, "names": list(self.names)}
        taken = sorted(facts.keys() & {"stage", "time", *own})
        if taken:
            raise StateError(f"facts must have names that events do not use themselves, but got {taken}")
        if self._writes:
            _prepare(self.path)
        self._started = True
        self._append(START, step, own | facts, sync=True)

    def plan(self, plan: Plan, *, step: int) -> Path | None:
        """Write what an epoch will give to a file and, without the mixture's contract, as an event.

        Args:
            plan: of the epoch that begins or goes on.
            step: optimizer steps trained so far.

        Returns:
            `dataset_mix_plan.<pid>.epoch-<n>.json` in the folder; None on other ranks.
        """
        if not self._writes:
            return None
        from .plan.file import plan_document, write_document

        document = plan_document(plan.from_start())
        file = self.folder / f"dataset_mix_plan.{os.getpid()}.epoch-{plan.epoch}.json"
        write_document(document, file)
        del document["mix_spec"]
        self._append("dataset_mix_plan", step, {"plan_file": file.name, **document})
        return file

    def progress(
        self,
        ledger: Ledger,
        *,
        step: int,
        epoch: int,
        position: int,
        losses: Mapping[str, float | None],
        metrics: Mapping[str, float | None],
        weights: Mapping[str, float] | None = None,
        scores: Mapping[str, float | None] | None = None,
    ) -> None:
        """Tell where the run stands.

        Args:
            ledger: the sum over all ranks, of the whole run: what `ledger.reduced()` returns.
            step: optimizer steps trained so far.
            epoch: the plan's epoch under way.
            position: rows of that epoch scheduled so far, over all ranks.
            losses: mean loss per target token, in nats, of each source since the last event; None where it had none.
            metrics: further numbers by name, as `loss`, `learning_rate`, `grad_norm`, `rows_per_second`.
            weights: the weights in force, of each source, where they learn while the model trains.
            scores: what these weights follow, of each source; None where nothing is known.

        Raises:
            StateError: if a loss is of no source of the ledger, or the file cannot be written.
        """
        unknown = sorted(losses.keys() - set(ledger.names))
        if unknown:
            raise StateError(
                f"losses must be of {list(ledger.names)}, but got {unknown[0]!r}{nearest(unknown[0], ledger.names)}"
            )
        fields = _sources(ledger)
        learnt = {key: values for key, values in (("weight", weights), ("score", scores)) if values is not None}
        for name, counts in fields["sources"].items():
            counts["loss"] = _number(losses.get(name))
            counts |= {key: _number(values[name]) for key, values in learnt.items()}
        place = {"epoch": epoch, "position": position}
        self._append("dataset_mix_progress", step, place | {"metrics": _numbers(metrics)} | fields)

    def epoch_end(self, ledger: Ledger, *, step: int, plan: Plan) -> None:
        """Tell that the epoch of `plan` is over.

        Args:
            ledger: as in `progress`.
            step: optimizer steps trained so far.
            plan: of the epoch that is over.
        """
        if not self._writes:
            return
        summary = plan.summary()
        told = {name: summary[name] for name in ("epoch", "planned_rows", "termination_reason")}
        self._append("dataset_mix_epoch_end", step, told | _sources(ledger), sync=True)

    def max_steps_reached(self, ledger: Ledger, *, step: int, max_steps: int) -> None:
        """Tell that the run ends because `max_steps` optimizer steps were trained; `ledger` as in `progress`."""
        self._append("max_steps_reached", step, {"max_steps": max_steps} | _sources(ledger))

    def end(self, *, step: int, metrics: Mapping[str, float | None]) -> None:
        """Tell that the run is over, and its last numbers by name."""
        self._append("run_end", step, {"metrics": _numbers(metrics)}, sync=True)

    def _append(self, stage: str, step: int, fields: Mapping[str, Any], *, sync: bool = False) -> None:
        """Append an event, whole or not at all."""
        if not self._writes:
            return
        if not self._started:
            raise StateError(f"the first event must be {START!r}, but got {stage!r}; call start")
        step = as_int(step, "step", 0, MOST_STEPS, StateError)
        line = json_text({"stage": stage, "time": round(time.time(), 3), "step": step, **fields}).encode() + b"\n"
        try:
            with self.path.open("ab", buffering=0) as file:
                size = file.tell()
                if file.write(line) < len(line):
                    file.truncate(size)
                    raise OSError("no space left for it")
                if sync:
                    os.fsync(file.fileno())
        except OSError as error:
            raise _not_written(self.path, error) from None


def read_events(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the events of the run in `folder`, in order, those that do not hold any more left out.

    A run resumed from step s repeats what came after it, so its `run_start` drops earlier events of later steps; one
    that was not resumed drops everything before it. A last line without an end is left out: it is being written, or
    was when the run was killed.

    Raises:
        StateError: if the folder holds no run, or a line is no event; it names file and line.
    """
    path = Path(folder) / METRICS_FILE
    events: list[dict[str, Any]] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                event = _event(line, f"{str(path)!r}, line {number}")
                if event["stage"] == START:
                    events = _before(events, event)
                elif number == 1:
                    raise StateError(f"{str(path)!r}, line 1 must be of stage {START!r}, but got {event['stage']!r}")
                events.append(event)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(
            f"run folder must hold {METRICS_FILE}, which cuvee train writes, but got {str(path)!r}: {reason}"
        ) from None
    return events


def _before(events: list[dict[str, Any]], start: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return those of `events` that still hold once `start` began or resumed the run."""
    if start["resumed_from"] is None:
        return []
    return [event for event in events if event["step"] <= start["step"]]


def _event(line: bytes, place: str) -> dict[str, Any]:
    """Return the event on a line of the file at `place`."""
    try:
        event = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{place} must be an event in JSON, but got {line[:60]!r} ({error})") from None
    if not isinstance(event, dict) or not isinstance(event.get("stage"), str):
        raise StateError(f"{place} must be an event with a stage, but got {line[:60]!r}")
    as_int(event.get("step"), f"{place}: step", 0, MOST_STEPS, StateError)
    if event["stage"] == START:
        if event.get("version") != VERSION:
            raise StateError(f"{place}: version must be {VERSION}, but got {event.get('version')!r}")
        if not isinstance(event.get("resumed_from", 0), str | None):
            raise StateError(f"{place}: resumed_from must be a name or null, but got {event.get('resumed_from')!r}")
    return event


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _prepare(path: Path) -> None:
    """Make the folder of `path` and, if the file is there, cut off a last line without an end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.stat().st_size == 0:
            return
        with path.open("r+b") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                first, whole = content[: len(FIRST_BYTES)], content.rfind(b"\n") + 1
            if first != FIRST_BYTES[: len(first)]:
                raise StateError(
                    f"{str(path)!r} must be of a run of cuvee train, but got a file that begins with {first!r}; "
                    "choose another folder"
                )
            file.truncate(whole)
    except (OSError, ValueError) as error:
        raise error if isinstance(error, StateError) else _not_written(path, error) from None


def _not_written(path: Path, error: Exception) -> StateError:
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    return StateError(f"events must be written to a file, but got {str(path)!r}: {reason}")


def _sources(ledger: Ledger) -> dict[str, Any]:
    """Return the field `sources` of an event."""
    return {"sources": ledger.event()["sources"]}


def _numbers(metrics: Mapping[str, Any]) -> dict[str, int | float | None]:
    return {name: _number(value) for name, value in metrics.items()}


def _number(value: Any) -> int | float | None:
    """Return `value`, perhaps one of NumPy or torch, as a number of Python; None unless it is finite."""
    number = value if value is None or isinstance(value, int) else float(value)
    return number if number is not None and math.isfinite(number) else None
