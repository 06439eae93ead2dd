"""What a command writes must not replace what it reads, nor what else it writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import CuveeError
from .locations import resolve_path
from .model import Manifest


def same_place(one: Path, other: Path) -> bool:
    """Tell whether two paths lead to the same place, there or not."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def code_file(reference: str) -> Path:
    """Return the file of `FILE.py[:function]`."""
    return Path(reference if reference.endswith(".py") else reference.rpartition(":")[0] or reference).expanduser()


def check_output(output: Path, option: str, manifest: Manifest, others: Mapping[str, Path] | None = None) -> None:
    """Check that a file can be written without a loss.

    Args:
        output: the file.
        option: what errors call it, such as `--output`.
        manifest: what is read: its sources and the indexes of their rows.
        others: other files that are read or written, by what they are: `{"the loader": Path("load.py")}`.

    Raises:
        CuveeError: it would replace one of them, or a file of a source's folder.
    """
    for spec in manifest.sources:
        source = Path(resolve_path(spec.path, manifest.folder))
        if same_place(output, source) or (output.exists() and Path(os.path.realpath(source)) in _folders(output)):
            raise CuveeError(f"{option} must not replace data, but got {str(output)!r} of source {spec.name!r}")
        if spec.rows is not None and same_place(output, Path(resolve_path(spec.rows, manifest.folder))):
            raise CuveeError(f"{option} must not replace an index, but got {str(output)!r} of source {spec.name!r}")
    for what, path in (others or {}).items():
        if same_place(output, path):
            raise CuveeError(f"{option} must be another file than {what}, but got {str(output)!r}")


def _folders(path: Path) -> tuple[Path, ...]:
    return tuple(Path(os.path.realpath(path)).parents)
