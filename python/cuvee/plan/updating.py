"""Checks of an update: what may be changed, from which position on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checks import as_int, as_weight
from ..errors import MixtureError, PlanError
from ..mixture.shares import named_weights
from ..mixture.source import Source, check_lengths
from .change import AddedSource, Change
from .epoch import Epoch
from .journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A checked change: its journal entry, the shares in source order, shape (K,), and the sources that join."""

    change: Change
    shares: NDArray[np.float64]
    added: tuple[Source, ...]


def check_update(
    epoch: Epoch,
    journal: Journal,
    issued: int,
    weights: Mapping[str, float] | Sequence[float] | NDArray[np.float64],
    *,
    at: int | None,
    add: Iterable[Source],
    reason: str,
) -> Update:
    """Return the update asked for; PlanError if it cannot be made. Nothing is changed."""
    added = _check_added(add, epoch.sources)
    sources = epoch.sources + added
    named = _by_name(weights, [source.name for source in sources])
    shares = named_weights(named, sources, "weights", PlanError)
    try:
        check_lengths(sources, unit=epoch.mixture.unit, max_length=epoch.mixture.max_length, weights=shares)
    except MixtureError as err:
        raise PlanError(str(err)) from None
    position = _check_position(epoch, journal, issued, at)
    _check_wanted(epoch, position, shares, named)
    number, place = epoch.place(position)
    change = Change(
        epoch=number,
        position=place,
        weights=named,
        added=tuple(AddedSource.of(source, with_lengths=epoch.mixture.uses_lengths) for source in added),
        reason=str(reason),
    )
    return Update(change=change, shares=shares, added=added)


def _check_added(add: Iterable[Source], sources: Sequence[Source]) -> tuple[Source, ...]:
    if not isinstance(add, Iterable):
        raise PlanError(f"add must hold Source objects, but got {add!r}")
    added = tuple(add)
    taken = {source.name for source in sources}
    for source in added:
        if not isinstance(source, Source):
            raise PlanError(f"add must hold Source objects, but got {source!r}")
        if source.name in taken:
            raise PlanError(f"source names must be unique, but got {source.name!r} twice")
        if source.rows == 0:
            raise PlanError(f"source {source.name!r}: rows must be at least 1, but got 0")
        taken.add(source.name)
    return added


def _by_name(weights: Mapping[str, float] | Iterable[float], names: Sequence[str]) -> dict[str, float]:
    """Return weights by name; a sequence is in source order."""
    if isinstance(weights, Mapping):
        named = dict(weights)
    elif not isinstance(weights, Iterable) or isinstance(weights, str | bytes):
        raise PlanError(f"weights must be a mapping from source names, or one number per source, but got {weights!r}")
    else:
        values = list(weights)
        if len(values) != len(names):
            raise PlanError(f"weights must have one value for each of {len(names)} sources, but got {values}")
        named = dict(zip(names, values, strict=True))
    return {name: value if type(value) in (int, float) else _plain(value, name) for name, value in named.items()}


def _plain(weight: object, name: str) -> float:
    """Return a weight as a plain number, as JSON can hold it."""
    value = weight.item() if isinstance(weight, np.generic) else weight
    return value if type(value) is int else as_weight(value, f"weights of {name!r}", PlanError)


def _check_position(epoch: Epoch, journal: Journal, issued: int, at: int | None) -> int:
    """Return the position an update takes effect at; the epoch's size is position 0 of the next one."""
    last = _last_position(epoch, journal)
    if at is None:
        return _check_alive(epoch, _next_window(epoch, max(issued, last)))
    position = as_int(at, "at", 0, epoch.size + 1, PlanError)
    if position < last:
        raise PlanError(f"at must not lie before {last}, the position of the last update, but got {position}")
    if position < issued:
        raise PlanError(
            f"at must be a window start not yet issued, but got {position} with {issued} rows issued; the next one is "
            f"{_next_window(epoch, issued)}"
        )
    if position < epoch.size:
        first, end = epoch.stream.core.window(epoch.slot(position))
        if first != epoch.offset + position:
            raise PlanError(
                f"at must be a window start, but got {position}; the nearest ones are {first - epoch.offset} and "
                f"{end - epoch.offset}"
            )
    return _check_alive(epoch, position)


def _next_window(epoch: Epoch, position: int) -> int:
    return min(epoch.stream.window_start(epoch.offset + position) - epoch.offset, epoch.size)


def _check_alive(epoch: Epoch, position: int) -> int:
    slot = epoch.offset + position
    if epoch.mixture.exhaustion == "cycle" and epoch.stream.may_end and epoch.stream.ends_by(slot + 1) <= slot:
        raise PlanError(f"at must lie before {position}, at which all sources are used up, but got {position}")
    return position


def _last_position(epoch: Epoch, journal: Journal) -> int:
    """Return the position of the last update of weights; 0 if it lies before this epoch."""
    last = next((change for change in reversed(journal) if change.weights is not None), None)
    if last is None:
        return 0
    number, position = last.place
    if epoch.mixture.exhaustion == "cycle":
        return max(position - epoch.offset, 0)
    if number < epoch.number:
        return 0
    return position if number == epoch.number else epoch.size


def _check_wanted(epoch: Epoch, position: int, shares: NDArray[np.float64], named: Mapping[str, float]) -> None:
    if epoch.place(position)[0] not in (None, epoch.number):
        return  # the next epoch is fresh: nothing is used up in it
    emptied = epoch.stream.emptied(epoch.offset + position)
    wanted = shares.copy()
    wanted[: len(emptied)][emptied] = 0.0
    if not wanted.any():
        raise PlanError(
            f"weights must leave a source that is not used up at position {position} a weight above 0, but got {named}"
        )
