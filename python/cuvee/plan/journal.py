"""The append-only record of what changed in a run: with the contract, enough to compute its order again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, overload

from .. import _core
from ..checks import canonical_json
from ..errors import PlanError, StateError
from ..mixture.source import Source

EMBED_BYTES = 1024  # a journal up to this size travels inside the state even when it has a file


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedSource:
    """What the journal keeps of a source that joined: all that determines the order, not its data."""

    name: str
    rows: int
    max_epochs: int | None
    fingerprint: str | None
    lengths: str | None

    @classmethod
    def of(cls, source: Source, *, with_lengths: bool) -> Self:
        """Describe `source`, its lengths only if they decide which rows come."""
        return cls(
            name=source.name,
            rows=source.rows,
            max_epochs=source.max_epochs,
            fingerprint=source.fingerprint,
            lengths=source.lengths_digest if with_lengths else None,
        )

    def restore(self, given: Mapping[str, Source]) -> Source:
        """Return the source described: the given one of that name, which must agree, else one without data."""
        source = given.get(self.name)
        if source is None and self.lengths is None:
            return Source(self.name, rows=self.rows, max_epochs=self.max_epochs, fingerprint=self.fingerprint)
        if source is None:
            raise StateError(
                f"add must hold source {self.name!r}, which joined during the run and has lengths, but got none of "
                "that name; pass add=[Source(...)] as in the update"
            )
        now = AddedSource.of(source, with_lengths=self.lengths is not None)
        for field in ("rows", "max_epochs", "fingerprint", "lengths"):
            was, value = getattr(self, field), getattr(now, field)
            if was != value:
                raise StateError(f"source {self.name!r}: {field} must be {was!r} as in the journal, but got {value!r}")
        return source


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How a source's draws become cycles: draw i >= first_draw is in cycle first_cycle + (i - first_draw) div rows."""

    first_draw: int
    first_cycle: int
    rows: int

    def next_cycle(self, draw: int) -> int:
        """Return the number of the first cycle that begins at `draw` or later."""
        return self.first_cycle + -(-(draw - self.first_draw) // self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A source that changed between save and resume, allowed by the user."""

    name: str
    field: str
    was: Any
    now: Any
    at_draw: int  # number of the source's first draw under the new content
    cycle: int  # that draw's cycle
    cap: int  # draws the source may give

    @property
    def span(self) -> Span:
        """The cycles that the change of a row count begins."""
        return Span(first_draw=self.at_draw, first_cycle=self.cycle, rows=self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry: from `position` on, the shares are `weights`.

    `position` counts the stream's rows under `cycle` (epoch is None), the epoch's rows otherwise. `weights` are as
    given, by name; None where an entry only records accepted changes of the data.
    """

    epoch: int | None
    position: int
    weights: Mapping[str, float] | None
    added: tuple[AddedSource, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    reason: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """(epoch, position), for ordering."""
        return (self.epoch or 0, self.position)

    def line(self) -> bytes:
        """Return the entry as one line of canonical JSON."""
        record: dict[str, Any] = {"position": self.position, "reason": self.reason}
        if self.epoch is not None:
            record["epoch"] = self.epoch
        if self.weights is not None:
            record["weights"] = dict(self.weights)
        for field in ("added", "accepted"):
            if values := getattr(self, field):
                record[field] = [{name: getattr(value, name) for name in value.__slots__} for value in values]
        return canonical_json(record) + b"\n"

    @classmethod
    def parse(cls, line: bytes | str) -> Self:
        """Return the entry that a line holds; StateError if it holds none."""
        try:
            record = json.loads(line)
            return cls(
                epoch=record.get("epoch"),
                position=record["position"],
                weights=record.get("weights"),
                added=tuple(AddedSource(**added) for added in record.get("added", ())),
                accepted=tuple(Accepted(**accepted) for accepted in record.get("accepted", ())),
                reason=record["reason"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as err:
            raise StateError(f"journal entry must be one JSON object with a position, but got {line!r}") from err


class Journal(Sequence[Change]):
    """Entries in the order they were made, in memory and, after `attach`, in a file of JSON lines.

    The file is appended and synced before an update takes effect. A checkpoint names it by its size in bytes and
    its digest; what it holds beyond that was written after the checkpoint and is dropped when the run goes on.
    """

    def __init__(self, entries: Sequence[Change] = (), *, file: Path | None = None) -> None:
        self._entries = list(entries)
        self._digest = _core.Digest()
        self._file = file
        self._verified = False
        self.size = 0
        for entry in self._entries:
            self._count(entry.line())

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> list[Change]: ...
    def __getitem__(self, index: int | slice) -> Change | list[Change]:
        return self._entries[index]

    def __iter__(self) -> Iterator[Change]:
        return iter(self._entries)

    def __repr__(self) -> str:
        return f"Journal({len(self)} entries, {self.size} bytes, file={str(self._file) if self._file else None!r})"

    @property
    def digest(self) -> str:
        """xxh3-128 of the entries' lines, 32 hex digits."""
        return self._digest.hexdigest()

    @property
    def file(self) -> Path | None:
        """The file entries are appended to; None keeps them in memory."""
        return self._file

    def copy(self) -> Journal:
        """Return a journal with the same entries and file."""
        return Journal(self._entries, file=self._file)

    def attach(self, file: str | os.PathLike[str]) -> None:
        """Append every entry, those made so far included, to `file` from now on.

        Raises:
            StateError: if the file exists and does not begin with the entries made so far.
        """
        path = Path(file)
        self._check_prefix(path)
        self._verified = False
        self._write(path, b"")
        self._file = path

    def append(self, entry: Change) -> None:
        """Add an entry: on disk first, so that no change is ever in force that the file does not know."""
        line = entry.line()
        if self._file is not None:
            self._write(self._file, line)
        self._entries.append(entry)
        self._count(line)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: size and digest, and the entries unless they are safe in a file."""
        state: dict[str, Any] = {"entries": len(self), "size": self.size, "digest": self.digest}
        if self._file is not None:
            state["file"] = self._file.name
        if self._file is None or self.size <= EMBED_BYTES:
            state["lines"] = [entry.line().decode().rstrip("\n") for entry in self._entries]
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any], file: str | os.PathLike[str] | None) -> Journal:
        """Return the journal of a checkpoint, from its lines or from `file`.

        Raises:
            StateError: if the entries are neither in the state nor in the file, or their digest differs.
        """
        path = None if file is None else Path(file)
        if "lines" in state:
            data = "".join(f"{line}\n" for line in state["lines"]).encode()
        elif path is None:
            raise StateError(
                f"journal must be the file {state.get('file')!r} of the run, but got None; pass journal=PATH"
            )
        else:
            data = _read(path, state["size"])
        if _core.xxh3_128(data) != state["digest"]:
            raise StateError(f"journal must have digest {state['digest']}, but got {_core.xxh3_128(data)} ({path})")
        journal = cls([Change.parse(line) for line in data.splitlines()], file=path)
        if path is not None:
            journal._check_prefix(path)
        return journal

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Journal:
        """Return the journal that a file holds, to be appended to that file.

        Raises:
            StateError: if the file cannot be read, or holds something else.
        """
        path = Path(file)
        try:
            lines = path.read_bytes().splitlines()
        except OSError as err:
            reason = (err.strerror or str(err)).lower()
            raise StateError(f"journal must be a file that can be read, but got {str(path)!r}: {reason}") from None
        return cls([Change.parse(line) for line in lines], file=path)

    def joined(self, given: Iterable[Source]) -> tuple[Source, ...]:
        """Return the sources that joined, in order: each the one of `given` that has its name, else without data.

        Raises:
            StateError: if a given one differs from the journal, or one is missing that has lengths.
        """
        by_name = {source.name: source for source in given}
        return tuple(added.restore(by_name) for change in self for added in change.added)

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_file, (tuple(self._entries), self._file)

    def _count(self, line: bytes) -> None:
        self._digest.update(line)
        self.size += len(line)

    def _check_prefix(self, path: Path) -> None:
        if not path.exists():
            return
        own = b"".join(entry.line() for entry in self._entries)
        if not own.startswith(_read(path, self.size)):
            raise StateError(f"journal file must begin with the {len(self)} entries of this run, but got {str(path)!r}")

    def _ends(self, stream: BinaryIO, size: int) -> bool:
        """Return whether a file of `size` bytes ends with the last entry, where it should."""
        last = self._entries[-1].line() if self._entries else b""
        if size != self.size:
            return False
        stream.seek(size - len(last))
        return stream.read() == last

    def _write(self, file: Path, line: bytes) -> None:
        """Append to the file and sync it; on the first write bring the file to exactly the entries so far."""
        with file.open("r+b" if file.exists() else "w+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            if self._verified and not self._ends(stream, size):
                raise PlanError(
                    f"journal file {str(file)!r} must end with this plan's last entry after {self.size} bytes, but got "
                    f"{size} bytes: another plan wrote to it"
                )
            if size < self.size:
                stream.seek(0)
                stream.writelines(entry.line() for entry in self._entries)
            stream.seek(self.size)
            try:
                stream.write(line)
                stream.truncate()
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(self.size)
                raise
        self._verified = True


def _with_file(entries: Sequence[Change], file: Path | None) -> Journal:
    return Journal(entries, file=file)


def _read(path: Path, size: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(size)


def plan_hash(spec_hash: str, epoch: int, journal: Journal) -> str:
    """Return the xxh3-128 of spec, epoch and journal."""
    return _core.xxh3_128(canonical_json({"spec": spec_hash, "epoch": epoch, "journal": journal.digest}))
