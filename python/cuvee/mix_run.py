"""A run over a mixture as a training loop sees it: what arrives is checked, what is trained counted, all of it told."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from .delivery import DeliveryCheck
from .errors import StateError
from .ledger import Ledger
from .losses import SourceLosses
from .plan.journal import Journal
from .ranks import gathered, place

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from .online.run import OnlineRun
    from .plan import Plan
    from .run_log import RunLog
    from .steps import StepSampler

STATE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run stands, over all ranks.

    Attributes:
        step: optimizer steps made.
        epoch: the plan's epoch under way.
        position: rows of that epoch scheduled so far.
        ledger: counts since the run began.
        losses: mean loss per target token, in nats, of each source since the last standing; None where it had none.
        rates: `rows_per_second` and `tokens_per_second` since the last standing.
        weights: the weights in force, by source, where they learn; None where they do not.
        scores: what the reward says of each source, None of those it knows nothing of.
    """

    step: int
    epoch: int
    position: int
    ledger: Ledger
    losses: dict[str, float | None]
    rates: dict[str, float]
    weights: dict[str, float] | None = None
    scores: dict[str, float | None] | None = None


class MixRun:
    """The accounts of a run: its place, its ledger, its losses per source, and the events that tell of them.

    A training loop calls `arrived` with each micro-batch before it trains on it, `trained` after, and `stepped` after
    each optimizer step. `standing`, `state_dict` and `finish` add up over ranks: every rank must call them together.

    Args:
        steps: hands out the micro-batches.
        log: where events go; None tells nobody.
        counts: whether this rank counts what it trains on. Of ranks that train on the same rows (tensor parallelism)
            one must.
        loader: what feeds the loop; named in the error if something else than the plan's rows arrives.
        online: what moves the weights, if they learn.
    """

    def __init__(
        self,
        steps: StepSampler,
        *,
        log: RunLog | None = None,
        counts: bool = True,
        loader: object = None,
        online: OnlineRun | None = None,
    ) -> None:
        self.steps = steps
        self.online = online
        self.names = steps.plan.names
        self.ledger = Ledger(self.names)
        self._losses = SourceLosses(self.names)
        self._log = log
        self._counts = counts
        self._loader = loader
        self._check: DeliveryCheck | None = None
        self._arrived: list[NDArray[np.int64]] = []  # of the micro-batches of the step under way
        self._told: Plan | None = None  # the plan last written to the log
        self._since = (time.perf_counter(), 0, 0)  # when rates were last told, rows and tokens then

    def start(self, resumed_from: str | None = None, **facts: Any) -> None:
        """Begin to train, or go on from a checkpoint of that name; call it once the state was loaded.

        Args:
            resumed_from: the checkpoint's name.
            facts: JSON values to keep with the events.
        """
        self._check = DeliveryCheck(self.steps.plan, self.steps.deal, self.steps.place)
        if self.online is not None:
            self.online.start()
        total = self.ledger.reduced()
        self._since = (time.perf_counter(), int(total.trained.sum()), int(total.tokens.sum()))
        if self._log is not None:
            sizes = {"world_size": self.steps.world_size, "rows_per_step": self.steps.rows}
            self._log.start(step=self.steps.step, resumed_from=resumed_from, **sizes, **facts)

    def arrived(self, draws: NDArray[np.int64]) -> None:
        """Check a micro-batch against the plan, in the first plan epoch of this process.

        Args:
            draws: source, row and cycle of each row, int64 of shape (n, 3).

        Raises:
            PlanError: once a step is complete, if it is not what the plan says; names the tool that changed it.
        """
        if self._told is not self.steps.plan:
            self._tell_plan()
        if self._check is None:
            return
        self._arrived.append(draws[draws[:, 2] >= 0])
        if len(self._arrived) == self.steps.micro_batches:
            source, row, cycle = np.concatenate(self._arrived).T
            self._arrived = []
            self._check.step(source, row, cycle, loader=self._loader)

    def trained(
        self,
        draws: NDArray[np.int64],
        tokens: ArrayLike,
        losses: ArrayLike | Tensor | None = None,
        **signals: ArrayLike | Tensor | None,
    ) -> None:
        """Count a micro-batch that was trained on; padding is left out.

        Args:
            draws: as for `arrived`.
            tokens: target tokens of each row, shape (n,).
            losses: the sum of each row's token losses in nats, shape (n,), on any device; None where they are unknown.
            signals: what else weights that learn go by, as for `OnlineMixer.observe`.
        """
        if not self._counts:
            return
        real = draws[:, 2] >= 0
        counted = np.where(real, np.asarray(tokens, dtype=np.int64), 0)
        self.ledger.add_trained(draws[real, 0], counted[real])
        if losses is not None:
            self._losses.add(draws[:, 0], losses, counted)
        if self.online is not None:
            self.online.observe(np.where(real, draws[:, 0], -1), loss_sum=losses, tokens=counted, **signals)

    def stepped(self, **numbers: Any) -> Plan | None:
        """Count an optimizer step, and return the plan whose epoch ended with it, if one did.

        Args:
            numbers: of the run, for the report that weights learn from, as `total_steps`.
        """
        ended = self.steps.advance()
        if ended is not None:
            self._check = None
            if self._log is not None:
                self._log.epoch_end(self._total(), step=self.steps.step, plan=ended)
        if self.online is not None:
            self.online.stepped(ended, **numbers)
        return ended

    def standing(self) -> Standing:
        """Return where the run stands now."""
        total = self._total()
        now, rows, tokens = time.perf_counter(), int(total.trained.sum()), int(total.tokens.sum())
        seconds = max(now - self._since[0], 1e-9)
        rates = {
            "rows_per_second": (rows - self._since[1]) / seconds,
            "tokens_per_second": (tokens - self._since[2]) / seconds,
        }
        self._since = (now, rows, tokens)
        plan, place = self.steps.plan, self.steps.place
        weights, scores = (None, None) if self.online is None else self.online.standing()
        return Standing(
            step=self.steps.step,
            epoch=plan.epoch,
            position=place.position,
            ledger=total,
            losses=self._losses.take(),
            rates=rates,
            weights=weights,
            scores=scores,
        )

    def progress(self, metrics: Mapping[str, float | None]) -> Standing:
        """Tell the log where the run stands, with the loop's own `metrics`, and return it."""
        now = self.standing()
        if self._log is not None:
            self._log.progress(
                now.ledger,
                step=now.step,
                epoch=now.epoch,
                position=now.position,
                losses=now.losses,
                metrics={**metrics, **now.rates},
                weights=now.weights,
                scores=now.scores,
            )
        return now

    def finish(self, metrics: Mapping[str, float | None], *, max_steps: int | None = None) -> Ledger:
        """Tell the log that the run is over, and return the sum over ranks of what was trained.

        Args:
            metrics: last numbers by name.
            max_steps: the limit on steps that ended the run; None if its epochs were over.
        """
        total = self._total()
        if self.online is not None:
            self.online.finish()
        if self._log is not None:
            if max_steps is not None:
                self._log.max_steps_reached(total, step=self.steps.step, max_steps=max_steps)
            self._log.end(step=self.steps.step, metrics=metrics)
        return total

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the run and the counts of all ranks, as JSON values; the same on every rank."""
        total = self._total()
        state = {"version": STATE_VERSION, "steps": self.steps.state_dict(), "ledger": total.state_dict()}
        return state if self.online is None else {**state, "online": self.online.state_dict()}

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        *,
        journal: str | PathLike[str] | Journal | None = None,
        accept_changes: Iterable[str] = (),
    ) -> None:
        """Go on where `state` was taken, at any world size.

        Args:
            state: from `state_dict`.
            journal: the journal's file, where the run has one, which rank 0 goes on to write; every rank must call.
            accept_changes: as in `Plan.load_state_dict`.

        Raises:
            StateError: if the state is not a MixRun's, or belongs to another mixture or to steps of another size.
        """
        missing = [name for name in ("version", "steps", "ledger") if name not in state]
        if missing:
            raise StateError(f"state must be from MixRun.state_dict, but got one without {missing}")
        if state["version"] != STATE_VERSION:
            raise StateError(f"state version must be {STATE_VERSION}, but got {state['version']!r}")
        if ("online" in state) != (self.online is not None):
            learnt, learn = ("learn", "do not") if "online" in state else ("not learn", "do")
            raise StateError(f"weights must {learnt}, as in the state's run, but got a run in which they {learn}")
        ledger = Ledger.from_state(state["ledger"])
        if self.online is not None:
            self.online.load_state_dict(state["online"])  # a resume that is refused must write nothing
        if isinstance(journal, str | PathLike):
            journal = journal_at(state["steps"], journal)
        self.steps.load_state_dict(state["steps"], journal=journal, accept_changes=accept_changes)
        if self.steps.rank == 0 and self._counts:  # the counts of all ranks go on in one of them
            self.ledger.load_state_dict(ledger.state_dict())

    def _total(self) -> Ledger:
        if self._counts:
            self.steps.account(self.ledger)
        return self.ledger.reduced()

    def _tell_plan(self) -> None:
        self._told = self.steps.plan
        if self._log is not None:
            self._log.plan(self._told, step=self.steps.step)


def journal_at(steps: object, file: str | PathLike[str]) -> Journal:
    """Return the journal of a run as of the state of its steps; on rank 0 it goes on in its file.

    Every rank must call: all have read the file before the first writes to it.

    Raises:
        StateError: as `Plan.load_state_dict` does for a journal.
    """
    try:
        journal = Journal.from_state(steps["plan"]["journal"], file)  # type: ignore[index]
    except (KeyError, TypeError, AttributeError) as error:
        raise StateError(f"state must be from MixRun.state_dict, but got a damaged one: {error!r}") from None
    gathered(None)
    if place()[0] != 0:
        journal.detach()
    return journal
