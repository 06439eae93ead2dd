"""Regret of search methods on a simulator of published proxy runs: ours beside those that others use.

    CUVEE_TABLES=FOLDER bench_search.py [--objective pile_cc mean13] [--sim blend] [--noise 1 0.25] [--seeds 10]
        [--first-seed 0] [--budgets 10 25 50 100] [--methods auto law ...] [--batch 1] [--blind] [--rungs]
        [--never-worse SEEDS]

A regret is the noise-free loss of the recommended mixture over the least there is, in nats. The noise of a run is 1 or
0.25 times the simulator's own error on runs it was not fitted on. `--blind` hides from our methods which domain a loss
is measured on. `--rungs` lets `auto` stop runs at 30 %: such a run costs 0.3, and its losses are off as those of
published runs are. `--never-worse` (0: not at all) runs `auto` with many seeds, and counts how often it recommends what
is more than 0.01 nats worse than the better of the uniform mixture and the prior, the centre of the published design.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

import harness
import mixture_simulator
import peers
from harness import Measure, Report
from mixture_simulator import F64, OBJECTIVES, PARTS, Simulator

OURS = ("auto", "bandit", "doe", "regmix", "doremi")
SLOW = {"doe": 3, "optuna_gp": 3, "softmax_ei": 5, "gp_seq": 5}  # most seeds of what takes minutes each
CHECKED = (5, 10, 15, 20, 25)  # budgets at which no answer may be worse than the free ones
TOLERANCE = 0.01
EARLY = 0.3  # fidelity of a run that is stopped
EARLY_SLOPE, EARLY_STRAY, EARLY_RISE = (
    1.8,
    0.17,
    0.23,
)  # published runs of 122M at 30 %: 1 / 0.55, in sd over mixtures, nats
SPREAD_DRAWS = 500


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What a simulated score adds to the simulator: noise, and what a run that stops early is off by."""

    simulator: Simulator
    noise: float
    centre: F64
    spread: F64

    def losses(self, weights: F64, fidelity: float, rng: np.random.Generator) -> F64:
        """Return the losses of a run, (D,)."""
        exact = self.simulator.losses(weights)[0]
        stray = self.noise * self.simulator.noise * rng.standard_normal(len(exact))
        if fidelity == 1:
            return exact + stray
        share = (1 - fidelity) / (1 - EARLY)
        slope = 1 + (EARLY_SLOPE - 1) * share
        off = self.spread * EARLY_STRAY * slope * share * rng.standard_normal(len(exact))
        return self.centre + EARLY_RISE * share + slope * (exact - self.centre) + off + stray


def course(trials: Trials, name: str, seed: int, budgets: Sequence[int], options: argparse.Namespace) -> list[float]:
    """Return the regrets of one of our methods after each budget, in whole runs, from one course of runs."""
    from cuvee.search.methods import Observation, make_method

    simulator, most = trials.simulator, max(budgets)
    names = [f"loss {i}" for i in range(len(simulator.names))] if options.blind else simulator.names
    more = {"rungs": (EARLY,)} if options.rungs and name == "auto" else {}
    if options.blind and name == "doremi":
        return [float("nan")] * len(budgets)
    method = make_method(name, simulator.space, seed=seed, losses=names, budget=most, **more)
    rng, spent, regrets, left = np.random.default_rng(10_000 + seed), 0.0, [], sorted(budgets)
    while left:
        asked = method.ask(min(options.batch, max(1, int(left[0] - spent))))
        if spent + sum(trial.fidelity for trial in asked) > left[0] + 1e-9:
            regrets.append(simulator.regret(method.recommend().weights))
            left.pop(0)
            continue
        spent += sum(trial.fidelity for trial in asked)
        method.tell(Observation(trial, trials.losses(trial.weights, trial.fidelity, rng)) for trial in asked)
    return regrets


def baseline(peer: ModuleType, trials: Trials, name: str, seed: int, budgets: Sequence[int]) -> list[float]:
    """Return the regrets of another's method after each budget."""
    regrets, simulator = [], trials.simulator
    make = functools.partial(peer.Runs, simulator, seed=seed, noise=trials.noise)
    if name in peer.ANYTIME:
        answer = peer.ANYTIME[name](make(budget=max(budgets)), np.random.default_rng(seed))
        return [simulator.regret(answer(budget)) for budget in budgets]
    for budget in budgets:
        answer = peer.PLANNED[name](make(budget=budget), np.random.default_rng(seed))
        regrets.append(simulator.regret(answer(budget)))
    return regrets


def seeds_of(options: argparse.Namespace, count: int) -> range:
    """Return so many seeds."""
    return range(options.first_seed, options.first_seed + count)


def report_regrets(report: Report, prefix: str, name: str, regrets: F64, budgets: Sequence[int]) -> None:
    """Report mean and standard error over seeds, regrets of shape (seeds, budgets)."""
    error = regrets.std(axis=0, ddof=1) / np.sqrt(len(regrets)) if len(regrets) > 1 else np.full(len(budgets), np.nan)
    who = f"cuvee {name}" if name in OURS else name
    for budget, mean, off, worst in zip(budgets, regrets.mean(axis=0), error, regrets.max(axis=0), strict=True):
        note = f"s.e. {off:.4f}, worst of {len(regrets)} seeds {worst:.4f}"
        report.add(Measure(name=f"{prefix}/n={budget}/{who}", value=float(mean), unit="nats", note=note))


def settings(report: Report, options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Trials]]:
    """Yield every objective and noise as a name and what answers for it; report the free mixtures."""
    for objective in options.objective:
        simulator = mixture_simulator.simulator(folder, objective, options.sim)
        drawn = simulator.losses(simulator.space.sample(SPREAD_DRAWS, np.random.default_rng(3)))
        for who, weights in (("uniform", simulator.space.uniform), ("design centre", simulator.space.prior)):
            report.value(f"search/{objective}/{options.sim}/{who}", simulator.regret(weights), "nats")
        for noise in options.noise:
            name = (
                f"search/{objective}/{options.sim}/noise {noise:g}{'/blind' * options.blind}{'/rungs' * options.rungs}"
            )
            yield name, Trials(simulator=simulator, noise=noise, centre=drawn.mean(axis=0), spread=drawn.std(axis=0))


def never_worse(report: Report, prefix: str, trials: Trials, options: argparse.Namespace) -> None:
    """Report how many answers of `auto` are worse than the better free mixture by more than the tolerance."""
    simulator = trials.simulator
    free = min(simulator.regret(simulator.space.uniform), simulator.regret(simulator.space.prior))
    seeds = seeds_of(options, options.never_worse)
    regrets = np.array([course(trials, "auto", seed, CHECKED, options) for seed in seeds])
    worse = int((regrets > free + TOLERANCE).sum())
    note = (
        f"of {regrets.size}: {len(regrets)} seeds, budgets {CHECKED}; worst answer {regrets.max() - free:+.4f} nats off"
    )
    report.value(f"{prefix}/worse than free/cuvee auto", worse, "answers", note)
    report_regrets(report, f"{prefix}/many seeds", "auto", regrets, CHECKED)


def measure(report: Report, options: argparse.Namespace) -> None:
    """Measure every objective, noise, method and budget."""
    folder = mixture_simulator.tables_folder()
    if folder is None:
        variable = mixture_simulator.TABLES
        report.skipped["search"] = f"{variable} must name the folder of published tables, but is not set"
        return
    if report.quick:
        quick = {"objective": ["pile_cc"], "sim": "law", "budgets": [5], "seeds": 1, "never_worse": 0}
        options = argparse.Namespace(**vars(options) | quick)
    peer = peers.load("search_baselines", report.skipped)
    others = [] if peer is None else [*peer.ANYTIME, *peer.PLANNED]
    budgets = sorted(options.budgets)
    for prefix, trials in settings(report, options, folder):
        for name in options.methods or [*OURS, *others]:
            seeds = seeds_of(options, min(options.seeds, SLOW.get(name, options.seeds)))
            if name in OURS:
                regrets = [course(trials, name, seed, budgets, options) for seed in seeds]
            else:
                regrets = [baseline(peer, trials, name, seed, budgets) for seed in seeds]
            report_regrets(report, prefix, name, np.array(regrets), budgets)
        if options.never_worse and trials.noise == 1:
            never_worse(report, prefix, trials, options)


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objective", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--sim", choices=("blend", *PARTS), default="blend")
    parser.add_argument("--noise", nargs="+", type=float, default=[1.0, 0.25])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0, help="of those seeds: others than methods were made with")
    parser.add_argument("--budgets", nargs="+", type=int, default=[10, 25, 50, 100])
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--batch", type=int, default=1, help="trials asked for at a time")
    parser.add_argument("--blind", action="store_true")
    parser.add_argument("--rungs", action="store_true")
    parser.add_argument("--never-worse", type=int, default=100, metavar="SEEDS")
    return parser.parse_known_args(arguments)


def main() -> None:
    options, rest = parse(sys.argv[1:])
    if all(os.environ.get(key) == value for key, value in harness.SINGLE_THREAD.items()):
        sys.argv[1:] = rest  # else the harness begins anew, with all arguments
    harness.main(functools.partial(measure, options=options))


if __name__ == "__main__":
    main()
