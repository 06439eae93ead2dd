"""Where the arrays of a comparison lie: in memory, or in files, from which a comparison that was stopped goes on."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..cache import write_atomically
from ..errors import StateError

_FILE = "work.json"


class Workspace:
    """Arrays in memory up to a limit and in files beyond it; all of them in files where a folder was named.

    Args:
        folder: where files lie.
        keep: whether the files are kept, so that the same comparison can go on in this folder.
        memory: bytes of arrays that may lie in memory.
    """

    def __init__(self, folder: Path, *, keep: bool, memory: int) -> None:
        self.folder = folder
        self.keeps = keep
        self._memory = memory
        self._mapped: dict[str, np.memmap[Any, Any]] = {}
        self._done: dict[str, int] = {}
        self._identity: object = None

    def go_on(self, identity: Mapping[str, Any]) -> None:
        """Begin a comparison in a folder that is kept, or go on with the one that it holds.

        Args:
            identity: all that decides the content of the arrays.

        Raises:
            StateError: the folder holds another comparison.
        """
        self._identity = json.loads(json.dumps(identity))
        path = self.folder / _FILE
        if not path.exists():
            self._write()
            return
        done = _noted(path.read_bytes(), self._identity)
        if done is None:
            raise StateError(
                f"work folder must be that of the same documents and settings, but got {str(self.folder)!r} of "
                "others; name another folder, or remove this one"
            )
        self._done = done

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, *, stage: str | None = None) -> NDArray[Any]:
        """Return an array for this purpose; in a folder that is kept, with what was written to it before.

        Args:
            name: of the array.
            shape: its shape.
            dtype: of its values.
            stage: whose work it holds, which begins anew where the file is gone; None: it is written anew each time.
        """
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if size == 0 or (not self.keeps and size <= self._memory):
            self._memory -= size
            return np.empty(shape, dtype)
        path = self.folder / f"{name}.bin"
        mode = "r+" if path.exists() and path.stat().st_size == size else "w+"
        if self.keeps and mode == "w+" and stage is not None and self._done.pop(stage, 0):
            self._write()  # before there is a file of that size again, which nothing would tell from the other
        mapped: np.memmap[Any, Any] = np.memmap(path, dtype, mode, shape=shape)  # type: ignore[call-overload]
        self._mapped[name] = mapped
        return mapped

    def done(self, stage: str) -> int:
        """Return how many blocks of a stage lie in the arrays already."""
        return self._done.get(stage, 0)

    def mark(self, stage: str, blocks: int) -> None:
        """Note that the first blocks of a stage are done, once they are sure to be on disk."""
        self._done[stage] = blocks
        if self.keeps:
            for mapped in self._mapped.values():
                mapped.flush()
            self._write()

    def _write(self) -> None:
        document = {"identity": self._identity, "done": self._done}
        write_atomically(self.folder / _FILE, json.dumps(document).encode())


def _noted(content: bytes, identity: object) -> dict[str, int] | None:
    """Return how many blocks of each stage are done by what a folder notes; None if it is of another comparison."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("identity") != identity:
        return None
    done = found.get("done")
    whole = isinstance(done, dict) and all(type(blocks) is int for blocks in done.values())
    return done if whole else None


@contextmanager
def workspace(folder: str | os.PathLike[str] | None, memory: int | None) -> Iterator[Workspace]:
    """Open a work folder; without one, a temporary one that is removed at the end.

    Args:
        folder: to be kept, and gone on from.
        memory: bytes of arrays in memory; None is half of what is free.

    Raises:
        StateError: the folder is none, or cannot be made.
    """
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise StateError(f"work folder must be a path, but got {folder!r}")
    limit = _free_memory() // 2 if memory is None else memory
    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"work folder must be a folder, but got {str(folder)!r}: {error.strerror}") from None
        yield Workspace(Path(folder), keep=True, memory=limit)
        return
    with tempfile.TemporaryDirectory(prefix="cuvee-dedup-") as scratch:
        yield Workspace(Path(scratch), keep=False, memory=limit)


def _free_memory() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 4 << 30
