"""The steps of a run as online mixing asks for them, and those of loops over a plan or a sampler of one epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ..checks import as_int
from ..course import Deal, goes_on, walk
from ..errors import PlanError, StateError
from ..plan import Plan

if TYPE_CHECKING:
    from ..sampler import MixtureSampler


class Steps(Protocol):
    """What an `OnlineMixer` asks of whoever hands out the run's steps; `StepSampler` is one."""

    @property
    def plan(self) -> Plan:
        """The plan of the epoch under way."""
        ...

    def ahead(self, steps: int) -> tuple[Plan, int] | None:
        """Return where an update may take effect once `steps` more were made; None if nothing is left by then."""
        ...

    def plan_after(self, epochs: int) -> Plan | None:
        """Return the plan of the epoch that is this many after the one under way; None if there is none."""
        ...


class PlanSteps:
    """The steps of a loop over a plan or a `MixtureSampler`, counted as they are made."""

    def __init__(self, course: Plan | MixtureSampler, rows: int) -> None:
        self._course = course
        drop_last = bool(getattr(course, "drop_last", False))
        self._deal = Deal(rank=0, world_size=1, rows=rows, drop_last=drop_last, batched=True)
        self._epoch, self._position = self.plan.epoch, self.plan.issued

    @property
    def plan(self) -> Plan:
        """The plan of the epoch under way."""
        return self._course if isinstance(self._course, Plan) else self._course.plan

    def advance(self) -> None:
        """Count a step.

        Raises:
            PlanError: if the epoch's rows were used up before it.
        """
        plan = self.plan
        if plan.epoch != self._epoch:
            self._epoch, self._position = plan.epoch, 0
        self._position, left = walk(plan, self._deal, self._position, 1)
        if left:
            raise PlanError(f"steps must be those of epoch {plan.epoch}, but got one more after its {len(plan)} rows")

    def ahead(self, steps: int) -> tuple[Plan, int] | None:
        """Return where an update may take effect once `steps` more were made; None if nothing is left by then."""
        plan = self.plan
        position = plan.window_start(walk(plan, self._deal, self._position, steps)[0])
        return (plan, position) if position < len(plan) or goes_on(plan) else None

    def plan_after(self, epochs: int) -> Plan:
        """Never called: the plan's own journal has every decision."""
        raise AssertionError(epochs)

    def state_dict(self) -> dict[str, int]:
        """Return the place in the epoch, as JSON values."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: Any) -> None:
        """Go on where `state` was taken; StateError if it is of no such loop."""
        if not isinstance(state, Mapping):
            raise StateError(f"state must be of a loop over a plan or MixtureSampler, but got loop {state!r:.60}")
        self._epoch = as_int(state.get("epoch"), "state loop.epoch", 0, 2**63, StateError)
        self._position = as_int(state.get("position"), "state loop.position", 0, 2**63, StateError)
