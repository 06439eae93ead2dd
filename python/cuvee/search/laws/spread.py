"""How differences between mixtures shrink as models grow: weights of the losses for ranking larger models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import CuveeError
from ..surrogates.surrogate import as_table, scales
from ..surrogates.transfer_law import as_shares

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
    if not (np.isfinite(growth) and growth >= 1):
        raise CuveeError(f"growth must be finite and at least 1, but got {growth!r}")
    if not (np.isfinite(closing) and closing >= 0):
        raise CuveeError(f"closing must be finite and at least 0, but got {closing!r}")
    spread = scales(table)[1]
    shrunk: Floats = as_shares(shares, table.shape[1]) * spread ** (-closing * np.log(growth))
    normalised: Floats = shrunk / shrunk.sum()
    return normalised
