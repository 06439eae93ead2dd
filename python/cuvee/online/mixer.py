"""Weights that learn while a model trains: reports -> reward -> bandit -> an update of the plan, journalled."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .._core import xxh3_128
from ..checks import as_int, canonical_json
from ..course import Deal, walk
from ..errors import PlanError, StateError
from ..exact_sums import ExactSums, total
from ..plan import Plan
from ..ranks import gathered, place
from .decision import Decision, report_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from ..bandits import Bandit
    from ..rewards import RewardFunction
    from ..sampler import MixtureSampler
    from ..steps import StepSampler

STATE_VERSION = 1
ROWS = "rows"  # the report's count of rows trained on, which every run has
GRADNORM = "gradnorm"
SETTINGS = ("global_batch_size", "update_interval", "lag")  # a run keeps them from its first step to its last
MOST = 2**31


class _Steps(Protocol):
    """What an `OnlineMixer` asks of whoever hands out the run's steps; `StepSampler` is one."""

    @property
    def plan(self) -> Plan: ...
    def ahead(self, steps: int) -> tuple[Plan, int] | None: ...
    def plan_after(self, epochs: int) -> Plan | None: ...


class OnlineMixer:
    """Moves the weights of a run by what its model reports.

    The training loop calls `observe` with what each micro-batch gave, row by row, and `step` after each optimizer step.
    Every `update_interval` steps the sums over all ranks make a report, the reward scores the sources by it, the
    bandit turns scores into weights, and these take effect at the first window start after `lag` more steps. So what a
    loader has fetched ahead changes nothing as long as that is at most `lag`; if it is more, the update is refused with
    an error. Sums are exact: the same values give the same bits however rows were dealt to ranks and micro-batches.

    Every rank must call together. They decide alike, and compare what they decided. Where all sources are used up
    before an update could take effect, there is none.

    Args:
        plan: the run's `StepSampler`, or its `MixtureSampler`; or a plan, for a loop that stays within its epoch. The
            next step must begin where `plan.issued` is now.
        algorithm: from `cuvee.bandits`.
        reward: from `cuvee.rewards`, or the user's own.
        global_batch_size: rows of an optimizer step over all ranks.
        update_interval: optimizer steps between updates.
        lag: optimizer steps between a decision and its effect, at least what the loader fetches ahead.
        told: called with each decision, on every rank, before it takes effect.

    Attributes:
        steps: optimizer steps counted.
        decisions: number of updates so far.

    Raises:
        PlanError: naming the argument that is out of its range.
    """

    def __init__(
        self,
        plan: Plan | StepSampler | MixtureSampler,
        algorithm: Bandit,
        reward: RewardFunction,
        *,
        global_batch_size: int,
        update_interval: int,
        lag: int,
        told: Callable[[Decision], None] | None = None,
    ) -> None:
        self.global_batch_size = as_int(global_batch_size, "global_batch_size", 1, MOST, PlanError)
        self.update_interval = as_int(update_interval, "update_interval", 1, MOST, PlanError)
        self.lag = as_int(lag, "lag", 0, MOST, PlanError)
        self.algorithm, self.reward = algorithm, reward
        self.steps = self.decisions = 0
        self._loop = _PlanSteps(plan, self.global_batch_size) if not hasattr(plan, "ahead") else None
        self._course: _Steps = plan if self._loop is None else self._loop  # type: ignore[assignment]
        self._names = self._course.plan.names
        self._told = told
        self._of_step: list[NDArray[np.int64]] = []  # sources of the rows of the step under way
        self._begin_interval()
        self._ahead: list[Decision] = []  # those that may not have taken effect
        _check_sizes(self._names, algorithm, reward)

    @property
    def plan(self) -> Plan:
        """The plan of the epoch under way."""
        return self._course.plan

    @property
    def due(self) -> bool:
        """Whether the next `step` updates the weights."""
        return (self.steps + 1) % self.update_interval == 0

    def observe(self, source: ArrayLike, **values: ArrayLike | Tensor | None) -> None:
        """Add what a micro-batch gave.

        Args:
            source: of each row, integers of shape (n,); -1 for padding, which is left out.
            values: per name one value a row, shape (n,), on any device; those the reward does not ask for may be None.

        Raises:
            StateError: if a value's shape is another, or one that the reward asks for is None.
        """
        ids = np.asarray(source, dtype=np.int64)
        self._rows += np.bincount(ids[ids >= 0], minlength=len(self._names))
        self._of_step.append(ids)
        for name, value in values.items():
            if name not in self.reward.needs:
                continue
            if value is None:
                raise StateError(f"reward must get what it needs, but got no {name!r}: the model's outputs lack it")
            if np.shape(value) != ids.shape:
                raise StateError(f"{name} must be one value a row, {ids.shape}, but got shape {np.shape(value)}")
            self._sums.add(name, ids, value)

    def step(self, *, gradnorm: float | Tensor | None = None, **numbers: Any) -> Decision | None:
        """Count an optimizer step, and update the weights if it is time.

        Args:
            gradnorm: the gradient's norm, the same on every rank; each row of the step takes part in it.
            numbers: more of the report, as `total_steps` or `eval_loss`, the same on every rank.

        Returns:
            The decision, None between updates.

        Raises:
            PlanError: if the weights were to change what the loader fetched already; `lag` is then too small.
            StateError: if ranks decided differently.
        """
        due, self.steps = self.due, self.steps + 1
        if self._loop is not None:
            self._loop.advance()
        ids = np.concatenate(self._of_step) if self._of_step else np.zeros(0, dtype=np.int64)
        self._of_step = []
        if GRADNORM in self.reward.needs:
            if gradnorm is None:
                raise StateError(f"reward must get what it needs, but got no {GRADNORM!r}: the loop gave none")
            self._sums.add(GRADNORM, ids, _repeated(gradnorm, len(ids)))
        return self.decide({**self._take(), "step": self.steps, **numbers}) if due else None

    def decide(self, report: Mapping[str, Any]) -> Decision | None:
        """Update the weights by a report; for runs whose reports were recorded. None once nothing is left to change.

        Args:
            report: what `Decision.report` holds.
        """
        target = self._course.ahead(self.lag)
        if target is None:
            return None
        plan, position = target
        self.steps = int(report["step"])
        report = report_of(report)
        self.reward.observe(report)
        decision = Decision(
            update=self.decisions + 1,
            step=self.steps,
            epoch=plan.epoch,
            position=position,
            report=report,
            probabilities=self.algorithm.update(self.reward.scores(), report[ROWS].astype(np.int64)),
        )
        _compare(decision)
        if self._told is not None:
            self._told(decision)
        self._apply(plan, decision)
        self.decisions += 1
        self._ahead = [each for each in self._ahead if each.epoch >= self.plan.epoch] + [decision]
        return decision

    def state_dict(self) -> dict[str, Any]:
        """Return all that later updates depend on, as JSON values; every rank must call."""
        sums = ExactSums(len(self._names))
        for parts in gathered(self._sums.parts()):
            sums.merge(parts)
        return {
            "version": STATE_VERSION,
            **{name: getattr(self, name) for name in SETTINGS},
            "steps": self.steps,
            "decisions": self.decisions,
            "rows": np.sum(gathered(self._rows), axis=0).tolist(),
            "sums": sums.parts(),
            "algorithm": self.algorithm.state_dict(),
            "reward": self.reward.state_dict(),
            "ahead": [each.record() for each in self._ahead if each.epoch >= self.plan.epoch],
            "loop": None if self._loop is None else self._loop.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any], *, reapply: bool = True) -> None:
        """Go on where `state` was taken, after the plan's or sampler's own state was loaded; every rank must call.

        The sums of the interval under way go on in the first rank, so that the world size may be another.

        Args:
            state: from `state_dict`.
            reapply: whether to call `reapply`, too; until it was called, no step may be handed out.

        Raises:
            StateError: if the state is not an OnlineMixer's, or of another algorithm, reward, interval or lag.
        """
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
            raise StateError(f"state must be from OnlineMixer.state_dict, but got {state!r:.60}")
        for name in SETTINGS:
            if state.get(name) != getattr(self, name):
                raise StateError(f"{name} must be {state.get(name)!r}, as in the state, but got {getattr(self, name)}")
        self.algorithm.load_state_dict(state["algorithm"])
        self.reward.load_state_dict(state["reward"])
        self.steps = as_int(state["steps"], "state steps", 0, MOST, StateError)
        self.decisions = as_int(state["decisions"], "state decisions", 0, MOST, StateError)
        if self._loop is not None:
            self._loop.load_state_dict(state["loop"])
        self._begin_interval()
        if place()[0] == 0:
            self._rows += np.array(state["rows"], dtype=np.int64)
            self._sums.merge(state["sums"])
        self._ahead = [Decision.of(record) for record in state["ahead"]]
        if reapply:
            self.reapply()

    def reapply(self) -> None:
        """Make decisions again that the loaded plan's state does not hold: those for epochs that had not begun."""
        gathered(None)  # nobody writes to the journal before all have read it
        for decision in self._ahead if self._loop is None else ():
            self._reapply(decision)

    def _begin_interval(self) -> None:
        self._sums = ExactSums(len(self._names))
        self._rows = np.zeros(len(self._names), dtype=np.int64)
        self._of_step = []

    def _take(self) -> dict[str, Any]:
        """Return the report of the interval that ends, from the sums of all ranks."""
        counts, parts = zip(*gathered((self._rows, self._sums.parts())), strict=True)
        rows, sums = np.sum(counts, axis=0), total(parts, len(self._names))
        self._begin_interval()
        if GRADNORM in sums:  # a mean over the rows that took part, where others are sums
            sums[GRADNORM] = np.where(rows > 0, sums[GRADNORM] / np.maximum(rows, 1), math.nan)
        return {ROWS: rows, **sums}

    def _apply(self, plan: Plan, decision: Decision) -> None:
        weights = dict(zip(self._names, decision.probabilities.tolist(), strict=True))
        if decision.position < plan.issued:
            raise PlanError(
                f"lag must be at least the steps that the loader fetches ahead, but got {self.lag}: the update at step "
                f"{decision.step} is for position {decision.position}, and {plan.issued} rows were handed out; give "
                "num_workers * prefetch_factor batches, in steps, and one more"
            )
        plan.update(weights, at=decision.position, reason=decision.reason)

    def _reapply(self, decision: Decision) -> None:
        plan = self._course.plan_after(decision.epoch - self.plan.epoch) if decision.epoch >= self.plan.epoch else None
        if plan is not None and all(change.reason != decision.reason for change in plan.journal):
            self._apply(plan, decision)


class _PlanSteps:
    """The steps of a loop over a plan or a `MixtureSampler`, counted as they are made."""

    def __init__(self, course: Plan | MixtureSampler, rows: int) -> None:
        self._course = course
        drop_last = bool(getattr(course, "drop_last", False))
        self._deal = Deal(rank=0, world_size=1, rows=rows, drop_last=drop_last, batched=True)
        self._epoch, self._position = self.plan.epoch, self.plan.issued

    @property
    def plan(self) -> Plan:
        return self._course if isinstance(self._course, Plan) else self._course.plan

    def advance(self) -> None:
        plan = self.plan
        if plan.epoch != self._epoch:
            self._epoch, self._position = plan.epoch, 0
        self._position, left = walk(plan, self._deal, self._position, 1)
        if left:
            raise PlanError(f"steps must be those of epoch {plan.epoch}, but got one more after its {len(plan)} rows")

    def ahead(self, steps: int) -> tuple[Plan, int] | None:
        plan = self.plan
        position = plan.window_start(walk(plan, self._deal, self._position, steps)[0])
        return (plan, position) if position < len(plan) or _goes_on(plan) else None

    def plan_after(self, epochs: int) -> Plan:
        raise AssertionError(epochs)  # every decision is in the journal of the plan itself

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: Any) -> None:
        if not isinstance(state, Mapping):
            raise StateError(f"state must be of a loop over a plan or MixtureSampler, but got loop {state!r:.60}")
        self._epoch = as_int(state.get("epoch"), "state loop.epoch", 0, 2**63, StateError)
        self._position = as_int(state.get("position"), "state loop.position", 0, 2**63, StateError)


def _goes_on(plan: Plan) -> bool:
    """Return whether another epoch follows; none does once all sources are used up."""
    try:
        plan.next_epoch()
    except PlanError:
        return False
    return True


def _check_sizes(names: tuple[str, ...], algorithm: Bandit, reward: RewardFunction) -> None:
    for label, size in (("algorithm", len(algorithm.probabilities)), ("reward", len(reward.scores()))):
        if size != len(names):
            raise PlanError(f"{label} must be made for {len(names)} sources, as the plan has, but got one for {size}")


def _repeated(value: Any, times: int) -> Any:
    return value.detach().reshape(1).expand(times) if hasattr(value, "detach") else np.full(times, float(value))


def _compare(decision: Decision) -> None:
    """Raise unless all ranks decided the same."""
    digests = gathered(str(xxh3_128(canonical_json(decision.record()))))
    if len(set(digests)) > 1:
        odd = next(rank for rank, digest in enumerate(digests) if digest != digests[0])
        raise StateError(
            f"ranks must decide the same, but update {decision.update} of rank {odd} differs from rank 0's: "
            f"{json.dumps(decision.record())[:200]}"
        )
