"""Reading a receipt back from JSON values, whoever wrote into them since."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..errors import StateError

if TYPE_CHECKING:
    from .receipt import Receipt

Made = TypeVar("Made", bound="Receipt")
SLACK = 1e-6  # by which the sum of shares may be off
BESIDE = ("format", "summary")  # what a document has that is no field


def receipt_from(document: Mapping[str, Any], made: type[Made]) -> Made:
    """Return the receipt of JSON values; None stands for NaN.

    Raises:
        StateError: a field is missing, unknown, of another kind, or does not fit the others; names it.
    """
    fields = {name: value for name, value in document.items() if name not in BESIDE}
    _refuse_unknown(fields, made, "")
    runs = fields.get("runs")
    for place, run in enumerate(runs if isinstance(runs, list) else ()):
        if isinstance(run, Mapping):
            _refuse_unknown(run, _run_type(), f"runs.{place}.")
    try:
        receipt = TypeAdapter(made).validate_json(json.dumps(_with_nan(fields)), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise _other(".".join(map(str, first["loc"])), first["msg"]) from None
    except (TypeError, ValueError) as error:
        raise _other("values", str(error)) from None
    _check_sizes(receipt)
    _check_shares(receipt)
    _check_runs(receipt)
    return receipt


def _run_type() -> type:
    from .receipt import Run

    return Run


def _refuse_unknown(fields: Mapping[str, Any], made: type, prefix: str) -> None:
    known = getattr(made, "__dataclass_fields__", {})
    for name in fields:
        if name not in known:
            raise _other(f"{prefix}{name}", "no receipt has that field")


def _check_sizes(receipt: Receipt) -> None:
    """Raise unless there is a share for each domain and a loss for each target, everywhere."""
    domains, targets = len(receipt.names), len(receipt.targets)
    sizes = [("weights", receipt.weights, domains), ("target_weights", receipt.target_weights, targets)]
    sizes += [(name, getattr(receipt, name), domains) for name in ("low", "high") if receipt.low or receipt.high]
    for place, run in enumerate(receipt.runs):
        sizes += [(f"runs.{place}.weights", run.weights, domains), (f"runs.{place}.losses", run.losses, targets)]
        sizes += [(f"runs.{place}.curve", part, targets) for part in run.curve]
        if run.measured:
            sizes.append((f"runs.{place}.measured", run.measured, targets))
        if run.diverged and not run.measured:
            raise _other(f"runs.{place}.measured", "a run that diverged has its own losses there")
        if not 0 < run.fidelity <= 1:
            raise _other(f"runs.{place}.fidelity", f"{run.fidelity} is not in (0, 1]")
    for name, values, size in sizes:
        if len(values) != size:
            raise _other(name, f"{len(values)} numbers where there must be {size}")


def _check_shares(receipt: Receipt) -> None:
    """Raise unless names are told apart, and all shares are within [0, 1] with the sum 1."""
    for field in ("names", "targets"):
        names = getattr(receipt, field)
        if not names or len(set(names)) < len(names):
            raise _other(field, f"{list(names)!r:.200} are not one or more names that are told apart")
    shares = [(name, getattr(receipt, name)) for name in ("weights", "target_weights")]
    shares += [(f"runs.{place}.weights", run.weights) for place, run in enumerate(receipt.runs)]
    for field, values in shares:
        if not (all(-SLACK <= value <= 1 + SLACK for value in values) and abs(math.fsum(values) - 1) <= SLACK):
            raise _other(field, f"{list(values)!r:.200} are not shares with the sum 1")


def _check_runs(receipt: Receipt) -> None:
    """Raise unless every run is there once, is of a known arm, and has losses."""
    from .receipt import ARMS

    seen = set()
    for place, run in enumerate(receipt.runs):
        if (run.kind, run.arm, run.number) in seen:
            raise _other(f"runs.{place}.number", f"there is another {run.kind} run {run.number}")
        seen.add((run.kind, run.arm, run.number))
        if run.arm and run.arm not in ARMS:
            raise _other(f"runs.{place}.arm", f"{run.arm!r:.100} is none of {list(ARMS)}")
        if not (run.diverged or all(map(math.isfinite, run.losses))):
            raise _other(f"runs.{place}.losses", "null in a run that did not diverge")


def _with_nan(value: Any) -> Any:
    if value is None:
        return math.nan
    if isinstance(value, Mapping):
        return {name: _with_nan(inner) for name, inner in value.items()}
    return [_with_nan(inner) for inner in value] if isinstance(value, list | tuple) else value


def _other(field: str, reason: str) -> StateError:
    return StateError(f"receipt must be what a search wrote, but got one with another {field}: {reason}")
