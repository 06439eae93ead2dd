"""How differences between mixtures shrink as models grow: weights of the losses for ranking larger models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...errors import CuveeError
from ..surrogates.surrogate import as_floats, as_table, scales
from ..surrogates.transfer_law import as_shares
from .numbers import MOST, as_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..surrogates.surrogate import Floats

CLOSING = 0.04  # exponent by which spreads close up, for each e-fold of parameters


def grown_shares(
    weights: ArrayLike, losses: ArrayLike, growth: float, *, shares: ArrayLike | None = None, closing: float = CLOSING
) -> Floats:
    """Return shares of small models' losses whose mean ranks the mean of models `growth` times larger, (D,), sum 1.

    The spread of a loss over mixtures shrinks with size, and the widest shrinks most: a small model that never saw a
    domain is lost on it, a large one is not. Over sizes d log(spread_i) / d log N falls by 0.01 to 0.08 for each e-fold
    of spread, in all four families of published tables; so the mean that a large model will have is that of the small
    model's losses, weighted by spread_i ** (-closing log growth).

    Args:
        weights: mixtures of the small runs, (n, K).
        losses: their losses, (n, D).
        growth: parameters of the large model in those of the small ones, at least 1.
        shares: weights of the losses in the large model's objective, (D,); None: equal ones.
        closing: how fast spreads close up; see docs/laws.md.

    Raises:
        CuveeError: if an argument is out of its range.
    """
    _, table = as_table(weights, losses)
    growth = as_number(growth, "growth", "finite and at least 1", low=1, end=math.inf)
    closing = as_number(closing, "closing", "finite and at least 0", low=0, end=math.inf)
    if np.abs(table).max() > MOST:
        raise CuveeError(f"losses must be at most {MOST:g} in size, but got {np.abs(table).max():g}")
    spread = scales(table)[1]
    part = as_shares(None if shares is None else as_floats(shares, "shares"), table.shape[1])
    counted = part > 0
    power = -closing * np.log(growth) * np.log(spread)
    shrunk: Floats = part * np.exp(np.minimum(power - power[counted].max(), 0))
    normalised: Floats = shrunk / shrunk.sum()
    return normalised
