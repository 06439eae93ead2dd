"""The record of a run with online mixing: a file of JSON lines, and what they say."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import _core
from ..checks import as_int, canonical_json
from ..errors import StateError
from .decision import Decision

VERSION = 1
RECORD_FILE = "online.jsonl"
MOST_STEPS = 2**63
MOST_EPOCHS = 2**31
SETTINGS = ("global_batch_size", "update_interval", "lag")
NAMED = ("algorithm", "algorithm_options", "reward", "reward_options")
STRETCH = ("epoch", "rows", "schedule_hash")
FIELDS = {"start": ("names", "spec_hash", *NAMED, *SETTINGS), "update": ("report",), "epoch": STRETCH, "end": STRETCH}


class RecordFile:
    """Appends lines to a record, each with a digest of itself and of all lines before it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = ""

    def go_on(self) -> None:
        """Go on after the lines that the file has; one that a killed run did not finish is cut off."""
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(self._path, len(whole))
        lines = whole.splitlines()
        self._digest = str(_line(lines[-1], f"{str(self._path)!r}, line {len(lines)}")["digest"]) if lines else ""

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a line, whole or not at all, and sync it.

        Raises:
            StateError: if the file cannot be written.
        """
        plain = json.loads(json.dumps(line, allow_nan=False))  # as it will be read
        digest = digest_after(self._digest, plain)
        text = json.dumps({**plain, "digest": digest}).encode() + b"\n"
        try:
            with self._path.open("ab", buffering=0) as file:
                size = file.tell()
                if file.write(text) < len(text):
                    file.truncate(size)
                    raise OSError("no space left for it")
                os.fsync(file.fileno())
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StateError(
                f"record must be a file that can be written, but got {str(self._path)!r}: {reason}"
            ) from None
        self._digest = digest


def digest_after(before: str, line: Mapping[str, Any]) -> str:
    """Return the xxh3-128 of the digest before a line and of what the line holds beside its own."""
    content = {name: value for name, value in line.items() if name != "digest"}
    return _core.xxh3_128(str(before).encode() + canonical_json(content))


@dataclass(slots=True, kw_only=True)
class OnlineRecord:
    """What a run recorded of its online mixing, lines that no longer hold left out.

    Attributes:
        starts: what it began with, and what each session after a checkpoint went on with.
        updates: its decisions, in order.
        stretches: of each epoch the rows trained on and their schedule hash, in order.
        reaches: whether the journal must hold every update: no resumed run went back behind the last ones.
        ended: whether the run came to its end.
        broken: what is wrong with the first line that is not as it was written; None if all are.
        start_broken: whether that is the line of a start, so that nothing after it can be made again.
    """

    starts: list[dict[str, Any]]
    updates: list[Decision] = field(default_factory=list)
    stretches: list[dict[str, Any]] = field(default_factory=list)
    reaches: bool = True
    ended: bool = False
    broken: str | None = None
    start_broken: bool = False

    @property
    def start(self) -> dict[str, Any]:
        """What the run began with."""
        return self.starts[0]

    @property
    def on_changed_data(self) -> dict[str, Any] | None:
        """The start of the session that first trained on the data as they are now; None if they never changed."""
        own = [start["spec_hash"] == self.starts[-1]["spec_hash"] for start in self.starts]
        first = max((place for place, same in enumerate(own) if not same), default=-1) + 1
        return self.starts[first] if first else None

    def add(self, line: dict[str, Any]) -> None:
        """Take one more line."""
        kind, step = line["kind"], line["step"]
        if kind == "start":
            kept = [update for update in self.updates if update.step <= step]
            self.reaches &= len(kept) == len(self.updates)
            self.updates = kept
            self.stretches = [each for each in self.stretches if each["step"] <= step and each["kind"] == "epoch"]
            self.starts = [each for each in self.starts if each["step"] < step or each is self.start] + [line]
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
    digest = ""
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        found = _line(line, f"{str(path)!r}, line {number}")
        if record is None and found["kind"] == "start":
            record = OnlineRecord(starts=[found])
        elif record is None:
            raise StateError(f"{str(path)!r}, line 1 must be of kind 'start', but got {found['kind']!r}")
        else:
            _add(record, found, f"{str(path)!r}, line {number}")
        expected, digest = digest_after(digest, found), found["digest"]
        if digest != expected and record.broken is None:
            record.start_broken = found["kind"] == "start"
            record.broken = (
                f"{path.name}, line {number} must have the digest of what stands in it and before it, {expected}, but "
                f"got {digest!r:.60}; it was changed after it was written"
            )
    if record is None:
        raise StateError(f"{str(path)!r} must hold the record of a run, but got no whole line")
    return record


def _add(record: OnlineRecord, line: dict[str, Any], label: str) -> None:
    try:
        record.add(line)
    except StateError as error:
        raise StateError(f"{label}: {error}") from None


def _line(text: bytes, label: str) -> dict[str, Any]:
    try:
        line = json.loads(text, parse_constant=_refused)
        canonical_json(line)  # what is too large for a float, too
    except (ValueError, RecursionError) as error:
        raise StateError(f"{label} must be JSON, but got {text[:60]!r} ({error})") from None
    if not isinstance(line, dict) or line.get("kind") not in FIELDS:
        raise StateError(f"{label} must be of one of the kinds {list(FIELDS)}, but got {text[:60]!r}")
    missing = [name for name in (*FIELDS[line["kind"]], "digest") if name not in line]
    if missing:
        raise StateError(f"{label} must hold {', '.join(missing)}, but got {text[:60]!r}")
    as_int(line.get("step"), f"{label}: step", 0, MOST_STEPS, StateError)
    for name in ("epoch", "rows") if line["kind"] in ("epoch", "end") else ():
        as_int(line[name], f"{label}: {name}", 0, MOST_EPOCHS if name == "epoch" else MOST_STEPS, StateError)
    if line["kind"] == "start" and line.get("version") != VERSION:
        raise StateError(f"{label}: version must be {VERSION}, but got {line.get('version')!r}")
    return line


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
