"""The runs as a table and a picture: each arm's held-out loss less uniform's, seed by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from .arms import names
from .corpora import HELD_OUT, PACKAGES, SUITES, WINDOW, suite
from .trial import EVALUATE_EVERY, RATE, ROWS, STEPS, UPDATE_INTERVAL
from .tuned import RUNS, STOP

Run = Mapping[str, Any]
HARM, GAIN_MEAN, GAIN_WORST, LEVEL = 0.003, 0.06, 0.05, 0.001  # the goals of the default policy
DEFAULT = "learning_speed"
HEAD = """\
# Does mixing online help?

Held-out loss of a byte-level transformer (2 layers, width 64) after {steps} steps of {rows} rows of {bytes} bytes, less
that of the run on the uniform mixture with the same seed: nats a byte, {seeds} seeds, 95% intervals and p of the paired
t test. Negative is better. *Mean* and *worst* are over the domains that are scored, all but noise. For one seed, all
arms have the same initial weights, the same rows of each domain in the same order and the same held-out windows.

- *to uniform*: the part of the first {last} steps after which an arm has the validation loss that uniform has at their
  end; the median over seeds
- AdamW, highest rate {rate}, cosine; updates every {interval} steps; {held_out:,} held-out bytes a domain
- *tuned*: the best static mixture by a law through {proxies} proxies of {stop:.0%} of the steps, {cost:.1f} runs' worth
- *doremi* needs a reference model, here that of the uniform run: one run more
- text: Python's standard library and the Debian packages {packages}

Made by `python benchmarks/bench_learning.py`.

![Differences to uniform](policies.svg)"""
TITLES = {"P": "P: plain text", "H": "H: noise, boilerplate, a tiny source"}
WIDEST = 0.4  # what is further off is told at the edge of the picture


@dataclass(frozen=True, slots=True)
class Difference:
    """Paired differences of seeds: mean, half of the 95% interval, and p of the two-sided t test."""

    mean: float
    half: float
    p: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Difference":
        values = np.array(values)
        if not values.any():
            return cls(0.0, 0.0, 1.0)
        error = float(stats.sem(values))
        return cls(
            float(values.mean()),
            error * float(stats.t.ppf(0.975, len(values) - 1)),
            float(stats.ttest_1samp(values, 0).pvalue),
        )

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.half:.4f} | {_p(self.p)}"


class Compared:
    """The runs of a suite by arm and seed; only seeds that every arm has."""

    def __init__(self, runs: Sequence[Run], suite_name: str) -> None:
        self.suite = suite_name
        by_arm: dict[str, dict[int, Run]] = {}
        for run in runs:
            if run["suite"] == suite_name:
                by_arm.setdefault(run["arm"], {})[run["seed"]] = run
        self.arms = [name for name in names() if name in by_arm]
        self.seeds = sorted(set.intersection(*(set(by_arm[arm]) for arm in self.arms)))
        self._runs = by_arm

    def values(self, arm: str, what: str) -> np.ndarray:
        return np.array([self._runs[arm][seed][what] for seed in self.seeds])

    def difference(self, arm: str, other: str, what: str) -> Difference:
        return Difference.of(self.values(arm, what) - self.values(other, what))

    def tokens_to_uniform(self, arm: str) -> float:
        """Return the median share of the run's tokens after which the arm's validation mean is uniform's last one."""
        target = self.values("uniform", "curve")[:, -1]
        return float(
            np.median([_crossing(curve, end) for curve, end in zip(self.values(arm, "curve"), target, strict=True)])
        )


def write_report(runs: Sequence[Run], folder: Path) -> str:
    """Write RESULTS.md and policies.svg into `folder`, and return the former."""
    suites = [Compared(runs, name) for name in SUITES]
    _picture(suites, folder / "policies.svg")
    text = "\n".join([*_head(suites), *(line for each in suites for line in _table(each)), *_verdict(suites), ""])
    (folder / "RESULTS.md").write_text(text)
    return text


def _head(suites: Sequence[Compared]) -> list[str]:
    return [
        HEAD.format(
            steps=STEPS,
            rows=ROWS,
            bytes=WINDOW - 1,
            seeds=min(len(each.seeds) for each in suites),
            last=(STEPS - 1) // EVALUATE_EVERY * EVALUATE_EVERY,
            rate=RATE,
            interval=UPDATE_INTERVAL,
            held_out=HELD_OUT * (WINDOW - 1),
            proxies=RUNS,
            stop=STOP,
            cost=RUNS * STOP,
            packages=PACKAGES,
        )
    ]


def _table(each: Compared) -> list[str]:
    domains = ", ".join(domain.name for domain in suite(each.suite))
    mean, worst = each.values("uniform", "mean"), each.values("uniform", "worst")
    lines = [
        "",
        f"## Suite {TITLES[each.suite]}",
        "",
        f"Domains: {domains}.",
        f"Uniform's mean is {mean.mean():.4f} (sd over seeds {mean.std(ddof=1):.4f}), its worst {worst.mean():.4f}.",
        "",
        "| arm | mean | p | worst | p | to uniform | shares trained on |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in each.arms[1:]:
        mean, worst = (each.difference(arm, "uniform", what) for what in ("mean", "worst"))
        shares = " ".join(f"{share:.0%}" for share in each.values(arm, "shares").mean(0))
        reached = each.tokens_to_uniform(arm)
        lines.append(f"| {arm} | {mean} | {worst} | {'never' if reached > 1 else f'{reached:.0%}'} | {shares} |")
    return lines


def _verdict(suites: Sequence[Compared]) -> list[str]:
    plain, mixed = suites
    lines = ["", f"## {DEFAULT}, the default policy", ""]
    harm = plain.difference(DEFAULT, "uniform", "mean")
    mean, worst = (mixed.difference(DEFAULT, "uniform", what) for what in ("mean", "worst"))
    goals = [
        (
            f"P: upper 95% bound of harm on the mean at most {HARM}",
            f"{harm.mean + harm.half:+.4f}",
            harm.mean + harm.half <= HARM,
        ),
        (f"H: mean at least {GAIN_MEAN} better, p < {LEVEL}", str(mean), mean.mean <= -GAIN_MEAN and mean.p < LEVEL),
        (
            f"H: worst at least {GAIN_WORST} better, p < {LEVEL}",
            str(worst),
            worst.mean <= -GAIN_WORST and worst.p < LEVEL,
        ),
    ]
    lines += [f"- {goal}: {found.replace(' | ', ', p ')} ({'met' if met else 'missed'})" for goal, found, met in goals]
    lines += [
        "",
        "Against the other mixtures that need no online learning:",
        "",
        "| suite | against | mean | p | worst | p |",
        "|---|---|---|---|---|---|",
    ]
    for each in suites:
        for other in ("natural", "unimax", "tuned"):
            mean, worst = (each.difference(DEFAULT, other, what) for what in ("mean", "worst"))
            lines.append(f"| {each.suite} | {other} | {mean} | {worst} |")
    harmful = {
        each.suite: [
            arm for arm in each.arms[1:] if (d := each.difference(arm, "uniform", "mean")).mean > 0 and d.p < 0.05
        ]
        for each in suites
    }
    lines += ["", "Worse than uniform on the mean at p < 0.05:", ""]
    lines += [f"- suite {name}: {', '.join(arms) or 'none'}" for name, arms in harmful.items()]
    return lines


def _picture(suites: Sequence[Compared], path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "cuvee"  # the same file for the same runs
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    figure.suptitle("Held-out loss less that of the uniform mixture, with 95% intervals")
    for axes, each in zip(figure.subplots(1, len(suites), sharey=True), suites, strict=True):
        arms = each.arms[1:]
        for what, color, shift in (("mean", "#2166ac", -0.14), ("worst", "#b2182b", 0.14)):
            found = [each.difference(arm, "uniform", what) for arm in arms]
            places = np.arange(len(arms)) + shift
            axes.errorbar(
                [d.mean for d in found],
                places,
                xerr=[d.half for d in found],
                fmt="o",
                ms=4,
                color=color,
                capsize=2,
                label=f"{what} of the domains",
            )
        for place, arm in enumerate(arms):
            if (off := each.difference(arm, "uniform", "mean").mean) > WIDEST:
                axes.annotate(f"{off:+.2f} →", (WIDEST, place), ha="right", va="center")
        axes.set_xlim(right=min(axes.get_xlim()[1], WIDEST))
        axes.axvline(0, color="0.4", lw=1)
        axes.grid(axis="x", color="0.9")
        axes.set(title=f"Suite {TITLES[each.suite]}", xlabel="less is better, nats a byte")
        axes.set_yticks(range(len(arms)), arms)
    axes.invert_yaxis()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path, metadata={"Date": None})


def _crossing(curve: Sequence[float], target: float) -> float:
    """Return the share of the run at which a curve comes down to `target`, between its points; above 1 if never."""
    points = len(curve)
    for place, value in enumerate(curve):
        if value <= target:
            before = curve[place - 1] if place else value
            part = (before - target) / (before - value) if before > value else 1.0
            return (place + part) / points
    return 2.0


def _p(p: float) -> str:
    return "< .0001" if p < 1e-4 else f"{p:.4f}"
