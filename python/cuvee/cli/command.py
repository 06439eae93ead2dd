"""The subcommands as one, and what each error of theirs means to a shell."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, cast

import typer

from cuvee.errors import CuveeError

from . import INTERRUPTED, dedup, plan, preview, replay, report, schema, search, train, verify
from .output import complain, sentence_of

BAD_INPUT = 2
ClickException = cast(
    "type[Exception]", typer.BadParameter.__mro__[2]
)  # newer typers carry their own click, older ones import it
Abort = cast("type[Exception]", typer.Abort)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command("plan", short_help="Show what an epoch will give.")(plan.plan)
app.command("preview", short_help="Show rows in the order of training.")(preview.preview)
app.command("verify", short_help="Compare a plan or checkpoint with the data.")(verify.verify)
app.command("train", cls=train.GroupedCommand, short_help="Train a model on a mixture.")(train.train)
app.command("search", short_help="Find the weights of a mixture.")(search.search)
app.command("replay", short_help="Derive the weights of a run again.")(replay.replay)
app.command("report", short_help="Make a page of charts of a run.")(report.report)
app.command("dedup", short_help="Find near-duplicates in the sources.")(dedup.dedup)
app.command("schema", short_help="Print the JSON Schema of manifests.")(schema.schema)


@app.callback(invoke_without_command=True)
def cuvee(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,  # noqa: FBT002
) -> None:
    """Mix datasets in exact proportions, in an order that can be resumed anywhere.

    Exit codes: 0 all is well, 1 `verify` or `replay` found a difference, 2 something given is wrong.
    """
    if version:
        from cuvee import __version__

        typer.echo(f"cuvee {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str] | None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: what stands after `cuvee`; None takes them from `sys.argv`.
    """
    if sys.stderr is None:  # closed by whoever started us
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stdout is None:
        complain("stdout must be open to print to, but got a closed one; send it to /dev/null if it is not wanted")
        return BAD_INPUT
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")  # of loaders that use `map`
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a name must not stop us
    try:
        code = app(args=arguments, prog_name="cuvee", standalone_mode=False)
        sys.stdout.flush()  # here, where it can still be told that there is no room
    except Abort:  # how an interrupt arrives here
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        _drop_output()
        return 1
    except (CuveeError, ClickException, ModuleNotFoundError) as error:
        complain(sentence_of(error))
        return BAD_INPUT
    except OSError as error:  # a full disk behind stdout, a file that went away while it was read
        if error.filename is None:
            _drop_output()
        name = "stdout" if error.filename is None else f"file {error.filename!r}"
        complain(f"{name} must be usable, but got: {error.strerror or error}")
        return BAD_INPUT
    return code if isinstance(code, int) else 0


def _drop_output() -> None:
    """Let what is left to print go nowhere, so that Python does not fail once more when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
