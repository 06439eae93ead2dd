"""A run folder as one page: what was asked for, what was given, what was learnt, with nothing to install or fetch."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from ..cache import write_atomically
from ..errors import StateError

__all__ = ["write_report"]


def write_report(run_dir: str | PathLike[str], output: str | PathLike[str] | None = None) -> Path:
    """Write the report of a run, one that is still under way included.

    Args:
        run_dir: the folder that `cuvee train` writes to, or any that `RunLog` did.
        output: the HTML file to write; None is `report.html` in the run's folder.

    Returns:
        The file's path.

    Raises:
        StateError: if the folder holds no run or a damaged one, or the file cannot be written.
    """
    from .history import read_run
    from .page import page_of

    run = read_run(run_dir)
    path = Path(run_dir, "report.html") if output is None else Path(output)
    if path.resolve() in _own_files(Path(run_dir)):
        raise StateError(f"output must not replace a file of the run, but got {os.fspath(path)!r}")
    try:
        write_atomically(path, page_of(run).encode("utf-8", "backslashreplace"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(f"report must be written to a file, but got {os.fspath(path)!r}: {reason}") from None
    return path


def _own_files(folder: Path) -> set[Path]:
    """Return the files that a report is made from."""
    return {path.resolve() for path in (folder / "metrics.jsonl", *folder.glob("dataset_mix_plan.*.json"))}
