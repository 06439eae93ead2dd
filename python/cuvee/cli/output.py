"""What all commands print with: a console that knows terminals, pipes and NO_COLOR, numbers, and complaints."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from cuvee.errors import INSTALL_HF, SourceError

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160  # columns where nothing says how many there are


def console(*, stderr: bool = False) -> Console:
    """Return a console for stdout (or stderr) that prints text as it is: names are never taken for markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = _width(terminal=stream.isatty())
    return Console(stderr=stderr, width=width, height=25, markup=False, highlight=False, emoji=False)


def _width(*, terminal: bool) -> int:
    """Return COLUMNS where it is a number of columns, else those of the terminal, or enough for a pipe."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and 0 < len(given.lstrip("0")) <= 4:
        return int(given)
    return shutil.get_terminal_size((PIPE_WIDTH, 25)).columns if terminal else PIPE_WIDTH


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON value to stdout, in ASCII so that any pipe carries it."""
    print(json.dumps(value, indent=indent, allow_nan=False))


@contextmanager
def working(on: str) -> Iterator[None]:
    """Say on stderr what is being done, while it is done, if someone watches.

    It may run the user's loader and data: what these print goes to stderr, and they cannot end the program.
    """
    err = console(stderr=True)
    with redirect_stdout(sys.stderr):
        try:
            if not err.is_terminal:
                yield
                return
            with err.status(f"{on} ..."):
                yield
        except SystemExit as error:
            raise SourceError(f"loader and data must not end the program, but got SystemExit: {error}") from error


def complain(text: str) -> None:
    """Print what is wrong to stderr, each line of it marked as an error."""
    from rich.text import Text

    err = console(stderr=True)
    for line in text.splitlines():
        err.print(Text.assemble(("error:", "bold red"), " ", printable(line)), soft_wrap=True)


def printable(text: str) -> str:
    """Return a line of text without anything that a terminal would act on."""
    return "".join(char if char.isprintable() else "�" for char in text)


def sentence_of(error: Exception) -> str:
    """Return what an error says: one of ours as it is, one of the argument parser with the option's name in front."""
    if isinstance(error, ModuleNotFoundError):
        return f"package {error.name!r} must be installed for this, but got none; {INSTALL_HF}"
    message, option = getattr(error, "message", None), getattr(error, "param", None)
    if option is not None and isinstance(message, str) and message.startswith("must "):
        return f"{max(option.opts, key=len)} {message}"
    format_message = getattr(error, "format_message", None)
    return str(format_message() if format_message else error)


def print_wrapped(out: Console, label: str, text: str) -> None:
    """Print a text beside its label, wrapped between words below where it begins."""
    from rich.text import Text

    lines = Text(text).wrap(out, max(out.width - len(label), 10))
    for index, line in enumerate(lines):
        line.rstrip()
        out.print(Text.assemble((" " * len(label) if index else label, "dim"), line))


def number(value: float, digits: int = 0) -> str:
    """Return a number with thousands separated."""
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    """Return a share in percent: two decimals, or two digits where those would hide a tiny share."""
    return f"{share:.2%}" if share == 0 or share >= 0.0001 else f"{100 * share:.1e}%"


def plural(count: int, noun: str) -> str:
    """Return `1 row`, `2,000 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
