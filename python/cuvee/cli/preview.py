"""`cuvee preview`: the rows at some positions of an epoch, in the order training will see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cuvee.errors import PlanError, SourceError

from .inputs import (
    ConfigOption,
    EpochOption,
    ExhaustionOption,
    LengthColumnOption,
    LoaderOption,
    ManifestArgument,
    MixtureInput,
    SamplesOption,
    SeedOption,
    SourceOption,
    integer,
)
from .output import console, print_json, printable, working

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from cuvee import Plan

MAX_COUNT = 100_000
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")

StartOption = Annotated[int, typer.Option("--start", metavar="N", parser=integer(0), help="First position.")]
CountOption = Annotated[
    int,
    typer.Option("--count", "-n", metavar="N", parser=integer(1, MAX_COUNT + 1), help="How many rows, up to 100,000."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print a JSON object per line, with whole rows.")]


def preview(
    manifest: ManifestArgument = None,
    *,
    start: StartOption = 0,
    count: CountOption = 10,
    epoch: EpochOption = 0,
    json: JsonOption = False,
    config: ConfigOption = None,
    loader: LoaderOption = None,
    length_column: LengthColumnOption = None,
    source: SourceOption = None,
    seed: SeedOption = None,
    exhaustion: ExhaustionOption = None,
    samples_per_epoch: SamplesOption = None,
) -> None:
    """Show rows of an epoch in the order of training; long fields are cut to a line.

    Example: cuvee preview mix.json --start 1000 -n 3
    """
    given = MixtureInput(
        manifest=manifest,
        config=config,
        sources=source or [],
        seed=seed,
        exhaustion=exhaustion,
        samples_per_epoch=samples_per_epoch,
        loader=loader,
        length_column=length_column,
    )
    plan = given.open().plan(epoch)
    if start >= len(plan):
        raise PlanError(f"--start must be in [0, {len(plan)}), the epoch's positions, but got {start}")
    with working("Reading rows"):
        records = list(_records(plan, start, min(start + count, len(plan))))
    if json:
        for record in records:
            print_json(record, indent=None)
        return
    out = console()
    for record in records:
        _print_record(out, record)


def _records(plan: Plan, start: int, stop: int) -> Iterator[dict[str, Any]]:
    """Yield what stands at each position, as JSON values."""
    draws = plan.draws(start, stop)
    passes = plan.passes(draws)
    for index, position in enumerate(range(start, stop)):
        draw = plan[position]
        yield {
            "position": position,
            "source": draw.name,
            "row": draw.row,
            "cycle": draw.cycle,
            "filtered": not passes[index],
            "data": _plain(_read(plan, draw.source, draw.row)),
        }


def _read(plan: Plan, source: int, row: int) -> object:
    try:
        return plan.sources[source].data[row]
    except Exception as error:  # data and loaders are the user's: whatever they raise
        kind = type(error).__name__
        raise SourceError(
            f"source {plan.names[source]!r}: row {row} must be readable, but got {kind}: {error}"
        ) from error


def _plain(value: object) -> Any:
    """Return `value` as JSON values; what JSON does not have becomes a text that describes it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no nan and no inf
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    as_list = getattr(value, "tolist", None)  # NumPy arrays and scalars, tensors
    return _plain(as_list()) if as_list else str(value)


def _print_record(out: Console, record: dict[str, Any]) -> None:
    from rich.text import Text

    name, data = record["source"], record["data"]
    skipped = ("  over the length limit, skipped", "yellow") if record["filtered"] else ""
    out.print(
        Text.assemble(
            (f"{record['position']:,}", "bold"), "  ", (name, f"bold {_colour(name)}"),
            (f"  row {record['row']:,}, cycle {record['cycle']}", "dim"), skipped,
        )
    )  # fmt: skip
    fields = data if isinstance(data, dict) else {"": data}
    width = min(max(map(len, fields), default=0), 20)
    for field, value in fields.items():
        out.print(_line(field, value, width, out.width))


def _line(field: str, value: object, label_width: int, width: int) -> Text:
    """Return one line of a row: the field, and as much of its value as fits."""
    from rich.text import Text

    line = Text.assemble("  ", (f"{_one_line(field):{label_width}}", "dim"), "  ", _one_line(value))
    line.truncate(width, overflow="ellipsis")
    return line


def _one_line(value: object) -> str:
    return printable(" ".join(str(value)[:2000].split()))


def _colour(name: str) -> str:
    """Return a colour that a source keeps in every preview."""
    return COLOURS[sum(name.encode()) % len(COLOURS)]
