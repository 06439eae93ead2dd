"""`cuvee search`: finds the weights of a mixture with cheap proxy runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import INTERRUPTED
from .inputs import check_writable, integer, options_named
from .output import working

if TYPE_CHECKING:
    from cuvee.search.command import Command
    from cuvee.search.plan import SearchPlan

GIVEN = "NAME=X"
_TYPED = {  # how errors call what was given -> how it was given
    "budget must": "--budget must",
    "fewer audit_seeds": "fewer --audit-seeds",
    "targets must": "--target must",
    "name other losses in targets": "name other losses with --target NAME=1",
    "steps of a proxy run must": "--proxy-steps must",
    "give more, or lower target_tokens": "give more, or lower --target-rows",
    "for target_steps": "for --target-steps",
    "lower must": "--lower must",
    "lower of": "--lower of",
    "upper must": "--upper must",
    "upper of": "--upper of",
    "fixed must": "--fix must",
    "fixed of": "--fix of",
    "give less to lower or fixed": "give less to --lower or --fix",
    "raise upper or max_repetition, or lower target_rows": "raise --upper, --fix or --max-repetition, or lower "
    "--target-rows",
    "upper bounds come from upper, fixed and max_repetition": "upper bounds come from --upper, --fix and "
    "--max-repetition",
    "loader must": "--dataset-loader-fn must",
    "method of study": "--method of study",
    "lower of study": "lower bounds (--lower, --fix, --upper) of study",
    "upper of study": "upper bounds (--upper, --fix, --lower, --max-repetition) of study",
    "targets of study": "--target of study",
    "seed of study": "--seed of study",
    "budget of study": "--budget of study",
    "audit seeds of study": "--audit-seeds of study",
    "target steps of study": "--target-steps of study",
    "runs of a round of study": "--round of study",
    "proxy steps of study": "--proxy-steps of study",
    "proxy of study": "--proxy of study",
    "proxy settings of study": "settings of the proxy, such as --target-rows, of study",
    "score of study": "--score of study",
    "options of study": "options of the method, such as --rungs, of study",
}


def _positive(text: str) -> float:
    """Return a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if 0 < number < float("inf"):
        return number
    from cuvee.manifest.records import show

    raise typer.BadParameter(f"must be finite and above 0, but got {show(text)}")


def _numbers(option: str, given: list[str] | None) -> dict[str, float] | None:
    """Return the numbers of a repeated option NAME=X by name; None if it was not given."""
    if not given:
        return None
    from cuvee.errors import MixtureError

    numbers: dict[str, float] = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not (equals and name and 0 <= number < float("inf")):
            raise MixtureError(f"{option} must be {GIVEN}, with a number of at least 0, but got {text!r}")
        if name in numbers:
            raise MixtureError(f"{option} must be given once for each name, but got {name!r} twice")
        numbers[name] = number
    return numbers


def _option(name: str, metavar: str, help_: str, parser: Callable[[str], object] | None = None) -> object:
    return typer.Option(name, metavar=metavar, help=help_, parser=parser, show_default=False)


def _rungs(given: list[str] | None, method: str) -> list[float]:
    """Return the parts of a run at which mixtures are compared first, rising; none if the option was not given."""
    from cuvee.errors import MixtureError

    parts: list[float] = []
    for text in (part for each in given or [] for part in each.split(",")):
        try:
            parts.append(float(text))
        except ValueError:
            parts.append(0.0)
    if not all(low < high for low, high in pairwise([0.0, *parts, 1.0])):
        raise MixtureError(
            f"--rungs must be parts of a run that rise from above 0 to below 1, but got {','.join(given or [])!r}"
        )
    if parts and method != "auto":
        raise MixtureError(f"--rungs must come with --method auto, but got {method!r}")
    return parts


def _given_once(manifest: Path | None, option: Path | None) -> Path:
    """Return the manifest, given in one of two ways."""
    from cuvee.errors import ManifestError

    given = [
        *([f"MANIFEST {str(manifest)!r}"] if manifest else []),
        *([f"--manifest {str(option)!r}"] if option else []),
    ]
    path = manifest or option
    if path is None or len(given) > 1:
        raise ManifestError(
            f"manifest must be given once, as MANIFEST or --manifest, but got {' and '.join(given) or 'none'}"
        )
    return path


ManifestArgument = Annotated[
    Path | None,
    typer.Argument(metavar="MANIFEST", help="JSON file of the sources that are to be mixed.", show_default=False),
]
ManifestOption = Annotated[Path | None, _option("--manifest", "PATH", "The same as MANIFEST.")]
BudgetOption = Annotated[
    int,
    _option(
        "--budget",
        "N",
        "Whole proxy runs to spend, the audit included; 4 or more. More go on with a search.",
        integer(2, 10**6),
    ),
]
ProxyOption = Annotated[str, _option("--proxy", "NAME", "Model to train on mixtures: tiny.  [default: tiny]")]
StepsOption = Annotated[
    int | None, _option("--proxy-steps", "N", "Optimizer steps of a whole run.  [default: 200]", integer(1, 2**31))
]
ScoreOption = Annotated[
    str | None, _option("--score", "FILE.py:FUNCTION", "Function that trains and returns losses, instead of the proxy.")
]
MethodOption = Annotated[str, _option("--method", "NAME", "auto, bandit, doe, regmix or doremi.  [default: auto]")]
RungsOption = Annotated[
    list[str] | None,
    _option(
        "--rungs", "X[,X...]",
        "Parts of a run after which auto goes on with the best third alone, such as 0.3.  [default: none]",
    ),
]  # fmt: skip
TargetOption = Annotated[
    list[str] | None,
    _option("--target", GIVEN, "Weight of a loss in what is minimised; repeatable.  [default: all, 1]"),
]
TargetStepsOption = Annotated[
    int | None,
    _option("--target-steps", "N", "Compare mixtures by their losses after so many steps, by laws.", integer(1, 2**50)),
]
LowerOption = Annotated[list[str] | None, _option("--lower", GIVEN, "Least share of a source; repeatable.")]
UpperOption = Annotated[list[str] | None, _option("--upper", GIVEN, "Greatest share of a source; repeatable.")]
FixOption = Annotated[list[str] | None, _option("--fix", GIVEN, "Share of a source that is not searched; repeatable.")]
RepetitionOption = Annotated[
    float | None, _option("--max-repetition", "X", "Most passes over a source in --target-rows rows.", _positive)
]
RowsOption = Annotated[
    int | None,
    _option(
        "--target-rows", "N", "Rows of the run that the mixture is for; proxies repeat sources as it does.", integer(1)
    ),
]
SeedOption = Annotated[int, _option("--seed", "N", "Seed of the search.  [default: 0]", integer(0, 2**32))]
AuditOption = Annotated[
    int | None,
    _option(
        "--audit-seeds", "N", "Fresh seeds to compare the answer under.  [default: budget / 12, 1..8]", integer(1, 1001)
    ),
]
RoundOption = Annotated[
    int | None,
    _option("--round", "N", "Runs proposed at a time; most workers.  [default: budget / 8, 1..8]", integer(1, 10**6)),
]
WorkersOption = Annotated[int, _option("--workers", "N", "Processes on this machine.  [default: 1]", integer(1, 1025))]
StorageOption = Annotated[
    str | None,
    _option(
        "--storage", "URL",
        "Where the study is kept: a SQLite file, journal:FILE, or postgresql://USER@HOST/DATABASE.  "
        "[default: RUN/study.db]",
    ),
]  # fmt: skip
StudyOption = Annotated[str | None, _option("--study", "NAME", "Name of the study.  [default: the manifest's]")]
OutputOption = Annotated[
    Path | None, _option("--output-dir", "RUN", "Folder of the search.  [default: runs/search-MANIFEST]")
]
LoaderOption = Annotated[
    str | None, _option("--dataset-loader-fn", "FILE.py[:FUNCTION]", "Function that makes rows of each source.")
]
WriteOption = Annotated[Path | None, _option("--write", "FILE", "Manifest to write, with the learned weights.")]


def search(
    manifest: ManifestArgument = None,
    *,
    budget: BudgetOption,
    manifest_option: ManifestOption = None,
    proxy: ProxyOption = "tiny",
    proxy_steps: StepsOption = None,
    score: ScoreOption = None,
    method: MethodOption = "auto",
    rungs: RungsOption = None,
    target: TargetOption = None,
    target_steps: TargetStepsOption = None,
    lower: LowerOption = None,
    upper: UpperOption = None,
    fix: FixOption = None,
    max_repetition: RepetitionOption = None,
    target_rows: RowsOption = None,
    seed: SeedOption = 0,
    audit_seeds: AuditOption = None,
    round_: RoundOption = None,
    workers: WorkersOption = 1,
    storage: StorageOption = None,
    study: StudyOption = None,
    output_dir: OutputOption = None,
    loader: LoaderOption = None,
    write: WriteOption = None,
) -> None:
    """Find the weights of a mixture with cheap proxy runs, and say what they are worth.

    Stopped at any time, it goes on when called again. On other machines the same call with one --storage helps.

    Example: cuvee search mix.json --budget 64 --workers 2 --write mix.learned.json
    """
    from cuvee.checks import as_choice
    from cuvee.errors import MixtureError
    from cuvee.search.command import Command
    from cuvee.search.from_manifest import STEPS, ManifestSearch
    from cuvee.search.methods import METHODS

    as_choice(method, "--method", list(METHODS), MixtureError)
    options = _rungs(rungs, method)
    if write is not None:
        check_writable(write.parent, write, "--write")
    command = Command(
        search=ManifestSearch(
            manifest=_given_once(manifest, manifest_option),
            budget=budget,
            method=method,
            proxy=proxy,
            proxy_steps=proxy_steps or STEPS,
            score=score,
            loader=loader,
            lower=_numbers("--lower", lower),
            upper=_numbers("--upper", upper),
            fixed=_numbers("--fix", fix),
            max_repetition=max_repetition,
            target_rows=target_rows,
            target_steps=target_steps,
            targets=_numbers("--target", target),
            seed=seed,
            options={"rungs": options} if options else {},
            audit_seeds=audit_seeds,
            round_size=round_,
        ),
        workers=workers,
        storage=storage,
        study=study,
        output_dir=output_dir,
        write=write,
    )
    with options_named(_TYPED):
        _search(command)


def _search(command: Command) -> None:
    """Search, and print the answer; an interrupt says what is done before it ends the program."""
    from cuvee.errors import MixtureError
    from cuvee.search.evidence import receipt_of

    from .search_view import print_answer, print_stopped, progress

    plan: SearchPlan | None = None
    try:
        with working("Opening sources"):
            plan = command.plan().at(command.desk.storage, command.name)
        with progress(plan) as watch:
            runs = command.run(plan, watch)
        with working("Asking again with other samples of the runs"):
            receipt = receipt_of(plan, runs)
            files = command.keep(plan, receipt)
    except KeyboardInterrupt:
        print_stopped(command, plan)
        raise typer.Exit(INTERRUPTED) from None
    except MixtureError:  # of a run
        if plan is not None:
            print_stopped(command, plan, failed=True)
        raise
    print_answer(receipt, plan, files)
