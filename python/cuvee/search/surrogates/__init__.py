"""Models of losses over the simplex of mixtures, fitted to proxy runs.

    >>> import numpy as np
    >>> weights = np.array([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8]])
    >>> model = TransferLaw().fit(weights, [[2.0, 3.0], [2.2, 2.6], [2.5, 2.3]])
    >>> mean, deviation = model.predict([[0.6, 0.4]])
    >>> mean.shape, deviation.shape
    ((1, 2), (1, 2))

A model of one's own is one class with the method of `Surrogate`.
"""

from .boosted import Boosted
from .design import choose_runs
from .effective_data_law import EffectiveDataLaw
from .exponential_law import ExponentialLaw
from .gaussian_process import GaussianProcess
from .surrogate import Model, Surrogate
from .transfer_law import TransferLaw, TransferModel

__all__ = [
    "Boosted",
    "EffectiveDataLaw",
    "ExponentialLaw",
    "GaussianProcess",
    "Model",
    "Surrogate",
    "TransferLaw",
    "TransferModel",
    "choose_runs",
]
