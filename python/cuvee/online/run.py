"""Online mixing of a run in a folder: its mixer, its journal, and the record from which it can be replayed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from ..cache import write_atomically
from ..checks import as_int
from ..errors import StateError
from ..ranks import place
from .decision import Decision

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

    from ..plan import Plan
    from ..steps import StepSampler
    from .mixer import OnlineMixer
    from .setup import Online

VERSION = 1
RECORD_FILE = "online.jsonl"
JOURNAL_FILE = "online_journal.jsonl"
MOST_STEPS = 2**63
SETTINGS = ("global_batch_size", "update_interval", "lag")
NAMED = ("algorithm", "algorithm_options", "reward", "reward_options")
STRETCH = ("epoch", "rows", "schedule_hash")
FIELDS = {"start": ("names", "spec_hash", *NAMED, *SETTINGS), "update": ("report",), "epoch": STRETCH, "end": STRETCH}


class OnlineRun:
    """The mixer of a run, and what it leaves in the run's folder: journal and record, which rank 0 writes.

    Args:
        setup: how the weights learn.
        steps: the run's steps.
        folder: where the files go; None keeps the journal in memory, and no record.
        fetched: steps that the loader fetches ahead.
        kept: `state_dict` of the run to be resumed, of which the lag is kept.

    Attributes:
        mixer: what decides.
        gradnorm: the gradient norm of the step under way, for rewards that ask for it.

    Raises:
        PlanError: as `Online.mixer` does.
    """

    def __init__(
        self,
        setup: Online,
        steps: StepSampler,
        *,
        folder: Path | None = None,
        fetched: int = 0,
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        self._setup, self._steps = setup, steps
        self._folder = folder if place()[0] == 0 else None
        mixer_kept = None if kept is None else kept.get("mixer")
        self.mixer: OnlineMixer = setup.mixer(steps, fetched=fetched, kept=mixer_kept, told=self._tell)
        self.gradnorm: float | Tensor | None = None

    def needs(self, names: frozenset[str]) -> bool:
        """Return whether the reward needs any of these."""
        return not names.isdisjoint(self.mixer.reward.needs)

    def start(self) -> None:
        """Begin to write, or go on with the files of the run that was resumed; every rank must call."""
        self.mixer.reapply()
        if self._folder is not None:
            self._prepare(self._folder)
        plan, mixer = self._steps.plan, self.mixer
        facts = {name: getattr(mixer, name) for name in SETTINGS}
        own = {"version": VERSION, "names": list(plan.names), "spec_hash": plan.spec_hash}
        self._append("start", {**own, **self._setup.document(), **facts})

    def observe(self, source: ArrayLike, **values: ArrayLike | Tensor | None) -> None:
        """Add what a micro-batch gave; as `OnlineMixer.observe`."""
        self.mixer.observe(source, **values)

    def stepped(self, ended: Plan | None, **numbers: Any) -> Decision | None:
        """Count an optimizer step.

        Args:
            ended: the plan whose epoch ended with it, if one did.
            numbers: of the run, for its report.
        """
        if ended is not None and self._folder is not None:
            self._append("epoch", _stretch(ended, len(ended)))
        if self._setup.measure is not None and self.mixer.due:
            numbers |= self._setup.measure()
        gradnorm, self.gradnorm = self.gradnorm, None
        return self.mixer.step(gradnorm=gradnorm, **numbers)

    def finish(self) -> None:
        """Write what the epoch under way came to."""
        if self._folder is not None:
            self._append("end", _stretch(self._steps.plan, self._steps.place.position))

    def state_dict(self) -> dict[str, Any]:
        """Return all that later updates depend on, as JSON values; every rank must call."""
        return {"setup": self._setup.document(), "mixer": self.mixer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken, after the steps' own state was loaded; every rank must call.

        Raises:
            StateError: if the weights of that run learn in another way.
        """
        now, then = self._setup.document(), state.get("setup", {})
        for name, value in now.items():
            if then.get(name) != value:
                raise StateError(f"online {name} must be {then.get(name)!r}, as in the checkpoint, but got {value!r}")
        self.mixer.load_state_dict(state["mixer"], reapply=False)  # a resume that is refused must write nothing

    def _prepare(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self._steps.step == 0:
            for name in (JOURNAL_FILE, RECORD_FILE):
                set_aside(folder / name)
            self._steps.plan.journal.attach(folder / JOURNAL_FILE)
        else:
            _cut_torn_line(folder / RECORD_FILE)

    def _tell(self, decision: Decision) -> None:
        self._append("update", decision.record())

    def _append(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append a line, whole or not at all, and sync it; on rank 0 alone."""
        if self._folder is None:
            return
        line = json.dumps({"kind": kind, "step": self._steps.step, **fields}, allow_nan=False).encode() + b"\n"
        path = self._folder / RECORD_FILE
        try:
            with path.open("ab", buffering=0) as file:
                size = file.tell()
                if file.write(line) < len(line):
                    file.truncate(size)
                    raise OSError("no space left for it")
                os.fsync(file.fileno())
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StateError(f"record must be a file that can be written, but got {str(path)!r}: {reason}") from None


@dataclass(slots=True, kw_only=True)
class OnlineRecord:
    """What a run recorded of its online mixing, lines that no longer hold left out.

    Attributes:
        start: what it began with.
        updates: its decisions, in order.
        stretches: of each epoch the rows trained on and their schedule hash, in order.
        reaches: whether the journal must hold every update: no resumed run went back behind the last ones.
        ended: whether the run came to its end.
    """

    start: dict[str, Any]
    updates: list[Decision] = field(default_factory=list)
    stretches: list[dict[str, Any]] = field(default_factory=list)
    reaches: bool = True
    ended: bool = False

    def add(self, line: dict[str, Any]) -> None:
        """Take one more line."""
        kind, step = line["kind"], line["step"]
        if kind == "start":
            kept = [update for update in self.updates if update.step <= step]
            self.reaches &= len(kept) == len(self.updates)
            self.updates = kept
            self.stretches = [each for each in self.stretches if each["step"] <= step and each["kind"] == "epoch"]
            self.ended = False
        elif kind == "update":
            self.updates.append(Decision.of(line))
            self.reaches = True
        else:
            self.stretches.append(line)
            self.ended = kind == "end"


def read_record(folder: Path) -> OnlineRecord:
    """Return what the run in `folder` recorded.

    A run resumed from step s repeats what came after it, so its start drops lines of later steps. A last line without
    an end is left out: the run was killed while it was written.

    Raises:
        StateError: if the folder holds no such record, or a line is none of it; it names file and line.
    """
    path = folder / RECORD_FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(
            f"run folder must hold {RECORD_FILE}, which runs with online mixing write, but got {str(path)!r}: {reason}"
        ) from None
    record: OnlineRecord | None = None
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        found = _line(line, f"{str(path)!r}, line {number}")
        if record is None and found["kind"] == "start":
            record = OnlineRecord(start=found)
        elif record is None:
            raise StateError(f"{str(path)!r}, line 1 must be of kind 'start', but got {found['kind']!r}")
        else:
            _add(record, found, f"{str(path)!r}, line {number}")
    if record is None:
        raise StateError(f"{str(path)!r} must hold the record of a run, but got no whole line")
    return record


def _add(record: OnlineRecord, line: dict[str, Any], label: str) -> None:
    try:
        record.add(line)
    except StateError as error:
        raise StateError(f"{label}: {error}") from None


def journal_of(folder: Path, checkpoint: Path) -> Path:
    """Return the journal's file in the folder of a run to be resumed; a new folder gets a copy of the checkpoint's."""
    journal, before = folder / JOURNAL_FILE, checkpoint.parent / JOURNAL_FILE
    if not journal.exists() and before.exists():
        write_atomically(journal, before.read_bytes())
    return journal


def set_aside(path: Path) -> None:
    """Move a file of an earlier run out of the way; it is kept as `FILE.dropped-DIGEST`."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.dropped-{_core.xxh3_128(path.read_bytes())[:8]}"))


def _stretch(plan: Plan, rows: int) -> dict[str, Any]:
    return {"epoch": plan.epoch, "rows": rows, "schedule_hash": _schedule_hash(plan, rows)}


def _schedule_hash(plan: Plan, rows: int) -> str | None:
    """Return the hash of an epoch's first rows; None where only the run's own beginning could tell them."""
    try:
        return plan.from_start().schedule_hash(0, rows)
    except StateError:
        return None


def _cut_torn_line(path: Path) -> None:
    """Remove a last line that a killed run did not finish."""
    if path.exists():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)


def _line(text: bytes, label: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{label} must be JSON, but got {text[:60]!r} ({error})") from None
    if not isinstance(line, dict) or line.get("kind") not in FIELDS:
        raise StateError(f"{label} must be of one of the kinds {list(FIELDS)}, but got {text[:60]!r}")
    missing = [name for name in FIELDS[line["kind"]] if name not in line]
    if missing:
        raise StateError(f"{label} must hold {', '.join(missing)}, but got {text[:60]!r}")
    as_int(line.get("step"), f"{label}: step", 0, MOST_STEPS, StateError)
    if line["kind"] == "start" and line.get("version") != VERSION:
        raise StateError(f"{label}: version must be {VERSION}, but got {line.get('version')!r}")
    return line
