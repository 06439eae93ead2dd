"""A run's plan made again from contract and journal alone, without a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..errors import StateError
from . import Plan
from .checkpoint import with_budget
from .epoch import History
from .journal import Journal, plan_hash

if TYPE_CHECKING:
    from ..mixture import Mixture
    from ..mixture.source import Source


def replay(mixture: Mixture, epoch: int, journal: Journal, add: Iterable[Source]) -> Plan:
    """Return the plan of an epoch of the run that `journal` is of, which is only read; see `Mixture.plan`."""
    entries = journal.checked()  # of its own, and without the run's file
    _check_run(mixture, entries)
    _check_rows(mixture, entries)
    originally = _original_rows(entries)
    mixture = with_budget(mixture, sum(originally.get(source.name, source.rows) for source in mixture.sources))
    parent = plan_hash(mixture.spec_hash, epoch, Journal(entries[:-1])) if entries else None
    history = History(sources=mixture.sources + entries.joined(add), journal=entries, parent=parent)
    return Plan(mixture, epoch, history=history)


def _check_run(mixture: Mixture, journal: Journal) -> None:
    """Check that the journal can be one of a run of this mixture, and says all that its order depends on."""
    journal.check_names(mixture.names)
    cycle = mixture.exhaustion == "cycle"
    for change in journal:
        if (change.epoch is None) != cycle:  # positions count over all epochs under `cycle` only
            rule = "cycle" if change.epoch is None else "stop or renormalize"
            raise StateError(
                f"exhaustion must be {rule}, as in the run that the journal is of, but got {mixture.exhaustion!r}"
            )
        recounted = [accepted.name for accepted in change.accepted if accepted.field in ("rows", "lengths")]
        if recounted and mixture.unit == "tokens":
            raise StateError(
                "journal must be that of a run with the same lengths throughout, where shares are in tokens, but got "
                f"one in which those of {recounted} changed; load a state saved after the change"
            )


def _check_rows(mixture: Mixture, journal: Journal) -> None:
    """Check that each change of a source's rows goes on from the one before, and the last one leads to its rows now."""
    rows = {source.name: source.rows for source in mixture.sources}
    for change in reversed(journal):
        for accepted in reversed(change.accepted):
            if accepted.field != "rows":
                continue
            if accepted.now != rows[accepted.name]:
                raise StateError(
                    f"source {accepted.name!r}: rows must be {accepted.now} as in the journal, but got "
                    f"{rows[accepted.name]}"
                )
            rows[accepted.name] = accepted.was


def _original_rows(journal: Journal) -> Mapping[str, int]:
    """Return by name the rows that sources had when the run began, of those whose number changed."""
    rows: dict[str, int] = {}
    for change in journal:
        for accepted in change.accepted:
            if accepted.field == "rows":
                rows.setdefault(accepted.name, accepted.was)
    return rows
