"""Cuvée: deterministic mixtures of datasets, in exact proportions, that may change while a model trains."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING

from .errors import CuveeError, ManifestError, MixtureError, PlanError, SourceError, StateError
from .ledger import Ledger
from .manifest import Manifest
from .mixture import Mixture, Stage
from .mixture.source import Source
from .plan import Draw, Draws, Plan
from .plan.journal import Change, Journal

if TYPE_CHECKING:
    from .dataset import MixedDataset
    from .sampler import MixtureSampler

__version__ = metadata.version("cuvee")

__all__ = [
    "Change",
    "CuveeError",
    "Draw",
    "Draws",
    "Journal",
    "Ledger",
    "Manifest",
    "ManifestError",
    "MixedDataset",
    "Mixture",
    "MixtureError",
    "MixtureSampler",
    "Plan",
    "PlanError",
    "Source",
    "SourceError",
    "Stage",
    "StateError",
    "__version__",
]

_NEED_TORCH = {"MixedDataset": "dataset", "MixtureSampler": "sampler"}  # name -> module, imported on first use


def __getattr__(name: str) -> object:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f".{_NEED_TORCH[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
