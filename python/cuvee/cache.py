"""Where computed things are kept between runs, and how a file is written so that it is whole or absent."""

import errno
import os
import secrets
import sys
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
        path: where to write; missing folders are made. Where it is a link, the file that it points to is replaced.
        content: all bytes of the file.

    Raises:
        OSError: the folder cannot be made or written, or what is there is no regular file (a device, pipe, folder).
    """
    path = Path(os.path.realpath(path))
    if os.path.lexists(path) and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with scratch.open("xb") as file:  # with the permissions that the user's umask gives, unlike tempfile
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last through a crash of the machine, where folders can be synced."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
