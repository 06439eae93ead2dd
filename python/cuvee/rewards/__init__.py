"""What a source is worth to train on: rewards that learn from a run's reports, one score per source.

A reward of one's own is one class with the methods of `RewardFunction`, most easily one derived from `LastEstimate`:

    >>> import numpy as np
    >>> @register_reward("surprise")
    ... class Surprise(LastEstimate):
    ...     needs = frozenset({"loss_sum", "tokens"})
    ...
    ...     def measure(self, report):
    ...         return np.expm1(report_mean(report, "loss_sum", "tokens", self.sources))
    >>> reward = make_reward("surprise", 2)
    >>> reward.observe({"loss_sum": [0.0, 1.0], "tokens": [3, 0]})
    >>> reward.scores()  # nothing is known of the second source yet
    array([ 0., nan])
"""

from .entropy import (
    Entropy,
    EntropyVarentropy,
    LastTokenEntropy,
    SequenceEntropies,
    entropies,
    sequence_entropies,
)
from .estimate import LastEstimate, report_column, report_mean, report_number
from .evaluation import Combined, Learnability, ValidationLoss, Velocity
from .registry import Reward, RewardFunction, as_reward, make_reward, register_reward, reward_names
from .training import GradNorm, TrainLoss

__all__ = [
    "Combined",
    "Entropy",
    "EntropyVarentropy",
    "GradNorm",
    "LastEstimate",
    "LastTokenEntropy",
    "Learnability",
    "Reward",
    "RewardFunction",
    "SequenceEntropies",
    "TrainLoss",
    "ValidationLoss",
    "Velocity",
    "as_reward",
    "entropies",
    "make_reward",
    "register_reward",
    "report_column",
    "report_mean",
    "report_number",
    "reward_names",
    "sequence_entropies",
]
