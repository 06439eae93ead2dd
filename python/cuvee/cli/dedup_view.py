"""How near-duplicates look on a terminal: progress, what each source has, what they share, what they contain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations, zip_longest
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, chop_cells
from rich.text import Text

from .output import console, number, percent, plural, print_wrapped, printable, working

if TYPE_CHECKING:
    from rich.console import Console

    from cuvee.dedup.comparison import Progress

STAGES = {"sketches": "Reading documents", "pairs": "Verifying pairs", "quotes": "Looking for tests"}
COUNTS = {"documents": "documents", "alike": "near_duplicates", "copies": "exact_copies", "stay": "kept"}
MOST_PAIRS = 20  # of sources, in the table of what they share; the receipt has all
MOST_NAMES = 5  # of sources whose documents are in the same column
LEAST_NAME = 12  # columns of a terminal for a name; with fewer there is a block of lines in place of a row


@contextmanager
def progress() -> Iterator[Progress | None]:
    """Show a bar for each stage on a terminal; the user's loader may print, which then goes to stderr.

    Yields:
        What is to be called with (stage, done, of how many); None where nobody watches.
    """
    err = console(stderr=True)
    if not err.is_terminal:
        with working("Comparing"):
            yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, of: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(STAGES[stage], total=of)
            bars.update(tasks[stage], completed=done)

        yield show


def print_receipt(receipt: Mapping[str, Any], *, dropped: bool) -> None:
    """Print what was found: tables of the sources, of what they share and contain, and what the columns count.

    Args:
        receipt: as `Deduplication.receipt` returns it.
        dropped: whether a manifest over the rows that stay was written.
    """
    out = console()
    sources = [source for source in receipt["sources"] if not source["evaluation"]]
    total = {key: sum(source[key] for source in sources) for key in COUNTS.values()}
    out.print()
    out.print(Text(_title(receipt, sources, total), "bold"))
    out.print(_found(receipt))
    rows = [(source["name"], *(number(source[key]) for key in COUNTS.values())) for source in sources]
    _print_table(out, ("source", *COUNTS), rows, ("total", *map(number, total.values())))
    _print_shared(out, receipt)
    _print_contained(out, receipt)
    for label, text in _legend(receipt, total, dropped=dropped).items():
        print_wrapped(out, f"{label:11}", text)
    out.print()


def _title(receipt: Mapping[str, Any], sources: Sequence[Mapping[str, Any]], total: Mapping[str, int]) -> str:
    held = f"{plural(total['documents'], 'document')} of {plural(len(sources), 'source')}"
    return f"{held}: {percent(receipt['near_duplicate_rate'])} are like another one"


def _found(receipt: Mapping[str, Any]) -> str:
    if not receipt["clusters"]:
        return "no pair is alike"
    largest = f"the largest of {plural(receipt['largest_clusters'][0], 'document')}"
    return f"{plural(receipt['pairs'], 'pair')} in {plural(receipt['clusters'], 'cluster')}, {largest}"


def _legend(receipt: Mapping[str, Any], total: Mapping[str, int], *, dropped: bool) -> dict[str, str]:
    """Return what the columns count, and what can be done with it."""
    rule, sets = receipt["rule"], any(source["evaluation"] for source in receipt["sources"])
    case = "case and white space" if rule["lowercase"] else "white space"
    everywhere = "any source or evaluation set" if sets else "any source"
    unit = rule["shingle"] if rule["shingle_size"] > 1 else rule["shingle"].removesuffix("s")
    legend = {
        "alike": f"documents with a near-duplicate in {everywhere}: of the runs of {rule['shingle_size']} {unit} that "
        f"either has, both have {rule['threshold']:.0%} or more",
        "copies": f"those of them whose text came before, in their source or an earlier one, {case} aside",
        "stay": f"all that are not alike, and of each cluster the {rule['keep']}"
        + ("; none of a cluster that has a document of an evaluation set, and none that contains one" if sets else ""),
    }
    legend |= _legend_of_columns(receipt["sources"]) | _legend_of_contained(receipt, unit)
    if not dropped and total["kept"] < total["documents"]:
        staying = plural(total["kept"], "document")
        legend["next"] = f"the same command with --drop FOLDER writes a manifest of the {staying} that stay"
    if not receipt["pairs_complete"]:
        legend["note"] = "not every pair is counted: some documents have too many that are like them"
    return legend


def _legend_of_columns(sources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return which columns were read, unless they are those of one form of rows throughout."""
    from cuvee.dedup.texts import FORMS

    names: dict[tuple[str, ...], list[str]] = {}
    for source in sources:
        names.setdefault(tuple(source["columns"]), []).append(source["name"])
    if len(names) == 1 and names.keys() <= set(FORMS):
        return {}
    read = [f"{' and '.join(columns)} of {_some(of)}" for columns, of in names.items()]
    return {"columns": printable(f"what is compared: {'; '.join(read)}")}


def _some(names: Sequence[str]) -> str:
    left = len(names) - MOST_NAMES + 1
    shown = [*names[: MOST_NAMES - 1], f"{left} more"] if left > 1 else list(names)
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _legend_of_contained(receipt: Mapping[str, Any], unit: str) -> dict[str, str]:
    rule, found = receipt["rule"], receipt["contamination"]
    legend = {}
    if any(map(any, found["containing"])):
        legend["contained"] = (
            f"documents of the set of whose runs of {rule['shingle_size']} {unit} one document of the source has "
            f"{rule['containment']:.0%} or more, however long it is"
        )
    short = dict(zip(found["evaluation"], found["shorter_than_a_shingle"], strict=True))
    listed = ", ".join(f"{count:,} of {name}" for name, count in short.items() if count)
    if listed:
        legend["short"] = (
            f"tests of fewer than {rule['shingle_size']} {rule['shingle']} ({listed}): they are found only where a "
            "whole document is one"
        )
    return legend


def _print_shared(out: Console, receipt: Mapping[str, Any]) -> None:
    """Print which sources have documents that are like those of another, or of an evaluation set."""
    sources, counts = receipt["sources"], receipt["overlap"]["documents"]
    found = []
    for one, other in combinations(range(len(sources)), 2):
        if counts[one][other] and not sources[one]["evaluation"]:  # which come last
            cells = [_of(counts[a][b], sources[a]["documents"]) for a, b in ((one, other), (other, one))]
            row = (sources[one]["name"], sources[other]["name"], *cells)
            found.append((sources[other]["evaluation"], counts[one][other] + counts[other][one], row))
    found.sort(key=lambda pair: pair[:2], reverse=True)
    met = {row[1] for evaluation, _, row in found if evaluation}
    clean = [source["name"] for source in sources if source["evaluation"] and source["name"] not in met]
    if found:
        out.print(Text("What two of them share: documents of each that are like one of the other", "bold"))
        _print_table(out, ("source", "and", "of it", "of the other"), [row for *_, row in found[:MOST_PAIRS]], names=2)
    if len(found) > MOST_PAIRS:
        print_wrapped(out, "", f"and {plural(len(found) - MOST_PAIRS, 'pair')} with less, which --json has\n")
    if clean:
        print_wrapped(out, "", f"no document of a source is like one of {' or '.join(clean)}\n")


def _print_contained(out: Console, receipt: Mapping[str, Any]) -> None:
    """Print which sources have documents that contain some of an evaluation set, and of which sets that is not told."""
    found, documents = receipt["contamination"], {source["name"]: source["documents"] for source in receipt["sources"]}
    rows, met = [], set()
    for i, source in enumerate(found["sources"]):
        for j, name in enumerate(found["evaluation"]):
            if found["containing"][i][j]:
                met.add(name)
                contained = found["contaminated"][i][j]
                row = (source, name, _of(found["containing"][i][j], documents[source]), _of(contained, documents[name]))
                rows.append((contained, row))
    rows.sort(key=lambda pair: pair[0], reverse=True)
    if rows:
        out.print(Text("What they contain: documents of a source that have one of a set within them", "bold"))
        _print_table(out, ("source", "set", "containing", "contained"), [row for _, row in rows[:MOST_PAIRS]], names=2)
    if len(rows) > MOST_PAIRS:
        print_wrapped(out, "", f"and {plural(len(rows) - MOST_PAIRS, 'pair')} with less, which --json has\n")
    clean = [name for name in found["evaluation"] if name not in met]
    if clean:
        print_wrapped(out, "", f"no document of a source contains one of {' or '.join(clean)}\n")


def _of(count: int, documents: int) -> str:
    return f"{number(count)} ({percent(count / max(documents, 1))})"


def _print_table(
    out: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] = (), names: int = 1
) -> None:
    """Print a table whose first columns hold names, folded where they are too long for the terminal.

    Where not even that has room there is a block of lines for each row.
    """
    cells = [headings, *rows, *([total] if total else [])]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    room = (out.width - sum(widths[names:]) - 2 * (len(widths) - 1)) // names
    spare = sum(max(room - width, 0) for width in widths[:names])  # of a short name, for a long one beside it
    widths[:names] = [min(width, room + spare) for width in widths[:names]]
    out.print()
    if room < LEAST_NAME:
        _print_blocks(out, headings, cells[1:], names)
        return
    dash = "─" if out.encoding.startswith("utf") else "-"
    rule = Text("  ".join(dash * width for width in widths), "dim")
    out.print(Text(_lines(headings, widths, names), "bold"))
    out.print(rule)
    for row in rows:
        out.print(_lines(row, widths, names))
    if total:
        out.print(rule)
        out.print(_lines(total, widths, names))
    out.print()


def _lines(cells: Sequence[str], widths: Sequence[int], names: int) -> str:
    """Return a row of a table: names to the left and folded, numbers to the right."""
    folded = [chop_cells(cell, width) for cell, width in zip(cells[:names], widths, strict=False)]
    lines = []
    for line in zip_longest(*folded, *([cell] for cell in cells[names:]), fillvalue=""):
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        padded = [cell + gap for cell, gap in zip(line[:names], gaps, strict=False)]
        padded += [gap + cell for cell, gap in zip(line[names:], gaps[names:], strict=True)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _print_blocks(out: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> None:
    for row in rows:
        out.print(Text(" and ".join(row[:names]), "bold"))
        facts = zip(headings[names:], row[names:], strict=True)
        print_wrapped(out, "  ", ", ".join(f"{heading} {cell}" for heading, cell in facts))
    out.print()
