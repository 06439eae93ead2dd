"""Which mixtures to run: those whose losses would tell most about all candidates, by the law's own uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...checks import as_int
from ...errors import CuveeError
from .posterior import Posterior
from .surrogate import as_mixtures
from .transfer_law import TransferLaw, TransferModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from .surrogate import Floats


def choose_runs(
    candidates: ArrayLike, count: int, *, own: Sequence[int], model: TransferModel | None = None
) -> NDArray[np.int64]:
    """Return the rows of `count` candidates to run, in the order of their worth, int64 of shape (count,).

    One after the other, each is the one that lowers the mean variance of the law's losses over all candidates most
    (I-optimality; Cohn, Ghahramani, Jordan 1996, section 3), given those before it. Losses of runs are not needed for
    that, only the law's derivatives at `model`, or at the prior while there is none.

    Args:
        candidates: mixtures, (n, K).
        count: runs to choose, at most n.
        own: the domain that each loss is measured on, (D,), -1 for none.
        model: what earlier runs have told.

    Raises:
        CuveeError: if an argument is out of its range.
    """
    mixtures = as_mixtures(candidates)
    count = as_int(count, "count", 1, len(mixtures) + 1, CuveeError)
    posterior = TransferLaw(own=own).prior(mixtures.shape[1], len(own)) if model is None else model.posterior
    if posterior.terms.domains != mixtures.shape[1]:
        raise CuveeError(
            f"candidates must have the model's {posterior.terms.domains} domains, but got {mixtures.shape[1]}"
        )
    slopes = _dense(posterior, mixtures)
    slopes /= np.sqrt(np.diag(posterior.noise))[:, None]
    noise = np.eye(len(posterior.noise))
    asked = np.tensordot(slopes, slopes, axes=([0, 1], [0, 1])) / slopes.shape[0]
    covariance, free, chosen = posterior.covariance.copy(), np.ones(len(mixtures), dtype=bool), []
    for _ in range(count):
        moved = slopes @ covariance
        seen = np.einsum("ndp,nep->nde", moved, slopes, optimize=True) + noise
        told = np.einsum("ndp,nep->nde", slopes @ (covariance @ asked @ covariance), slopes, optimize=True)
        gain = np.trace(np.linalg.solve(seen, told), axis1=1, axis2=2)
        best = int(np.argmax(np.where(free, gain, -np.inf)))
        chosen.append(best)
        free[best] = False
        covariance = covariance - moved[best].T @ np.linalg.solve(seen[best], moved[best])
    return np.array(chosen, dtype=np.int64)


def _dense(posterior: Posterior, mixtures: Floats) -> Floats:
    """Return derivatives of the losses by all parameters, (n, D, P)."""
    _, slopes = posterior.terms.slopes(posterior.vector, mixtures, posterior.lowest)
    found = np.zeros((len(mixtures), len(posterior.lowest), posterior.terms.size))
    for loss, columns in enumerate(posterior.terms.columns):
        found[:, loss, columns] = slopes[loss]
    return found
