"""Files that commands write: what they may be called, and that they replace nothing that is read or written besides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .. import _core
from ..errors import CuveeError
from .locations import resolve_path
from .model import Manifest, SourceSpec

UNSAFE = '/\\:*?"<>|%'  # in a file's name, on one system or another
LONGEST = 100  # bytes of a name in a file's, which takes 143 with all that is added on any system


def same_place(one: Path, other: Path) -> bool:
    """Tell whether two paths lead to the same place, there or not."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def code_file(reference: str) -> Path:
    """Return the file of `FILE.py[:function]`."""
    return Path(reference if reference.endswith(".py") else reference.rpartition(":")[0] or reference).expanduser()


def index_path(manifest: Manifest, spec: SourceSpec) -> Path:
    """Return the file of the rows to keep that a source of a manifest names."""
    return manifest.folder / Path(str(spec.rows)).expanduser()


def file_stem(name: str) -> str:
    """Return a name as part of that of a file: without what a file system may refuse, and not too long."""
    escaped = "".join(f"%{ord(char):02X}" if char in UNSAFE else char for char in name)
    escaped = escaped if not escaped.startswith(".") else f"%2E{escaped[1:]}"
    content = escaped.encode()
    if len(content) <= LONGEST:
        return escaped
    digest = _core.Digest()
    digest.update(content)
    return f"{content[: LONGEST - 17].decode(errors='ignore')}-{digest.hexdigest()[:16]}"


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
        if spec.rows is not None and same_place(output, index_path(manifest, spec)):
            raise CuveeError(f"{option} must not replace an index, but got {str(output)!r} of source {spec.name!r}")
    for what, path in (others or {}).items():
        if same_place(output, path):
            raise CuveeError(f"{option} must be another file than {what}, but got {str(output)!r}")


def _folders(path: Path) -> tuple[Path, ...]:
    return tuple(Path(os.path.realpath(path)).parents)
