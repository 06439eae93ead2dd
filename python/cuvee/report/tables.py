"""The tables of a report: sources at a glance, the final account, and the numbers behind every chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .figures import Chart
from .groups import Groups
from .history import F64, I64, Run
from .markup import Content, Html, element, joined
from .owed import Owed
from .shell import bar, row, table
from .wording import MISSING, number, percent, short, signed

MOST_ROWS = 50  # rows of a table behind a chart
STYLES: Mapping[str, Callable[[float], str]] = {"share": percent, "difference": signed, "number": short}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where a run stands, per line of its charts or per source.

    Attributes:
        labels: one per line.
        counts: scheduled, filtered, trained rows and target tokens, float64 of shape (4, lines).
        requested: share owed since the run began, shape (lines,); NaN where no plan was logged.
        off: given minus owed, in the unit of the shares, shape (lines,); None where that is not known.
        available: rows there are, shape (lines,).
        repeats: draws of rows that had been drawn before, shape (lines,).
        unit: "rows" or "tokens".
    """

    labels: Sequence[str]
    counts: F64
    requested: F64
    off: F64 | None
    available: F64
    repeats: F64
    unit: str

    @property
    def pending(self) -> F64:
        """Rows scheduled but neither filtered nor trained on."""
        pending: F64 = self.counts[0] - self.counts[1] - self.counts[2]
        return pending

    def shares(self, row: int) -> F64:
        """Return each line's share of a row of `counts`."""
        shares: F64 = self.counts[row] / max(self.counts[row].sum(), 1.0)
        return shares

    @property
    def given(self) -> F64:
        """Each line's share of what shares are asked for in: target tokens, or rows trained on."""
        return self.shares(3 if self.unit == "tokens" else 2)


def account_of(run: Run, owed: Owed | None, groups: Groups) -> Account:
    """Return where a run stands at its last logged step, one line per group."""
    counts = run.points.counts[:, -1].astype(np.float64)
    plans = {source["name"]: source for plan in run.plans for source in plan.document["sources"]}
    available = np.array([float(plans[name]["rows_available"]) if name in plans else np.nan for name in run.names])
    return Account(
        labels=groups.labels,
        counts=groups.summed(counts),
        requested=groups.summed(owed.shares[-1] if owed else np.full(len(run.names), np.nan)),
        off=groups.summed(owed.deviation[-1]) if owed else None,
        available=groups.summed(available),
        repeats=groups.summed(np.maximum(counts[0] - available, 0.0)),
        unit=owed.unit if owed else "rows",
    )


def glance_table(account: Account, groups: Groups) -> Html:
    """Return what was asked for and got, how often rows came, and how many were filtered, as bars."""
    filtering = bool(account.counts[1].any())
    headings = ["source", "requested", f"share of {account.unit}", "passes", "repeats", *["filtered"] * filtering]
    cells = list(_glance_cells(account, groups))
    rows = [
        row(label, {heading: column[line] for heading, column in zip(headings[1:], cells, strict=False)},
            swatch=swatch(groups, line))
        for line, label in enumerate(account.labels)
    ]  # fmt: skip
    return table(headings, rows, caption="Sources at a glance", class_="cards glance")


def _glance_cells(account: Account, groups: Groups) -> Iterable[Sequence[Content]]:
    """Yield the columns of the first table but for the names."""
    got, passes = account.given, account.counts[0] / np.maximum(account.available, 1.0)
    alone = slice(0, len(groups) - 1) if groups.others else slice(None)  # bars compare single sources
    widest = float(np.nanmax([got[alone], account.requested[alone]], initial=1e-9))
    furthest = float(np.nanmax(passes[alone], initial=1.0))
    filtered = account.counts[1] / np.maximum(account.counts[0], 1.0)
    yield [*map(percent, account.requested.tolist())]
    yield _bars(groups, got / widest, account.requested / widest, map(percent, got.tolist()))
    yield _bars(groups, passes / furthest, np.full(len(groups), 1.0 / furthest), map(_decimals, passes.tolist()))
    yield [*map(_count, account.repeats.tolist())]
    yield _bars(groups, filtered, None, map(percent, filtered.tolist()))


def account_table(account: Account) -> Html:
    """Return the final account, with the totals that it adds up to."""
    columns: dict[str, Sequence[str]] = {
        "scheduled": _whole(account.counts[0]),
        "filtered": _whole(account.counts[1]),
        "trained": _whole(account.counts[2]),
        "pending": _whole(account.pending),
        "target tokens": _whole(account.counts[3]),
        "row share": [*map(percent, account.shares(2).tolist()), percent(float(account.shares(2).sum()))],
        "token share": [*map(percent, account.shares(3).tolist()), percent(float(account.shares(3).sum()))],
    }
    if account.off is not None:
        digits = 1 if account.unit == "rows" else 0
        columns[f"off by ({account.unit})"] = [*(signed(value, digits) for value in account.off.tolist()), ""]
    rows = [
        row(label, {heading: cells[line] for heading, cells in columns.items()})
        for line, label in enumerate(account.labels)
    ]
    total = row("total", {heading: cells[-1] for heading, cells in columns.items()})
    return table(["source", *columns], rows, caption="Final account", class_="cards", foot=total)


def balance(account: Account) -> str:
    """Return the account in one line: what was scheduled is filtered, trained on, or pending."""
    scheduled, filtered, trained, _ = account.counts.sum(axis=1).tolist()
    pending = float(account.pending.sum())
    return (
        f"{number(scheduled)} rows scheduled = {number(filtered)} filtered + {number(trained)} trained on + "
        f"{number(pending)} pending"
    )


def numbers_table(chart: Chart) -> Html:
    """Return the numbers of a chart, at most `MOST_ROWS` of them, evenly picked with the last."""
    size = len(chart.numbers[0][1])
    every = max(1, -(-size // MOST_ROWS))
    places = np.arange(size - 1, -1, -every)[::-1]
    write = STYLES[chart.style]
    headings = [heading for heading, _ in chart.numbers]
    rows = [
        element(
            "tr",
            element("th", number(float(chart.numbers[0][1][place])), scope="row"),
            *(element("td", write(float(values[place]))) for _, values in chart.numbers[1:]),
        )
        for place in places.tolist()
    ]
    picked = "" if every == 1 else f", every {_ordinal(every)} point"
    region = element(
        "div",
        table(headings, rows, caption=f"{chart.title}{picked}", class_="numbers"),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=f"{chart.title}, numbers",
    )
    return element("details", element("summary", "Numbers"), region)


def swatch(groups: Groups, line: int) -> Html:
    """Return a short piece of a line of the charts, as its key."""
    dash = "1 3.5" if groups.dotted(line) else None
    path = element("path", d="M1 6H21", stroke_dasharray=dash, style=f"stroke:var(--{groups.colour(line)})")
    return element("svg", path, class_="swatch", viewBox="0 0 22 12", aria_hidden="true")


def _bars(groups: Groups, shares: F64, ticks: F64 | None, texts: Iterable[str]) -> list[Html]:
    """Return a bar with its number per line; none for several sources together, which would dwarf the others."""
    cells = []
    for line, text in enumerate(texts):
        together = groups.others > 0 and line == len(groups) - 1
        drawn = None if together else bar(shares[line], groups.colour(line), None if ticks is None else ticks[line])
        cells.append(joined(drawn, element("b", text)))
    return cells


def _count(value: float) -> str:
    return number(value) if np.isfinite(value) else MISSING


def _whole(values: F64 | I64) -> list[str]:
    return [number(value) for value in (*values.tolist(), float(values.sum()))]


def _decimals(value: float) -> str:
    return f"{value:,.2f}" if np.isfinite(value) else MISSING


def _ordinal(value: int) -> str:
    return {2: "second", 3: "third"}.get(value, f"{value}th")
