"""What a run shows while it trains: a bar of its steps, and the shares, rows and losses of its sources."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..ledger import Ledger

REDRAW_SECONDS = 0.25
RATE_POINTS = 60  # the rate is that of the last minute
RATE_SECONDS = 1.0
SEPARATOR = " | "
MOST_SHOWN = 12  # sources
NAME_WIDTHS = (10, 32)  # columns of the terminal that names get at least and at most
WIDE = 80  # from this many columns on, the bar and its text share a line
METRICS = {  # what is shown of the metrics, and how
    "loss": "loss {:.4f}",
    "learning_rate": "lr {:.2e}",
    "grad_norm": "grad norm {:.2f}",
    "rows_per_second": "{:,.0f} rows/s",
    "tokens_per_second": "{:,.0f} tokens/s",
}


class MixProgress:
    """Shows on stderr how a run gets on; use it as a context manager.

    A terminal shows a bar and a table, drawn at most four times a second by the thread that calls, so that no worker
    forked meanwhile inherits another thread's lock. Of more than 12 sources it shows those with the largest requested
    shares, in the mixture's order, the sum of the others, and which source of all deviates most. Anything else than a
    terminal gets one plain line at each `update` and each `note`.

    Args:
        requested: each source's requested share, in the mixture's order.
        rows: each source's number of rows.
        total_steps: optimizer steps at which the run ends; None if that is not known.
        step: optimizer steps trained so far.
        unit: what shares are requested of.
        console: where to show it; None is stderr.
    """

    def __init__(
        self,
        requested: Mapping[str, float],
        *,
        rows: Mapping[str, int],
        total_steps: int | None,
        step: int = 0,
        unit: Literal["rows", "tokens"] = "rows",
        console: Console | None = None,
    ) -> None:
        self._console = console or _stderr()
        self._requested = dict(requested)
        self._rows = dict(rows)
        self._total = total_steps
        self._unit = unit
        self._clock = StepClock(step)
        self._ledger: Ledger | None = None
        self._losses: dict[str, float] = {}
        self._metrics: dict[str, float] = {}
        self._asked = RequestedSoFar(self._requested)
        self._live: Live | None = None
        self._drawn = 0.0

    def __enter__(self) -> Self:
        if self._console.is_interactive:
            self._live = Live(
                console=self._console, auto_refresh=False, get_renderable=self.render, redirect_stdout=_on_terminal()
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()  # draws once more
            self._live = None

    def advance(self, step: int) -> None:
        """Move the bar to `step` optimizer steps trained; cheap enough for every step."""
        self._clock.move(step)
        self._redraw()

    def update(
        self,
        ledger: Ledger,
        *,
        step: int,
        losses: Mapping[str, float | None],
        metrics: Mapping[str, float | None],
        requested: Mapping[str, float] | None = None,
    ) -> None:
        """Show new numbers.

        Args:
            ledger: the sum over all ranks, of the whole run; read at once, and then left alone.
            step: optimizer steps trained so far.
            losses: mean loss per target token, in nats, by source; a source without one keeps its last.
            metrics: numbers by name, as `RunLog.progress` takes them.
            requested: the shares requested now, where they move while the model trains.
        """
        self._clock.move(step)
        self._ledger = ledger.merged([])
        self._asked.move(self._ledger, self._requested if requested is None else requested, unit=self._unit)
        self._losses |= {name: float(loss) for name, loss in losses.items() if loss is not None}
        self._metrics = {name: float(value) for name, value in metrics.items() if value is not None}
        self._requested = self._requested if requested is None else dict(requested)
        if self._live is None:
            self._print(self._plain_line())
        self._redraw()

    def note(self, text: str) -> None:
        """Print a line of text, on a terminal above the bar."""
        self._print(text)

    def render(self) -> RenderableType:
        """Return what a terminal shows now."""
        width = self._console.width
        parts: list[RenderableType] = [self._bar(width)]
        if self._metrics:
            parts.append(Text(SEPARATOR.join(self._metric_texts()), style="bold"))
        if self._ledger is not None:
            view = self._view(self._ledger)
            parts += [view.table(width), Text(view.deviation_text(), style="dim")]
        return Group(*parts)

    def _redraw(self) -> None:
        now = time.monotonic()
        if self._live is not None and now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._live.refresh()

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _view(self, ledger: Ledger) -> SourceView:
        return SourceView(
            ledger, self._requested, self._rows, self._losses, unit=self._unit, so_far=self._asked.shares(ledger)
        )

    def _plain_line(self) -> str:
        parts = [self._clock.text(self._total), *self._metric_texts()]
        if self._ledger is not None:
            view = self._view(self._ledger)
            parts.append(view.deviation_text())
        return SEPARATOR.join(filter(None, parts))

    def _metric_texts(self) -> list[str]:
        return [form.format(self._metrics[name]) for name, form in METRICS.items() if name in self._metrics]

    def _bar(self, width: int) -> RenderableType:
        bar = ProgressBar(total=self._total, completed=self._clock.step, pulse=self._total is None)
        text = Text(self._clock.text(self._total))
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        if width < WIDE:
            grid.add_row(bar)
            grid.add_row(text)
        else:
            grid.add_column(no_wrap=True)
            grid.add_row(bar, text)
        return grid


class StepClock:
    """Optimizer steps trained so far, and how fast they go."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._points = deque([(time.monotonic(), step)], maxlen=RATE_POINTS)

    def move(self, step: int) -> None:
        """Go to `step`."""
        self.step = step
        now = time.monotonic()
        if now - self._points[-1][0] >= RATE_SECONDS:
            self._points.append((now, step))

    def rate(self) -> float:
        """Return the steps per second of the last minute; 0 while that cannot be told."""
        began, first = self._points[0]
        seconds = time.monotonic() - began
        return (self.step - first) / seconds if seconds >= RATE_SECONDS else 0.0

    def text(self, total: int | None) -> str:
        """Return the step, of how many, the rate and the time left, as far as they are known."""
        parts = [f"step {self.step:,}" + ("" if total is None else f"/{total:,}")]
        rate = self.rate()
        if rate > 0:
            parts.append(f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step")
            if total is not None and self.step < total:
                parts.append(f"{duration((total - self.step) / rate)} left")
        return SEPARATOR.join(parts)


class RequestedSoFar:
    """What was requested of each source over the run: of what came between two updates, what was requested then."""

    def __init__(self, requested: Mapping[str, float]) -> None:
        self._now = dict(requested)
        self._amounts: NDArray[np.float64] | None = None
        self._total = 0.0

    def move(self, ledger: Ledger, requested: Mapping[str, float], *, unit: str) -> None:
        """Add what came since the last call, which had what was requested then; `requested` is what is now."""
        total = float((ledger.scheduled if unit == "rows" else ledger.tokens).sum())
        now = np.array([self._now.get(name, 0.0) for name in ledger.names])
        before = np.zeros(len(ledger.names)) if self._amounts is None else self._amounts
        self._amounts = before + (total - self._total) * now
        self._now, self._total = dict(requested), total

    def shares(self, ledger: Ledger) -> NDArray[np.float64]:
        """Return each source's share of that, float64 of shape (K,)."""
        if self._amounts is None or self._amounts.sum() <= 0:
            return np.array([self._now.get(name, 0.0) for name in ledger.names])
        shares: NDArray[np.float64] = self._amounts / self._amounts.sum()
        return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table: its title, the text of each source shown, and that of the others together."""

    title: str
    cells: list[str]
    others: str = ""

    @property
    def width(self) -> int:
        """Columns of the terminal that it needs."""
        return max(len(text) for text in (self.title, self.others, *self.cells))


class SourceView:
    """The sources of a ledger beside what is requested of them now, and was so far."""

    def __init__(
        self,
        ledger: Ledger,
        requested: Mapping[str, float],
        rows: Mapping[str, int],
        losses: Mapping[str, float],
        *,
        unit: Literal["rows", "tokens"],
        so_far: NDArray[np.float64] | None = None,
    ) -> None:
        self._ledger = ledger
        self._requested = np.array([requested.get(name, 0.0) for name in ledger.names], dtype=np.float64)
        self._so_far = self._requested if so_far is None else so_far
        self._rows = [rows.get(name, 0) for name in ledger.names]
        self._losses = losses
        self._unit = unit

    def shown(self) -> list[int]:
        """Return the ids of the sources that the table shows, ascending."""
        return sorted(np.argsort(-self._requested, kind="stable")[:MOST_SHOWN].tolist())

    def table(self, width: int) -> Table:
        """Return the table, with as many columns as fit into `width` columns of the terminal."""
        shown = self.shown()
        others = len(self._ledger.names) - len(shown)
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        columns = _fitting(self._columns(shown), width)
        room = width - sum(column.width + 2 for column in columns)
        table.add_column("source", no_wrap=True, overflow="ellipsis", max_width=min(max(room, 1), NAME_WIDTHS[1]))
        for column in columns:
            table.add_column(column.title, justify="right", no_wrap=True)
        for place, source in enumerate(shown):
            table.add_row(Text(self._ledger.names[source]), *(column.cells[place] for column in columns))
        if others:
            table.add_row(f"and {others:,} more", *(column.others for column in columns), style="dim")
        return table

    def deviation_text(self) -> str:
        """Return which source's share is farthest from the requested one, and by how much; what was filtered, too.

        The shares are those of rows scheduled, or of tokens trained on, whichever were requested.
        """
        shares = self._ledger.shares("scheduled" if self._unit == "rows" else "tokens")
        if not shares.any():
            return "nothing trained yet"
        gaps = shares - self._so_far
        source = int(np.abs(gaps).argmax())
        points = round(100 * float(gaps[source]), 2) + 0.0  # no -0.00
        parts = [f"largest deviation {points:+.2f} points of {self._unit}: {self._ledger.names[source]}"]
        filtered = int(self._ledger.filtered.sum())
        return SEPARATOR.join((parts if len(shares) > 1 else []) + ([f"{filtered:,} filtered"] if filtered else []))

    def _columns(self, shown: list[int]) -> list[Column]:
        """Return the columns besides the name, the most important first."""
        ledger = self._ledger
        passes = [count / rows if rows else 0.0 for count, rows in zip(ledger.scheduled, self._rows, strict=True)]
        losses = [self._losses.get(name) for name in ledger.names]
        of_rows = _shares("rows %", ledger.shares("trained"), shown)
        of_tokens = _shares("tokens %", ledger.shares("tokens"), shown)
        mixed, other = (of_rows, of_tokens) if self._unit == "rows" else (of_tokens, of_rows)
        return [
            _shares("asked", self._requested, shown),
            mixed,
            Column(title="loss", cells=["-" if losses[k] is None else f"{losses[k]:.4f}" for k in shown]),
            other,
            _counts("rows", ledger.trained, shown),
            Column(title="passes", cells=[f"{passes[k]:.2f}" for k in shown]),
            _counts("filtered", ledger.filtered, shown),
            _shares("scheduled", ledger.shares("scheduled"), shown),
        ]


def duration(seconds: float) -> str:
    """Return a time as people read it: `42 s`, `3 min 20 s`, `5 h 07 min`, `2 d 03 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"


def _shares(title: str, shares: NDArray[np.float64], shown: list[int]) -> Column:
    others = float(np.delete(shares, shown).sum())
    return Column(title=title, cells=[f"{shares[k]:.2%}" for k in shown], others=f"{others:.2%}")


def _counts(title: str, counts: NDArray[np.int64], shown: list[int]) -> Column:
    others = int(np.delete(counts, shown).sum())
    return Column(title=title, cells=[f"{counts[k]:,}" for k in shown], others=f"{others:,}")


def _fitting(columns: list[Column], width: int) -> list[Column]:
    """Return the first columns, as many as leave room for names."""
    room, fitting = width - NAME_WIDTHS[0], []
    for column in columns:
        room -= column.width + 2
        if room < 0:
            break
        fitting.append(column)
    return fitting


def _stderr() -> Console:
    """Return a console for stderr that never draws over itself where stderr is no terminal, whatever forces colours."""
    plain: dict[str, Any] = {} if sys.stderr.isatty() else {"force_interactive": False}
    return Console(stderr=True, markup=False, highlight=False, emoji=False, **plain)


def _on_terminal() -> bool:
    return sys.stdout.isatty()
