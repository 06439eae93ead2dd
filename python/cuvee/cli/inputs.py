"""How a mixture is named on the command line: a manifest, or its sources inline."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cuvee.errors import CuveeError

from .output import working

if TYPE_CHECKING:
    from cuvee import Mixture
    from cuvee.mixture.given import GivenMixture

MOST_SHOWN = 1 << 20  # limits up to here are named by the last value they allow
EXHAUSTIONS = ("stop", "cycle", "renormalize")


def integer(low: int, end: int = 2**63) -> Callable[[str], int]:
    """Return a parser of options that hold an integer in [low, end)."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = -1
        if low <= number < end:
            return number
        from cuvee.checks import bound_text
        from cuvee.manifest.records import show

        span = f"{low}..{end - 1}" if end <= MOST_SHOWN else f"[{low}, {bound_text(end)})"
        raise typer.BadParameter(f"must be an integer in {span}, but got {show(text)}")

    return parse


def real(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of options that hold a number in [low, high]."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if low <= number <= high:
            return number
        from cuvee.manifest.records import show

        raise typer.BadParameter(f"must be a number in [{low:g}, {high:g}], but got {show(text)}")

    return parse


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Let errors name the options that were typed, where they name what these became.

    Args:
        options: how an error calls something -> what was typed for it.
    """
    try:
        yield
    except CuveeError as error:
        names = "|".join(re.escape(name) for name in sorted(options, key=len, reverse=True))
        text = re.sub(rf"(?<![\w'\"-])({names})(?![\w'\"])", lambda found: options[found[0]], str(error))
        raise type(error)(text) from error


def _exhaustion(text: str) -> str:
    if text in EXHAUSTIONS:
        return text
    from cuvee.manifest.records import nearest, show

    hint = nearest(text, EXHAUSTIONS)
    raise typer.BadParameter(f"must be stop, cycle or renormalize, but got {show(text)}{hint}")


def _samples_per_epoch(text: str) -> int | str:
    if text == "all_seen":
        return text
    try:
        return integer(1)(text)
    except typer.BadParameter:
        from cuvee.manifest.records import show

        raise typer.BadParameter(f"must be an integer in [1, 2**63) or all_seen, but got {show(text)}") from None


ManifestArgument = Annotated[
    Path | None, typer.Argument(metavar="MANIFEST", help="JSON file that describes the mixture.", show_default=False)
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--dataset-mix-config", metavar="PATH", help="The same as MANIFEST.", show_default=False),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset-source",
        metavar="NAME=PATH:WEIGHT",
        help="Inline mixture: a source; repeat it, at least twice.",
        show_default=False,
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--dataset-mix-seed",
        metavar="N",
        parser=integer(0),
        help="Inline mixture: seed of the order.  [default: 42]",
        show_default=False,
    ),
]
ExhaustionOption = Annotated[
    str | None,
    typer.Option(
        "--dataset-mix-exhaustion",
        metavar="POLICY",
        parser=_exhaustion,
        help="Inline mixture: when a source is used up, stop, cycle or renormalize.  [default: cycle]",
        show_default=False,
    ),
]
SamplesOption = Annotated[
    str | None,
    typer.Option(
        "--dataset-mix-samples-per-epoch",
        metavar="N",
        parser=_samples_per_epoch,
        help="Inline mixture: rows per epoch under cycle, or all_seen.  [default: the sum of rows]",
        show_default=False,
    ),
]
LoaderOption = Annotated[
    str | None,
    typer.Option(
        "--dataset-loader-fn",
        metavar="FILE.py[:FUNCTION]",
        help="Function that makes rows of each source.",
        show_default=False,
    ),
]
LengthColumnOption = Annotated[
    str | None,
    typer.Option(
        "--length-column",
        metavar="NAME",
        help="Column that holds the tokens of each row.",
        show_default=False,
    ),
]
EpochOption = Annotated[
    int, typer.Option("--epoch", metavar="N", parser=integer(0, 2**62), help="Which epoch, from 0 on.")
]


def check_writable(folder: Path, given: Path, option: str) -> None:
    """Raise unless files can be written to a folder, made if it is missing, as far as permissions tell."""
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise CuveeError(f"{option} must be in a folder that can be written to, but got {str(given)!r}")


def files_of_code(**references: str | None) -> dict[str, Path]:
    """Return the files of `FILE.py[:function]`, by what they are: `loader="load.py:rows"` is that of the loader."""
    from cuvee.manifest.outputs import code_file

    return {f"the {what}": code_file(given) for what, given in references.items() if given is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureInput:
    """What the user gave to name a mixture.

    Raises:
        ManifestError: not exactly one form was used.
    """

    manifest: Path | None
    config: Path | None
    sources: list[str]
    seed: int | None
    exhaustion: str | None
    samples_per_epoch: int | str | None
    loader: str | None
    length_column: str | None

    def __post_init__(self) -> None:
        self._given()

    @property
    def path(self) -> Path | None:
        """The manifest's file; None if the mixture is inline."""
        return self.manifest or self.config

    def open(self, *, output: Path | None = None) -> Mixture:
        """Read the description, open every source and return the mixture.

        Args:
            output: a file that will be written, and so must not be one that is read.
        """
        from cuvee import Mixture
        from cuvee.manifest.outputs import check_output
        from cuvee.sources import load_function

        document = self._given().document()
        if output is not None:
            check_output(output, "--output", document, files_of_code(loader=self.loader))
        with working(f"Opening {len(document.sources)} sources"):
            loader = load_function(self.loader) if self.loader is not None else None
            return Mixture.from_manifest(document, loader=loader, length_column=self.length_column)

    def _given(self) -> GivenMixture:
        from cuvee.mixture.given import GivenMixture

        return GivenMixture(
            manifest=self.manifest,
            config=self.config,
            sources=self.sources,
            seed=self.seed,
            exhaustion=self.exhaustion,
            samples_per_epoch=self.samples_per_epoch,
        )
