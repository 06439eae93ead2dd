"""Proxy runs trained side by side beside a plain torch loop; and what a search finds of what there is to find."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import peers
from cuvee.search import SyntheticDomain, optimize_mixture
from cuvee.search.proxy import Proxy
from harness import OURS, Case, Report, main

STEPS = 40
MODELS = 64
PLAIN = "plain torch loop"
PLAIN_RUNS = 4  # in a call
DEGREE = 8  # of the grid of mixtures: shares of eighths
SEEDS = 20  # fresh ones, to compare a mixture with uniform under
SEARCH_SEEDS = 4
EVAL_TOKENS = 1024


def ladder() -> list[SyntheticDomain]:
    """Return four domains, each harder to learn than the one before."""
    rungs = ((2, 0.0), (3, 0.1), (4, 0.2), (6, 0.35))
    return [SyntheticDomain(f"period {period}", 20, period, noise) for period, noise in rungs]


def plain_run(peer: Any, proxy: Proxy, mixture: Any, seed: int) -> list[float]:
    """Return the losses by domain of one run, made the plain way from the same start, windows and held-out text."""
    shape, settings = proxy.settings.shape(20), proxy.settings
    sizes = [rows * columns for rows, columns in shape.parts.values()]
    parts = torch.split(shape.start(seed).weights, sizes)
    model = peer.LanguageModel(vocab=20, block=shape.block, width=shape.d_model, layers=1, heads=shape.n_head)
    model.start_from({name: part.view(size) for part, (name, size) in zip(parts, shape.parts.items(), strict=True)})
    stream, held_out = proxy._stream(seed), proxy._held_out(settings.eval_seed)
    batches = (torch.from_numpy(windows[0]) for windows in stream.batches(mixture[None], 0, proxy.steps))
    peer.train(model, batches, lr=settings.lr)
    return peer.held_out(model, held_out.view(len(proxy.domains), -1, settings.block + 1))


def compare_throughput(report: Report, peer: Any) -> None:
    """Time runs of the default size, some made one by one, some side by side; check that they give the same losses."""
    domains = ladder()
    mixtures = np.random.default_rng(0).dirichlet(np.ones(4), MODELS)

    def ours(models: int) -> Any:
        return Proxy(domains, STEPS).evaluate(mixtures[:models])  # a new one, which knows nothing yet

    def plain() -> Any:
        proxy = Proxy(domains, STEPS)
        return np.array([plain_run(peer, proxy, mixture, 0) for mixture in mixtures[:PLAIN_RUNS]])

    together, alone, theirs = ours(MODELS), ours(1), plain()
    assert np.array_equal(together[:1], alone)
    error = float(np.abs(together[:PLAIN_RUNS] - theirs).max())
    report.value(f"proxy/{STEPS} steps/largest difference of a loss to {PLAIN}", error, "nats", "goal: at most 1e-5")
    runs: dict[str, tuple[Callable[[], object], int]] = {
        OURS: (lambda: ours(MODELS), MODELS),
        "cuvee, 8 at once": (lambda: ours(8), 8),
        "cuvee, one by one": (lambda: [ours(1) for _ in range(PLAIN_RUNS)], PLAIN_RUNS),
        PLAIN: (plain, PLAIN_RUNS),
    }
    cases = {name: Case(run=run, items=count * 1_000_000) for name, (run, count) in runs.items()}
    report.compare(f"proxy/{STEPS} steps", cases, unit="ms/run")


def gains_over_uniform(proxy: Proxy, mixtures: Any, seeds: range) -> Any:
    """Return by how much mixtures are better than uniform, in nats: (seeds, M), each seed shared by all."""
    uniform = np.full(len(proxy.domains), 1 / len(proxy.domains))
    losses = [
        proxy.evaluate([uniform, *mixtures], training_seed=seed, evaluation_seed=seed).mean(axis=1) for seed in seeds
    ]
    return np.array([of_seed[0] - of_seed[1:] for of_seed in losses])


def told(gains: Any) -> str:
    """Return mean and significance of gains by seed."""
    if not gains.any():
        return "it is uniform"
    t = float(gains.mean() / gains.std(ddof=1) * math.sqrt(len(gains)))
    from scipy.special import stdtr

    return f"one-sided p = {stdtr(len(gains) - 1, -t):.2g} over {len(gains)} fresh seeds"


def search_the_ladder(report: Report, steps: int) -> None:
    """Report the gain over uniform that a dense grid finds possible, and what searches of 10 and 24 runs find."""
    proxy = Proxy(ladder(), steps, eval_tokens=EVAL_TOKENS)
    degree, choosing = (2, 2) if report.quick else (DEGREE, 6)
    counts = [c for c in itertools.product(range(degree + 1), repeat=4) if sum(c) == degree and max(c) < degree]
    grid = np.array(counts) / degree
    best = grid[gains_over_uniform(proxy, grid, range(1000, 1000 + choosing)).mean(axis=0).argmax()]
    fresh = range(2000, 2000 + (3 if report.quick else SEEDS))
    possible = gains_over_uniform(proxy, [best], fresh)[:, 0]
    name = f"ladder/{steps} steps"
    report.value(f"{name}/gain possible", possible.mean(), "nats", f"{best.round(3).tolist()}, {told(possible)}")
    for method, budget in itertools.product(("bandit", "doe", "auto"), (10, 24)):
        found = [
            optimize_mixture(ladder(), steps, budget, method=method, seed=seed)
            for seed in range(1 if report.quick else SEARCH_SEEDS)
        ]
        gains = gains_over_uniform(proxy, found, fresh)
        part = f"{gains.mean() / possible.mean():.2f} of what is possible, " if possible.any() else ""
        note = f"{part}{len(found)} searches, {gains.mean(axis=0).round(4).tolist()}; {told(gains.mean(axis=1))}"
        report.value(f"{name}/gain found/{method}, {budget} runs", gains.mean(), "nats", note)


def measure(report: Report) -> None:
    """Measure throughput, and searches of the ladder at two lengths of run."""
    torch.set_num_threads(1)
    peer = peers.load("torch_proxy", report.skipped)
    if peer is not None:
        compare_throughput(report, peer)
    for steps in (20,) if report.quick else (STEPS, 100):
        search_the_ladder(report, steps)


if __name__ == "__main__":
    main(measure)
