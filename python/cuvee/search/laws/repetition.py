"""What repeated tokens are worth, and the mixtures that they make."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...errors import CuveeError
from ..surrogates.surrogate import as_floats
from .numbers import as_column, as_number

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
    drawn, fresh = as_floats(tokens, "tokens"), as_floats(unique, "unique")
    rest = as_number(repeats, "repeats", "positive and finite", low=0, end=math.inf, open_low=True)
    if not (np.isfinite(drawn) & (drawn >= 0)).all():
        raise CuveeError(f"tokens must be finite and at least 0, but got {tokens!r:.200}")
    if not (fresh > 0).all():
        raise CuveeError(f"unique must be positive, but got {unique!r:.200}")
    try:
        drawn, fresh = np.broadcast_arrays(drawn, fresh)
    except ValueError:
        raise CuveeError(f"unique must be of the shape of tokens, {drawn.shape}, but got {fresh.shape}") from None
    first = np.minimum(drawn, fresh)  # seen once; the rest are repeats
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        # in units of what repeats can give at most; of few of them nothing is lost, not even to rounding
        share = (drawn - first) / (fresh * rest)
        worth = first + np.where(share > 1e-9, -np.expm1(-share) * fresh * rest, drawn - first)
    result: Floats = np.minimum(np.where(np.isfinite(fresh), worth, drawn), drawn)
    return result


def effective_weights(weights: ArrayLike, tokens: ArrayLike, unique: ArrayLike, *, repeats: float = REPEATS) -> Floats:
    """Return the shares of fresh tokens that a run's mixture is worth, float64 of shape (n, K); rows sum to 1 or less.

    Args:
        weights: mixtures, (n, K).
        tokens: tokens of each run, (n,) or one number.
        unique: tokens that each domain has, (K,).
        repeats: R*.

    Raises:
        CuveeError: if an argument has a wrong shape or is out of its range.
    """
    shares = as_floats(weights, "weights")
    if shares.ndim != 2:
        raise CuveeError(f"weights must be of shape (n, K), but got {shares.shape}")
    total = as_column(tokens, "tokens", len(shares))[:, None]
    fresh = as_floats(unique, "unique")
    if fresh.shape not in ((), shares.shape[1:]):
        raise CuveeError(f"unique must be of shape ({shares.shape[1]},), but got {fresh.shape}")
    return effective_tokens(shares * total, fresh, repeats=repeats) / total
