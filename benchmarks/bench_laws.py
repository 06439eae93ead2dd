"""How well losses of mixtures are predicted from few or small runs: ours beside what others fit, on published tables.

    CUVEE_TABLES=FOLDER bench_laws.py

`1 - rho` is one minus Spearman's correlation over mixtures that were never fitted: 0 is a perfect ranking.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import OURS, Report, main

SUBSETS = {32: 10, 64: 5, 128: 3}  # random subsets of so many runs
LARGE = 5e8  # parameters: smaller sizes are fitted, larger ones predicted
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Runs: weights (n, K), losses (n, D), the domain of each loss, and other columns (n,)."""

    weights: Floats
    losses: Floats
    own: list[int]
    names: list[str]
    columns: dict[str, Floats]


def columns_of(path: Path) -> dict[str, Floats]:
    """Return a CSV file's columns; what is missing is NaN."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}


def table_of(weights: dict[str, Floats], losses: dict[str, Floats], columns: dict[str, Floats]) -> Table:
    """Return a table; weights are made to sum to 1."""
    shares = np.column_stack(list(weights.values()))
    domains = list(weights)
    return Table(
        weights=shares / shares.sum(1, keepdims=True),
        losses=np.column_stack(list(losses.values())),
        own=[domains.index(name) if name in domains else -1 for name in losses],
        names=list(losses),
        columns=columns,
    )


def regmix(folder: Path, kind: str) -> Table:
    """Return RegMix's runs: "train_{}_1m", "test_{}_1m" or "test_{}_60m"."""
    weights = columns_of(folder / "regmix" / (kind.format("mixture") + ".csv"))
    losses = columns_of(folder / "regmix" / (kind.format("pile_loss") + ".csv"))
    if not np.array_equal(weights.pop("index"), losses.pop("index")):
        raise ValueError(f"{kind}: runs must be the same in both files, but got others")
    return table_of(
        {name.removeprefix("train_the_pile_"): column for name, column in weights.items()},
        {name.removeprefix("metric/the_pile_").removesuffix("_val_loss"): c for name, c in losses.items()},
        {},
    )


def slimpajama(folder: Path) -> Table:
    """Return the checkpoints of seven domains at three sizes, each evaluation once."""
    columns = columns_of(folder / "slimpajama7" / "runs_122M_310M_680M.csv")
    losses = {n.removeprefix("loss/"): c for n, c in columns.items() if n.startswith("loss/") and "hermes" not in n}
    weights = {n.removeprefix("w/"): c for n, c in columns.items() if n.startswith("w/")}
    keys = np.column_stack([columns["mixture"], columns["params"], columns["tokens"]])
    _, once = np.unique(keys, axis=0, return_index=True)
    whole = once[np.isfinite(np.column_stack(list(losses.values()))[once]).all(1)]
    return table_of(
        {name: column[whole] for name, column in weights.items()},
        {name: column[whole] for name, column in losses.items()},
        {name: columns[name][whole] for name in ("mixture", "params", "tokens")},
    )


# --- regressors: fit(weights, losses) gives a function from weights to losses
Regressor = Callable[[Floats, Floats], Callable[[Floats], Floats]]


def ours(surrogate: Any) -> Regressor:
    """Return one of our surrogates as a regressor."""

    def fit(weights: Floats, losses: Floats) -> Callable[[Floats], Floats]:
        model = surrogate.fit(weights, losses)
        return lambda points: model.predict(points)[0]

    return fit


def ridge(features: Callable[[Floats], Floats], strength: float) -> Regressor:
    """Return a ridge on standardised features."""

    def fit(weights: Floats, losses: Floats) -> Callable[[Floats], Floats]:
        raw = features(weights)
        centre, spread, level = raw.mean(0), raw.std(0) + 1e-9, losses.mean(0)
        scaled = (raw - centre) / spread
        matrix = scaled.T @ scaled + strength * len(raw) * np.eye(raw.shape[1])
        slopes = np.linalg.solve(matrix, scaled.T @ (losses - level))
        return lambda points: level + (features(points) - centre) / spread @ slopes

    return fit


def regressors(own: list[int], *, trees: bool) -> dict[str, Regressor]:
    """Return every regressor by name."""
    from cuvee.search.surrogates import Boosted, EffectiveDataLaw, ExponentialLaw, GaussianProcess, TransferLaw

    found = {
        OURS: ours(TransferLaw(own=own)),
        "linear": ridge(lambda w: w, 1e-9),
        "ridge on w, sqrt w, log w": ridge(lambda w: np.hstack([w, np.sqrt(w), np.log(w + 3e-3)]), 1e-2),
        "exponential law": ours(ExponentialLaw()),
        "effective-data law": ours(EffectiveDataLaw()),
        "Gaussian process": ours(GaussianProcess()),
    }
    return found | ({"LightGBM": ours(Boosted())} if trees else {})


def rank_error(predicted: Floats, true: Floats) -> float:
    """Return one minus Spearman's correlation; 1 where all predictions are equal."""
    from scipy.stats import spearmanr

    return float(1 - spearmanr(predicted, true)[0]) if np.ptp(predicted) > 1e-9 else 1.0


def scores(predict: Callable[[Floats], Floats], tests: Mapping[str, Table]) -> dict[str, float]:
    """Return the rank errors of Pile-CC and of the mean of all losses, by test."""
    found = {}
    for name, test in tests.items():
        predicted, web = predict(test.weights), test.names.index("pile_cc")
        found[f"{name}/pile_cc"] = rank_error(predicted[:, web], test.losses[:, web])
        found[f"{name}/mean13"] = rank_error(predicted.mean(1), test.losses.mean(1))
    return found


def few_runs(report: Report, train: Table, tests: Mapping[str, Table]) -> None:
    """Report regressors fitted on random subsets of the training runs, and ours on a chosen one."""
    from cuvee.search.surrogates import choose_runs

    for count, subsets in ({32: 1} if report.quick else SUBSETS).items():
        for who, fit in regressors(train.own, trees=not report.quick and count > 32).items():
            rows = [np.random.default_rng(100 + n).permutation(len(train.weights))[:count] for n in range(subsets)]
            each = [scores(fit(train.weights[pick], train.losses[pick]), tests) for pick in rows]
            for what in each[0]:
                values = [one[what] for one in each]
                note = f"rho {1 - np.mean(values):.4f}, mean of {subsets} random subsets, sd {np.std(values):.4f}"
                report.value(f"laws/n={count}/{what}/{who}", float(np.mean(values)), "1 - rho", note)
    chosen = choose_runs(train.weights, 32, own=train.own)
    fit = regressors(train.own, trees=False)[OURS]
    for what, value in scores(fit(train.weights[chosen], train.losses[chosen]), tests).items():
        report.value(f"laws/32 chosen runs/{what}/{OURS}", value, "1 - rho", f"rho {1 - value:.4f}")


def all_runs(report: Report, train: Table, tests: Mapping[str, Table]) -> None:
    """Report regressors fitted on all training runs."""
    for who, fit in regressors(train.own, trees=True).items():
        for what, value in scores(fit(train.weights, train.losses), tests).items():
            report.value(f"laws/n=512/{what}/{who}", value, "1 - rho", f"rho {1 - value:.4f}")


def growth(report: Report, train: Table, tests: Mapping[str, Table]) -> None:
    """Report how the 1M losses themselves rank the 60M mean, plainly and weighted by how spreads shrink."""
    from cuvee.search.laws import grown_shares

    small, large = tests["1M"].losses, tests["60M"].losses.mean(1)
    shares = grown_shares(train.weights, train.losses, 60)
    for who, predicted in (("equal shares", small.mean(1)), (OURS, small @ shares)):
        error = rank_error(predicted, large)
        report.value(f"laws/1M truth for 60M/mean13/{who}", error, "1 - rho", f"rho {1 - error:.4f}")


# --- scale
def scale(report: Report, table: Table) -> None:
    """Report laws fitted on 122M and 310M, asked for the last losses of 680M."""
    from cuvee.search.laws import ScaleLaw

    sizes, tokens, mixture = (table.columns[name] for name in ("params", "tokens", "mixture"))
    small = sizes < LARGE
    asked = np.flatnonzero(~small & (tokens == tokens[~small].max()))
    truth = table.losses[asked]
    model = ScaleLaw(own=table.own).fit(table.weights[small], sizes[small], tokens[small], table.losses[small])
    mean, _ = model.predict(table.weights[asked], sizes[asked], tokens[asked])
    report_scale(report, OURS, mean, truth)
    low, high = model.interval(table.weights[asked], sizes[asked], tokens[asked])
    cover = float(np.mean((low <= truth) & (truth <= high)))
    report.value(f"laws/680M/cover of 90% intervals, off/{OURS}", abs(cover - 0.9), "share", f"{cover:.3f} covered")
    last = small & (sizes == sizes[small].max()) & (tokens == tokens[small].max())
    same = np.array([table.losses[last & (mixture == number)][0] for number in mixture[asked]])
    report_scale(report, "rank invariance", same, truth)
    report_scale(report, "Chinchilla for each mixture", mixture_wise(table, small, asked), truth)


def report_scale(report: Report, who: str, predicted: Floats, truth: Floats) -> None:
    """Report relative error, rank error and regret of the mean."""
    error = float(100 * np.mean(np.abs(predicted / truth - 1)))
    report.value(f"laws/680M/mean relative error/{who}", error, "%")
    rank = rank_error(predicted.mean(1), truth.mean(1))
    report.value(f"laws/680M/rank of the mean/{who}", rank, "1 - rho", f"rho {1 - rank:.4f}")
    regret = float(truth.mean(1)[predicted.mean(1).argmin()] - truth.mean(1).min())
    report.value(f"laws/680M/regret of the mean/{who}", regret, "nats")


def mixture_wise(table: Table, small: Floats, asked: Floats) -> Floats:
    """Return E + A N**-a + B D**-b with E, A, B >= 0 for each mixture and loss, a and b for each loss."""
    from scipy.optimize import nnls

    sizes, tokens, mixture = (table.columns[name] for name in ("params", "tokens", "mixture"))
    ends = {number: tokens[small & (mixture == number)].max() for number in np.unique(mixture[small])}
    late = np.flatnonzero(small & (tokens >= 0.15 * np.array([ends.get(number, np.inf) for number in mixture])))
    wanted = mixture[asked]
    found = np.empty((len(asked), table.losses.shape[1]))
    for loss in range(found.shape[1]):
        best = np.inf
        for a in np.linspace(0.1, 0.9, 5):
            for b in np.linspace(0.1, 0.9, 5):
                terms = np.column_stack([np.ones(len(sizes)), (sizes / 3e8) ** -a, (tokens / 1e10) ** -b])
                fits = {}
                for number in np.unique(wanted):
                    rows = late[mixture[late] == number]
                    y = table.losses[rows, loss]
                    fits[number] = nnls(terms[rows] / y[:, None], np.ones(len(rows)))
                if (missed := sum(rest**2 for _, rest in fits.values())) < best:
                    best = missed
                    found[:, loss] = [terms[row] @ fits[mixture[row]][0] for row in asked]
    return found


def measure(report: Report) -> None:
    """Measure all tables that are there."""
    place = os.environ.get("CUVEE_TABLES")
    if not place:
        report.skipped["laws"] = "set CUVEE_TABLES to the folder with regmix/ and slimpajama7/"
        return
    folder = Path(place)
    scale(report, slimpajama(folder))
    train = regmix(folder, "train_{}_1m")
    tests = {"1M": regmix(folder, "test_{}_1m"), "60M": regmix(folder, "test_{}_60m")}
    growth(report, train, tests)
    few_runs(report, train, tests)
    if not report.quick:
        all_runs(report, train, tests)


if __name__ == "__main__":
    main(measure)
