"""Receipts of searches that never were, for pages to show."""

from __future__ import annotations

import numpy as np

from cuvee.search.receipt import PARTS, RECOMMENDED, UNIFORM, Receipt, Run

SEEDS = ((11, 12), (21, 22), (31, 32))


def receipt_of(names: tuple[str, ...] = ("math", "code", "web"), *, gain: float = 0.1, runs: int = 24) -> Receipt:
    """Return the receipt of a search over domains that are worth most in equal parts, with an audit of three seeds."""
    random = np.random.default_rng(5)
    count = len(names)
    uniform = np.full(count, 1 / count)
    made = []
    for number in range(runs):
        weights = random.dirichlet(np.full(count, 1.5))
        losses = 2 + np.exp(-4 * weights) + random.normal(scale=0.001, size=count)
        curve = [losses + 0.4 * (part**-0.5 - 1) for part in PARTS]
        made.append(run_of(number, weights, losses, curve=curve, fidelity=0.3 if number % 6 == 5 else 1.0))
    best = uniform + 0.01 * (np.arange(count) - (count - 1) / 2) / count
    for place, seeds in enumerate(SEEDS):
        for arm, weights, level in ((RECOMMENDED, best, 2.2), (UNIFORM, uniform, 2.2 + gain * (1 + 0.1 * place))):
            losses = np.full(count, level) + 0.01 * place
            curve = [losses + 0.4 * (part**-0.5 - 1) for part in PARTS]
            made.append(run_of(len(made), weights, losses, curve=curve, kind="audit", arm=arm, seeds=seeds))
    return Receipt(
        method="auto",
        names=names,
        targets=names,
        target_weights=(1 / count,) * count,
        weights=tuple(best.tolist()),
        low=tuple((best - 0.01).tolist()),
        high=tuple((best + 0.01).tolist()),
        runs=tuple(made),
    )


def run_of(number: int, weights: np.ndarray, losses: np.ndarray, *, curve, seeds=(0, 1), **more) -> Run:
    return Run(
        number=number,
        kind=more.pop("kind", "search"),
        weights=tuple(weights.tolist()),
        losses=tuple(losses.tolist()),
        curve=tuple(tuple(part.tolist()) for part in curve),
        training_seed=seeds[0],
        evaluation_seed=seeds[1],
        seconds=1.0,
        worker="w",
        **more,
    )
