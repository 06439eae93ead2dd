"""`cuvee replay`: the weights and the order of a run with online mixing, derived again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import console, plural, print_json, working

DIFFERS = 1

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run of cuvee train --online.", show_default=False)
]
MetricsOption = Annotated[
    Path | None,
    typer.Option(
        "--metrics-log-dir",
        metavar="PATH",
        help="Folder of its metrics.  [default: RUN_DIR]",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def replay(run_dir: RunArgument, *, metrics_log_dir: MetricsOption = None, json: JsonOption = False) -> int:
    """Derive every weight of a run from what its model reported, and the order of its rows from the weights.

    Nothing is trained. Exits with 0 if weights, journal and order are the run's to the bit, else with 1, and says what
    the first difference is.

    Example: cuvee replay runs/2026-11-30
    """
    from cuvee.train.replay import replay_folder

    with working("Replaying"):
        found = replay_folder(run_dir, metrics_log_dir)
    if json:
        print_json({
            "run": str(run_dir),
            "agrees": found.difference is None,
            "updates": found.updates,
            "epochs": found.epochs,
            "ended": found.ended,
            "difference": found.difference,
        })  # fmt: skip
    elif found.difference is not None:
        console().print(f"differs: {found.difference}", soft_wrap=True)
    else:
        done = f"{plural(found.updates, 'update')} and the order of {plural(found.epochs, 'epoch')}"
        end = (
            "" if found.ended else "; the record has no end: the run was killed or goes on, or the record is cut short"
        )
        console().print(f"agrees: {run_dir} ({done}){end}", soft_wrap=True)
    return DIFFERS if found.difference is not None else 0
