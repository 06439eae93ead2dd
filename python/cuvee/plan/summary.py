"""What an epoch gives, before it is run: the table behind `plan.summary()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _core

if TYPE_CHECKING:
    from . import Plan
    from .epoch import Epoch

MANY_PASSES = 4.0  # from more passes than this over a source on, repetition is warned of
TOKEN_GAP = 0.1  # relative gap between a source's shares of rows and of tokens that is warned of
EXACT_DRAWS = 1 << 24  # tokens of longer epochs are estimated from the mean length
MAX_SEGMENT_WORK = 1 << 27  # segments times sources looked at for the bound within windows

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


def summarise(plan: Plan, epoch: Epoch) -> dict[str, Any]:
    """Return what the epoch of `plan` gives, as JSON values."""
    mixture, core, size = plan.mixture, epoch.stream.core, len(plan)
    counts = plan.counts(size)
    sources = _source_rows(plan, epoch, counts)
    tokens = _tokens(plan, epoch, counts)
    if tokens is not None:
        _add_tokens(sources, tokens)
    bound = core.bound
    return {
        "version": 1,
        "spec_hash": plan.spec_hash,
        "plan_hash": plan.plan_hash,
        "parent": plan.parent,
        "seed": mixture.seed,
        "epoch": plan.epoch,
        "policy": mixture.exhaustion,
        "unit": mixture.unit,
        "window": mixture.window,
        "shuffle_within_sources": mixture.shuffle_within_sources,
        "samples_per_epoch": mixture.samples_per_epoch,
        "planned_rows": size,
        "termination_reason": termination_reason(plan, epoch),
        "bound": bound,
        "bound_any_position": bound + mixture.window * _largest_variance(epoch),
        "rebased": dict(zip(plan.names, core.rebased(epoch.end).tolist(), strict=True)),
        "tokens": tokens and {"total": int(tokens["tokens"].sum()), "exact": tokens["exact"]},
        "changes": len(plan.journal),
        "sources": sources,
        "warnings": [warning for source in sources for warning in _warnings(source, mixture.unit)],
    }


def termination_reason(plan: Plan, epoch: Epoch) -> str:
    """Return why the epoch ends where it does."""
    budget = plan.mixture.samples_per_epoch
    if budget is not None:
        if epoch.end == epoch.stream.end:
            return "all_sources_exhausted"
        return "all_sources_exhausted_once" if budget == "all_seen" else "samples_per_epoch"
    if plan.mixture.exhaustion == "stop" and epoch.stream.core.ended_by >= 0:
        return f"source_exhausted:{plan.names[epoch.stream.core.ended_by]}"
    return "all_sources_exhausted"


def _source_rows(plan: Plan, epoch: Epoch, counts: I64) -> list[dict[str, Any]]:
    """Return one record per source. Rows used, unused and repeated count from the start of the stream on."""
    size, given = len(plan), epoch.base
    owed = plan.work(size) - plan.work(0) if epoch.offset >= epoch.stream.first else counts.astype(np.float64)
    shares = epoch.stream.shares(max(epoch.offset, epoch.stream.first))
    first = _first_positions(epoch, given, counts)
    records = []
    for k, source in enumerate(plan.sources):
        count, rows = int(counts[k]), source.rows
        spans = epoch.stream.spans(k)
        drawn = int(given[k]) + count - spans[-1].first_draw  # under the rows as they are now
        records.append(
            {
                "name": source.name,
                "weight_requested": float(shares[k]),
                "observed_proportion": count / size if size else 0.0,
                "expected_rows": float(owed[k]),
                "rows_selected": count,
                "rows_available": rows,
                "rows_used": min(rows, drawn),
                "rows_unused": rows - min(rows, drawn),
                "rows_repeated": min(rows, max(0, drawn - rows)),
                "duplicates": _duplicates(int(given[k]), count, spans[0].rows),
                "cycles": spans[-1].first_cycle + drawn / rows if rows else 0.0,
                "first_position": first[k],
                "fingerprint": source.fingerprint,
            }
        )
    return records


def _duplicates(given: int, count: int, rows: int) -> int:
    """Return how many of draws number given, ..., given+count-1 have a cycle above 0."""
    return count - max(0, min(given + count, rows) - given)


def _first_positions(epoch: Epoch, given: I64, counts: I64) -> list[int | None]:
    """Return where each source first appears in the epoch; None if it does not, or that is not held any more."""
    if epoch.offset < epoch.stream.first:
        return [None] * len(given)
    found = epoch.stream.core.positions_of(given).tolist()
    return [position - epoch.offset if count else None for position, count in zip(found, counts.tolist(), strict=True)]


def _largest_variance(epoch: Epoch) -> float:
    """Return the largest w (1 - w) of any source in any segment of the epoch, or 1/4 where that takes too long."""
    stream = epoch.stream
    start = max(epoch.offset, stream.first)
    slots = [start, *stream.change_slots(start, epoch.end)]
    if len(slots) * len(epoch.sources) > MAX_SEGMENT_WORK:
        return 0.25
    return max(float((weights * (1.0 - weights)).max()) for slot in slots for weights in [stream.core.weights(slot)])


def _tokens(plan: Plan, epoch: Epoch, counts: I64) -> dict[str, Any] | None:
    """Return tokens and passing rows per source; None if lengths are not known.

    Tokens are exact unless the epoch is long or its beginning is not held any more.
    """
    if any(source.lengths is None and source.rows for source in plan.sources):
        return None
    size, sources = len(plan), len(plan.sources)
    if size > EXACT_DRAWS or epoch.offset < epoch.stream.first:
        per_row = epoch.stream.lengths.tokens_per_row
        return {"tokens": np.rint(per_row * counts).astype(np.int64), "passing": None, "exact": False}
    tokens, passing = np.zeros(sources, dtype=np.int64), np.zeros(sources, dtype=np.int64)
    for start in range(0, size, 1 << 20):
        draws = plan.draws(start, min(start + (1 << 20), size))
        kept = plan.passes(draws)
        lengths = epoch.stream.lengths.of(draws.source, draws.row)[kept].astype(np.int64)
        rows, sums = _core.tally(draws.source[kept], lengths, k=sources)
        tokens += sums
        passing += rows
    return {"tokens": tokens, "passing": passing, "exact": True}


def _add_tokens(sources: list[dict[str, Any]], tokens: dict[str, Any]) -> None:
    total = int(tokens["tokens"].sum())
    for k, source in enumerate(sources):
        source["tokens"] = int(tokens["tokens"][k])
        source["token_proportion"] = source["tokens"] / total if total else 0.0
        if tokens["passing"] is not None:
            source["rows_filtered"] = source["rows_selected"] - int(tokens["passing"][k])


def _warnings(source: dict[str, Any], unit: str) -> list[str]:
    name, owed = f"source {source['name']!r}", source["expected_rows"]
    warnings = []
    if source["rows_available"] == 0:
        warnings.append(f"{name} has no rows")
    elif source["rows_selected"] == 0:
        warnings.append(f"{name} is never drawn in this epoch")
    if 0 < owed < 1:
        warnings.append(f"{name} is owed {owed:.2g} rows per epoch")
    if source["cycles"] > MANY_PASSES:
        warnings.append(f"each row of {name} is drawn {source['cycles']:.3g} times on average")
    if source.get("rows_filtered"):
        some = "all" if source["rows_filtered"] == source["rows_selected"] else source["rows_filtered"]
        warnings.append(f"{name} has {some} of its rows over the length limit, which are skipped")
    share, tokens = source["observed_proportion"], source.get("token_proportion")
    if unit == "rows" and tokens is not None and abs(tokens - share) > TOKEN_GAP * share:
        warnings.append(
            f'{name} is {share:.2%} of the rows but {tokens:.2%} of the tokens; unit="tokens" mixes by tokens'
        )
    return warnings
