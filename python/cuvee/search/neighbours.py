"""Who works on a study, and who is gone: a sign of life of every worker, kept in the study itself.

A worker counts its sign up every few seconds. Others take it for gone if the count stood still for a while on their own
clocks, so that clocks need not agree; where it ran on the same machine, if its process is no more.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PREFIX = "worker "
BEAT_SECONDS = 10.0
GRACE_SECONDS = 60.0  # without a sign, after which a worker on another machine is taken for gone


def place() -> str:
    """Return what tells apart machines, restarts of one, and containers on it, as far as the system says."""
    host = os.uname().nodename
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
        space = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return host
    return f"{host}/{boot}/{space}"


def identity() -> str:
    """Return a name for this process that no other ever has."""
    return f"{place()}/{os.getpid()}/{_started(os.getpid())}"


def _started(pid: int) -> str:
    """Return when a process began, in the system's ticks, "" if there is none: numbers of processes come again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _seen(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _seen(pid: int) -> str:
    """Return a word for a process that there is, where the system does not say when it began."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "there"


@dataclass(slots=True)
class Neighbours:
    """The workers of a study as one of them sees them.

    Args:
        read: returns all attributes of the study.
        grace: seconds without a sign after which a worker on another machine is gone.
    """

    read: Callable[[], Mapping[str, Any]]
    grace: float = GRACE_SECONDS
    _last: dict[str, tuple[int, float]] = field(default_factory=dict)

    def alive(self) -> dict[str, bool]:
        """Return the workers that are there, in the order of their names, and whether each is busy with a run."""
        now, found = time.monotonic(), {}
        for key, sign in sorted(self.read().items()):
            worker = key.removeprefix(PREFIX)
            if key.startswith(PREFIX) and self._is_there(worker, sign, now):
                found[worker] = bool(sign["busy"])
        return found

    def _is_there(self, worker: str, sign: Mapping[str, Any], now: float) -> bool:
        if sign["gone"]:
            return False
        where, pid, started = worker.rsplit("/", 2)
        if where == place():
            return _started(int(pid)) == started
        count, since = self._last.get(worker, (-1, now))
        if sign["beat"] != count:
            self._last[worker] = (sign["beat"], now)
            return True
        return now - since < self.grace


class Heart:
    """This worker's signs of life, given by a thread while it is open.

    Args:
        write: stores an attribute of the study.
        worker: this worker's name.
        every: seconds between two signs.
    """

    def __init__(self, write: Callable[[str, Any], None], worker: str, every: float = BEAT_SECONDS) -> None:
        self._write, self._worker, self._every = write, worker, every
        self._beat, self._busy = 0, False
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._go_on, name="signs of life", daemon=True)
        self.failure: Exception | None = None

    def __enter__(self) -> Self:
        self._sign()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is None:
            self._sign(gone=True)

    def busy(self, *, busy: bool) -> None:
        """Say whether this worker is at a run."""
        if busy != self._busy:
            self._busy = busy
            self._sign()

    def _go_on(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._sign()
            except Exception as error:  # told by the worker, who looks here
                self.failure = error
                return

    def _sign(self, *, gone: bool = False) -> None:
        with self._lock:
            self._beat += 1
            self._write(f"{PREFIX}{self._worker}", {"beat": self._beat, "busy": self._busy, "gone": gone})
