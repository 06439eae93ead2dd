"""From what a collator returns to one training row, and the collation of rows that are ready to be stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch  # noqa: TID253  (whoever imports this module trains)

from ..errors import CuveeError

COLUMNS = ("input_ids", "attention_mask", "labels")


def training_row(collated: Any, *, category: str) -> dict[str, Any]:
    """Return the row in what a collator made of one row: its columns without the batch dimension.

    Labels are the tokens themselves where there are none, and attention is paid to all tokens.

    Raises:
        CuveeError: if the collator returned no batch.
    """
    if isinstance(collated, torch.Tensor):
        collated = {"input_ids": collated}
    if not isinstance(collated, Mapping) or not collated:
        raise CuveeError(
            f"collators_dict[{category!r}] must return a batch, a dict of tensors, but got {type(collated).__name__}"
        )
    row = {name: values[0] for name, values in collated.items() if hasattr(values, "__getitem__")}
    tokens = row.get("input_ids")
    if tokens is not None:
        tokens = row["input_ids"] = torch.as_tensor(tokens)
        mask, labels = row.get("attention_mask"), row.get("labels")
        row["attention_mask"] = torch.ones_like(tokens) if mask is None else torch.as_tensor(mask)
        row["labels"] = tokens.clone() if labels is None else torch.as_tensor(labels)
    return row


def stack_rows(rows: Sequence[Any], *, category: str) -> dict[str, torch.Tensor]:
    """Return a batch of rows that need no collator: their numbers as tensors, stacked; texts are left out.

    Raises:
        CuveeError: if rows are no dicts, or differ in length.
    """
    first = rows[0]
    if isinstance(first, torch.Tensor):
        first, rows = {"input_ids": first}, [{"input_ids": row} for row in rows]
    if not isinstance(first, Mapping):
        raise CuveeError(f"rows of {category!r} must be dicts, but got {type(first).__name__}; give a collator")
    batch: dict[str, torch.Tensor] = {}
    for name, value in first.items():
        if value is None or isinstance(value, str | bytes):
            continue
        try:
            batch[name] = torch.stack([torch.as_tensor(row[name]) for row in rows])
        except (TypeError, ValueError, RuntimeError, KeyError) as error:
            raise CuveeError(
                f"rows of {category!r} must have tensors of one shape in {name!r}, but got {error}; give a collator"
            ) from None
    if not batch:
        raise CuveeError(f"rows of {category!r} must hold tokens, but got only {sorted(first)}; tokenise them first")
    if "input_ids" in batch and "labels" not in batch:
        batch["labels"] = batch["input_ids"]
    return batch
