"""The demo's picture: requested and realised shares over a run, and what is left between them, in rows."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from cuvee import Plan

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # Okabe and Ito: safe for the colour-blind
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY, DARK = "#b5b5b5", "#555555"
THOUSANDS = mpl.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}")
STYLE: Any = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
}


def draw_picture(path: Path, plan: Plan, sources: NDArray[np.int64], *, resumed_at: int) -> None:
    """Write a PNG of a run with constant weights.

    Args:
        path: the file.
        plan: the order that was asked for.
        sources: the source of each row that training saw, shape (n,).
        resumed_at: position at which the run was interrupted.
    """
    names, total = plan.names, len(sources)
    positions = np.arange(1, total + 1)
    given = running_counts(sources, len(names))
    owed = np.outer(positions, plan.mixture.weights)
    chance = np.random.default_rng(0).choice(len(names), size=total, p=plan.mixture.weights)
    by_chance = running_counts(chance, len(names))
    bounds = plan.summary()
    ends = np.arange(plan.mixture.window, total + 1, plan.mixture.window) - 1

    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(12.8, 9.0), layout="constrained")
        axes = figure.subplot_mosaic([["share", "share"], ["ends", "all"]], height_ratios=[1.1, 1])
        figure.suptitle("Shares asked for and shares given, over one epoch of real data", fontsize=15, weight="bold")
        draw_shares(axes["share"], plan, given / positions[:, None], resumed_at)
        for k, name in enumerate(names):
            style: Any = {"color": COLOURS[k], "marker": MARKERS[k], "label": name}
            axes["ends"].plot(positions[ends], (given - owed)[ends, k], lw=0.6, ms=4, **style)
            axes["all"].plot(positions, (by_chance - owed)[:, k], color=GREY, lw=1)
            axes["all"].plot(positions, (given - owed)[:, k], color=COLOURS[k], lw=0.8)
        axes["all"].plot([], [], color=GREY, label="independent random draws, to compare")
        finish_deviation(axes["ends"], bounds["bound"], f"Rows off, at every end of a window of {plan.mixture.window}")
        finish_deviation(axes["all"], bounds["bound_any_position"], "Rows off, at every row")
        figure.savefig(path, dpi=200)
        plt.close(figure)


def running_counts(sources: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Return how many rows each source gave up to and including every position, shape (n, number)."""
    counts: NDArray[np.int64] = np.cumsum(sources[:, None] == np.arange(number), axis=0)
    return counts


def draw_shares(axes: Any, plan: Plan, shares: NDArray[np.float64], resumed_at: int) -> None:
    """Draw each source's share of the rows so far, over the run."""
    rows, window = len(shares), plan.mixture.window
    for k, (name, weight) in enumerate(zip(plan.names, plan.mixture.weights.tolist(), strict=True)):
        axes.axhline(weight, color="black", lw=1, ls=(0, (4, 3)))
        axes.plot(np.arange(1, rows + 1), shares[:, k], color=COLOURS[k], lw=2)
        axes.annotate(
            f"{name}: {weight:.0%} asked for, {shares[-1, k]:.2%} given", (resumed_at, weight), (-6, 7),
            textcoords="offset points", ha="right", va="bottom", color=COLOURS[k], weight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    axes.axvspan(1, window, color="#f0f0f0", lw=0)
    axes.axvline(resumed_at, color=DARK, lw=1, ls=":", zorder=1)
    note = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top", "color": DARK}
    axes.annotate(
        f"first window: {window} rows,\nshuffled among themselves", (window, 0.98), (-6, 0), ha="right", **note
    )
    axes.annotate(
        f"stopped on 1 rank and resumed on 2\nafter row {resumed_at:,}", (resumed_at, 0.98), (-6, 0), ha="right", **note
    )
    axes.set(xscale="log", xlim=(4, rows), ylim=(0, 0.7), xlabel="rows so far (log scale)")
    axes.set(ylabel="share of the rows so far", title="Share of each source (dashed: asked for)")
    axes.xaxis.set_major_formatter(THOUSANDS)
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0))


def finish_deviation(axes: Any, bound: float, title: str) -> None:
    """Add the certificate to a panel of deviations, a legend below it, and what the axes are."""
    axes.axhspan(-bound, bound, color="#f3e9c6", alpha=0.6, lw=0, label=f"certificate: ±{bound:g} rows")
    for side in (-bound, bound):
        axes.axhline(side, color="#8a6d00", lw=1)
    axes.set(title=title, xlabel="rows so far", ylabel="rows given minus rows owed")
    axes.xaxis.set_major_formatter(THOUSANDS)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=4, fontsize=10, handlelength=1.5)
