"""Weights that learn while a model trains: reports -> reward -> bandit -> an update of the plan, journalled."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import xxh3_128
from ..checks import as_int, canonical_json
from ..errors import CuveeError, PlanError, StateError
from ..exact_sums import ExactSums, total
from ..ranks import gathered, place
from ..rewards.registry import METHODS as REWARD_METHODS
from .decision import Decision, report_of
from .loops import PlanSteps, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from ..bandits import Bandit
    from ..plan import Plan
    from ..rewards import RewardFunction
    from ..sampler import MixtureSampler
    from ..steps import StepSampler

STATE_VERSION = 1
ROWS = "rows"  # the report's count of rows trained on, which every run has
GRADNORM = "gradnorm"
SETTINGS = ("global_batch_size", "update_interval", "lag")  # a run keeps them from its first step to its last
MOST = 2**31
BANDIT_METHODS = ("probabilities", "update", "state_dict", "load_state_dict")


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
        check_kinds(algorithm, reward)
        if not hasattr(getattr(plan, "plan", plan), "issued"):
            raise PlanError(f"plan must be a plan or a sampler of one, but got {type(plan).__name__}")
        self.algorithm, self.reward = algorithm, reward
        self.steps = self.decisions = 0
        self._loop = PlanSteps(plan, self.global_batch_size) if not hasattr(plan, "ahead") else None
        self._course: Steps = plan if self._loop is None else self._loop  # type: ignore[assignment]
        self._names = self._course.plan.names
        _check_sizes(self._names, algorithm, reward)
        self._told = told
        self._of_step: list[NDArray[np.int64]] = []  # sources of the rows of the step under way
        self._begin_interval()
        self._ahead: list[Decision] = []  # those of the epoch under way or later, and the last one before

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
            StateError: if a source is none that the bandit began with, a value's shape is another, or one that the
                reward asks for is None.
        """
        ids = _as_ids(source, len(self._names))
        needed: dict[str, ArrayLike | Tensor] = {}
        for name, value in values.items():
            if name not in self.reward.needs:
                continue
            if value is None:
                raise StateError(f"reward must get what it needs, but got no {name!r}: the model's outputs lack it")
            needed[name] = _as_values(value, name, ids.shape)
        for name, value in needed.items():
            self._sums.add(name, ids, value)
        self._rows += np.bincount(ids[ids >= 0], minlength=len(self._names))
        self._of_step.append(ids)

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
        plan, position = self._not_before_the_last(*target)
        if plan.names != self._names:
            more = list(plan.names[len(self._names) :])
            raise PlanError(
                f"sources must be those that the bandit began with, but got {more} more, which joined the plan; begin "
                "a new OnlineMixer, with a bandit and a reward for all of them"
            )
        self.steps = int(report["step"])
        report = report_of(report)
        self.reward.observe(report)
        decision = Decision(
            update=self.decisions + 1,
            step=self.steps,
            epoch=plan.epoch,
            position=position,
            report=report,
            probabilities=self.algorithm.update(self.reward.scores(), self._counts(report)),
        )
        _compare(decision)
        if self._told is not None:
            self._told(decision)
        self._apply(plan, decision)
        self.decisions += 1
        self._ahead = [*self._still_ahead(), decision]
        return decision

    def _still_ahead(self) -> list[Decision]:
        """Return the decisions from the last one on that took effect before the epoch under way."""
        past = sum(each.epoch < self.plan.epoch for each in self._ahead)
        return self._ahead[max(past - 1, 0) :]

    def _counts(self, report: Mapping[str, Any]) -> NDArray[np.int64] | None:
        """Return the rows that the bandit goes by; None where the scores are not of them, but of evaluation data."""
        if not (self.reward.from_training or getattr(self.algorithm, "by_rows", False)):
            return None
        if not isinstance(rows := report.get(ROWS), np.ndarray) or rows.dtype.kind != "i":
            raise StateError(f"rows in a report must be {len(self._names)} counts, but got {rows!r:.60}")
        return rows.astype(np.int64)

    def weights_at(self, epoch: int, position: int) -> NDArray[np.float64] | None:
        """Return the weights in force at a place of the epoch under way, shape (K,); None before the first update."""
        found = [each for each in self._ahead if (each.epoch, each.position) <= (epoch, position)]
        return found[-1].probabilities if found else None

    def follow(self, made: Decision) -> Decision:
        """Learn from the report of a decision made earlier, and leave the plan alone; for runs that were recorded.

        Returns:
            The decision as its report and what was learnt before lead to it, its place as it was.
        """
        self.reward.observe(made.report)
        decision = replace(
            made,
            update=self.decisions + 1,
            step=(self.decisions + 1) * self.update_interval,
            probabilities=self.algorithm.update(self.reward.scores(), self._counts(made.report)),
        )
        self.steps, self.decisions = decision.step, decision.update
        self._ahead = [*self._still_ahead(), decision]
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
            "ahead": [each.record() for each in self._still_ahead()],
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
        try:
            self._load(state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, CuveeError):
                raise
            raise StateError(f"state must be from OnlineMixer.state_dict, but got a damaged one: {error!r}") from None
        if reapply:
            self.reapply()

    def _load(self, state: Mapping[str, Any]) -> None:
        """Take a state over, whole or not at all."""
        steps = as_int(state["steps"], "state steps", 0, MOST, StateError)
        decisions = as_int(state["decisions"], "state decisions", 0, MOST, StateError)
        rows = np.array(state["rows"])
        if rows.shape != (len(self._names),) or rows.dtype.kind != "i" or (rows < 0).any():
            raise StateError(f"state rows must be {len(self._names)} counts, but got {state['rows']!r:.60}")
        sums = ExactSums(len(self._names))
        sums.merge(state["sums"])
        ahead = [Decision.of(record) for record in list(state["ahead"])]
        before = self.algorithm.state_dict(), self.reward.state_dict()
        try:
            self.algorithm.load_state_dict(state["algorithm"])
            self.reward.load_state_dict(state["reward"])
            if self._loop is not None:
                self._loop.load_state_dict(state["loop"])
        except BaseException:
            self.algorithm.load_state_dict(before[0])
            self.reward.load_state_dict(before[1])
            raise
        self.steps, self.decisions, self._ahead = steps, decisions, ahead
        self._begin_interval()
        if place()[0] == 0:
            self._rows += rows
            self._sums = sums

    def reapply(self) -> None:
        """Make decisions again that the loaded plan's state does not hold: those for epochs that had not begun."""
        gathered(None)  # nobody writes to the journal before all have read it
        if self._loop is None:
            self._ahead = [self._reapplied(decision) for decision in self._ahead]

    def _not_before_the_last(self, plan: Plan, position: int) -> tuple[Plan, int]:
        """Return a place for an update, or that of the last one if it is later: epochs may have grown with the data."""
        last = self._ahead[-1] if self._ahead and self._loop is None else None
        if last is None or (plan.epoch, position) >= (last.epoch, last.position):
            return plan, position
        return self._course.plan_after(last.epoch - self.plan.epoch) or plan, last.position

    def _begin_interval(self) -> None:
        self._sums = ExactSums(len(self._names))
        self._rows: NDArray[np.int64] = np.zeros(len(self._names), dtype=np.int64)
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

    def _reapplied(self, decision: Decision) -> Decision:
        """Make a decision again unless the plan knows it; over data that changed windows may begin elsewhere."""
        plan = self._course.plan_after(decision.epoch - self.plan.epoch) if decision.epoch >= self.plan.epoch else None
        if plan is None or any(change.reason == decision.reason for change in plan.journal):
            return decision
        moved = replace(decision, position=plan.window_start(min(decision.position, len(plan))))
        self._apply(plan, moved)
        return moved


def _as_ids(source: ArrayLike, sources: int) -> NDArray[np.int64]:
    """Return the sources of rows as int64 of shape (n,), -1 for padding."""
    ids = np.asarray(source)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise StateError(f"source must be integers of shape (n,), but got {ids.dtype} of shape {ids.shape}")
    wrong = ids[(ids < -1) | (ids >= sources)]
    if len(wrong):
        raise StateError(
            f"source must be one of the {sources} that the bandit began with, or -1 for padding, but got {wrong[0]}"
        )
    return ids.astype(np.int64)


def _as_values(value: ArrayLike | Tensor, name: str, shape: tuple[int, ...]) -> ArrayLike | Tensor:
    """Return one value a row: a tensor as it is, anything else as a copy, which nobody changes before it is summed."""
    try:
        values = value if hasattr(value, "detach") else np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise StateError(f"{name} must be numbers, one a row, but got {value!r:.60}") from None
    if np.shape(values) != shape:
        raise StateError(f"{name} must be one value a row, {shape}, but got shape {np.shape(values)}")
    return values


def check_kinds(algorithm: object, reward: object) -> None:
    """Raise PlanError unless the first is a bandit and the second a reward."""
    for label, given, names in (("algorithm", algorithm, BANDIT_METHODS), ("reward", reward, REWARD_METHODS)):
        lacking = [name for name in names if not hasattr(given, name)]
        if lacking:
            raise PlanError(f"{label} must have {', '.join(names)}, but {type(given).__name__} lacks {lacking}")


def _check_sizes(names: tuple[str, ...], algorithm: Bandit, reward: RewardFunction) -> None:
    for label, size in (("algorithm", len(algorithm.probabilities)), ("reward", len(reward.scores()))):
        if size != len(names):
            raise PlanError(f"{label} must be made for {len(names)} sources, as the plan has, but got one for {size}")


def _repeated(value: Any, times: int) -> Any:
    """Return the gradient's norm once for each row."""
    if not hasattr(value, "detach") and not isinstance(value, Real):
        raise StateError(f"{GRADNORM} must be a number, but got {value!r:.60}")
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
