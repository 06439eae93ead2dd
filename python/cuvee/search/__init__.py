"""Search for a mixture with cheap proxy runs, on one machine or many, and say what the answer is worth.

>>> from cuvee.search import SyntheticDomain, optimize_mixture
>>> domains = [SyntheticDomain("pattern", vocab=16, period=4), SyntheticDomain("noise", vocab=16, period=None)]
>>> weights = optimize_mixture(domains, proxy_steps=20, budget=6)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..dedup import estimate_near_duplicate_rate
    from .domains import SyntheticDomain, TextDomain, TokenDomain
    from .launch import search
    from .methods import METHODS
    from .optimize import optimize_mixture
    from .proxy import Proxy, proxy_run_score, proxy_run_scores
    from .receipt import Comparison, Receipt, Run
    from .source_domains import domains_of
    from .space import Space
    from .study import Study, open_study

__all__ = [
    "METHODS",
    "Comparison",
    "Proxy",
    "Receipt",
    "Run",
    "Space",
    "Study",
    "SyntheticDomain",
    "TextDomain",
    "TokenDomain",
    "domains_of",
    "estimate_near_duplicate_rate",
    "open_study",
    "optimize_mixture",
    "proxy_run_score",
    "proxy_run_scores",
    "search",
]

_MODULES = {  # public name -> module that has it, imported when the name is first used
    "METHODS": ".methods",
    "Comparison": ".receipt",
    "Proxy": ".proxy",
    "Receipt": ".receipt",
    "Run": ".receipt",
    "Space": ".space",
    "Study": ".study",
    "SyntheticDomain": ".domains",
    "TextDomain": ".domains",
    "TokenDomain": ".domains",
    "domains_of": ".source_domains",
    "estimate_near_duplicate_rate": "..dedup",
    "open_study": ".study",
    "optimize_mixture": ".optimize",
    "proxy_run_score": ".proxy",
    "proxy_run_scores": ".proxy",
    "search": ".launch",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
