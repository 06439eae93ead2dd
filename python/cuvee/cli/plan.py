"""`cuvee plan`: what an epoch will give, before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cuvee.errors import PlanError

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
)
from .output import console, print_json, working

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Also write the plan to a JSON file.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print what --output writes, not a table.")]


def plan(
    manifest: ManifestArgument = None,
    *,
    epoch: EpochOption = 0,
    output: OutputOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
    loader: LoaderOption = None,
    length_column: LengthColumnOption = None,
    source: SourceOption = None,
    seed: SeedOption = None,
    exhaustion: ExhaustionOption = None,
    samples_per_epoch: SamplesOption = None,
) -> None:
    """Show what an epoch gives: rows, repeats and shares of every source, hashes, warnings.

    Example: cuvee plan mix.json --output plan.json
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
    _check_output(output, given)
    mixture = given.open(output=output)
    from cuvee.plan.file import plan_document, write_document

    from .plan_view import print_plan

    with working("Computing the plan"):
        document = plan_document(mixture.plan(epoch))
    if output:
        write_document(document, output)
    if json:
        print_json(document)
        return
    out = console()
    print_plan(out, document)
    if output:
        out.print(f"Written to {output}", soft_wrap=True)


def _check_output(output: Path | None, given: MixtureInput) -> None:
    from cuvee.manifest.outputs import same_place

    if output is None:
        return
    if output.is_dir():
        raise PlanError(f"--output must be a file, but got the folder {str(output)!r}")
    if output.exists() and not output.is_file():
        raise PlanError(f"--output must be a regular file, but got the device or pipe {str(output)!r}; use --json")
    if given.path and same_place(output, given.path):
        raise PlanError(f"--output must be another file than the manifest, but got {str(output)!r}")
