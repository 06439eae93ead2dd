"""The append-only record of what changed in a run: with the contract, enough to compute its order again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

from .. import _core
from ..cache import write_atomically
from ..checks import as_int, canonical_json
from ..errors import CuveeError, PlanError, StateError
from ..mixture.source import Source
from .change import Change

EMBED_BYTES = 1024  # a journal up to this size travels inside the state even when it has a file


class Journal(Sequence[Change]):
    """Entries in the order they were made, in memory and, after `attach`, in a file of JSON lines.

    Each line holds, as `digest`, the xxh3-128 of the digest of all lines before it and of the line without it, so that
    no byte of a journal can change unseen. The file is appended and synced before an update takes effect. A checkpoint
    names it by its size in bytes and its digest; what it holds beyond that was written after the checkpoint and is
    dropped at the first update after the run goes on: the file as it was is kept beside it, as `FILE.dropped-DIGEST`.
    """

    def __init__(self, entries: Sequence[Change] = (), *, file: Path | None = None, resumed: bool = False) -> None:
        self._entries: list[Change] = []
        self._lines: list[bytes] = []
        self._digest = _core.Digest()
        self._file = file
        self._verified = False  # whether the file is known to hold these entries and nothing else
        self._resumed = resumed  # whether the file may hold entries that were made after the checkpoint
        self.size = 0
        for entry in entries:
            self._add(entry, self._line(entry))

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
        return Journal(self._entries, file=self._file, resumed=self._resumed)

    def attach(self, file: str | os.PathLike[str]) -> None:
        """Append every entry, those made so far included, to `file` from now on.

        Raises:
            StateError: if the file holds anything else than these entries or the first of them; nothing is written.
        """
        path = Path(file)
        try:
            self._check_file(path, StateError, resumed=False)
            self._write(path, b"")
        except OSError as err:
            reason = (err.strerror or str(err)).lower()
            raise StateError(f"journal must be a file that can be written, but got {str(path)!r}: {reason}") from None
        self._file, self._verified, self._resumed = path, True, False

    def detach(self) -> None:
        """Keep entries in memory only from now on: of the ranks of a run one writes its file."""
        self._file, self._verified, self._resumed = None, False, False

    def append(self, entry: Change) -> None:
        """Add an entry: on disk first, so that no change is ever in force that the file does not know."""
        line = self._line(entry)
        if self._file is not None:
            if self._verified:
                self._check_end(self._file)
            else:
                self._check_file(self._file, PlanError, resumed=self._resumed)
                self._set_aside(self._file)
            self._write(self._file, line)
            self._verified, self._resumed = True, False
        self._add(entry, line)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: size and digest, and the entries unless they are safe in a file."""
        state: dict[str, Any] = {"entries": len(self), "size": self.size, "digest": self.digest}
        if self._file is not None:
            state["file"] = self._file.name
        if self._file is None or self.size <= EMBED_BYTES:
            state["lines"] = [line.decode().rstrip("\n") for line in self._lines]
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any], file: str | os.PathLike[str] | None) -> Journal:
        """Return the journal of a checkpoint, from its lines or from `file`.

        Raises:
            StateError: if the entries are neither in the state nor in the file, or their digest differs, or the file
                goes on with something that is no journal.
        """
        path = None if file is None else Path(file)
        if "lines" in state:
            data = "".join(f"{line}\n" for line in state["lines"]).encode()
        elif path is None:
            raise StateError(
                f"journal must be the file {state.get('file')!r} of the run, but got None; pass journal=PATH"
            )
        else:
            data = _read(path)[: as_int(state["size"], "state journal.size", 0, 2**63, StateError)]
        if _core.xxh3_128(data) != state["digest"]:
            raise StateError(f"journal must have digest {state['digest']}, but got {_core.xxh3_128(data)} ({path})")
        journal = cls(file=path, resumed=True)
        journal._parse(data)
        if path is not None:
            journal._check_file(path, StateError, resumed=True)
        return journal

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Journal:
        """Return the journal that a file holds, to be appended to that file.

        Raises:
            StateError: if the file cannot be read, or holds something else, or ends within a line.
        """
        journal = cls(file=Path(file))
        journal._parse(_read(Path(file)))
        return journal

    def checked(self) -> Journal:
        """Return a journal of the same entries without the file, each checked as if it were read.

        Raises:
            StateError: naming the entry and what is wrong with it.
        """
        journal = Journal()
        journal._parse(b"".join(self._lines))
        return journal

    def joined(self, given: Iterable[Source]) -> tuple[Source, ...]:
        """Return the sources that joined, in order: each the one of `given` that has its name, else without data.

        Raises:
            StateError: if a given one differs from the journal, or one is missing that has lengths.
        """
        by_name = {source.name: source for source in given}
        return tuple(added.restore(by_name) for change in self for added in change.added)

    def check_names(self, names: Iterable[str]) -> None:
        """Check that a source joined once only, and that data of no other sources than `names` changed.

        Raises:
            StateError: naming the entry.
        """
        own = set(names)
        known = set(own)
        for number, change in enumerate(self, start=1):
            for source in change.added:
                if source.name in known:
                    raise StateError(f"journal entry {number}: source names must be unique, but got {source.name!r}")
                known.add(source.name)
            for accepted in change.accepted:
                if accepted.name not in own:
                    raise StateError(f"journal entry {number}: name must be a source's, but got {accepted.name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Journal, file=self._file, resumed=self._resumed), (tuple(self._entries),)

    # --- lines

    def _line(self, entry: Change) -> bytes:
        """Return the line of an entry that follows those so far."""
        record = entry.record()
        record["digest"] = _core.xxh3_128(self.digest.encode() + canonical_json(record))
        return canonical_json(record) + b"\n"

    def _add(self, entry: Change, line: bytes) -> None:
        self._entries.append(entry)
        self._lines.append(line)
        self._digest.update(line)
        self.size += len(line)

    def _parse(self, data: bytes) -> None:
        """Add the entries that lines of JSON hold."""
        for number, line in enumerate(data.splitlines(keepends=True), start=len(self) + 1):
            if not line.endswith(b"\n"):
                raise StateError(
                    f"journal line {number} must be complete, but got {line!r} without an end: it was being written "
                    f"when the run ended, and never took effect; cut the file to {self.size} bytes"
                )
            try:
                entry = _entry(line)
                self._check_place(entry)
            except StateError as err:
                raise StateError(f"journal line {number}: {err}") from None
            if line != self._line(entry):
                raise StateError(
                    f"journal line {number} must have the digest of what stands in it and before it, but got {line!r}"
                )
            self._add(entry, line)

    def _check_place(self, entry: Change) -> None:
        before = next((change.place for change in reversed(self) if change.weights is not None), (0, 0))
        if entry.weights is not None and entry.place < before:
            raise StateError(
                f"position must not lie before that of the last update, (epoch, position) {before}, but got "
                f"{entry.place}"
            )

    # --- the file

    def _check_file(self, path: Path, error: type[CuveeError], *, resumed: bool) -> None:
        """Check that a file holds these entries, or the first ones, and beyond them a torn line at most.

        Where the run was resumed entries may follow them: those made after the checkpoint.
        """
        if not path.exists():
            return
        own, data = b"".join(self._lines), _read(path)
        cure = "pass journal=PATH to load_state_dict to go on from a state, or another file"
        if not own.startswith(data[: self.size]):
            raise error(
                f"journal file must begin with the {len(self)} entries of this run, but got {str(path)!r}; {cure}"
            )
        rest = data[self.size :]
        lines, torn = rest[: rest.rfind(b"\n") + 1], rest[rest.rfind(b"\n") + 1 :]
        later = Journal(self._entries)
        if resumed:
            try:
                later._parse(lines)
            except StateError as err:
                raise error(f"journal file {str(path)!r} must be that of this run, but got: {err}") from None
        if (lines and not resumed) or (torn and not (later and torn.startswith(b"{"))):
            raise error(
                f"journal file must hold nothing but the {len(self)} entries of this run, but got {str(path)!r} with "
                f"{len(rest)} bytes more; {cure}"
            )

    def _set_aside(self, file: Path) -> None:
        """Copy a file whose last entries are about to be dropped: they may be of another run."""
        data = _read(file) if file.exists() else b""
        if b"\n" in data[self.size :]:
            write_atomically(file.with_name(f"{file.name}.dropped-{_core.xxh3_128(data)[:8]}"), data)

    def _check_end(self, file: Path) -> None:
        """Check that the file, which held these entries after the last write, still ends with the last of them."""
        last = self._lines[-1] if self._lines else b""
        with file.open("rb" if file.exists() else "w+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - len(last), 0))
            if size == self.size and stream.read() == last:
                return
        raise PlanError(
            f"journal file {str(file)!r} must end with this plan's last entry after {self.size} bytes, but got "
            f"{size} bytes: another plan wrote to it"
        )

    def _write(self, file: Path, line: bytes) -> None:
        """Bring a checked file to exactly the entries so far, append `line` and sync it."""
        with file.open("r+b" if file.exists() else "w+b") as stream:
            if stream.seek(0, os.SEEK_END) < self.size:
                stream.seek(0)
                stream.writelines(self._lines)
            stream.seek(self.size)
            try:
                stream.write(line)
                stream.truncate()
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(self.size)
                raise


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise StateError(f"journal must be a regular file, but got {str(path)!r}")
    try:
        return path.read_bytes()
    except OSError as err:
        reason = (err.strerror or str(err)).lower()
        raise StateError(f"journal must be a file that can be read, but got {str(path)!r}: {reason}") from None


def _entry(line: bytes) -> Change:
    """Return the entry that a line holds, its digest left aside."""
    try:
        record = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as err:
        raise StateError(f"entry must be one JSON object, but got {line!r} ({err})") from None
    if isinstance(record, dict):
        record.pop("digest", None)
    return Change.of(record)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError(f"names must be unique, but got {[name for name, _ in pairs]}")
    return record


def _no_number(text: str) -> float:
    raise ValueError(f"numbers must be finite, but got {text}")


def plan_hash(spec_hash: str, epoch: int, journal: Journal) -> str:
    """Return the xxh3-128 of spec, epoch and journal."""
    return _core.xxh3_128(canonical_json({"spec": spec_hash, "epoch": epoch, "journal": journal.digest}))
