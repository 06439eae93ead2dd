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
    from cuvee.report import write_report

    with working("Writing the report"):
        path = write_report(run_dir, output)
    console().print(f"Written to {path}", soft_wrap=True)
