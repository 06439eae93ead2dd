"""The receipt of a study: what its runs recommend, and how far each share of it is settled."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .methods import Recommendation
from .plan import SearchPlan
from .receipt import F64, LEVEL, RECOMMENDED, Receipt, Run
from .score import LARGEST, HasRemarks
from .space import mixture
from .trials import Slot
from .verdict import settled

RESAMPLES = 20
FEW_RESAMPLES = {"regmix": 8}  # where an answer takes many seconds
SLACK = 0.01  # by which passes may be over their limit
INTERVAL_SEED = 0x626F_6F74  # sets resampling apart from all else that is made of a search's seed


def receipt_of(plan: SearchPlan, slots: Sequence[Slot], *, resamples: int | None = None) -> Receipt:
    """Return the receipt of the runs that are done, an audit under way or not yet begun included.

    Args:
        plan: the search.
        slots: its runs.
        resamples: times that the recommendation is worked out anew for its interval; 0 leaves the interval out. None
            is 20, fewer for methods that are slow.
    """
    if resamples is None:
        resamples = FEW_RESAMPLES.get(plan.method, RESAMPLES)
    done = [slot for slot in slots if slot.state == "done"]
    last = plan.course.last_audit(slots)
    told = plan.course.told(slot.run() if slot in last else _earlier(slot.run()) for slot in done)
    searched = [run for run in told if run.kind == "search"]
    recommended = plan.course.recommendation(searched)
    made = [run for run, slot in zip(told, done, strict=True) if not slot.planned.known]
    receipt = Receipt(
        method=plan.method,
        names=plan.space.names,
        targets=plan.losses,
        target_weights=plan.target_weights,
        weights=tuple(_audited(last, recommended).tolist()),
        runs=tuple(made),
        predicted=float(recommended.mean),
        predicted_sd=float(recommended.sd),
        target_steps=plan.target_steps or 0,
        fingerprint=str(plan.about.get("fingerprint", "")),
        remarks=(*_of_diverged(made), *_of_earlier(plan, made)),
    )
    asked, receipt = receipt, settled(receipt, plan.rules.free)
    weights = np.array(receipt.weights)
    low, high = interval_of(plan, searched, weights, resamples) if searched and resamples else ((), ())
    said = [*_remarks(plan, weights), *([] if asked is not receipt else _of_free(plan, weights)), *_of_pairs(receipt)]
    return replace(receipt, low=low, high=high, remarks=(*receipt.remarks, *said))


def interval_of(
    plan: SearchPlan, runs: Sequence[Run], weights: F64, resamples: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return an interval of each share: between the ends of what the method recommends of other samples of the runs.

    Half of the runs are drawn, none twice, and the method is asked again; the first, which methods start from, is
    always among them. What halves scatter by around the answer to all is what answers scatter by from search to search,
    as far as they are linear in the runs (half-samples: McCarthy 1969). Runs drawn twice, as the bootstrap has them,
    would be taken for runs without noise. The recommended share is always within.

    Args:
        plan: the search.
        runs: those of the search, with the losses that the method is told.
        weights: the recommended mixture, shape (K,).
        resamples: how often to draw.

    Returns:
        Lower and upper ends at level 0.9, K of each.
    """
    rng, course = np.random.default_rng([plan.seed, INTERVAL_SEED]), plan.course
    found = [weights]
    for _ in range(resamples):
        half = rng.choice(np.arange(1, len(runs)), size=len(runs) // 2, replace=False)
        drawn = [0, *sorted(half.tolist())]
        sample = [replace(runs[place], number=number) for number, place in enumerate(drawn)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit of few different runs may well be a poor one
            found.append(np.asarray(course.recommendation(sample).weights))
    low, high = np.quantile(np.array(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return tuple(np.minimum(low, weights).tolist()), tuple(np.maximum(high, weights).tolist())


def _audited(slots: Sequence[Slot], recommended: Recommendation) -> F64:
    """Return the mixture that the audit is of, which decides where arithmetic differs from machine to machine."""
    for slot in slots:
        if slot.planned.arm == RECOMMENDED:
            return np.array(slot.planned.weights)
    return np.asarray(recommended.weights, dtype=np.float64)


def _of_diverged(made: Sequence[Run]) -> list[str]:
    """Return how many runs diverged, and what stands in their place; nothing if none did."""
    counted = []
    for kind in ("search", "audit", "earlier audit"):
        bad = [run.diverged for run in made if run.kind == kind]
        counted += [f"{sum(bad)} of {len(bad)} runs of the {kind}"] if any(bad) else []
    why = f"a loss was not finite, or beyond {LARGEST:g}"
    instead = "For each target the worst loss of the other runs stands in the place of theirs."
    return [f"{' and '.join(counted)} diverged: {why}. {instead}"] if counted else []


def _earlier(run: Run) -> Run:
    """Return a run as one of an earlier audit, if it is of an audit at all."""
    return replace(run, kind="earlier audit") if run.kind == "audit" else run


def _of_earlier(plan: SearchPlan, made: Sequence[Run]) -> list[str]:
    """Return what became of the audits of smaller budgets; nothing if there were none."""
    count = sum(run.kind == "earlier audit" for run in made)
    budgets = " and ".join(map(str, plan.earlier))
    said = f"{count} runs are of the audit at a budget of {budgets}: they are paid for, and no part of the verdict."
    return [said] if count else []


def _of_pairs(receipt: Receipt) -> list[str]:
    """Return that the pairs of the audit say nothing of noise, if none of them differs from another."""
    alike = [comparison.pairs > 1 and comparison.sd == 0 for comparison in receipt.comparisons]
    return ["Losses were the same under every seed: the pairs say no more than one."] if alike and all(alike) else []


def _of_free(plan: SearchPlan, weights: F64) -> list[str]:
    """Return that a recommended mixture is a free one, if it is."""
    same = [name for name, other in plan.rules.free.items() if mixture(other) == mixture(weights)]
    why = "the search found none that is likely to be better"
    return [f"The recommended mixture is the {' and '.join(same)} one: {why}."] if same else []


def _remarks(plan: SearchPlan, weights: F64) -> list[str]:
    """Return what else should be known of a recommended mixture."""
    found = list(plan.score.remarks) if isinstance(plan.score, HasRemarks) else []
    if plan.extrapolation is not None:
        steps = f"{plan.extrapolation.steps:,} to {plan.extrapolation.target_steps:,} steps"
        found.append(f"Losses are extrapolated from {steps} by a law of steps, for one size of the model.")
    if plan.passes is not None and plan.passes.most is not None:
        for name, passes in zip(plan.space.names, plan.passes.of(weights).tolist(), strict=True):
            if passes > plan.passes.most * (1 + SLACK):
                found.append(
                    f"The run reads {name!r} {passes:.3g} times, more than {plan.passes.most:g}: with this mixture its "
                    "rows are longer on average than those of the sources. Lower its share with --upper."
                )
    low, high = plan.space.lower, plan.space.upper
    for place in np.flatnonzero(plan.space.free).tolist():
        share = weights[place]
        if 0 < high[place] < 1 and share > high[place] - 1e-6:
            found.append(f"The share of {plan.space.names[place]!r} is at its upper bound, {high[place]:.4g}.")
        if low[place] > 0 and share < low[place] + 1e-6:
            found.append(f"The share of {plan.space.names[place]!r} is at its lower bound, {low[place]:.4g}.")
    return found
