"""Compare a plan file, a state or a checkpoint that holds one with a mixture as it is now."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import _core
from ..errors import StateError
from . import Plan
from .checkpoint import Difference, differences_of, with_budget
from .file import VERSION, plan_document

if TYPE_CHECKING:
    from ..mixture import Mixture

PLAN_FIELDS = {"mix_spec", "mix_spec_hash", "schedule_hash", "sources"}
STATE_FIELDS = {"spec", "spec_hash", "plan_hash", "journal"}
NOT_COMPARED = {"warnings", "sources", "mix_spec"}  # a release may word warnings anew; the others are compared by part
COUNTED = {"tokens", "token_proportion", "rows_filtered"}  # of these both must know, or neither is compared
LENGTHS = {"max_length", "lengths"}  # of a contract: known only to those who count tokens
HASHED_WITH_LENGTHS = {"mix_spec_hash", "plan_hash", "parent"}
RUN_STATE = "dataset_mix_state.json"  # in a checkpoint of a training run


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A plan's document or a plan's state, and where in its file it stands ("" is the file itself)."""

    kind: Literal["plan", "state"]
    place: str
    content: Mapping[str, Any]

    @property
    def spec(self) -> Mapping[str, Any]:
        """The contract that the record was made of."""
        spec: Mapping[str, Any] = self.content["mix_spec" if self.kind == "plan" else "spec"]
        return spec

    @property
    def changed(self) -> bool:
        """Whether weights were updated in the run: then the order follows from the journal too."""
        if self.kind == "plan":
            return bool(self.content["changes"])
        return bool(self.content["journal"]["entries"])


def read_record(path: str | os.PathLike[str]) -> Record:
    """Return the plan's document or state in a file: JSON, or one that `torch.save` wrote; it may lie deep inside.

    Args:
        path: the file, or the folder of a training run's checkpoint.

    Raises:
        StateError: the file cannot be read, or does not hold the record of exactly one mixture.
    """
    name = os.fspath(path)
    inside = Path(path) / RUN_STATE
    found = {str(record.spec): record for record in _records(_content(inside if inside.is_file() else Path(path)), "")}
    if len(found) > 1:
        places = ", ".join(record.place for record in found.values())
        raise StateError(f"{name!r} must hold the plan or state of one mixture, but got {len(found)}: {places}")
    if not found:
        raise StateError(
            f"{name!r} must be a plan file (cuvee plan --output), a state or a checkpoint with one, but got neither"
        )
    return next(iter(found.values()))


def compare(record: Record, mixture: Mixture, *, journal: str | os.PathLike[str] | None = None) -> list[Difference]:
    """Return what differs between a record and the mixture as it is now; an empty list if nothing does.

    Where the contract differs, that is all that is compared. Where it does not, the plan is computed anew and every
    number and hash of a plan file is compared, or the state is loaded. Lengths, where the record has them and the
    mixture was opened without, are left out, and so is all that follows from them.

    Args:
        record: from `read_record`.
        mixture: opened from the data as they are now.
        journal: the journal's file, where a state needs it.

    Raises:
        StateError: a state or its journal is damaged.
    """
    try:
        mixture = with_budget(mixture, record.spec["samples_per_epoch"])
        counted = lengths_compared(record, mixture)
        differences = [
            change for change in differences_of(record.spec, mixture.spec()) if counted or change.field not in LENGTHS
        ]
        if differences:
            return differences
        if not counted:
            return _order_differences(record, mixture)
        if record.kind == "state":
            Plan.load_state_dict(mixture, record.content, journal=journal)
            return []
        if record.changed:
            return []
        return list(_document_differences(record.content, plan_document(mixture.plan(record.content["epoch"]))))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise StateError(f"{record.kind} must be one that Cuvée wrote, but got a damaged one: {error!r}") from error


def lengths_compared(record: Record, mixture: Mixture) -> bool:
    """Return whether the tokens of rows can be compared: the mixture knows them, or the record does without."""
    spec = record.spec
    known = any(source.lengths is not None for source in mixture.sources)
    return known or (spec["max_length"] is None and all(source["lengths"] is None for source in spec["sources"]))


def _order_differences(record: Record, mixture: Mixture) -> list[Difference]:
    """Return what differs in a plan's file as far as it does not follow from lengths."""
    if record.kind != "plan" or record.changed or record.spec["unit"] == "tokens":
        return []
    now = plan_document(mixture.plan(record.content["epoch"]))
    return [change for change in _document_differences(record.content, now) if change.field not in HASHED_WITH_LENGTHS]


def _content(path: Path) -> object:
    try:
        with path.open("rb") as stream:
            zipped = stream.read(2) == b"PK"
        return _torch_content(path) if zipped else json.loads(path.read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(f"plan or state must be a file that can be read, but got {str(path)!r}: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"{str(path)!r} must be JSON or written by torch.save, but got other content ({error})"
        ) from None


def _torch_content(path: Path) -> object:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # whatever a foreign pickle causes
        reason = str(error).split("\n", 1)[0]
        raise ValueError(reason) from None


def _records(value: object, place: str) -> Iterator[Record]:
    if isinstance(value, Mapping):
        if value.keys() >= PLAN_FIELDS:
            yield _checked(Record(kind="plan", place=place, content=value))
        elif value.keys() >= STATE_FIELDS:
            yield _checked(Record(kind="state", place=place, content=value))
        else:
            for key, inner in value.items():
                yield from _records(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _records(inner, f"{place}[{index}]")


def _checked(record: Record) -> Record:
    version, label = (
        record.content.get("version"),
        f"{record.kind} at {record.place!r}" if record.place else record.kind,
    )
    if record.kind == "plan" and version != VERSION:
        raise StateError(f"{label}: version must be {VERSION}, but got {version!r}")
    spec = record.spec
    order_format = spec.get("order_format") if isinstance(spec, Mapping) else None
    if order_format != _core.ORDER_FORMAT:
        raise StateError(f"{label}: order format must be {_core.ORDER_FORMAT}, but got {order_format!r}")
    return record


def _document_differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    counted = was["tokens"] is not None and now["tokens"] is not None
    skipped = NOT_COMPARED if counted else NOT_COMPARED | COUNTED
    for before, after in ((was, now), *zip(was["sources"], now["sources"], strict=False)):
        for field, value in after.items():
            if field not in skipped and not _same(before.get(field), value):
                yield Difference(source=after.get("name"), field=field, was=before.get(field), now=value)


def _same(was: object, now: object) -> bool:
    if isinstance(was, float) and isinstance(now, float):
        return math.isclose(was, now, rel_tol=1e-9, abs_tol=1e-9)
    return was == now
