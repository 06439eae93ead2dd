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


def _with_nan(value: Any) -> Any:
    if value is None:
        return math.nan
    if isinstance(value, Mapping):
        return {name: _with_nan(inner) for name, inner in value.items()}
    return [_with_nan(inner) for inner in value] if isinstance(value, list | tuple) else value


def _other(field: str, reason: str) -> StateError:
    return StateError(f"receipt must be what a search wrote, but got one with another {field}: {reason}")
