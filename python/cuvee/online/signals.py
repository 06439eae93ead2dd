"""What a model says of each row beside its loss, from the logits that training computes anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..losses import MASKED
from ..rewards import sequence_entropies

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

NAMES = ("entropy_sum", "varentropy_sum", "last_entropy_sum", "entropy_rows")


class ForwardEntropies:
    """How unsure a model is of each row's tokens, read off what its forward pass returns.

    It uses `logits`, at all positions of a row; or, of models that return no logits but each target's `entropy` (TRL's
    do), that of the targets, and there is no varentropy then.

    Args:
        model: a module; its forward pass gets a hook.
    """

    def __init__(self, model: Module) -> None:
        self._rows: dict[str, Tensor] = {}
        model.register_forward_hook(self._read, with_kwargs=True)

    def take(self) -> dict[str, Tensor | None]:
        """Return, once, what the last batch adds to a report, by `NAMES`, of shape (B,) each; None where unknown."""
        rows, self._rows = self._rows, {}
        return {name: rows.get(name) for name in NAMES}

    def _read(self, module: Module, _: object, given: Mapping[str, Any], outputs: Any) -> None:
        if not module.training or not isinstance(outputs, Mapping):
            return
        logits, entropy = outputs.get("logits"), outputs.get("entropy")
        if logits is not None and logits.dim() == 3:
            self._rows = _of_logits(logits.detach(), given.get("attention_mask"), given.get("labels"))
        elif entropy is not None and outputs.get("label_mask") is not None:
            vocabulary = getattr(getattr(module, "config", None), "get_text_config", lambda: None)()
            if vocabulary is not None:
                self._rows = _of_targets(entropy.detach(), outputs["label_mask"], vocabulary.vocab_size)


def _of_logits(logits: Tensor, mask: Tensor | None, labels: Tensor | None) -> dict[str, Tensor]:
    if mask is None or mask.shape != logits.shape[:2]:  # encoders read other tokens than are predicted
        mask = labels != MASKED if labels is not None and labels.shape == logits.shape[:2] else None
    rows = sequence_entropies(logits, mask)
    values = (rows.entropy, rows.varentropy, rows.last, (rows.positions > 0).float())
    return dict(zip(NAMES, values, strict=True))


def _of_targets(entropy: Tensor, targets: Tensor, vocabulary: int) -> dict[str, Tensor]:
    """Return the same of entropies in nats, which are 0 where `targets`, bool of the same shape (B, T), is False."""
    positions, most = targets.sum(dim=1), math.log(vocabulary)
    is_last = targets & (targets.flip(1).cumsum(dim=1).flip(1) == 1)
    return {
        "entropy_sum": (entropy.float().sum(dim=1) / positions.clamp(min=1) / most).clamp(0, 1),
        "last_entropy_sum": (entropy.float() * is_last).sum(dim=1).div(most).clamp(0, 1),
        "entropy_rows": (positions > 0).float(),
    }


def gradient_norm(model: Module, scaler: Any = None) -> Tensor | None:
    """Return the norm of a model's gradient, before it is clipped; None if it has none, as where others hold it.

    Args:
        model: after its backward pass.
        scaler: what multiplied the loss, if anything did.
    """
    import torch

    norms = [parameter.grad.detach().float().norm() for parameter in model.parameters() if parameter.grad is not None]
    if not norms:
        return None
    whole = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
    norm: Tensor = torch.stack([each.to(whole[0].device) for each in whole]).norm()
    return norm if scaler is None or not scaler.is_enabled() else norm / scaler.get_scale()
