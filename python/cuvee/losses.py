"""The training loss per source, from the losses that training computes anyway: no second forward pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import StateError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor
    from torch.nn import Module

MASKED = -100  # the label of a token that is no target, as in torch and transformers
HELD = 256  # batches whose losses stay where they were computed before they are summed


def target_counts(labels: Tensor, *, shifted: bool = True) -> Tensor:
    """Return the target tokens of each row, int64 of shape (B,); 1 for a row whose label is a class.

    Args:
        labels: integers of shape (B, T), `MASKED` where a token is no target; or classes of shape (B,).
        shifted: whether logits at t predict the label at t + 1, as in causal models: position 0 is no target then.
    """
    if labels.dim() == 1:
        return (labels != MASKED).long()
    return (labels[:, int(shifted) :] != MASKED).flatten(1).sum(dim=1)


def row_losses(logits: Tensor, labels: Tensor, *, shifted: bool = True) -> Tensor:
    """Return the sum of each row's cross entropies in nats, float32 of shape (B,).

    Args:
        logits: of shape (B, T, V) or, for classes, (B, V), any floating dtype.
        labels: integers of shape (B, T) or (B,), `MASKED` where there is no target.
        shifted: as in `target_counts`.
    """
    import torch.nn.functional as F  # noqa: N812  (its usual name)

    if shifted and labels.dim() == 2:
        labels = F.pad(labels, (0, 1), value=MASKED)[:, 1:]  # the labels move: the larger logits need no copy
    flat = F.cross_entropy(
        logits.float().reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=MASKED, reduction="none"
    )
    return flat.view(len(labels), -1).sum(dim=1)


class CausalLoss:
    """Mean cross entropy per target token, as causal language models compute it, that keeps each row's sum.

    It is made for `compute_loss_func` of transformers' Trainer.

    Args:
        inner: a loss of the user's, of the same signature, to train on instead; rows are then measured beside it.
    """

    def __init__(self, inner: Callable[..., Tensor] | None = None) -> None:
        self._inner = inner
        self._rows: Tensor | None = None

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Return the loss: the sum over target tokens, divided by `num_items_in_batch` or by their number here."""
        if self._inner is not None:
            self._rows = row_losses(outputs["logits"].detach(), labels)
            return self._inner(outputs, labels, num_items_in_batch=num_items_in_batch)
        rows = row_losses(outputs["logits"], labels)
        self._rows = rows.detach()
        items = target_counts(labels).sum() if num_items_in_batch is None else num_items_in_batch
        # a batch of padding alone has no target: its loss is 0, not 0 / 0
        return rows.sum() / (items.clamp(min=1) if hasattr(items, "clamp") else max(items, 1))

    def take(self) -> Tensor | None:
        """Return the sums over each row's targets of the last batch, float32 of shape (B,), once."""
        rows, self._rows = self._rows, None
        return rows


class ForwardLosses:
    """Each row's loss, read off what a model's forward pass was given and returned.

    For trainers that compute their loss in their own way. It uses `log_probs` where the model returns those of the
    targets (TRL's models do), else `logits` and the `labels` given. Where there is neither, there are no losses.

    Args:
        model: a module; its forward pass gets a hook.
        shifted: as in `target_counts`.
    """

    def __init__(self, model: Module, *, shifted: bool = True) -> None:
        self._shifted = shifted
        self._rows: Tensor | None = None
        model.register_forward_hook(self._read, with_kwargs=True)

    def take(self) -> Tensor | None:
        """Return the sums over each row's targets of the last batch, float32 of shape (B,), once."""
        rows, self._rows = self._rows, None
        return rows

    def _read(self, module: Module, _: object, given: Mapping[str, Any], outputs: Any) -> None:
        if not module.training or not isinstance(outputs, Mapping):
            return
        logits, labels = outputs.get("logits"), given.get("labels")
        if outputs.get("log_probs") is not None:
            self._rows = -outputs["log_probs"].detach().float().flatten(1).sum(dim=1)
        elif logits is not None and labels is not None and _fits(logits, labels):
            self._rows = row_losses(logits.detach(), labels, shifted=self._shifted)


def _fits(logits: Tensor, labels: Tensor) -> bool:
    """Return whether labels are classes that logits score."""
    return not labels.is_floating_point() and logits.shape[:-1] == labels.shape


class SourceLosses:
    """Sums of losses and target tokens per source since they were last taken, float64, in the order of training.

    Losses may lie on a device: they are fetched when taken, so that training never waits for them.

    Args:
        names: the sources' names, as `mixture.names`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._sums = np.zeros((2, len(self.names)))
        self._held: list[tuple[NDArray[np.int64], Any, NDArray[np.int64]]] = []

    def add(self, source: ArrayLike, losses: ArrayLike | Tensor, tokens: ArrayLike) -> None:
        """Add a batch.

        Args:
            source: ids, integers of shape (n,) that index `names`.
            losses: sum of each row's token losses in nats, shape (n,).
            tokens: target tokens of each row, shape (n,); padding rows count 0.
        """
        held = (np.asarray(source, dtype=np.int64), losses, np.asarray(tokens, dtype=np.int64))
        if len({len(part) for part in held}) != 1:  # type: ignore[arg-type]
            raise StateError(f"losses must be one per row, but got shapes {[np.shape(part) for part in held]}")
        self._held.append(held)
        if len(self._held) == HELD:
            self._sum_up()

    def take(self, group: object = None) -> dict[str, float | None]:
        """Return each source's mean loss per target token over all ranks since the last call; None without tokens.

        Args:
            group: torch.distributed's, as in `Ledger.reduced`; every rank of it must call.
        """
        self._sum_up()
        sums, self._sums = _over_ranks(self._sums, group), np.zeros_like(self._sums)
        return {
            name: loss / tokens if tokens else None
            for name, loss, tokens in zip(self.names, sums[0].tolist(), sums[1].tolist(), strict=True)
        }

    def _sum_up(self) -> None:
        for source, losses, tokens in self._held:
            fetched: Any = losses.double().cpu().numpy() if hasattr(losses, "double") else losses
            values = np.asarray(fetched, dtype=np.float64) * (tokens > 0)  # a padding row has a loss that is not ours
            self._sums[0] += np.bincount(source, values, len(self.names))
            self._sums[1] += np.bincount(source, tokens, len(self.names))
        self._held = []


def _over_ranks(sums: NDArray[np.float64], group: object) -> NDArray[np.float64]:
    """Return the sum over ranks, in their order, so that every rank has the same bits."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return sums
    gathered: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(gathered, sums, group=group)
    total: NDArray[np.float64] = np.sum(gathered, axis=0)
    return total
