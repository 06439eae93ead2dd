"""`cuvee report`: a run folder as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import console, working

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN_DIR", help="Folder that cuvee train writes to.", show_default=False)
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="HTML file to write.  [default: RUN_DIR/report.html]",
        show_default=False,
    ),
]


def report(run_dir: RunArgument, *, output: OutputOption = None) -> None:
    """Write the report of a run, finished or not: one HTML page with charts that needs no network.

    Example: cuvee report runs/2026-11-30
    """
    from cuvee.errors import StateError
    from cuvee.report import write_report
    from cuvee.run_log import METRICS_FILE
    from cuvee.search.command import RECEIPT, REPORT

    if (run_dir / RECEIPT).exists() and not (run_dir / METRICS_FILE).exists():
        raise StateError(
            f"run folder must be of a training, but got {str(run_dir)!r} of a search; its page is {run_dir / REPORT}"
        )
    with working("Writing the report"):
        path = write_report(run_dir, output)
    console().print(f"Written to {path}", soft_wrap=True)
