"""Charts of the laws that the runs of a search follow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..report.figures import Figure, plain
from ..report.groups import COLOURS
from .extrapolation import Extrapolation
from .figures import Picture, layout_of, short, values_of
from .receipt import F64, RECOMMENDED, UNIFORM, Receipt, Run

if TYPE_CHECKING:
    from .surrogates.surrogate import Model

FEWEST_RUNS = 8  # from which a law is worth drawing
FOLDS = 5
MOST_LINES = 16
MOST_WORK = 200_000  # losses x domains ** 3, some ten seconds; beyond, one law of the objective stands for them all
SHARES = 41  # points of a line
GRID = 40  # of a line over steps
MOST_TICKS = 5
DRAWS = 100  # of the bootstrap


def law_pictures(receipt: Receipt, extrapolation: Extrapolation | None = None) -> list[Picture]:
    """Return the mixing law fitted to the whole runs of a search, and the law of steps if losses were extrapolated.

    Args:
        receipt: of the search.
        extrapolation: how its losses were extrapolated; None if they were not.
    """
    runs = [run for run in receipt.of_kind("search") if run.fidelity == 1 and not run.diverged]
    if len(runs) < FEWEST_RUNS:
        return []
    weights = np.array([run.weights for run in runs])
    losses = np.array([run.losses for run in runs])
    shares = np.array(receipt.target_weights)
    if losses.shape[1] * weights.shape[1] ** 3 > MOST_WORK:
        losses, shares = (losses @ shares)[:, None], np.ones(1)
    pictures = [_calibration(receipt, runs, weights, losses, shares), _shares(receipt, weights, losses, shares)]
    if extrapolation is not None:
        pictures.append(_steps(receipt, extrapolation))
    return pictures


def _fitted(receipt: Receipt, weights: F64, losses: F64) -> Model:
    """Return `TransferLaw` fitted to mixtures (n, K) and losses (n, D)."""
    from .surrogates import TransferLaw

    own = [receipt.names.index(name) if name in receipt.names else -1 for name in receipt.targets]
    if losses.shape[1] != len(own):  # one of the objective, which no domain owns
        own = [-1]
    return TransferLaw(own=own).fit(weights, losses)


def _calibration(receipt: Receipt, runs: list[Run], weights: F64, losses: F64, shares: F64) -> Picture:
    """Return what the law says of runs that it was not fitted to, beside what they gave."""
    predicted = np.empty(len(runs))
    for fold in range(FOLDS):
        out = np.arange(len(runs)) % FOLDS == fold
        predicted[out] = _fitted(receipt, weights[~out], losses[~out]).predict(weights[out])[0] @ shares
    measured = losses @ shares
    ends = [float(min(measured.min(), predicted.min())), float(max(measured.max(), predicted.max()))]
    room = 0.05 * max(ends[1] - ends[0], 1e-6)
    rank = _rank_correlation(measured, predicted)
    error = float(np.sqrt(np.mean((measured - predicted) ** 2)))
    data = [
        {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip",
         "line": {"color": "@muted", "width": 1, "dash": "5px,4px"}},
        {"type": "scatter", "mode": "markers", "x": values_of(predicted), "y": values_of(measured),
         "customdata": [run.number for run in runs], "marker": {"color": "@s0", "size": 7},
         "hovertemplate": "run %{customdata}<br>law %{x:.4f}, measured %{y:.4f}<extra></extra>"},
    ]  # fmt: skip
    return Picture(
        key="law",
        title="Law of the mixture: predicted and measured",
        note=f"Each run by a law fitted without it. Rank correlation {rank:.3f}, typical error {error:.4f} nats.",
        figure={
            "data": data,
            "layout": layout_of("predicted, nats", "measured, nats", [ends[0] - room, ends[1] + room]),
        },
        headings=("run", "predicted", "measured"),
        rows=[
            (str(run.number), f"{said:.4f}", f"{was:.4f}")
            for run, said, was in zip(runs, predicted.tolist(), measured.tolist(), strict=True)
        ],
    )


def _shares(receipt: Receipt, weights: F64, losses: F64, shares: F64) -> Picture:
    """Return how the loss moves with the share of each domain, the others keeping their ratios."""
    law, best = _fitted(receipt, weights, losses), np.array(receipt.weights)
    most = np.argsort(-best, kind="stable")[:MOST_LINES]
    grid = np.linspace(0, 1, SHARES)
    data: list[Figure] = []
    rows = []
    for line, domain in enumerate(sorted(most.tolist())):
        reach = grid * max(weights[:, domain].max(), best[domain])
        others = best.copy()
        others[domain] = 0
        others = others / others.sum() if others.sum() > 0 else (np.arange(len(best)) != domain) / (len(best) - 1)
        path = (1 - reach)[:, None] * others
        path[:, domain] = reach
        along = law.predict(path)[0] @ shares
        name = plain(receipt.names[domain])
        data.append(
            {"type": "scatter", "mode": "lines", "name": name, "x": values_of(reach), "y": values_of(along),
             "line": {"color": f"@s{line % COLOURS}", "width": 2, "dash": "dot" if line >= COLOURS else "solid"},
             "hovertemplate": f"{name} %{{x:.1%}}: %{{y:.4f}}<extra></extra>"}
        )  # fmt: skip
        lowest = int(along.argmin())
        rows.append((receipt.names[domain], f"{best[domain]:.2%}", f"{reach[lowest]:.2%}", f"{along[lowest]:.4f}"))
    layout = layout_of("share of the domain", "nats", [-0.02, 1.02])
    layout["xaxis"] |= {"tickformat": ",.0%"}
    labels = [plain(short(domain)) for domain, *_ in rows]
    layout["annotations"] = [
        {"x": trace["x"][-1], "y": trace["y"][-1], "text": label, "showarrow": False, "xanchor": "right",
         "yanchor": "bottom", "font": {"color": trace["line"]["color"], "size": 12}}
        for trace, label in zip(data, labels, strict=True)
    ]  # fmt: skip
    cut = f" The {MOST_LINES} domains with the largest shares." if len(best) > MOST_LINES else ""
    return Picture(
        key="shares",
        title="Law of the mixture: what a share does",
        note=f"Around the recommended mixture, as far as shares were tried; the others keep their ratios.{cut}",
        figure={"data": data, "layout": layout},
        headings=("domain", "recommended", "lowest at", "loss there"),
        rows=rows,
    )


def _steps(receipt: Receipt, extrapolation: Extrapolation) -> Picture:
    """Return the losses of the audit over the steps, and where the law of steps carries them."""
    shares = np.array(receipt.target_weights)
    sound = [run for run in receipt.runs if run.fidelity == 1 and not run.diverged]
    runs = [run for run in sound if run.kind != "earlier audit"]
    law, at = extrapolation.law(runs, DRAWS), extrapolation.checkpoints(1.0)
    grid = np.geomspace(at[0], extrapolation.target_steps, GRID)
    along = np.array([law.predict(float(steps))[0] @ shares for steps in grid])  # (GRID, runs)
    ends = law.samples(extrapolation.target_steps) @ shares  # (DRAWS, runs)
    data: list[Figure] = []
    rows = []
    for arm, colour in ((RECOMMENDED, "@s0"), (UNIFORM, "@s1")):
        places = [place for place, run in enumerate(runs) if run.arm == arm]
        if not places:
            continue
        curves = np.array([(*runs[place].curve, runs[place].measured) for place in places]) @ shares
        mean, sd = along[:, places].mean(axis=1), float(ends[:, places].mean(axis=1).std())
        data += [
            {"type": "scatter", "mode": "lines", "name": arm, "x": values_of(grid), "y": values_of(mean),
             "line": {"color": colour, "width": 2}, "hovertemplate": f"{arm}, law: %{{y:.4f}}<extra></extra>"},
            {"type": "scatter", "mode": "markers", "name": arm, "x": values_of(at), "y": values_of(curves.mean(axis=0)),
             "marker": {"color": colour, "size": 8}, "hovertemplate": f"{arm}, measured: %{{y:.4f}}<extra></extra>"},
        ]  # fmt: skip
        rows.append((arm, f"{curves.mean(axis=0)[-1]:.4f}", f"{mean[-1]:.4f}", f"{sd:.4f}"))
    layout = layout_of("optimizer steps", "nats", [float(np.log10(grid[0])) - 0.05, float(np.log10(grid[-1])) + 0.05])
    ticks = _ticks(float(grid[0]), float(grid[-1]))
    layout["xaxis"] |= {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,}" for tick in ticks]}
    return Picture(
        key="steps",
        title="Law of steps",
        note="Points: means of the audit. Lines: where the law carries them. Blue: recommended, orange: uniform.",
        figure={"data": data, "layout": layout},
        headings=("mixture", "measured", f"at {extrapolation.target_steps:,} steps", "sd of the law"),
        rows=rows,
    )


def _ticks(low: float, high: float) -> list[int]:
    """Return round numbers of steps within an interval, few enough to have room on a small screen."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        ticks = [digit * 10**power for power in powers for digit in digits if low <= digit * 10**power <= high]
        if len(ticks) <= MOST_TICKS:
            break
    return ticks[:: -(-len(ticks) // MOST_TICKS) or 1]


def _rank_correlation(one: F64, other: F64) -> float:
    """Return Spearman's rank correlation; NaN for constant values."""
    from scipy.stats import spearmanr

    return float(spearmanr(one, other).statistic) if np.ptp(one) and np.ptp(other) else float("nan")
