"""Online mixing of a run in a folder: its mixer, and what it leaves there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..cache import write_atomically
from ..errors import StateError
from ..ranks import gathered, place
from .record import RECORD_FILE, SETTINGS, VERSION, RecordFile

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

    from ..plan import Plan
    from ..steps import StepSampler
    from .decision import Decision
    from .mixer import OnlineMixer
    from .setup import Online

JOURNAL_FILE = "online_journal.jsonl"


class OnlineRun:
    """The mixer of a run, and what it leaves in the run's folder: journal and record, which rank 0 writes.

    Args:
        setup: how the weights learn.
        steps: the run's steps.
        folder: where the files go; None keeps the journal in memory, and no record.
        fetched: steps that the loader fetches ahead.
        kept: `state_dict` of the run to be resumed, of which the lag is kept.

    Attributes:
        mixer: what decides.
        gradnorm: the gradient norm of the step under way, for rewards that ask for it.

    Raises:
        PlanError: as `Online.mixer` does.
    """

    def __init__(
        self,
        setup: Online,
        steps: StepSampler,
        *,
        folder: Path | None = None,
        fetched: int = 0,
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        self._setup, self._steps = setup, steps
        self._files = folder
        self._folder = folder if place()[0] == 0 else None  # what this rank writes to
        self._record = None if self._folder is None else RecordFile(self._folder / RECORD_FILE)
        mixer_kept = None if kept is None else kept.get("mixer")
        self.mixer: OnlineMixer = setup.mixer(steps, fetched=fetched, kept=mixer_kept, told=self._tell)
        self.gradnorm: float | Tensor | None = None

    def needs(self, names: frozenset[str]) -> bool:
        """Return whether the reward needs any of these."""
        return not names.isdisjoint(self.mixer.reward.needs)

    def journal_beside(self, checkpoint: Path) -> Path | None:
        """Return the journal's file on resuming, None if there are no files; a new folder gets a copy of the old one.

        Every rank must call.
        """
        if self._files is None:
            return None
        journal, before = self._files / JOURNAL_FILE, checkpoint.parent / JOURNAL_FILE
        if self._folder is not None and not journal.exists() and before.exists():
            write_atomically(journal, before.read_bytes())
        gathered(None)
        return journal

    def start(self) -> None:
        """Begin to write, or go on with the files of the run that was resumed; every rank must call."""
        self.mixer.reapply()
        if self._folder is not None:
            self._prepare(self._folder)
        plan, mixer = self._steps.plan, self.mixer
        facts = {name: getattr(mixer, name) for name in SETTINGS}
        own: dict[str, Any] = {"version": VERSION, "names": list(plan.names), "spec_hash": plan.spec_hash}
        if any(change.accepted for change in plan.journal):  # before it, other data were trained on
            own["resumed"] = self._steps.state_dict()
        self._append("start", {**own, **self._setup.document(), **facts})

    def observe(self, source: ArrayLike, **values: ArrayLike | Tensor | None) -> None:
        """Add what a micro-batch gave; as `OnlineMixer.observe`."""
        self.mixer.observe(source, **values)

    def stepped(self, ended: Plan | None, **numbers: Any) -> Decision | None:
        """Count an optimizer step.

        Args:
            ended: the plan whose epoch ended with it, if one did.
            numbers: of the run, for its report.
        """
        if ended is not None and self._folder is not None:
            self._append("epoch", _stretch(ended, len(ended)))
        if self._setup.measure is not None and self.mixer.due:
            numbers |= self._setup.measure()
        gradnorm, self.gradnorm = self.gradnorm, None
        return self.mixer.step(gradnorm=gradnorm, **numbers)

    def standing(self) -> tuple[dict[str, float], dict[str, float | None]]:
        """Return the weights in force and what the reward says of each source, by name; None of what is not known."""
        plan = self._steps.plan
        weights = self.mixer.weights_at(plan.epoch, self._steps.place.position)
        if weights is None:  # no update took effect yet
            weights = plan.mixture.weights
        scores = [score if math.isfinite(score) else None for score in self.mixer.reward.scores().tolist()]
        by_name: dict[str, float] = dict(zip(plan.names, np.asarray(weights).tolist(), strict=True))
        return by_name, dict(zip(plan.names, scores, strict=True))

    def finish(self) -> None:
        """Write what the epoch under way came to."""
        if self._folder is not None:
            self._append("end", _stretch(self._steps.plan, self._steps.place.position))

    def state_dict(self) -> dict[str, Any]:
        """Return all that later updates depend on, as JSON values; every rank must call."""
        return {"setup": self._setup.document(), "mixer": self.mixer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken, after the steps' own state was loaded; every rank must call.

        Raises:
            StateError: if the weights of that run learn in another way.
        """
        now, then = self._setup.document(), state.get("setup", {})
        for name, value in now.items():
            if then.get(name) != value:
                raise StateError(f"online {name} must be {then.get(name)!r}, as in the checkpoint, but got {value!r}")
        self.mixer.load_state_dict(state["mixer"], reapply=False)  # a resume that is refused must write nothing

    def _prepare(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self._steps.step == 0:
            for name in (JOURNAL_FILE, RECORD_FILE):
                set_aside(folder / name)
            self._steps.plan.journal.attach(folder / JOURNAL_FILE)
        if self._record is not None:
            self._record.go_on()

    def _tell(self, decision: Decision) -> None:
        self._append("update", decision.record())

    def _append(self, kind: str, fields: Mapping[str, Any]) -> None:
        if self._record is not None:
            self._record.append({"kind": kind, "step": self._steps.step, **fields})


def set_aside(path: Path) -> None:
    """Move a file of an earlier run out of the way; it is kept as `FILE.dropped-DIGEST`."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.dropped-{_core.xxh3_128(path.read_bytes())[:8]}"))


def _stretch(plan: Plan, rows: int) -> dict[str, Any]:
    return {"epoch": plan.epoch, "rows": rows, "schedule_hash": _schedule_hash(plan, rows)}


def _schedule_hash(plan: Plan, rows: int) -> str | None:
    """Return the hash of an epoch's first rows; None where only the run's own beginning could tell them."""
    try:
        return plan.from_start().schedule_hash(0, rows)
    except StateError:
        return None
