"""`cuvee dedup`: near-duplicates within and between the sources of a manifest, and evaluation documents in them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cuvee.errors import CuveeError, ManifestError

from .inputs import LoaderOption, check_writable, files_of_code, integer, options_named, real
from .output import console, print_json

if TYPE_CHECKING:
    from cuvee.dedup.receipt import Deduplication, Engine
    from cuvee.dedup.result import Keep
    from cuvee.dedup.rule import Shingle
    from cuvee.manifest import Manifest

LONGEST_NAME = 237  # bytes of a file's, which gets 18 more while it is written, of 255
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TYPED = {  # how errors call what was given -> how it was given
    "the column of documents": "--column",
    "name the column": "name it with --column",
    "evaluation sets must have": "--evaluation sets must have",
    "work folder must": "--work-folder must",
    "engine ray": "--engine ray",
    "folder must not be that of indexes": "--drop must not be the folder of indexes",
    "folder must not hold": "--drop must not hold",
    "folder must have a file": "--drop must have a file",
    'keep the "first"': "take --keep first",
    "loader must": "--dataset-loader-fn must",
}


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(iB|B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"must be bytes, such as 500M or 4G, but got {text!r}")
    return int(match[1]) * _UNITS[match[2].upper()]


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            from cuvee.checks import nearest

            raise typer.BadParameter(f"must be {' or '.join(choices)}, but got {text!r}{nearest(text, choices)}")
        return text

    return parse


ManifestArgument = Annotated[
    Path, typer.Argument(metavar="MANIFEST", help="JSON file that names the sources.", show_default=False)
]
EvaluationOption = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluation",
        metavar="NAME=PATH",
        help="Evaluation set: what is like it in the sources, or contains some of it, goes; repeatable.",
        show_default=False,
    ),
]
ThresholdOption = Annotated[
    float,
    typer.Option(
        "--threshold", metavar="J", parser=real(0.01, 1), help="Least Jaccard similarity of near-duplicates, 0.01..1."
    ),
]
ContainmentOption = Annotated[
    float,
    typer.Option(
        "--containment",
        metavar="C",
        parser=real(0.01, 1),
        help="Least share of its shingles that a document must have to contain one of an evaluation set, 0.01..1.",
    ),
]
ShingleOption = Annotated[
    str,
    typer.Option(
        "--shingle",
        metavar="UNIT",
        parser=_one_of("words", "characters"),
        help="What shingles are made of: words or characters.",
    ),
]
SizeOption = Annotated[
    int, typer.Option("--shingle-size", metavar="N", parser=integer(1, 2**31), help="How many of them are a shingle.")
]
CaseOption = Annotated[bool, typer.Option("--case-sensitive", help="Tell upper case from lower case.")]
HashesOption = Annotated[
    int, typer.Option("--num-hashes", metavar="N", parser=integer(1, 2**16), help="Hashes of a MinHash signature.")
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", parser=integer(0), help="Seed of the MinHash.")]
KeepOption = Annotated[
    str,
    typer.Option(
        "--keep",
        metavar="WHICH",
        parser=_one_of("longest", "first"),
        help="Which document of a cluster stays: the longest or the first.",
    ),
]
ColumnOption = Annotated[
    str | None,
    typer.Option("--column", metavar="NAME", help="Column that holds the documents.", show_default=False),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine", metavar="NAME", parser=_one_of("local", "ray"), help="Where to work: local, or a ray cluster."
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", parser=integer(1, 1025), help="Threads.  [default: all cores]", show_default=False
    ),
]
WorkOption = Annotated[
    Path | None,
    typer.Option(
        "--work-folder",
        metavar="FOLDER",
        help="Keep files here, and go on from them when stopped.",
        show_default=False,
    ),
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory-limit",
        metavar="BYTES",
        parser=_bytes,
        help="Memory of arrays, beyond which they go to files: 4G.  [default: half of what is free]",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the receipt to a JSON file.", show_default=False),
]
DropOption = Annotated[
    Path | None,
    typer.Option(
        "--drop",
        metavar="FOLDER",
        help="Write a manifest over the rows that stay, with an index for each source.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the receipt, not a table.")]


def dedup(
    manifest: ManifestArgument,
    *,
    evaluation: EvaluationOption = None,
    threshold: ThresholdOption = 0.8,
    containment: ContainmentOption = 0.8,
    shingle: ShingleOption = "words",
    shingle_size: SizeOption = 5,
    case_sensitive: CaseOption = False,
    num_hashes: HashesOption = 64,
    seed: SeedOption = 0,
    keep: KeepOption = "longest",
    column: ColumnOption = None,
    drop: DropOption = None,
    output: OutputOption = None,
    engine: EngineOption = "local",
    threads: ThreadsOption = None,
    memory_limit: MemoryOption = None,
    work_folder: WorkOption = None,
    loader: LoaderOption = None,
    json: JsonOption = False,
) -> None:
    """Find near-duplicates within and between sources, and what they share with or contain of evaluation sets.

    Example: cuvee dedup mix.json --evaluation test=test.jsonl --drop kept
    """
    from cuvee.dedup.rule import Rule
    from cuvee.manifest import load

    from .dedup_view import print_receipt

    rule = Rule(
        threshold=threshold,
        shingle=cast("Shingle", shingle),
        shingle_size=shingle_size,
        lowercase=not case_sensitive,
        num_hashes=num_hashes,
        seed=seed,
    )
    sets = _evaluation_sets(evaluation or [])
    document = load(manifest)
    _check_outputs(output, drop, work_folder)
    read = {"the manifest": manifest} | {f"evaluation set {name!r}": Path(path) for name, path in sets.items()}
    _check_replaced(document, output, drop, read | files_of_code(loader=loader))
    with options_named(_TYPED | {f"source {name!r}": f"--evaluation {name!r}" for name in sets}):
        found = _compared(
            document,
            loader,
            rule=rule,
            keep=cast("Keep", keep),
            evaluation=sets,
            containment=containment,
            column=column,
            engine=cast("Engine", engine),
            threads=threads,
            work_folder=work_folder,
            memory_limit=memory_limit,
        )
        receipt = found.receipt()
        written = _written(found, receipt, output, drop)
    if json:
        print_json(receipt)
        return
    print_receipt(receipt, dropped=drop is not None)
    for path in written:
        console().print(f"Written to {path}", soft_wrap=True)
    if drop is not None and loader is not None:
        console().print(f"Use it with --dataset-loader-fn {loader}, whose rows it numbers", soft_wrap=True)


def _compared(document: Manifest, loader: str | None, **settings: Any) -> Deduplication:
    """Compare all documents; the user's loader may print, which then goes to stderr."""
    from cuvee.dedup.receipt import deduplicate
    from cuvee.sources import load_function

    from .dedup_view import progress

    with progress() as watch:
        function = None if loader is None else load_function(loader)
        return deduplicate(document, loader=function, progress=watch, **settings)


def _evaluation_sets(given: Sequence[str]) -> dict[str, str]:
    from cuvee.checks import as_name

    sets: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise ManifestError(f"--evaluation must be NAME=PATH, but got {text!r}")
        as_name(name, ManifestError, of="--evaluation")
        if name in sets:
            raise ManifestError(f"--evaluation must name each set once, but got {name!r} twice")
        sets[name] = path
    return sets


def _check_outputs(output: Path | None, drop: Path | None, work_folder: Path | None) -> None:
    if output is not None and (output.is_dir() or (output.exists() and not output.is_file())):
        raise CuveeError(f"--output must be a regular file, but got {str(output)!r}")
    if drop is not None and drop.exists() and not drop.is_dir():
        raise CuveeError(f"--drop must be a folder, but got the file {str(drop)!r}")
    if work_folder is not None and work_folder.exists() and not work_folder.is_dir():
        raise CuveeError(f"--work-folder must be a folder, but got the file {str(work_folder)!r}")
    for path, option in ((output, "--output"), (drop, "--drop"), (work_folder, "--work-folder")):
        if path is not None and any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
            raise CuveeError(f"{option} must have names of at most {LONGEST_NAME} bytes, but got {str(path)!r}")
    if output is not None and work_folder is not None and work_folder.resolve() in output.resolve().parents:
        raise CuveeError(f"--output must not be in --work-folder, but got {str(output)!r}; name another file")
    if output is not None:
        check_writable(output.parent, output, "--output")
    for folder, option in ((drop, "--drop"), (work_folder, "--work-folder")):
        if folder is not None:
            check_writable(folder, folder, option)


def _check_replaced(document: Manifest, output: Path | None, drop: Path | None, read: Mapping[str, Path]) -> None:
    """Check that no file to be written replaces one that is read, or another that is written."""
    from cuvee.dedup.drop import check_folder, files_of_drop
    from cuvee.manifest.outputs import check_output, same_place

    written = files_of_drop(drop, [spec.name for spec in document.sources]) if drop is not None else []
    if any(same_place(path, read["the manifest"]) for path in written):
        raise CuveeError(f"--drop must be another folder than that of the manifest, but got {str(drop)!r}")
    for path in written:
        check_output(path, "--drop", document, read)
    if drop is not None:
        with options_named(_TYPED):
            check_folder(drop, document)
    if output is not None:
        check_output(output, "--output", document, dict(read) | {f"{path.name} of --drop": path for path in written})


def _written(found: Deduplication, receipt: dict[str, Any], output: Path | None, drop: Path | None) -> list[Path]:
    import json

    from cuvee.cache import write_atomically

    written = []
    if output is not None:  # first, as of some sources nothing may stay
        write_atomically(output, (json.dumps(receipt, indent=2) + "\n").encode())
        written.append(output)
    if drop is not None:
        written.append(found.write_kept(drop))
    return written
