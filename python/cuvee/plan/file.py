"""The plan file: what an epoch gives, as one JSON document without any sample, to be kept and compared later."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from ..cache import write_atomically
from ..errors import PlanError

if TYPE_CHECKING:
    from . import Plan

VERSION = 1


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the document of a plan, as JSON values: its summary, its hashes and the contract behind them.

    `mix_spec_hash` is the hash of `mix_spec`, written as JSON with sorted keys and no spaces; `schedule_hash` that of
    all draws of the epoch, in order.
    """
    summary = plan.summary()
    return {
        "version": VERSION,
        "sampler_version": _core.ORDER_FORMAT,
        "weight_unit": summary["unit"],
        "seed": summary["seed"],
        "epoch": summary["epoch"],
        "policy": summary["policy"],
        "shuffle_within_sources": summary["shuffle_within_sources"],
        "window": summary["window"],
        "samples_per_epoch": summary["samples_per_epoch"],
        "planned_rows": summary["planned_rows"],
        "termination_reason": summary["termination_reason"],
        "bound": summary["bound"],
        "bound_any_position": summary["bound_any_position"],
        "tokens": summary["tokens"],
        "mix_spec_hash": summary["spec_hash"],
        "plan_hash": summary["plan_hash"],
        "parent": summary["parent"],
        "schedule_hash": plan.schedule_hash(),
        "changes": summary["changes"],
        "warnings": summary["warnings"],
        "sources": summary["sources"],
        "mix_spec": plan.mixture.spec(),
    }


def write_document(document: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a plan's document to the JSON file `path`, whole or not at all.

    Raises:
        PlanError: the file cannot be written.
    """
    try:
        write_atomically(Path(path), (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PlanError(f"plan must be written to a file, but got {os.fspath(path)!r}: {reason}") from None
