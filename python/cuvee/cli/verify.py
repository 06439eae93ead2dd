"""`cuvee verify`: whether a plan file, a state or a checkpoint still fits the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .inputs import (
    ConfigOption,
    ExhaustionOption,
    LengthColumnOption,
    LoaderOption,
    ManifestArgument,
    MixtureInput,
    SamplesOption,
    SeedOption,
    SourceOption,
)
from .output import console, plural, print_json, print_wrapped, working

if TYPE_CHECKING:
    from cuvee.plan.checkpoint import Difference
    from cuvee.plan.verification import Record

DIFFERS = 1

RecordArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Plan file, state or checkpoint.", show_default=False)
]
JournalOption = Annotated[
    Path | None,
    typer.Option("--journal", metavar="FILE", help="Journal of the run, where a state names one.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def verify(
    record: RecordArgument,
    manifest: ManifestArgument = None,
    *,
    journal: JournalOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
    loader: LoaderOption = None,
    length_column: LengthColumnOption = None,
    source: SourceOption = None,
    seed: SeedOption = None,
    exhaustion: ExhaustionOption = None,
    samples_per_epoch: SamplesOption = None,
) -> int:
    """Compare a plan file, a state or a checkpoint with the data as they are now.

    Exits with 0 if everything agrees, with 1 if not, naming what differs.

    Example: cuvee verify plan.json mix.json
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
    from cuvee.plan.verification import compare, lengths_compared, read_record

    found = read_record(record)
    mixture = given.open()
    with working("Comparing"):
        differences = compare(found, mixture, journal=journal)
    if json:
        print_json(_report(record, found, differences))
    elif differences:
        _print_differences(record, found, differences)
    else:
        _print_agreement(record, found, counted=lengths_compared(found, mixture))
    return DIFFERS if differences else 0


def _report(path: Path, record: Record, differences: list[Difference]) -> dict[str, Any]:
    return {
        "file": str(path),
        "kind": record.kind,
        "place": record.place,
        "agrees": not differences,
        "differences": [
            {"source": change.source, "field": change.field, "was": change.was, "now": change.now}
            for change in differences
        ],
    }


def _print_agreement(path: Path, record: Record, *, counted: bool) -> None:
    from rich.text import Text

    sources = plural(len(record.spec["sources"]), "source")
    what = f"{record.kind} of epoch {record.content['epoch']}, {sources}"
    out = console()
    out.print(Text.assemble(("agrees:", "bold green"), f" {path} ({what})"), soft_wrap=True)
    if record.kind == "plan" and record.changed:
        out.print("The order was not compared: weights were updated, which only the run's journal knows.")
    if not counted:
        out.print("Tokens were not compared: they were counted by the training's tokenizer.")


def _print_differences(path: Path, record: Record, differences: list[Difference]) -> None:
    from rich.text import Text

    from cuvee.plan.change import MAY_CHANGE

    out = console()
    title = f" {path} ({record.kind} of epoch {record.content['epoch']}), {plural(len(differences), 'difference')}"
    out.print(Text.assemble(("differs:", "bold red"), title), soft_wrap=True)
    width = max(len(change.field) for change in differences) + 4
    last: str | None = ""
    for change in differences:
        if change.source != last:
            out.print()
            out.print(Text("mixture" if change.source is None else f"source {change.source!r}", "bold"))
            last = change.source
        print_wrapped(out, f"  {change.field:{width - 2}}was ", _shown(change.was))
        print_wrapped(out, " " * width + "now ", _shown(change.now))
    out.print()
    if record.kind == "state" and all(change.source and change.field in MAY_CHANGE for change in differences):
        names = sorted({str(change.source) for change in differences})
        out.print(f"To go on over the new data: load_state_dict(..., accept_changes={names})", soft_wrap=True)


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
