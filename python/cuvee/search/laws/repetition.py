"""What repeated tokens are worth, and the mixtures that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import CuveeError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..surrogates.surrogate import Floats

REPEATS = 15.4  # R*: after so many repeats a token has given all but 1 / e of what repeats can give


def effective_tokens(tokens: ArrayLike, unique: ArrayLike, *, repeats: float = REPEATS) -> Floats:
    """Return how many fresh tokens `tokens` drawn from `unique` ones are worth, float64 of their common shape.

        D' = U + U R* (1 - exp(-R / R*)),     R = D / U - 1 repeats      (Muennighoff et al. 2023, equation 5)

    and D' = D while nothing repeats. Four epochs cost little; after some R* nothing is gained.

    Args:
        tokens: tokens trained on, at least 0.
        unique: tokens that there are; infinity: never repeated.
        repeats: R*.

    Raises:
        CuveeError: if an argument is out of its range.
    """
    drawn, fresh = np.asarray(tokens, dtype=np.float64), np.asarray(unique, dtype=np.float64)
    if not (np.isfinite(drawn) & (drawn >= 0)).all():
        raise CuveeError(f"tokens must be finite and at least 0, but got {tokens!r}")
    if not (fresh > 0).all():
        raise CuveeError(f"unique must be positive, but got {unique!r}")
    if not (np.isfinite(repeats) and repeats > 0):
        raise CuveeError(f"repeats must be positive and finite, but got {repeats!r}")
    limit = np.where(np.isfinite(fresh), fresh, 1.0)
    again = np.maximum(drawn / limit - 1, 0)
    worth = np.minimum(drawn, limit) - limit * repeats * np.expm1(-again / repeats)
    result: Floats = np.where(np.isfinite(fresh), worth, drawn)
    return result


def effective_weights(weights: ArrayLike, tokens: ArrayLike, unique: ArrayLike, *, repeats: float = REPEATS) -> Floats:
    """Return the shares of fresh tokens that a run's mixture is worth, float64 of shape (n, K); rows sum to 1 or less.

    Args:
        weights: mixtures, (n, K).
        tokens: tokens of each run, (n,) or one number.
        unique: tokens that each domain has, (K,).
        repeats: R*.
    """
    shares = np.asarray(weights, dtype=np.float64)
    total = np.broadcast_to(np.asarray(tokens, dtype=np.float64), shares.shape[:1])[:, None]
    return effective_tokens(shares * total, np.broadcast_to(unique, shares.shape), repeats=repeats) / total
