"""The charts of a report, as Plotly figures in plain JSON values.

Colours are written `@name`: the page fills in its style sheet's variables of that name, for light and dark alike.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .groups import Groups
from .history import F64, Run
from .owed import Owed

Figure = dict[str, Any]
FEW_POINTS = 25  # up to here each point has a marker
KNOWN_METRICS = {  # title, format of the axis
    "tokens_per_second": ("Target tokens per second", "~s"),
    "rows_per_second": ("Rows per second", "~s"),
    "learning_rate": ("Learning rate", "~g"),
    "grad_norm": ("Gradient norm", "~g"),
}
MOST_METRICS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure with its words and its numbers.

    Attributes:
        key: its name within the page.
        title, note: heading, and a sentence below it.
        figure: what Plotly draws.
        numbers: the same as columns of shape (T,) with their headings, the step first.
        style: how numbers are written: "share", "difference" or "number".
    """

    key: str
    title: str
    note: str
    figure: Figure
    numbers: Sequence[tuple[str, F64]] = field(repr=False)
    style: str = "number"


def share_charts(run: Run, groups: Groups, owed: Owed | None) -> list[Chart]:
    """Return the shares over the steps: of rows scheduled and trained on, and of target tokens."""
    target = groups.summed(owed.shares) if owed else None
    unit = owed.unit if owed else "rows"
    charts = []
    for row, key, title, measured in (
        (0, "scheduled", "Rows scheduled", "rows"),
        (2, "trained", "Rows trained on", "rows"),
        (3, "tokens", "Target tokens trained on", "tokens"),
    ):
        if not run.points.counts[row].any():  # target tokens may not have been counted
            continue
        counts = groups.summed(run.points.counts[row])
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        asked = target if measured == unit else None
        figure = _lines(run, groups, shares, ".2%", targets=asked)
        figure["layout"]["yaxis"] |= {"tickformat": ",.3~%", "rangemode": "tozero"}
        note = f"Shares were asked for in {unit}, not in these." if asked is None else "Shares since the run began."
        charts.append(
            Chart(
                key=key,
                title=title,
                note=note,
                figure=figure,
                numbers=_columns(run, groups.labels, shares),
                style="share",
            )
        )
    return charts


def learning_charts(run: Run, groups: Groups) -> list[Chart]:
    """Return the weights in force over the steps and what they follow, of a run whose weights learn."""
    if not run.learns:
        return []
    weights = groups.summed(run.points.weights)
    figure = _lines(run, groups, weights, ".2%")
    figure["layout"]["yaxis"] |= {"tickformat": ",.3~%", "rangemode": "tozero"}
    charts = [
        Chart(
            key="weights",
            title="Weights",
            note="The shares requested of the rows to come.",
            figure=figure,
            numbers=_columns(run, groups.labels, weights),
            style="share",
        )
    ]
    alone = len(groups) - (groups.others > 0)
    scores = np.stack([run.points.scores[:, groups.of == line].mean(axis=1) for line in range(alone)], axis=1)
    if np.isfinite(scores).any():
        charts.append(
            Chart(
                key="scores",
                title="Scores",
                note=f"What {_reward_of(run)} says of each source; the weights follow it.",
                figure=_lines(run, groups, scores, ".4~g"),
                numbers=_columns(run, groups.labels[:alone], scores),
            )
        )
    return charts


def _reward_of(run: Run) -> str:
    """Return the name of the reward in a run's settings."""
    settings = run.facts.get("settings")
    named = settings.get("reward") if isinstance(settings, dict) else None
    return f"the reward {named}" if isinstance(named, str) else "the reward"


def deviation_chart(run: Run, groups: Groups, owed: Owed) -> Chart:
    """Return how far each source is from what it was owed; several together have no such distance."""
    alone = len(groups) - (groups.others > 0)
    deviation = groups.summed(owed.deviation)[:, :alone]
    figure = _lines(run, groups, deviation, "+,.1f")
    figure["layout"]["yaxis"] |= {"tickformat": ",", "zeroline": True, "zerolinecolor": "@muted", "zerolinewidth": 1}
    what = "rows scheduled" if owed.unit == "rows" else "target tokens trained on"
    note = f"{what.capitalize()} minus {owed.unit} owed."
    if owed.bound is not None:
        note += f" The plan keeps every source within ±{owed.bound:,.1f} at any position."
        _bound_lines(figure, owed.bound, float(np.abs(deviation).max(initial=0.0)))
    return Chart(
        key="deviation",
        title=f"Distance from the request, in {owed.unit}",
        note=note,
        figure=figure,
        numbers=_columns(run, groups.labels[:alone], deviation),
        style="difference",
    )


def loss_charts(run: Run, groups: Groups) -> list[Chart]:
    """Return the loss, of all tokens and by source; what was not logged is left out."""
    charts = []
    every = f" Each point is the mean of {run.points.every} logged steps." if run.points.every > 1 else ""
    total = run.points.metrics.get("loss")
    if total is not None and np.isfinite(total).any():
        figure = _single(run, total, "@ink", ".4f")
        charts.append(
            Chart(
                key="loss",
                title="All sources",
                note=f"Nats per target token.{every}",
                figure=figure,
                numbers=_columns(run, ["loss"], total[:, np.newaxis]),
            )
        )
    losses = groups.losses(run)
    if np.isfinite(losses).any():
        charts.append(
            Chart(
                key="losses",
                title="By source",
                note=f"Nats per target token of the source.{every}",
                figure=_lines(run, groups, losses, ".4f"),
                numbers=_columns(run, groups.labels, losses),
            )
        )
    return charts


def metric_charts(run: Run) -> list[Chart]:
    """Return pace, learning rate, gradient norm and whatever else was logged as a number."""
    logged = {name for name, values in run.points.metrics.items() if np.isfinite(values).any()} - {"loss"}
    names = [*(name for name in KNOWN_METRICS if name in logged), *sorted(logged - KNOWN_METRICS.keys())]
    charts = []
    for place, name in enumerate(names[:MOST_METRICS]):
        values = run.points.metrics[name]
        title, ticks = KNOWN_METRICS.get(name, (name.replace("_", " ").capitalize(), "~g"))
        figure = _single(run, values, "@s0", ".4~g")
        figure["layout"]["yaxis"] |= {"tickformat": ticks, "rangemode": "tozero"}
        charts.append(
            Chart(
                key=f"metric-{place}",
                title=title,
                note="",
                figure=figure,
                numbers=_columns(run, [name], values[:, np.newaxis]),
            )
        )
    return charts


def _lines(run: Run, groups: Groups, values: F64, digits: str, *, targets: F64 | None = None) -> Figure:
    """Return a figure with a line per group, the last ones aside if there are fewer values of shape (T, lines)."""
    lines = range(values.shape[1])
    many = len(lines) > 6  # more would not fit a label that tells of all lines at once
    number = f"%{{y:{digits}}}" + (f" (asked %{{customdata:{digits}}})" if targets is not None else "")
    label = f"<b>%{{fullData.name}}</b><br>step %{{x:,}}: {number}<extra></extra>" if many else number
    traces = [_line(run, groups, line, values[:, line]) | {"hovertemplate": label} for line in lines]
    if targets is not None:
        for line, trace in zip(lines, traces, strict=True):
            trace["customdata"] = _values(targets[:, line])
        traces += [_target(run, targets[:, line], line) for line in lines]
    return {"data": traces, "layout": _layout(run) | ({"hovermode": "closest"} if many else {})}


def _line(run: Run, groups: Groups, line: int, values: F64) -> Figure:
    dotted = groups.dotted(line)
    return {
        "type": "scatter",
        "mode": _mode(run),
        "name": plain(groups.labels[line]),
        "x": run.points.step.tolist(),
        "y": _values(values),
        "line": {"color": f"@{groups.colour(line)}", "width": 2, "dash": "dot" if dotted else "solid"},
        "marker": {"size": 5, "symbol": "diamond" if dotted else "circle"},
        "connectgaps": True,
        "meta": {"line": line},
    }


def _mode(run: Run) -> str:
    return "lines+markers" if len(run.points) <= FEW_POINTS else "lines"


def _target(run: Run, values: F64, line: int) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "requested",
        "x": run.points.step.tolist(),
        "y": _values(values),
        "line": {"color": "@ink", "width": 1, "dash": "5px,4px"},
        "hoverinfo": "skip",
        "meta": {"line": line},
    }


def _single(run: Run, values: F64, colour: str, digits: str) -> Figure:
    trace = {
        "type": "scatter",
        "mode": _mode(run),
        "name": "",
        "x": run.points.step.tolist(),
        "y": _values(values),
        "line": {"color": colour, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": f"%{{y:{digits}}}<extra></extra>",
        "connectgaps": True,
    }
    return {"data": [trace], "layout": _layout(run)}


def _layout(run: Run) -> Figure:
    """Return what all charts share: axes, and marks where the run was resumed or an epoch began."""
    resumed = [session.step for session in run.sessions if session.resumed_from is not None]
    marks = [_mark(step, "solid", "@accent") for step in resumed]
    epochs = _epoch_starts(run)
    if len(epochs) <= 20:
        marks += [_mark(step, "dot", "@muted") for step in epochs]
    return {
        "xaxis": {
            "title": {"text": "optimizer step", "standoff": 6},
            "tickformat": ",",
            "nticks": 7,
            "range": _steps_shown(run),
            "unifiedhovertitle": {"text": "step %{x:,}"},
        },
        "yaxis": {"automargin": True, "nticks": 6, "exponentformat": "e"},
        "hovermode": "x unified",
        "shapes": marks,
        "annotations": [
            {"x": step, "y": 1, "yref": "paper", "yanchor": "bottom", "text": "▼", "showarrow": False,
             "font": {"color": "@accent", "size": 12}, "hovertext": f"resumed at step {step:,}"}
            for step in resumed
        ],
    }  # fmt: skip


def _steps_shown(run: Run) -> list[float]:
    first, last = run.sessions[0].step, int(run.points.step[-1])
    room = 0.02 * max(last - first, 1)
    return [first - room, last + room]


def _epoch_starts(run: Run) -> list[int]:
    """Return the steps after which another epoch began."""
    first: dict[int, int] = {}
    for plan in run.plans:
        first.setdefault(plan.epoch, plan.step)
    return [step for epoch, step in first.items() if epoch > min(first)]


def _mark(step: int, dash: str, colour: str) -> Figure:
    line = {"color": colour, "width": 1, "dash": dash}
    return {"type": "line", "x0": step, "x1": step, "y0": 0, "y1": 1, "yref": "paper", "line": line, "opacity": 0.7}


def _bound_lines(figure: Figure, bound: float, reached: float) -> None:
    """Draw the promise where it does not make all else flat."""
    if bound > 12 * max(reached, 0.5):
        return
    most = 1.1 * max(bound, reached)
    figure["layout"]["yaxis"]["range"] = [-most, most]
    for y in (-bound, bound):
        line = {"color": "@muted", "width": 1, "dash": "5px,4px"}
        figure["layout"]["shapes"].append(
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}
        )


def _columns(run: Run, headings: Sequence[str], values: F64) -> list[tuple[str, F64]]:
    return [("step", run.points.step.astype(np.float64)), *zip(headings, values.T, strict=True)]


def _values(values: F64) -> list[float | None]:
    """Return JSON values in seven digits, more than a screen shows."""
    rounded: Iterable[float] = (float(f"{value:.7g}") for value in values.tolist())
    return [value if np.isfinite(value) else None for value in rounded]


def plain(text: str) -> str:
    """Return a text that Plotly, which reads some HTML, shows as it is."""
    return html.escape(text, quote=False)
