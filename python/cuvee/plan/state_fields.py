"""Checks of the form of a plan's state: each field named where it is not what `state_dict` writes."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import as_int
from ..errors import StateError

END = 2**63


def check_fields(state: Mapping[str, Any]) -> None:
    """Check the type and range of every field that a plan is made of.

    Raises:
        StateError: naming the field and its value.
        KeyError: if one is missing.
    """
    as_int(state["epoch"], "state epoch", 0, 2**62, StateError)
    as_int(state["issued"], "state issued", 0, END, StateError)
    for name in ("spec_hash", "plan_hash", "given_hash", "digest"):
        _check_type(state[name], name, str)
    if state["parent"] is not None:
        _check_type(state["parent"], "parent", str)
    _check_list(state["given"], "given")
    _check_counts(state.get("origins", []), "origins")
    _check_journal(state["journal"])
    stream = state.get("stream")
    if stream is not None:
        _check_stream(stream)


def _check_journal(journal: Any) -> None:
    _check_type(journal, "journal", Mapping)
    if "lines" in journal:
        lines = journal["lines"]
        if not _is_list(lines) or not all(isinstance(line, str) for line in lines):
            raise StateError(f"state journal.lines must be a list of texts, but got {lines!r}")


def _check_stream(stream: Any) -> None:
    _check_type(stream, "stream", Mapping)
    for name in ("slot", "counted"):
        as_int(stream[name], f"state stream.{name}", 0, END, StateError)
    for name in ("given", "base"):
        _check_counts(stream[name], f"stream.{name}")
    debts = stream["debts"]
    if not _is_list(debts) or not all(type(debt) in (int, float) and math.isfinite(debt) for debt in debts):
        raise StateError(f"state stream.debts must be a list of finite numbers, but got {debts!r}")
    try:
        base64.b64decode(stream["snapshot"], validate=True)
    except (ValueError, TypeError):
        raise StateError(f"state stream.snapshot must be base64 text, but got {stream['snapshot']!r}") from None


def _check_list(value: Any, name: str) -> None:
    if not _is_list(value):
        raise StateError(f"state {name} must be a list, but got {value!r}")


def _check_counts(value: Any, name: str) -> None:
    _check_list(value, name)
    for item in value:
        as_int(item, f"state {name}", 0, END, StateError)


def _check_type(value: Any, name: str, kind: type) -> None:
    if not isinstance(value, kind):
        rule = "text" if kind is str else "a mapping"
        raise StateError(f"state {name} must be {rule}, but got {value!r}")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
