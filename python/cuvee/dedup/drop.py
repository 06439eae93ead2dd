"""The folder that gets the rows that stay: what its files are called, and that nothing is lost by writing them."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from ..errors import CuveeError
from ..manifest import Manifest
from ..manifest.outputs import file_stem, index_path

MANIFEST, DROPPED, RECEIPT = "mix.deduplicated.json", "dropped.jsonl", "receipt.json"  # beside the indexes
_OURS = {"rule", "overlap", "result_hash"}  # some of what only a receipt of near-duplicates has


def index_names(names: Sequence[str]) -> list[str]:
    """Return what the index of each source is called: on no file system are two of them one file.

    What a file system may refuse is written %XX, as in URLs; of a long name the end becomes a digest of all of it; of
    names that differ in case or Unicode normal form only, the later ones get a number.
    """
    taken: set[str] = set()
    found = []
    for name in names:
        stem = unique = file_stem(name)
        number = 1
        while _folded(unique) in taken:
            number += 1
            unique = f"{stem}-{number}"
        taken.add(_folded(unique))
        found.append(f"{unique}.rows.npy")
    return found


def files_of_drop(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the files that are written for sources of these names."""
    return [folder / name for name in (MANIFEST, DROPPED, RECEIPT, *index_names(names))]


def check_folder(folder: Path, manifest: Manifest) -> None:
    """Check that the rows that stay of a manifest can be written to a folder without a loss.

    Raises:
        CuveeError: the folder has indexes that the manifest names, the receipt of something else, or a folder where a
            file is to be.
    """
    for path in files_of_drop(folder, [spec.name for spec in manifest.sources]):
        if os.path.lexists(path) and not path.is_file():
            raise CuveeError(f"folder must have a file or nothing as {path.name!r}, but got {str(path)!r}")
    if any(spec.rows and index_path(manifest, spec).parent.resolve() == folder.resolve() for spec in manifest.sources):
        raise CuveeError(f"folder must not be that of indexes which are read, but got {str(folder)!r}; name another")
    if (folder / RECEIPT).exists() and not _is_ours(folder / RECEIPT):
        raise CuveeError(
            f"folder must not hold the {RECEIPT} of something else, but got {str(folder)!r}; name another folder"
        )


def _is_ours(path: Path) -> bool:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.keys() >= _OURS


def _folded(name: str) -> str:
    """Return what is equal for names that some file system takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
