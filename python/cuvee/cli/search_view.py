"""How a search looks on a terminal: its progress, and its answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cuvee.errors import CuveeError

from .output import console, percent, plural, print_wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from cuvee.search.command import Command
    from cuvee.search.plan import SearchPlan
    from cuvee.search.receipt import Receipt
    from cuvee.search.trials import Slot


EQUAL = 1e-12  # apart by less, weights are alike
DUST = 1e-6  # a share below is none; a manifest that is learned has no smaller ones, either
MOST_NAMES = 8  # of losses, in a line
LEAST_NAME = 8  # columns of a terminal for a name; with fewer there is a block of lines in place of a row
MANY_PASSES = 1e6  # from which on they are told in powers of ten


@contextmanager
def progress(plan: SearchPlan) -> Iterator[Callable[[Sequence[Slot]], None]]:
    """Show on stderr how far a search is: a bar where someone watches, else a line for each round.

    Yields:
        What is to be called with the runs of the search.
    """
    err = console(stderr=True)
    if not err.is_terminal:
        yield _lines(err, plan)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("Searching", total=plan.budget, said="")

        def watch(slots: Sequence[Slot]) -> None:
            bar.update(task, completed=_spent(slots), description=_phase(slots), said=_standing(plan, slots))

        yield watch


def _lines(err: Console, plan: SearchPlan) -> Callable[[Sequence[Slot]], None]:
    """Return what prints a line whenever a round is done."""
    told = -1

    def watch(slots: Sequence[Slot]) -> None:
        nonlocal told
        under_way = {slot.planned.round for slot in slots if slot.state != "done"}
        done = min(under_way, default=max((slot.planned.round for slot in slots), default=-1) + 1)
        if slots and done > max(told, 0):
            err.print(f"{_phase(slots)}: {_standing(plan, slots)}", soft_wrap=True)
        told = max(told, done)

    return watch


def _phase(slots: Sequence[Slot]) -> str:
    last = max(slots, key=lambda slot: slot.planned.round, default=None)
    return "Auditing" if last is not None and last.planned.kind == "audit" else "Searching"


def _spent(slots: Sequence[Slot]) -> float:
    return math.fsum(slot.planned.cost for slot in slots if slot.state == "done")


def _standing(plan: SearchPlan, slots: Sequence[Slot]) -> str:
    """Return how far a search is, in a line."""
    workers = {slot.worker for slot in slots if slot.state == "running"}
    at_work = f", {plural(len(workers), 'worker')}" if len(workers) > 1 else ""
    return f"{_done(plan, slots)}{at_work}"


def _done(plan: SearchPlan, slots: Sequence[Slot]) -> str:
    """Return what was run, and the best of it."""
    whole = [
        math.fsum(weight * loss for weight, loss in zip(plan.target_weights, slot.losses, strict=True))
        for slot in slots
        if slot.state == "done" and slot.planned.kind == "search" and slot.planned.fidelity == 1 and not slot.diverged
    ]
    best = f", lowest loss {min(whole):.4f}" if whole else ""
    bad = sum(slot.diverged and not slot.planned.known for slot in slots)
    diverged = f", {bad} diverged" if bad else ""
    return f"{_spent(slots):.4g} of {plan.budget} runs{best}{diverged}"


def print_stopped(command: Command, plan: SearchPlan | None, *, failed: bool = False) -> None:
    """Say on stderr how far an interrupted search is, where it is kept, and how it can go on.

    Args:
        command: what was interrupted.
        plan: what was searched; None if that was not known yet.
        failed: whether a run failed, so that a score of the user's is to be mended, which makes it another.
    """
    done, goes_on = "before any new run", "and the same command goes on"
    if plan is not None:
        done = "at some run, how many are done cannot be read"
        with suppress(CuveeError):
            runs = command.runs(plan)
            done = f"after {_done(plan, runs)}"
            if failed and command.search.score is not None and any(run.state == "done" for run in runs):
                goes_on = (
                    "and goes on with the --score file as it is; a mended file begins another search, with another "
                    "--study or --output-dir"
                )
    console(stderr=True).print(f"stopped {done}; the search is kept in {command.place}, {goes_on}", soft_wrap=True)


def print_answer(receipt: Receipt, plan: SearchPlan, files: Mapping[str, Path]) -> None:
    """Print the recommended mixture, what it is worth, and where it was written."""
    out = console()
    out.print(f"\n{_title(receipt)}\n", soft_wrap=True)
    _print_shares(out, receipt, plan)
    out.print()
    said = [("verdict", receipt.verdict), ("goal", _goal(receipt)), ("worse", _worse(receipt))]
    said += [("note", remark) for remark in receipt.remarks]
    for label, text in (*said, ("noise", _noise(receipt)), ("spent", _spending(receipt))):
        if text:
            print_wrapped(out, f"{label:<10}", text)
    for what, path in files.items():
        out.print(f"{what:<10}{path}", soft_wrap=True)
    if "report" not in files:
        out.print(f"{'report':<10}none, for want of the package plotly; the extra report brings it", soft_wrap=True)


def _goal(receipt: Receipt) -> str:
    weights = receipt.target_weights
    if len(weights) == 1:
        return f"the loss of {receipt.targets[0]}"
    if max(weights) - min(weights) < EQUAL:
        many = f"all {len(weights)} losses"
        of = many if len(weights) > MOST_NAMES else f"the losses of {', '.join(receipt.targets)}"
        return f"the mean of {of}, each counting the same"
    weighted = sorted(zip(weights, receipt.targets, strict=True), key=lambda pair: -pair[0])
    shown = [f"{name} {percent(weight)}" for weight, name in weighted if weight]
    if len(shown) > MOST_NAMES:
        shown = [*shown[: MOST_NAMES - 1], f"{len(shown) - MOST_NAMES + 1} more with less"]
    return f"the mean of the losses with weights: {', '.join(shown)}"


def _worse(receipt: Receipt) -> str:
    """Return which losses the recommended mixture makes worse, though their mean may be better."""
    found = []
    for one in receipt.comparisons:
        if one.diverged:  # stand-ins say nothing of single losses
            continue
        gains = zip(receipt.targets, one.by_target, strict=True)
        worse = ", ".join(f"{name} by {-gain:.4f}" for name, gain in gains if gain < 0)
        found += [f"than {one.other}: {worse}"] if worse else []
    return "; ".join(found)


def _title(receipt: Receipt) -> str:
    return (
        f"{receipt.method}: {plural(receipt.search_runs, 'run')} of the search, {receipt.audit_runs} of the audit, "
        f"{plural(len(receipt.names), 'domain')}"
    )


def _print_shares(out: Console, receipt: Receipt, plan: SearchPlan) -> None:
    """Print the shares: a table, or where a terminal is too narrow for one a block of lines for each domain."""
    from rich.cells import cell_len
    from rich.text import Text

    headings, rows = _cells(receipt, plan)
    first, *widths = (max(map(cell_len, column)) for column in zip(headings, *rows, strict=True))
    if min(first, LEAST_NAME) + sum(width + 2 for width in widths) <= out.width:
        out.print(_table(headings, rows))
        return
    for name, *cells in rows:
        out.print(Text(name, "bold"))
        facts = zip(headings[1:], cells, strict=True)
        print_wrapped(out, "  ", ", ".join(f"{heading} {cell}" for heading, cell in facts if cell))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(headings[0], justify="left", overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _cells(receipt: Receipt, plan: SearchPlan) -> tuple[list[str], list[list[str]]]:
    """Return headings, and what stands below them for each domain."""
    rules = plan.rules
    headings = [
        "domain",
        "recommended",
        "90% interval",
        "uniform",
        *["proportional"] * (rules.proportional is not None),
        *["passes"] * (plan.passes is not None),
    ]
    passes = None if plan.passes is None else plan.passes.of(np.array(receipt.weights)).tolist()
    rows = []
    for place, name in enumerate(receipt.names):
        interval = f"{_share(receipt.low[place])} .. {_share(receipt.high[place])}" if receipt.low else ""
        cells = [name, _share(receipt.weights[place]), interval, _share(rules.uniform[place])]
        if rules.proportional is not None:
            cells.append(_share(rules.proportional[place]))
        if passes is not None:
            cells.append(f"{passes[place]:,.2f}" if passes[place] < MANY_PASSES else f"{passes[place]:.2e}")
        rows.append(cells)
    return headings, rows


def _share(share: float) -> str:
    return percent(0.0 if share < DUST else share)


def _noise(receipt: Receipt) -> str:
    noise = receipt.noise
    if not math.isfinite(noise.run):
        return ""
    paired = (
        f", that of a difference under one seed by {noise.difference:.4f}" if math.isfinite(noise.difference) else ""
    )
    return f"the loss of a run scatters by {noise.run:.4f} nats from seed to seed{paired} ({noise.seeds} seeds)"


def _spending(receipt: Receipt) -> str:
    return f"{receipt.spent:.4g} whole runs, {receipt.seconds:,.0f} s of work"
