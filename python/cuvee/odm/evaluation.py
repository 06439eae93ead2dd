"""What evaluation rows say of each category: sums of losses and entropies, one forward pass a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # noqa: TID253  (whoever imports this module trains)

from ..errors import CuveeError
from ..ranks import place
from ..rewards import sequence_entropies
from .compute import evaluating

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..dataset import MixedDataset

    Sums = dict[str, NDArray[np.float64]]

IGNORED = -100  # the label of a token that is no target
LOSS = ("loss_sum", "tokens")
ENTROPY = ("entropy_sum", "varentropy_sum", "last_entropy_sum", "entropy_rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRows:
    """The evaluation rows of one category, and what makes batches of them."""

    category: str
    rows: int
    reader: MixedDataset
    collate: Callable[[list[Any]], Any]

    def batches(self, size: int) -> Iterator[tuple[Any, bool]]:
        """Yield this rank's batches, with whether each counts.

        All ranks get equally many, since a model that is spread over ranks computes with all of them; what is left
        over is filled up with batches of others.
        """
        rank, ranks = place()
        batches = -(-self.rows // size)
        for turn in range(-(-batches // ranks)):
            number = turn * ranks + rank
            first = number % batches * size
            numbers = list(range(first, min(first + size, self.rows)))
            zeros = [0] * len(numbers)
            yield self.collate(self.reader.rows(zeros, numbers, zeros)), number < batches


def measure(
    model: Any,
    categories: Sequence[EvaluationRows | None],
    *,
    size: int,
    device: torch.device,
    entropies: bool,
    loss: bool,
) -> Sums:
    """Return this rank's sums per category, float64 of shape (K,) each.

    Args:
        model: a causal model as transformers has them; in evaluation mode for the time of the call.
        categories: of each category its evaluation rows, None if it has none.
        size: rows of a batch.
        device: where the model is.
        entropies: whether to sum entropies over sequences: `ENTROPY`.
        loss: whether to sum the loss over target tokens: `LOSS`.

    Raises:
        CuveeError: if the model gives no loss or no logits.
    """
    sums: Sums = {name: np.zeros(len(categories)) for name in (*LOSS, *ENTROPY, "rows")}
    with evaluating(model), torch.no_grad():  # not inference_mode: a model may keep what it computes for later
        for number, rows in enumerate(categories):
            for collated, counts in rows.batches(size) if rows is not None else ():
                batch = {name: value.to(device) for name, value in collated.items() if hasattr(value, "to")}
                outputs = _outputs(model, batch)
                found = _values(outputs, batch, entropies=entropies, loss=loss)
                for name, value in found.items() if counts else ():
                    sums[name][number] += value
    return sums


def _outputs(model: Any, batch: dict[str, torch.Tensor]) -> Any:
    try:
        return model(**batch)
    except TypeError as error:
        if callable(model) and "unexpected keyword" not in str(error):
            raise
        got = f"{type(model).__name__} ({error})"
        raise CuveeError(
            f"model must take the columns of evaluation batches, {sorted(batch)}, but got {got}"
        ) from error


def _values(outputs: Any, batch: dict[str, torch.Tensor], *, entropies: bool, loss: bool) -> dict[str, float]:
    found = {"rows": float(len(next(iter(batch.values()))))}
    if entropies:
        logits = _part(outputs, "logits")
        each = sequence_entropies(logits, batch.get("attention_mask"))
        entropy, varentropy, last = (
            torch.nan_to_num(values.double()) for values in (each.entropy, each.varentropy, each.last)
        )
        found |= {"entropy_sum": float(entropy.sum()), "varentropy_sum": float(varentropy.sum())}
        found |= {"last_entropy_sum": float(last.sum()), "entropy_rows": float((each.positions > 0).sum())}
    if loss and "labels" not in batch:
        raise CuveeError(f"evaluation batches must hold labels, so that there is a loss, but got {sorted(batch)}")
    if loss:
        mean, targets = float(_part(outputs, "loss")), int((batch["labels"][:, 1:] != IGNORED).sum())
        if np.isfinite(mean):  # what is not finite counts as not measured
            found |= {"loss_sum": mean * targets, "tokens": float(targets)}
    return found


def _part(outputs: Any, name: str) -> Any:
    part = outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)
    if part is None:
        raise CuveeError(f"model must return {name}, but got {type(outputs).__name__} without")
    return part
