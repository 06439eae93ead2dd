"""The charts of a search, as Plotly figures in plain JSON values; colours are written as in `cuvee.report.figures`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..report.figures import Figure, plain
from ..report.wording import MISSING
from .receipt import F64, Receipt, Run, sureness

MOST_AXES = 20  # of parallel coordinates; the names of more would lie over one another on a small screen
FEW_AXES = 6  # that have room for names side by side
LABEL = 14  # letters of a name below an axis
BEST = 0.1  # part of the runs that stands out
TRIANGLE = math.sqrt(3) / 2  # height of a triangle with sides of 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart with its words and its numbers.

    Attributes:
        key: its name within the page.
        title, note: heading, and a sentence below it.
        figure: what Plotly draws.
        headings, rows: the same as a table.
    """

    key: str
    title: str
    note: str
    figure: Figure
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default=(), repr=False)


def loss_picture(receipt: Receipt) -> Picture:
    """Return the loss over the runs of the search, and the lowest of whole runs so far."""
    runs = list(receipt.of_kind("search"))
    sound, bad = [run for run in runs if not run.diverged], [run for run in runs if run.diverged]
    whole = [run for run in sound if run.fidelity == 1]
    parts = [run for run in sound if run.fidelity < 1]
    traces = [_points(receipt, whole, "whole run", "@s0", "circle")]
    if parts:
        traces.append(_points(receipt, parts, "part of a run", "@muted", "circle-open"))
    if bad:
        traces.append(_points(receipt, bad, "diverged, at the worst loss of the others", "@muted", "x"))
    losses = np.array([receipt.loss(run) for run in whole])
    if len(losses):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "lowest so far",
                "x": [run.number for run in whole],
                "y": values_of(np.minimum.accumulate(losses)),
                "line": {"color": "@accent", "width": 2, "shape": "hv"},
                "hoverinfo": "skip",
            }
        )
    return Picture(
        key="runs",
        title="Loss over the runs",
        note="Filled: whole runs. Open: runs cut short, whose losses are higher. Line: the lowest so far.",
        figure={"data": traces, "layout": layout_of("run", "nats", [-0.5, max(len(runs), 1) - 0.5])},
        headings=("run", "part", "loss"),
        rows=[(str(run.number), f"{run.fidelity:.4g}", _shown(receipt, run)) for run in runs],
    )


def _shown(receipt: Receipt, run: Run) -> str:
    """Return the loss of a run as it is read: a run that diverged has none."""
    return "diverged" if run.diverged else f"{receipt.loss(run):.4f}"


def audit_picture(receipt: Receipt) -> Picture | None:
    """Return the paired differences of the audit with their means and intervals; None if there was no pair."""
    comparisons = receipt.comparisons
    if not comparisons:
        return None
    data: list[Figure] = []
    for place, one in enumerate(comparisons):
        low, high = one.interval
        pairs = len(one.differences)
        spread = np.linspace(-0.12, 0.12, pairs) if pairs > 1 else np.zeros(1)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"over {one.other}",
                "x": (place + spread).tolist(),
                "y": values_of(np.array(one.differences)),
                "marker": {"color": "@s0", "size": 7},
                "hovertemplate": "%{y:+.4f} nats<extra></extra>",
            }
        )
        bars = {} if math.isnan(low) else {"error_y": _reach(one.gain, low, high)}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "mean",
                "x": [place + 0.25],
                "y": [one.gain],
                "marker": {"color": "@accent", "size": 10, "symbol": "diamond"},
                "hovertemplate": "mean %{y:+.4f} nats<extra></extra>",
            }
            | bars
        )
    layout = layout_of("", "nats", [-0.5, len(comparisons) - 0.2])
    names = [plain(f"over {one.other}") for one in comparisons]
    layout["xaxis"] |= {"tickvals": list(range(len(names))), "ticktext": names}
    layout["yaxis"] |= {"zeroline": True, "zerolinecolor": "@muted", "zerolinewidth": 1, "rangemode": "tozero"}
    return Picture(
        key="audit",
        title="Gain under fresh seeds",
        note="Points: one pair of runs each; above 0 the recommended mixture is better. Diamond: mean, 90% interval.",
        figure={"data": data, "layout": layout},
        headings=("mixture", "pairs", "gain", "90% interval", "confidence"),
        rows=[
            (
                one.other,
                str(one.pairs),
                f"{one.gain:+.4f}",
                MISSING if one.pairs < 2 else f"{one.interval[0]:+.4f} .. {one.interval[1]:+.4f}",
                MISSING if one.pairs < 2 else sureness(one.confidence),
            )
            for one in comparisons
        ],
    )


def mixtures_picture(receipt: Receipt, others: Mapping[str, F64]) -> Picture:
    """Return every mixture that was tried as a line over the domains, the best tenth of them standing out.

    Args:
        receipt: of the search.
        others: further mixtures by name, shape (K,) each, to draw beside the recommended one.
    """
    runs = sorted(receipt.of_kind("search"), key=lambda run: (-run.fidelity, receipt.loss(run)))
    shown = _axes(receipt)
    best = math.ceil(BEST * len(runs))
    data = [
        _profile(receipt, run, shown, "@s1" if place < best else "@others", 0.9 if place < best else 0.3)
        for place, run in reversed(list(enumerate(runs)))
    ]
    data.append(_outline("recommended", np.array(receipt.weights), shown, "@ink", "solid"))
    dashes = zip(others.items(), ("dot", "dash"), strict=False)
    data += [_outline(name, weights, shown, "@s2", dash) for (name, weights), dash in dashes]
    layout = layout_of("", "share", [-0.3, len(shown) - 0.7])
    names = [plain(short(receipt.names[domain])) for domain in shown]
    angle = "auto" if len(shown) <= FEW_AXES else 90
    layout["xaxis"] |= {"tickvals": list(range(len(shown))), "ticktext": names, "tickangle": angle, "automargin": True}
    layout["yaxis"] |= {"tickformat": ",.0%", "rangemode": "tozero"}
    cut = f" The {len(shown)} domains with the largest shares." if len(shown) < len(receipt.names) else ""
    order = sorted(runs, key=lambda run: run.number)
    return Picture(
        key="mixtures",
        title="Mixtures tried",
        note=f"One line a run, the best tenth in colour. Bold: recommended; broken: what it is compared with.{cut}",
        figure={"data": data, "layout": layout},
        headings=("run", "loss", *(receipt.names[domain] for domain in shown)),
        rows=[
            (str(run.number), _shown(receipt, run), *(f"{run.weights[domain]:.2%}" for domain in shown))
            for run in order
        ],
    )


def triangle_picture(receipt: Receipt) -> Picture | None:
    """Return the mixtures of three domains as points of a triangle, coloured by loss; None for any other number."""
    if len(receipt.names) != 3:
        return None
    runs = [run for run in receipt.of_kind("search") if run.fidelity == 1]
    x, y = _corner_places(np.array([run.weights for run in runs]).reshape(-1, 3))
    best_x, best_y = _corner_places(np.array([receipt.weights]))
    losses = np.array([receipt.loss(run) for run in runs])
    names = [plain(name) for name in receipt.names]
    label = "<br>".join(f"{name} %{{customdata[{place}]:.1%}}" for place, name in enumerate(names))
    edge = {"type": "scatter", "mode": "lines", "x": [0, 1, 0.5, 0], "y": [0, 0, TRIANGLE, 0], "hoverinfo": "skip",
            "line": {"color": "@muted", "width": 1}}  # fmt: skip
    tried = {
        "type": "scatter",
        "mode": "markers",
        "x": values_of(x),
        "y": values_of(y),
        "customdata": [list(run.weights) for run in runs],
        "text": [f"{loss:.4f}" for loss in losses.tolist()],
        "marker": {"size": 9, "color": values_of(losses), "colorscale": "Viridis", "reversescale": True},
        "hovertemplate": f"{label}<br>loss %{{text}}<extra></extra>",
    }
    answer = {"type": "scatter", "mode": "markers", "x": values_of(best_x), "y": values_of(best_y), "hoverinfo": "skip",
              "marker": {"size": 16, "symbol": "star", "color": "@accent"}}  # fmt: skip
    layout = layout_of("", "", [-0.15, 1.15])
    layout["xaxis"] |= {"visible": False}
    layout["yaxis"] |= {"visible": False, "range": [-0.1, 1.0], "scaleanchor": "x"}
    corners = [plain(short(name)) for name in receipt.names]
    layout["annotations"] = [
        {"x": place_x, "y": place_y, "text": name, "showarrow": False, "font": {"color": "@ink", "size": 12}}
        for name, place_x, place_y in zip(corners, (0, 1, 0.5), (-0.06, -0.06, TRIANGLE + 0.06), strict=True)
    ]
    return Picture(
        key="triangle",
        title="Loss over the triangle of mixtures",
        note="One point a whole run; the brighter, the lower its loss. Star: recommended.",
        figure={"data": [edge, tried, answer], "layout": layout},
        headings=("run", *receipt.names, "loss"),
        rows=[(str(run.number), *(f"{share:.2%}" for share in run.weights), _shown(receipt, run)) for run in runs],
    )


def short(name: str) -> str:
    """Return as much of a name as there is room for below an axis."""
    return name if len(name) <= LABEL else f"{name[: LABEL - 1]}…"


def _points(receipt: Receipt, runs: Sequence[Run], name: str, colour: str, symbol: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [run.number for run in runs],
        "y": values_of(np.array([receipt.loss(run) for run in runs])),
        "customdata": [_largest(receipt, run) for run in runs],
        "marker": {"color": colour, "size": 7, "symbol": symbol},
        "hovertemplate": "run %{x}: %{y:.4f}<br>%{customdata}<extra></extra>",
    }


def _largest(receipt: Receipt, run: Run) -> str:
    """Return the largest shares of a run in a few words."""
    order = np.argsort(-np.array(run.weights), kind="stable")[:4].tolist()
    return "<br>".join(f"{plain(receipt.names[domain])} {run.weights[domain]:.1%}" for domain in order)


def _axes(receipt: Receipt) -> list[int]:
    """Return which domains are drawn: all, or those with the largest shares, in their order."""
    if len(receipt.names) <= MOST_AXES:
        return list(range(len(receipt.names)))
    return sorted(np.argsort(-np.array(receipt.weights), kind="stable")[:MOST_AXES].tolist())


def _profile(receipt: Receipt, run: Run, shown: Sequence[int], colour: str, opacity: float) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(range(len(shown))),
        "y": values_of(np.array(run.weights)[list(shown)]),
        "line": {"color": colour, "width": 1},
        "opacity": opacity,
        "hovertemplate": f"run {run.number}, loss {receipt.loss(run):.4f}: %{{y:.1%}}<extra></extra>",
    }


def _outline(name: str, weights: F64, shown: Sequence[int], colour: str, dash: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers" if dash == "solid" else "lines",
        "x": list(range(len(shown))),
        "y": values_of(weights[list(shown)]),
        "line": {"color": colour, "width": 3 if dash == "solid" else 2, "dash": dash},
        "marker": {"size": 6},
        "hovertemplate": f"{name}: %{{y:.1%}}<extra></extra>",
    }


def _corner_places(weights: F64) -> tuple[F64, F64]:
    """Return where mixtures of three, shape (n, 3), lie in the triangle: corners (0, 0), (1, 0), (1/2, height)."""
    return weights[:, 1] + weights[:, 2] / 2, weights[:, 2] * TRIANGLE


def _reach(mean: float, low: float, high: float) -> dict[str, Any]:
    return {"type": "data", "array": [high - mean], "arrayminus": [mean - low], "color": "@accent", "thickness": 2}


def layout_of(x: str, y: str, shown: Sequence[float]) -> Figure:
    """Return what all charts of a search share; each has an axis of its own, so that none zooms."""
    return {
        "xaxis": {"title": {"text": x, "standoff": 6}, "range": list(shown), "fixedrange": True, "nticks": 9},
        "yaxis": {"title": {"text": y, "standoff": 8}, "automargin": True, "nticks": 6, "exponentformat": "e"},
        "hovermode": "closest",
        "shapes": [],
        "annotations": [],
    }


def values_of(values: F64) -> list[float | None]:
    """Return JSON values in seven digits, more than a screen shows."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values.tolist()]
