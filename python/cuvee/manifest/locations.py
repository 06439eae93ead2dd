"""Where a source's path points: a local file or folder, or somewhere else (Hub reference, URL)."""

import os
import re
from pathlib import Path, PureWindowsPath

_DATA_SUFFIX = re.compile(r"\.(json|jsonl|ndjson|parquet|csv|tsv|arrow)(\.(gz|zst))?$", re.IGNORECASE)
_HUB_REFERENCE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+|[\w.-]+(?=:))(:[^:]*(:.+)?)?")


def is_local(path: str, folder: Path) -> bool:
    """Tell whether `path` is a local file or folder, as seen from `folder`.

    What has the form `repo/name[:config[:split]]` is a Hub reference unless it ends like a data file, it exists below
    `folder`, or `repo` is a folder there; a leading `./` makes any path local.
    """
    if "://" in path:
        return False
    match = _HUB_REFERENCE.fullmatch(path)
    if match is None or _DATA_SUFFIX.search(path) or path.startswith("."):
        return True
    place = folder / path
    return os.path.exists(place) or ("/" in match["repo"] and place.parent.is_dir())  # noqa: PTH110  (Path's may fail)


def resolve_path(path: str, folder: Path) -> str:
    """Return `path` as it can be opened from anywhere: a local one absolute, any other unchanged."""
    if PureWindowsPath(path).drive or not is_local(path, folder):
        return path
    return os.path.normpath(folder / os.path.expanduser(path))  # noqa: PTH111  (Path's fails for unknown users)


def move_path(path: str, folder: Path, new_folder: Path) -> str:
    """Return the path that means from `new_folder` what `path` means from `folder`."""
    return move_file(path, folder, new_folder) if is_local(path, folder) else path


def move_file(path: str, folder: Path, new_folder: Path) -> str:
    """Return what `move_path` does for a path that can only be a local one."""
    anchored = Path(path).is_absolute() or path.startswith("~") or PureWindowsPath(path).drive
    if anchored or folder == new_folder:
        return path
    relative = os.path.relpath(folder / path, new_folder)
    return relative if relative.startswith("..") else f"./{relative}"
