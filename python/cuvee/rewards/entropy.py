"""Rewards of how unsure a model is of the next token, read off the logits that training computes anyway."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..checks import as_int
from ..errors import CuveeError
from ..token_signals import token_signals
from .estimate import LastEstimate, report_mean
from .registry import Reward, register_reward

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from .estimate import Report

ROUNDING = 1e-6  # how far a mean of values in [0, 1] may be above 1
ENTROPY_PART, VARENTROPY_PART = 0.75, 0.25
MOST_TOKENS = 2**31  # of a vocabulary


class _EntropyMean(LastEstimate):
    """The mean over a source's sequences of one of their entropies."""

    total: ClassVar[str]

    def measure(self, report: Report) -> NDArray[np.float64]:
        """Return each source's mean in the report."""
        return entropy_mean(report, self.total, self.sources)


@register_reward(Reward.ENTROPY)
class Entropy(_EntropyMean):
    """Mean entropy of the next token, as a part of the highest one there is."""

    needs = frozenset({"entropy_sum", "entropy_rows"})
    total = "entropy_sum"


@register_reward(Reward.ENTROPY_LAST_TOKEN)
class LastTokenEntropy(_EntropyMean):
    """Entropy where each sequence's last token is predicted, as a part of the highest one there is."""

    needs = frozenset({"last_entropy_sum", "entropy_rows"})
    total = "last_entropy_sum"


@register_reward(Reward.ENTROPY3_VARENT1)
class EntropyVarentropy(LastEstimate):
    """Three parts entropy and one part varentropy."""

    needs = frozenset({"entropy_sum", "varentropy_sum", "entropy_rows"})

    def measure(self, report: Report) -> NDArray[np.float64]:
        """Return each source's mean in the report."""
        entropy, varentropy = (entropy_mean(report, key, self.sources) for key in ("entropy_sum", "varentropy_sum"))
        return ENTROPY_PART * entropy + VARENTROPY_PART * varentropy


def entropy_mean(report: Report, total: str, sources: int) -> NDArray[np.float64]:
    """Return the mean of `report[total]` over sequences, float64 of shape (K,); NaN where there were none.

    Raises:
        CuveeError: as `report_mean`, or if the mean is not in [0, 1], as when entropies in nats were added up.
    """
    mean = report_mean(report, total, "entropy_rows", sources)
    mean[np.isinf(mean)] = math.nan
    wrong = mean[(mean < 0) | (mean > 1 + ROUNDING)]
    if len(wrong):
        raise CuveeError(
            f"report[{total!r}] / report['entropy_rows'] must be in [0, 1], but got {wrong[0].item()!r}; add up what "
            "sequence_entropies returns: entropies divided by the logarithm of the vocabulary's size"
        )
    return np.minimum(mean, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceEntropies:
    """Entropies of the sequences of a batch, float32 of shape (B,) each, in [0, 1].

    Attributes:
        positions: int64 of shape (B,), how many positions of each sequence count.
        entropy: mean over the sequence's positions, divided by the logarithm of the vocabulary's size.
        varentropy: the same of the varentropy, divided by the square of that logarithm.
        last: the entropy where the last token is predicted.
    """

    positions: Tensor
    entropy: Tensor
    varentropy: Tensor
    last: Tensor


def sequence_entropies(
    logits: Tensor, mask: Tensor | None = None, *, vocab_size: int | None = None
) -> SequenceEntropies:
    """Return how unsure a causal model is of the next token, for each sequence.

    Positions count where a token of the sequence is predicted from one of it: neither padding nor a sequence's last
    position does. A sequence without such positions has entropies of 0, one with logits that are NaN there has NaN.

    Args:
        logits: of shape (B, T, V), any floating dtype; at t they predict the token at t + 1.
        mask: of shape (B, T), nonzero where there is a token; None if there is one everywhere.
        vocab_size: the vocabulary's size; None for V.

    Raises:
        CuveeError: if shapes do not fit, or the vocabulary has fewer than two tokens.
    """
    import torch

    if logits.dim() != 3:
        raise CuveeError(f"logits must have shape (B, T, V), but got {tuple(logits.shape)}")
    real = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device) if mask is None else mask != 0
    if real.shape != logits.shape[:2]:
        raise CuveeError(f"mask must have shape {tuple(logits.shape[:2])}, as the logits, but got {tuple(real.shape)}")
    size = logits.shape[-1] if vocab_size is None else vocab_size
    most = math.log(as_int(size, "vocab_size", 2, MOST_TOKENS, CuveeError))

    counted = real[:, :-1] & real[:, 1:]
    entropy, varentropy = entropies(logits[:, :-1], counted)
    positions = counted.sum(dim=1)
    divisor = positions.clamp(min=1) * most
    is_last = counted & (counted.flip(1).cumsum(dim=1).flip(1) == 1)  # none is counted after it
    return SequenceEntropies(
        positions=positions,
        entropy=(entropy.sum(dim=1) / divisor).clamp(0, 1),
        varentropy=(varentropy.sum(dim=1) / divisor / most).clamp(0, 1),
        last=torch.where(is_last, entropy, 0).sum(dim=1).div(most).clamp(0, 1),
    )


def entropies(logits: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return each token's entropy in nats and its varentropy, float32 of the shape of `mask`; 0 where that is False.

    Args:
        logits: of shape (B, T, V), any floating dtype; -inf rules a token out.
        mask: bool of shape (B, T).
    """
    import torch

    known = logits.dtype in (torch.float32, torch.float16, torch.bfloat16)
    signals = token_signals(logits if known else logits.float(), mask=mask)
    return signals.entropy, signals.varentropy
