"""What each source was owed at every logged step: the request, made comparable with the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..errors import CuveeError
from .history import F64, PlanRecord, Run

if TYPE_CHECKING:
    from ..mixture import Mixture

MOST_EPOCHS = 10_000  # of later ones, what the epochs before gave is not added up


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """The request over the steps of a run.

    Attributes:
        unit: what it is measured in, "rows" or "tokens".
        amounts: owed since the run began, float64 of shape (T, K), in that unit.
        given: rows scheduled or tokens trained, as the unit has it, float64 of shape (T, K).
        exact: whether it is the plan's own account; otherwise the weights at the start of each epoch are taken for all
            of it.
        bound: what the plans promise of `given - amounts` at any position, in rows; None where they promise nothing.
    """

    unit: str
    amounts: F64
    given: F64
    exact: bool
    bound: float | None

    @property
    def shares(self) -> F64:
        """Each source's share of what is owed, float64 of shape (T, K)."""
        shares: F64 = self.amounts / np.maximum(self.amounts.sum(axis=1, keepdims=True), 1e-300)
        return shares

    @property
    def deviation(self) -> F64:
        """What each source got too much, float64 of shape (T, K), in the unit."""
        deviation: F64 = self.given - self.amounts
        return deviation


def owed_by(run: Run) -> Owed | None:
    """Return what the sources of a run were owed; None where no plan or no step was logged."""
    if not run.plans or not len(run.points):
        return None
    if run.plans[-1].document.get("weight_unit") == "tokens":
        given = run.points.counts[3].astype(np.float64)
        return Owed(unit="tokens", amounts=_by_weights(run, given), given=given, exact=not _moving(run), bound=None)
    given = run.points.counts[0].astype(np.float64)
    accounts = _Accounts(run)
    if run.learns or not accounts.known:
        return Owed(unit="rows", amounts=_by_weights(run, given), given=given, exact=not _moving(run), bound=None)
    places = zip(run.points.epoch.tolist(), run.points.position.tolist(), strict=True)
    amounts = np.array([accounts.owed(epoch, position) for epoch, position in places])
    bounds = [plan.document.get("bound_any_position") for plan in run.plans]
    promised = [float(bound) for bound in bounds if isinstance(bound, int | float)]
    bound = max(promised) if len(promised) == len(bounds) else None
    return Owed(unit="rows", amounts=amounts, given=given, exact=True, bound=bound)


def _by_weights(run: Run, given: F64) -> F64:
    """Return what the weights in force at each step make of all that was given, shape (T, K)."""
    grown = np.diff(given.sum(axis=1), prepend=0.0)
    weights = {plan.epoch: requested(plan, run.names) for plan in run.plans}
    first = next(iter(weights.values()))
    in_force = np.array([weights.get(epoch, first) for epoch in run.points.epoch.tolist()])
    in_force = _before(run.points.weights, in_force)
    owed: F64 = np.cumsum(in_force * grown[:, np.newaxis], axis=0)
    return owed


def _before(learnt: F64, otherwise: F64) -> F64:
    """Return the weights in force between each point and the one before it: those told last; shape (T, K)."""
    found, last = otherwise.copy(), None
    for place, now in enumerate(learnt):
        if last is not None:
            found[place] = last
        if np.isfinite(now).all():
            last = now
    return found


def requested(plan: PlanRecord, names: Sequence[str]) -> F64:
    """Return the weights at the start of a plan's epoch, shape (K,)."""
    weights = {source["name"]: float(source["weight_requested"]) for source in plan.document["sources"]}
    return np.array([weights.get(name, 0.0) for name in names])


def _moving(run: Run) -> bool:
    """Tell whether weights may move within an epoch."""
    return run.learns or any(
        plan.document.get("changes") or (plan.spec or {}).get("stages") or plan.document.get("policy") == "renormalize"
        for plan in run.plans
    )


class _Accounts:
    """The plans of a run made again from their contracts, asked for what they owe.

    Where shares are in rows, an order needs no data; only updates made at run time are in the run's journal alone.
    """

    def __init__(self, run: Run) -> None:
        self._names = run.names
        self._plans = {plan.epoch: plan for plan in run.plans}
        self._last = max(*self._plans, int(run.points.epoch.max()))
        self._mixtures: dict[str, Mixture | None] = {}
        self._carried: dict[int, F64] = {}

    @cached_property
    def known(self) -> bool:
        """Whether all plans could be made again."""
        if self._last > MOST_EPOCHS:
            return False
        mixtures = [self._mixture(epoch) for epoch in self._plans]
        names = {mixture.names if mixture else () for mixture in mixtures}
        return names == {self._names}

    def owed(self, epoch: int, position: int) -> F64:
        """Return what is owed since the run began, before a position of an epoch, shape (K,)."""
        before = np.zeros(len(self._names))
        for passed in range(epoch):
            if passed not in self._carried:
                self._carried[passed] = self._within(passed, None)
            before += self._carried[passed]
        return before + self._within(epoch, position)

    def _within(self, epoch: int, position: int | None) -> F64:
        """Return what is owed from an epoch's start to a position, or to its end."""
        mixture = self._mixture(epoch)
        assert mixture is not None  # noqa: S101 - `known` has been asked
        plan = mixture.plan(epoch)
        owed: F64 = plan.work(len(plan) if position is None else min(position, len(plan))) - plan.work(0)
        return owed

    def _mixture(self, epoch: int) -> Mixture | None:
        plan = self._plans.get(epoch, next(iter(self._plans.values())))
        key = plan.document["mix_spec_hash"]
        if key not in self._mixtures:
            self._mixtures[key] = None if plan.document.get("changes") or plan.spec is None else _remade(plan.spec)
        return self._mixtures[key]


def _remade(spec: Mapping[str, Any]) -> Mixture | None:
    """Return a mixture without data that gives the order of a contract; None where that cannot be."""
    from ..mixture import Mixture, Source, Stage

    try:
        names = [source["name"] for source in spec["sources"]]
        mixture = Mixture(
            [Source(entry["name"], rows=entry["rows"], weight=entry["weight"], max_epochs=_passes(entry))
             for entry in spec["sources"]],
            stages=[Stage(stage["at"], dict(zip(names, stage["weights"], strict=True)), stage["interpolation"])
                    for stage in spec["stages"]] or None,
            samples_per_epoch=spec["samples_per_epoch"], seed=spec["seed"], exhaustion=spec["exhaustion"],
            window=spec["window"], shuffle_within_sources=spec["shuffle_within_sources"],
            control_interval=spec["control_interval"], allow_empty=True,
        )  # fmt: skip
    except (CuveeError, KeyError, TypeError, ValueError):
        return None
    made = mixture.spec()
    same = np.allclose(_weights(made), _weights(spec), rtol=1e-12, atol=0)  # normalising twice may move the last digit
    return mixture if same and _order_of(made) == _order_of(spec) else None


def _passes(entry: Mapping[str, Any]) -> int | None:
    """Return how often each row of a source may be drawn; None if that has no limit."""
    cap, rows = entry["cap"], entry["rows"]
    return None if cap >= _core.ENDLESS or not rows else cap // rows


def _weights(spec: Mapping[str, Any]) -> list[float]:
    staged = [weight for stage in spec["stages"] for weight in stage["weights"]]
    return [*(entry["weight"] for entry in spec["sources"]), *staged]


def _order_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides which source comes where, weights aside: all of a contract but contents and lengths."""
    sources = [{**entry, "weight": None, "fingerprint": None, "lengths": None} for entry in spec["sources"]]
    stages = [{**stage, "weights": None} for stage in spec["stages"]]
    return {**spec, "max_length": None, "sources": sources, "stages": stages}
