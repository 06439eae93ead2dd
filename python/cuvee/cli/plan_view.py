"""A plan's document as people read it: a table of sources that fits the terminal, facts, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from .output import number, percent, plural, print_wrapped

Columns = dict[str, list[str]]  # heading -> a cell per source, then one for all of them together
Records = Sequence[dict[str, Any]]


def print_plan(out: Console, document: dict[str, Any]) -> None:
    """Print the document that `plan_document` returned."""
    sources, unit = document["sources"], document["weight_unit"]
    title = f"Epoch {document['epoch']}: {plural(document['planned_rows'], 'row')} of {plural(len(sources), 'source')}"
    out.print()
    out.print(Text(title, "bold"))
    _print_columns(out, _row_columns(sources, asked=unit == "rows"))
    if document["tokens"]:
        _print_columns(out, _token_columns(sources, asked=unit == "tokens"))
    _print_facts(out, _facts(document))
    for warning in document["warnings"]:
        out.print(Text.assemble(("warning:", "bold yellow"), " ", warning))
    if document["warnings"]:
        out.print()


def _row_columns(sources: Records, *, asked: bool) -> Columns:
    return {
        "source": [*(source["name"] for source in sources), "total"],
        **({"asked": _shares(sources, "weight_requested")} if asked else {}),
        "row share": _shares(sources, "observed_proportion"),
        "rows": _integers(sources, "rows_available"),
        "drawn": _integers(sources, "rows_selected"),
        "unused": _integers(sources, "rows_unused"),
        "repeats": _integers(sources, "duplicates"),
        "cycles": [*(number(source["cycles"], 2) for source in sources), ""],
        "first": [*(_position(source["first_position"]) for source in sources), ""],
    }


def _token_columns(sources: Records, *, asked: bool) -> Columns:
    filtered = any(source.get("rows_filtered") for source in sources)
    return {
        "source": [*(source["name"] for source in sources), "total"],
        **({"asked": _shares(sources, "weight_requested")} if asked else {}),
        "token share": _shares(sources, "token_proportion"),
        "tokens": _integers(sources, "tokens"),
        "per row": [*(_tokens_per_row(source) for source in sources), ""],
        **({"too long": _integers(sources, "rows_filtered")} if filtered else {}),
    }


def _shares(sources: Records, field: str) -> list[str]:
    return [*(percent(source[field]) for source in sources), ""]


def _integers(sources: Records, field: str) -> list[str]:
    values = [source[field] for source in sources]
    return [number(value) for value in (*values, sum(values))]


def _position(first: int | None) -> str:
    return "never" if first is None else number(first)


def _tokens_per_row(source: dict[str, Any]) -> str:
    rows = source["rows_selected"] - source.get("rows_filtered", 0)
    return number(source["tokens"] / rows, 1) if rows else ""


def _print_columns(out: Console, columns: Columns) -> None:
    """Print a table, or a block of lines per source where the terminal is too narrow for it."""
    widths = [max(map(cell_len, (heading, *cells))) for heading, cells in columns.items()]
    if sum(widths) + 2 * (len(widths) - 1) > out.width:
        _print_blocks(out, columns)
        return
    dash = "─" if out.encoding.startswith("utf") else "-"
    rule = Text("  ".join(dash * width for width in widths), "dim")
    *rows, total = zip(*columns.values(), strict=True)
    out.print()
    out.print(_table_line(tuple(columns), widths, "bold"))
    out.print(rule)
    for row in rows:
        out.print(_table_line(row, widths))
    out.print(rule)
    out.print(_table_line(total, widths))


def _table_line(cells: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    first, *others = [
        " " * (width - cell_len(cell)) + cell if index else cell + " " * (width - cell_len(cell))
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return Text("  ".join([first, *others]).rstrip(), style)


def _print_blocks(out: Console, columns: Columns) -> None:
    names, *others = columns.values()
    _, *headings = columns
    out.print()
    for index, name in enumerate(names):
        out.print(Text(name, "bold"))
        facts = [f"{heading} {cells[index]}" for heading, cells in zip(headings, others, strict=True) if cells[index]]
        print_wrapped(out, "  ", ", ".join(facts))


def _print_facts(out: Console, facts: dict[str, str]) -> None:
    width = max(map(len, facts)) + 2
    out.print()
    for label, text in facts.items():
        print_wrapped(out, f"{label:{width}}", text)
    out.print()


def _facts(document: dict[str, Any]) -> dict[str, str]:
    tokens, stages, window = document["tokens"], document["mix_spec"]["stages"], document["window"]
    owed = f"within {document['bound']:.2f} rows of what each source is owed"
    facts = {"ends": _end(document["termination_reason"], document["planned_rows"])}
    if window == 1:
        facts["bound"] = f"{owed}, at every position"
    else:
        facts["bound"] = f"{owed} after every window of {window}; anywhere within {document['bound_any_position']:.2f}"
    if tokens and not tokens["exact"]:
        facts["tokens"] = "estimated from mean lengths"
    if stages:
        facts["stages"] = f"{plural(len(stages), 'change')} of weights, the first at {stages[0]['at']:,}"
    return facts | {
        "shares": f"in {document['weight_unit']}, policy {document['policy']}",
        "seed": str(document["seed"]),
        "spec": document["mix_spec_hash"],
        "plan": document["plan_hash"],
        "schedule": document["schedule_hash"],
    }


def _end(reason: str, rows: int) -> str:
    kind, _, name = reason.partition(":")
    return {
        "samples_per_epoch": f"after {plural(rows, 'row')}, the epoch's budget",
        "source_exhausted": f"with the last row of {name}",
        "all_sources_exhausted": "when every source is used up",
        "all_sources_exhausted_once": "once every row was drawn",
    }.get(kind, reason)
