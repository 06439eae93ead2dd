"""A run with online mixing made again from its record: every weight, the journal, and the order that followed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StateError
from ..steps import StepSampler
from .run import JOURNAL_FILE, OnlineRecord, read_record
from .setup import Online

if TYPE_CHECKING:
    from ..bandits import Bandit
    from ..mixture import Mixture
    from ..plan import Plan
    from ..plan.journal import Journal
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
    """

    updates: int
    epochs: int
    difference: str | None


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
    start = record.start
    if start["spec_hash"] != mixture.spec_hash:
        hashes = f"{start['spec_hash']}, as in the record, but got {mixture.spec_hash}"
        return Replay(updates=0, epochs=0, difference=f"spec_hash must be {hashes}: mixture or data are not the run's")
    steps = StepSampler(mixture.plan(), rows=start["global_batch_size"])
    mixer = _setup(start, algorithm, reward).mixer(steps)
    plan, done = mixture.plan(), 0
    difference: str | None = None
    for found, plan in _decided(mixer, steps, record):  # noqa: B007  (the last one is what is left)
        difference = _difference(record.updates[done], found, mixture.names)
        if difference is not None:
            return Replay(updates=done, epochs=0, difference=difference)
        done += 1
    difference = _journal_difference(Path(folder) / JOURNAL_FILE, plan.journal, record)
    epochs = set[int]()
    for stretch in record.stretches:
        if difference is not None:
            break
        difference = _order_difference(mixture, plan.journal, stretch)
        if difference is None:
            epochs.add(stretch["epoch"])
    return Replay(updates=done, epochs=len(epochs), difference=difference)


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


def _decided(mixer: OnlineMixer, steps: StepSampler, record: OnlineRecord) -> Iterator[tuple[Decision | None, Plan]]:
    """Yield each decision made again, and the plan that it changed."""
    for number, update in enumerate(record.updates, start=1):
        _make(steps, number * mixer.update_interval)
        decision = mixer.decide({**update.report, "step": steps.step})
        plan = None if decision is None else steps.plan_after(decision.epoch - steps.plan.epoch)
        yield decision, plan or steps.plan


def _make(steps: StepSampler, until: int) -> None:
    """Make steps until there are this many, or no source is left to draw from."""
    before = -1
    while before < steps.step < until:
        before = steps.step
        for _ in itertools.islice(steps, until - before):
            steps.advance()


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


def _journal_difference(path: Path, expected: Journal, record: OnlineRecord) -> str | None:
    """Return how the run's journal differs from the one made again."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(f"run folder must hold its journal, but got {str(path)!r}: {reason}") from None
    lines = content[: content.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    if any('"accepted":' in line for line in lines):
        raise StateError(f"{path.name} must be of a run whose data stayed the same, but got one in which they changed")
    made: list[str] = expected.checked().state()["lines"]
    for number, (was, now) in enumerate(zip(lines, made, strict=False), start=1):
        if was != now:
            return f"{path.name}, line {number} must be {_short(now, was)}, but got {_short(was, now)}"
    if len(lines) > len(made) and record.reaches:
        return f"{path.name} must hold {len(made)} updates, as the record does, but got {len(lines)}"
    killed = not record.ended and len(lines) == len(made) - 1  # between the record's line and the journal's
    if len(lines) < len(made) and not killed:
        return f"{path.name} must hold {len(made)} updates, as the record does, but got {len(lines)}"
    return None


def _short(text: str, other: str) -> str:
    """Return the part of a line around the first place where it differs from another."""
    place = next((at for at, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), len(other))
    first, end = max(place - 30, 0), place + 30
    return f"{'...' if first else ''}{text[first:end]}{'...' if end < len(text) else ''}"


def _order_difference(mixture: Mixture, journal: Journal, stretch: dict[str, Any]) -> str | None:
    """Return how the order of an epoch differs from the one recorded."""
    plan = mixture.plan(stretch["epoch"], journal=journal)
    label, rows = f"epoch {plan.epoch}", stretch["rows"]
    if rows > len(plan) or (stretch["kind"] == "epoch" and rows != len(plan)):
        return f"{label} must have {len(plan)} rows, made again, but got {rows} in the record"
    found = plan.schedule_hash(0, rows)
    if stretch["schedule_hash"] in (found, None):
        return None
    return f"{label}: schedule_hash of {rows} rows must be {found}, made again, but got {stretch['schedule_hash']}"
