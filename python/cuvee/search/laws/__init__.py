"""Laws of losses over parameters, tokens, repetition and mixture, and what they say of runs that were never made.

>>> import numpy as np
>>> steps = np.array([100, 200, 400, 800])
>>> losses = np.stack([2 + 9 * steps**-0.5, 2.1 + 7 * steps**-0.5])[:, :, None]  # two mixtures, one loss
>>> model = StepLaw(draws=20).fit(steps, losses)
>>> mean, deviation = model.predict(100_000)
>>> bool(mean[0, 0] < mean[1, 0])
True
"""

from .power_law import PowerLaw, PowerModel
from .repetition import effective_tokens, effective_weights
from .scale_law import ScaleLaw, ScaleModel
from .spread import grown_shares
from .steps import StepLaw, StepModel

__all__ = [
    "PowerLaw",
    "PowerModel",
    "ScaleLaw",
    "ScaleModel",
    "StepLaw",
    "StepModel",
    "effective_tokens",
    "effective_weights",
    "grown_shares",
]
