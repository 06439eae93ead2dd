"""The journal of a study: Optuna's file of entries, which a writer that is stopped half-way does not spoil.

Optuna reads past a last line that is torn, but adds the next entry to its end, which makes a line that nobody can read
and the study lost. Here a writer cuts off what another left of a line before it adds its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock  # noqa: TID253

MARK = b'{"op_code":'  # what every entry begins with
NAMED = ("study_name", *["study_id"] * 4, *["trial_id"] * 5)  # what an entry is about, by its op_code
BLOCK = 1 << 16  # bytes read at a time from the end


class WholeLines(JournalFileBackend):
    """A file of whole entries, one a line.

    Args:
        path: the file, made if it is missing.

    Raises:
        ValueError: it is no journal; names its first line that is none.
        OSError: it cannot be read or made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # absolute: the lock is a link to it, and one that leads nowhere is waited for in vain
        self._file = Path(path).absolute()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._exclusive = JournalFileSymlinkLock(str(self._file))
        super().__init__(str(self._file), lock_obj=self._exclusive)
        _check(self._file)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add entries; all of them are there afterwards, or none.

        Raises:
            OSError: the file cannot be written.
        """
        text = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        with self._held(), self._file.open("r+b") as file:
            end = _end_of_lines(file.fileno())
            try:
                file.truncate(end)
                file.seek(end)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):  # as far as a full disk lets us
                    os.ftruncate(file.fileno(), end)
                raise

    @contextmanager
    def _held(self) -> Iterator[None]:
        self._exclusive.acquire()
        try:
            yield
        finally:
            self._exclusive.release()


def _check(path: Path) -> None:
    """Raise unless all lines are entries, the last one aside if it is torn; it must not be of another kind of file."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            torn = not line.endswith(b"\n")
            if not (_begins_an_entry(line, first=number == 1) if torn else _is_entry(line)):
                raise ValueError(f"line {number} is no entry of a journal")


def _is_entry(line: bytes) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    if not isinstance(entry, dict) or not isinstance(entry.get("worker_id"), str):
        return False
    operation = entry.get("op_code")
    return type(operation) is int and 0 <= operation < len(NAMED) and NAMED[operation] in entry


def _begins_an_entry(line: bytes, *, first: bool) -> bool:
    """Tell whether a torn line may be cut off: any below a journal's own; in a file without one, only what we wrote."""
    return not first or line.startswith(MARK[: len(line)])


def _end_of_lines(descriptor: int) -> int:
    """Return how many bytes of a file are whole lines."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - BLOCK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
