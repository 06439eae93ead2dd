"""A run with online mixing made again from its record: every weight, the journal, and the order that followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StateError
from ..plan.journal import Journal
from ..steps import StepSampler
from .record import RECORD_FILE, OnlineRecord, read_record
from .run import JOURNAL_FILE
from .setup import Online

if TYPE_CHECKING:
    from ..bandits import Bandit
    from ..mixture import Mixture
    from ..plan import Plan
    from ..rewards import RewardFunction
    from .decision import Decision
    from .mixer import OnlineMixer

FIELDS = ("update", "step", "epoch", "position")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay found.

    Attributes:
        updates: made again, up to the first difference.
        epochs: whose order was computed again and compared, the last one perhaps in part.
        difference: the first one, in a sentence; None if the run is what its record says.
        ended: whether the record has the run's end; if not, the run was killed, or the record is cut short.
    """

    updates: int
    epochs: int
    difference: str | None
    ended: bool


def replay_run(
    folder: str | Path,
    mixture: Mixture,
    *,
    algorithm: Bandit | None = None,
    reward: RewardFunction | None = None,
) -> Replay:
    """Derive every weight of a run from the reports that it recorded, and its order from the weights; and compare.

    Args:
        folder: the run's, with `online.jsonl` and the journal.
        mixture: what it trained on; its sources need no data, but their lengths where the run had them.
        algorithm: the bandit as it was when the run began, where that was no named one.
        reward: likewise.

    Raises:
        StateError: if the folder holds no record of such a run, or one that cannot be read.
        CuveeError: if the run's bandit or reward cannot be made again.
    """
    record = read_record(Path(folder))
    if record.start_broken:
        return Replay(updates=0, epochs=0, difference=record.broken, ended=record.ended)
    steps = StepSampler(mixture.plan(), rows=record.start["global_batch_size"])
    mixer = _setup(record.start, algorithm, reward).mixer(steps)
    done = 0
    difference = _take_up(steps, mixture, record, Path(folder) / JOURNAL_FILE) or _pace_difference(record)
    for found in () if difference else _decided(mixer, steps, record):
        difference = _difference(record.updates[done], found, mixture.names)
        if difference is not None:
            break
        done += 1
    if difference is not None:
        return Replay(updates=done, epochs=0, difference=difference, ended=record.ended)
    plan = _last_plan(steps, record)
    difference = _journal_difference(Path(folder) / JOURNAL_FILE, plan, record)
    epochs = set[int]()
    for stretch in _known_stretches(plan, record):
        if difference is not None:
            break
        difference = _order_difference(plan, stretch)
        if difference is None and stretch["schedule_hash"] is not None:
            epochs.add(stretch["epoch"])
    return Replay(updates=done, epochs=len(epochs), difference=difference or record.broken, ended=record.ended)


def _take_up(steps: StepSampler, mixture: Mixture, record: OnlineRecord, journal: Path) -> str | None:
    """Go to where the run began to train on the data as they are now; return how these differ from the record's.

    Where the data changed on the way, it is the place of the checkpoint that the run then went on from.
    """
    if record.start["names"] != list(mixture.names):
        return f"names must be {list(mixture.names)}, the mixture's, but got {record.start['names']!r:.200}"
    changed = record.on_changed_data
    now = record.starts[-1]["spec_hash"]
    if changed is None and now != mixture.spec_hash:
        hashes = f"{now}, as in the record, but got {mixture.spec_hash}"
        return f"spec_hash must be {hashes}: mixture or data are not the run's"
    if changed is None:
        return None
    if "resumed" not in changed:
        raise StateError(f"{RECORD_FILE} must tell where the run went on over changed data, but got no 'resumed' there")
    state = changed["resumed"]
    read_journal(journal)
    try:
        entries = Journal.from_state(state["plan"]["journal"], journal)
        entries.detach()  # it is only read
        steps.load_state_dict(state, journal=entries)
    except (KeyError, TypeError):
        raise StateError(f"'resumed' in {RECORD_FILE} must be the state of a run, but got {state!r:.60}") from None
    except StateError as error:
        return f"mixture, data and journal must be those of the run's checkpoint, but got another: {error}"
    return None


def _pace_difference(record: OnlineRecord) -> str | None:
    """Return which update was not made when its number says, `update_interval` steps after the one before."""
    interval = record.start["update_interval"]
    for number, update in enumerate(record.updates, start=1):
        if update.step != number * interval:
            label = f"update {update.update} at step {update.step}"
            return f"{label}: step must be {number * interval}, but got {update.step}"
    return None


def _setup(start: dict[str, Any], algorithm: Bandit | None, reward: RewardFunction | None) -> Online:
    for name, given in (("algorithm", algorithm), ("reward", reward)):
        if given is None and start[f"{name}_options"] is None:
            raise StateError(
                f"{name} must be given to replay a run whose {name} was an object, {start[name]!r}, but got none; call "
                f"cuvee.online.replay.replay_run(folder, mixture, {name}=...)"
            )
    return Online(
        algorithm=algorithm or start["algorithm"],
        reward=reward or start["reward"],
        algorithm_options=start["algorithm_options"] or {},
        reward_options=start["reward_options"] or {},
        update_interval=start["update_interval"],
        lag=start["lag"],
        measure=dict,  # whatever was measured stands in the reports
    )


def _decided(mixer: OnlineMixer, steps: StepSampler, record: OnlineRecord) -> Iterator[Decision | None]:
    """Yield each decision made again; of those before the data changed the weights alone."""
    taken_up = steps.step
    for number, update in enumerate(record.updates, start=1):
        if update.step <= taken_up:
            yield mixer.follow(update)
            mixer.reapply()  # where its epoch had not begun
        else:
            _make(steps, number * mixer.update_interval)
            yield mixer.decide({**update.report, "step": steps.step})


def _last_plan(steps: StepSampler, record: OnlineRecord) -> Plan:
    """Return the plan that knows of all updates made again: that of the epoch in which the last takes effect."""
    last = record.updates[-1].epoch if record.updates else 0
    return steps.plan_after(max(last - steps.plan.epoch, 0)) or steps.plan


def _make(steps: StepSampler, until: int) -> None:
    """Make steps until there are this many, or no source is left to draw from."""
    before = -1
    while before < steps.step < until:
        before = steps.step
        for keys in steps:
            if keys:  # those made before a state was loaded come empty
                steps.advance()
            if steps.step == until:
                break


def _difference(was: Decision, now: Decision | None, names: tuple[str, ...]) -> str | None:
    """Return how a decision made again differs from the one recorded."""
    label = f"update {was.update} at step {was.step}"
    if now is None:
        return f"{label}: no source must be left to draw from, but the record has an update"
    for name in FIELDS:
        if getattr(was, name) != getattr(now, name):
            return f"{label}: {name} must be {getattr(now, name)}, made again, but got {getattr(was, name)}"
    if was.probabilities.shape != now.probabilities.shape:
        return f"{label}: weights must be {len(names)}, but got {len(was.probabilities)}"
    wrong = np.flatnonzero(was.probabilities.view(np.int64) != now.probabilities.view(np.int64))
    if not len(wrong):
        return None
    source = int(wrong[0])
    return (
        f"{label}: weight of {names[source]!r} must be {now.probabilities[source].item()!r}, as its report leads to, "
        f"but got {was.probabilities[source].item()!r} in the record"
    )


def read_journal(path: Path) -> bytes:
    """Return what a run's journal holds; StateError if it has none that can be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(f"run folder must hold its journal, but got {str(path)!r}: {reason}") from None


def _journal_difference(path: Path, plan: Plan, record: OnlineRecord) -> str | None:
    """Return how the run's journal differs from the one made again."""
    content = read_journal(path)
    lines = content[: content.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    made: list[str] = plan.journal.checked().state()["lines"]
    for number, (was, now) in enumerate(zip(lines, made, strict=False), start=1):
        if was != now:
            return f"{path.name}, line {number} must be {_short(now, was)}, but got {_short(was, now)}"
    if len(lines) > len(made) and record.reaches:
        return f"{path.name} must hold {len(made)} updates, as the record does, but got {len(lines)}"
    killed = not record.ended and len(lines) == len(made) - 1  # between the record's line and the journal's
    if len(lines) < len(made) and not killed:
        return f"{path.name} must hold {len(made)} updates, as the record does, but got {len(lines)}"
    return _updates_difference(path.name, plan, record)


def _updates_difference(name: str, plan: Plan, record: OnlineRecord) -> str | None:
    """Return how the journal's updates differ from the record's, where they were read and not made again."""
    names = plan.names
    changes = {change.reason: change for change in plan.journal if change.weights is not None}
    last = max((number for number, change in enumerate(plan.journal) if change.accepted), default=0)
    placed_as_decided = {change.reason for change in plan.journal[:last]}  # windows may begin elsewhere in other data
    budget = plan.mixture.samples_per_epoch
    for update in record.updates:
        change = changes.get(update.reason)
        if change is None:
            return f"{name} must hold {update.reason}, as the record does, but does not"
        if [(change.weights or {}).get(name) for name in names] != update.probabilities.tolist():
            return f"{name} must have the record's weights at {update.reason}, but has others"
        first = update.epoch * budget if change.epoch is None and isinstance(budget, int) else 0
        place = (update.epoch, first + update.position)
        exact = change.epoch is not None or isinstance(budget, int)  # epochs of other lengths begin anywhere
        if exact and update.reason in placed_as_decided and (change.epoch or update.epoch, change.position) != place:
            return f"{name} must place {update.reason} at position {place[1]}, but got {change.position}"
    return None


def _short(text: str, other: str) -> str:
    """Return the part of a line around the first place where it differs from another."""
    place = next((at for at, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), len(other))
    first, end = max(place - 30, 0), place + 30
    return f"{'...' if first else ''}{text[first:end]}{'...' if end < len(text) else ''}"


def _known_stretches(plan: Plan, record: OnlineRecord) -> list[dict[str, Any]]:
    """Return the stretches whose order can be made again: fresh epochs that ended before the data changed cannot."""
    changed = record.on_changed_data
    if changed is None or plan.mixture.exhaustion == "cycle":
        return record.stretches
    return [stretch for stretch in record.stretches if stretch["step"] > changed["step"]]


def _order_difference(last: Plan, stretch: dict[str, Any]) -> str | None:
    """Return how the order of an epoch differs from the one recorded; `last` is the run's last plan."""
    plan = last.mixture.plan(stretch["epoch"], journal=last.journal)
    label, rows = f"epoch {plan.epoch}", stretch["rows"]
    if rows > len(plan) or (stretch["kind"] == "epoch" and rows != len(plan)):
        return f"{label} must have {len(plan)} rows, made again, but got {rows} in the record"
    found = plan.schedule_hash(0, rows)
    if stretch["schedule_hash"] in (found, None):
        return None
    return f"{label}: schedule_hash of {rows} rows must be {found}, made again, but got {stretch['schedule_hash']}"
