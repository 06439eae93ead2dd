"""Where computed things are kept between runs, and how a file is written so that it is whole or absent."""

import os
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for what can be computed again: CUVEE_CACHE, or `cuvee` in the platform's user cache folder."""
    given = os.environ.get("CUVEE_CACHE")
    if given:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "cuvee"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "cuvee" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuvee"


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` so that any reader, at any time, sees the old file or the whole new one.

    Args:
        path: where to write; missing folders are made.
        content: all bytes of the file.

    Raises:
        OSError: the folder cannot be made or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
