"""The journal of an online mix as a state keeps it: places and weights in binary, an eighth of their text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StateError
from ..plan.change import Change
from ..plan.journal import Journal

if TYPE_CHECKING:
    from numpy.typing import NDArray


def reason_of(update: int) -> str:
    """Return what the journal says of an update, numbered from 1."""
    return f"online update {update}"


def packed(state: Mapping[str, Any], names: Sequence[str], changes: Sequence[Change]) -> dict[str, Any]:
    """Return the state of a journal without its lines: with the positions and weights that they follow from.

    Args:
        state: from `Journal.state`.
        names: of the categories.
        changes: the journal's entries. Where they are not the updates 1, 2, ... of all categories alone, as when a user
            changed the plan too, the lines stay.
    """
    if not changes or any(list(change.weights or ()) != list(names) for change in changes):
        return dict(state)
    short = {name: value for name, value in state.items() if name != "lines"}
    position = np.array([change.position for change in changes], dtype="<i8")
    weights = np.array([list((change.weights or {}).values()) for change in changes], dtype="<f8")
    if _journal(position, weights, names).digest != state["digest"]:
        return dict(state)
    content = position.tobytes() + weights.tobytes()
    return {**short, "packed": base64.b64encode(content).decode()}


def unpacked(state: Any, names: Sequence[str]) -> Any:
    """Return the state that `packed` was given; anything else as it is, for others to refuse.

    Raises:
        StateError: if what is packed is no journal of these categories.
    """
    if not isinstance(state, Mapping) or "packed" not in state:
        return state
    short = {name: value for name, value in state.items() if name != "packed"}
    try:
        content = base64.b64decode(state["packed"], validate=True)
        entries = int(state["entries"])
        position = np.frombuffer(content[: 8 * entries], dtype="<i8")
        weights = np.frombuffer(content[8 * entries :], dtype="<f8").reshape(entries, len(names))
        lines = _journal(position, weights, names).state()["lines"]
    except (binascii.Error, KeyError, TypeError, ValueError, OverflowError) as error:
        raise StateError(f"state journal must be of {len(names)} categories, but got a damaged one ({error})") from None
    return {**short, "lines": lines}


def _journal(position: NDArray[np.int64], weights: NDArray[np.float64], names: Sequence[str]) -> Journal:
    """Return the journal of updates 1, 2, ..."""
    updates = enumerate(zip(position.tolist(), weights.tolist(), strict=True), start=1)
    return Journal(
        [
            Change(epoch=None, position=place, weights=dict(zip(names, shares, strict=True)), reason=reason_of(number))
            for number, (place, shares) in updates
        ]
    )
