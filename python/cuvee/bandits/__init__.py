"""Policies that turn scores of sources into weights: EXP3, ODM, DoReMi, ADO, and weights that do not learn.

    >>> import numpy as np
    >>> bandit = make_bandit("exp3", [0.7, 0.3])
    >>> bandit.update(np.array([2.0, 1.0]), np.array([14, 6])).round(3)
    array([0.675, 0.325])

A policy of one's own is one class with the methods of `Bandit`.
"""

from .ado import ADO
from .exponential import EXP3, ODM, DoReMi, LowEntropyWarning
from .given import Curriculum, Fixed
from .learning_speed import LearningSpeed
from .registry import BANDITS, Bandit, make_bandit

__all__ = [
    "ADO",
    "BANDITS",
    "EXP3",
    "ODM",
    "Bandit",
    "Curriculum",
    "DoReMi",
    "Fixed",
    "LearningSpeed",
    "LowEntropyWarning",
    "make_bandit",
]
