"""The state of a plan: what a checkpoint keeps, and how a run goes on from it, over changed data if it must."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _core
from ..checks import canonical_json, nearest
from ..errors import StateError
from ..mixture import Mixture
from ..mixture.source import Source
from .change import MAY_CHANGE, Accepted, Change, Span
from .epoch import History
from .journal import Journal, plan_hash
from .state_fields import check_fields
from .stream import Resume

if TYPE_CHECKING:
    from . import Plan
    from .epoch import Epoch

VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field that is not what the state says; `source` is None for a setting of the mixture."""

    source: str | None
    field: str
    was: Any
    now: Any

    def __str__(self) -> str:
        label = self.field if self.source is None else f"source {self.source!r}: {self.field}"
        return f"{label} must be {self.was!r} as in the state, but got {self.now!r}"


def state_of(plan: Plan, epoch: Epoch, issued: int) -> dict[str, Any]:
    """Return the state of a plan, to go on from position `issued`, as JSON values."""
    slot = epoch.slot(issued)
    resume = epoch.stream.snapshot(slot)
    given = epoch.stream.core.counts(slot).tolist()
    state: dict[str, Any] = {
        "version": VERSION,
        "spec_hash": plan.spec_hash,
        "plan_hash": plan.plan_hash,
        "parent": plan.parent,
        "epoch": plan.epoch,
        "issued": slot - epoch.offset,
        "given": given,
        "given_hash": hash_of(given),
        "spec": plan.mixture.spec(),
        "journal": plan.journal.state(),
    }
    if epoch.origins:
        state["origins"] = list(epoch.origins)
    if resume is not None:
        state["stream"] = {
            "slot": resume.slot,
            "snapshot": base64.b64encode(resume.snapshot).decode(),
            "debts": list(resume.debts),
            "counted": resume.counted,
            "given": list(resume.given),
            "base": epoch.base.tolist(),
        }
    state["digest"] = digest_of(state)
    return state


def digest_of(state: Mapping[str, Any]) -> str:
    """Return the xxh3-128 of what a state holds, as JSON with sorted keys and no spaces.

    The contract and the draws of each source have hashes of their own in it, which are compared where they are needed.
    """
    return hash_of({name: value for name, value in state.items() if name not in ("digest", "spec", "given")})


def hash_of(value: object) -> str:
    """Return the xxh3-128 of a value as JSON with sorted keys and no spaces."""
    return _core.xxh3_128(canonical_json(value))


def restore(
    mixture: Mixture,
    state: Mapping[str, Any],
    *,
    accept_changes: frozenset[str],
    add: Sequence[Source],
    journal: str | os.PathLike[str] | Journal | None,
) -> tuple[Mixture, int, History]:
    """Return (mixture, epoch, history) of the plan a state was taken of; StateError where something does not fit."""
    _check_form(state)
    try:
        return _restore(mixture, state, accept_changes=accept_changes, add=add, journal=journal)
    except (KeyError, TypeError, AttributeError, RecursionError) as err:
        raise StateError(f"state must be one that state_dict returned, but got a damaged one: {err!r}") from err


def _restore(
    mixture: Mixture,
    state: Mapping[str, Any],
    *,
    accept_changes: frozenset[str],
    add: Sequence[Source],
    journal: str | os.PathLike[str] | Journal | None,
) -> tuple[Mixture, int, History]:
    check_fields(state)
    mixture = with_budget(mixture, state["spec"]["samples_per_epoch"])
    entries = journal if isinstance(journal, Journal) else Journal.from_state(state["journal"], journal)
    expected = plan_hash(state["spec_hash"], state["epoch"], entries)
    if expected != state["plan_hash"]:
        raise StateError(f"plan_hash must be {expected}, that of spec, epoch and journal, but got {state['plan_hash']}")
    if digest_of(state) != state["digest"]:
        raise StateError(
            f"state digest must be {digest_of(state)}, that of what the state holds, but got {state['digest']}; it was "
            "changed after it was saved: load an earlier one"
        )
    _check_accepts(accept_changes, mixture.names)
    changed = [] if mixture.spec_hash == state["spec_hash"] else list(_changes(state, mixture))
    _check_allowed(changed, accept_changes)
    entries.check_names(mixture.names)
    joined = entries.joined(add)
    parent = state["parent"]
    if changed:
        parent = state["plan_hash"]
        entries.append(_acceptance(mixture, state, entries, changed))
    history = History(
        sources=mixture.sources + joined,
        journal=entries,
        parent=parent,
        issued=state["issued"],
        origins=tuple(state.get("origins", ())),
        **_stream_of(state.get("stream")),
    )
    return mixture, state["epoch"], history


def _check_form(state: object) -> None:
    if not isinstance(state, Mapping):
        raise StateError(f"state must be a mapping that state_dict returned, but got {state!r}")
    if state.get("version") != VERSION:
        raise StateError(f"state version must be {VERSION}, but got {state.get('version')!r}")
    spec = state.get("spec")
    if not isinstance(spec, Mapping):
        raise StateError(f"state spec must be a mapping, but got {spec!r}")
    order_format = spec.get("order_format")
    if order_format != _core.ORDER_FORMAT:
        raise StateError(
            f"order format must be {_core.ORDER_FORMAT}, but got {order_format!r}; go on with the release that wrote it"
        )


def _changes(state: Mapping[str, Any], mixture: Mixture) -> Iterator[Difference]:
    """Return what differs between the contract of a state and the mixture, once the state is known to be undamaged."""
    for field, label in (("spec", "spec_hash"), ("given", "given_hash")):
        if hash_of(state[field]) != state[label]:
            raise StateError(
                f"state {field} must have the hash {state[label]}, but got {hash_of(state[field])}; it was changed "
                "after it was saved: load an earlier one"
            )
    return differences_of(state["spec"], mixture.spec())


def with_budget(mixture: Mixture, budget: object) -> Mixture:
    """Return the mixture with a run's epoch length if its own is the default, which is fixed when a run begins."""
    by_default = mixture.default_budget and mixture.exhaustion == "cycle"
    if by_default and isinstance(budget, int) and budget != mixture.samples_per_epoch:
        return mixture.with_budget(budget)
    return mixture


def differences_of(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield what differs between two contracts, as `Mixture.spec` gives them."""
    for field in was:
        if field not in ("sources", "stages") and was[field] != now.get(field):
            yield Difference(source=None, field=field, was=was[field], now=now.get(field))
    names_were = [source["name"] for source in was["sources"]]
    names_are = [source["name"] for source in now["sources"]]
    if names_were != names_are:
        yield Difference(source=None, field="sources", was=names_were, now=names_are)
        return
    if was["stages"] != now["stages"]:
        yield Difference(source=None, field="stages", was=was["stages"], now=now["stages"])
    for before, after in zip(was["sources"], now["sources"], strict=True):
        resized = before["rows"] != after["rows"]
        for field in before:
            follows = field == "cap" and resized  # a cap is rows times epochs
            if before[field] != after[field] and not follows:
                yield Difference(source=before["name"], field=field, was=before[field], now=after[field])


def _check_accepts(accepts: frozenset[str], names: Sequence[str]) -> None:
    if not accepts:
        return
    valid = {*names, *(f"{name}.{field}" for name in names for field in MAY_CHANGE)}
    for accept in sorted(accepts - valid):
        raise StateError(
            f"accept_changes must name sources, or one of their {list(MAY_CHANGE)} as in {names[0] + '.rows'!r}, "
            f"but got {accept!r}{nearest(accept, sorted(valid))}"
        )


def _check_allowed(changed: Sequence[Difference], accepts: frozenset[str]) -> None:
    refused = [
        change
        for change in changed
        if change.field not in MAY_CHANGE
        or change.source is None
        or not accepts & {change.source, f"{change.source}.{change.field}"}
    ]
    if not refused:
        return
    text = "; ".join(str(change) for change in refused[:5])
    if len(refused) > 5:
        text += f"; and {len(refused) - 5} more"
    if all(change.source is not None and change.field in MAY_CHANGE for change in refused):
        text += f"; pass accept_changes={sorted({str(change.source) for change in refused})} to go on nevertheless"
    raise StateError(text)


def _acceptance(mixture: Mixture, state: Mapping[str, Any], journal: Journal, changed: Sequence[Difference]) -> Change:
    """Return the journal entry that records which changes of the data were allowed."""
    recounted = [change for change in changed if change.field in ("rows", "lengths")]
    if recounted and mixture.unit == "tokens" and mixture.samples_per_epoch == "all_seen":
        raise StateError(f'{recounted[0]}, which "all_seen" epochs in tokens cannot go on from; begin a new run')
    cycle = mixture.exhaustion == "cycle"
    epoch, given = None if cycle else state["epoch"], dict(zip(mixture.names, state["given"], strict=False))
    accepted = [_accepted(mixture, journal, change, given[str(change.source)], epoch) for change in changed]
    budget = mixture.samples_per_epoch
    offset = state["epoch"] * budget if isinstance(budget, int) else 0
    return Change(
        epoch=epoch, position=state["issued"] + offset, weights=None, accepted=tuple(accepted), reason="data changed"
    )  # fmt: skip


def _accepted(mixture: Mixture, journal: Journal, change: Difference, at_draw: int, epoch: int | None) -> Accepted:
    source = mixture.sources[mixture.names.index(str(change.source))]
    earlier = [
        accepted
        for entry in journal
        if entry.epoch == epoch
        for accepted in entry.accepted
        if accepted.name == source.name and accepted.field == "rows"
    ]
    span, cap = Span(first_draw=0, first_cycle=0, rows=source.rows), source.cap(mixture.exhaustion)
    if earlier:
        span, cap = earlier[-1].span, earlier[-1].cap
    if change.field == "rows":
        if change.now == 0:
            raise StateError(f"source {source.name!r}: rows must be at least 1, but got 0")
        cap = cap if earlier else source.cap(mixture.exhaustion, change.was)
        span = Span(first_draw=span.first_draw, first_cycle=span.first_cycle, rows=change.was)
        if at_draw < cap < _core.ENDLESS:
            passes_left = max((source.max_epochs or 1) - span.next_cycle(at_draw), 1)
            cap = at_draw + change.now * passes_left
    return Accepted(
        name=source.name, field=change.field, was=change.was, now=change.now,
        at_draw=at_draw, cycle=span.next_cycle(at_draw), cap=cap,
    )  # fmt: skip


def _stream_of(state: Mapping[str, Any] | None) -> dict[str, Any]:
    if state is None:
        return {}
    resume = Resume(
        slot=state["slot"],
        snapshot=base64.b64decode(state["snapshot"]),
        debts=tuple(state["debts"]),
        counted=state["counted"],
        given=tuple(state["given"]),
    )
    return {"resume": resume, "base": tuple(state["base"])}
