"""Methods that search for a mixture: each asks for proxy runs, is told their losses, and recommends.

>>> from cuvee.search.space import Space
>>> method = make_method("bandit", Space(["web", "code"]), budget=10)
>>> [trial.weights.tolist() for trial in method.ask(1)]
[[0.5, 0.5]]
"""

from .auto import Auto
from .bandit import Bandit
from .doe import Doe
from .doremi import DoReMi
from .method import Method, Observation, Recommendation, Trial
from .registry import METHODS, make_method
from .regmix import RegMix

__all__ = [
    "METHODS",
    "Auto",
    "Bandit",
    "DoReMi",
    "Doe",
    "Method",
    "Observation",
    "Recommendation",
    "RegMix",
    "Trial",
    "make_method",
]
