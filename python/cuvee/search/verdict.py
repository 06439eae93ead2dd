"""What the audit may overturn: an answer that a free mixture beats beyond noise gives way to that mixture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .receipt import FOUND, RECOMMENDED, SURE, Comparison, Receipt
from .space import mixture


def settled(receipt: Receipt, free: Mapping[str, tuple[float, ...]]) -> Receipt:
    """Return the receipt, with a free mixture for its answer if the audit shows that to be better beyond noise.

    A search that found nothing takes the free mixture that it believes in, and a method may fool itself. The audit runs
    the answer and the free mixtures under seeds that the search never saw. Where one of them is better with a
    confidence of 0.95, or the answer diverged and it did not, it takes the answer's place; of two the one of the lower
    loss. If the answer is itself a free mixture, the runs of both in the search count as a pair more, for neither was
    chosen by them.

    Args:
        receipt: with the audit of what the method recommends.
        free: the free mixtures by the names of their arms.
    """
    own = next((name for name, weights in free.items() if mixture(weights) == mixture(receipt.weights)), None)
    better = []
    for comparison in receipt.comparisons:
        rivals = list(receipt.of_kind("audit", comparison.other))
        pairs = comparison.differences
        if own is not None:
            pairs = (*pairs, *_in_search(receipt, rivals[0].weights))
        sound = not any(run.diverged for run in rivals)
        if sound and (comparison.diverged or _is_worse(pairs)):
            better.append((float(np.mean([receipt.loss(run) for run in rivals])), comparison, pairs))
    if not better:
        return receipt
    _, comparison, pairs = min(better, key=lambda each: each[0])
    names = {RECOMMENDED: own or FOUND, comparison.other: RECOMMENDED}
    return replace(
        receipt,
        weights=next(receipt.of_kind("audit", comparison.other)).weights,
        predicted=math.nan,
        predicted_sd=math.nan,
        runs=tuple(
            replace(run, arm=names.get(run.arm, run.arm)) if run.kind == "audit" else run for run in receipt.runs
        ),
        remarks=(*receipt.remarks, _said(receipt, own, comparison, pairs)),
    )


def _is_worse(differences: tuple[float, ...]) -> bool:
    """Tell whether the answer is worse beyond noise, given the losses of another mixture minus those of the answer."""
    turned = Comparison(other="", differences=tuple(-each for each in differences), by_target=())
    return turned.confidence >= SURE


def _in_search(receipt: Receipt, other: tuple[float, ...]) -> tuple[float, ...]:
    """Return the loss of another mixture minus that of the answer in the search, if both ran there to the end."""
    losses: dict[tuple[float, ...], float] = {}
    for run in receipt.of_kind("search"):
        if run.fidelity == 1 and not run.diverged:
            losses.setdefault(mixture(run.weights), receipt.loss(run))
    both = [losses.get(mixture(weights)) for weights in (other, receipt.weights)]
    return () if both[0] is None or both[1] is None else (both[0] - both[1],)


def _said(receipt: Receipt, own: str | None, comparison: Comparison, pairs: tuple[float, ...]) -> str:
    shares = zip(receipt.names, receipt.weights, strict=True)
    found = f"the {own} one" if own else ", ".join(f"{name} {share:.1%}" for name, share in shares)
    why = f"was worse than {comparison.other} by {-float(np.mean(pairs)):.4f} nats in {len(pairs)} pairs, beyond noise"
    if comparison.diverged:
        why = f"diverged in {comparison.diverged} of {comparison.pairs} runs"
    return f"The search's own answer, {found}, {why}: the {comparison.other} mixture is recommended in its place."
