"""Cuvée: deterministic mixtures of datasets, in exact proportions, that may change while a model trains."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .errors import CuveeError, ManifestError, MixtureError, PlanError, SourceError, StateError

if TYPE_CHECKING:
    from . import manifest, sources  # noqa: F401  (public, see __getattr__)
    from .dataset import MixedDataset
    from .ledger import Ledger
    from .manifest import Manifest
    from .mixture import Mixture, Source, Stage
    from .plan import Draw, Draws, Plan
    from .plan.change import Change
    from .plan.journal import Journal
    from .sampler import MixtureSampler

    __version__: str

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

_MODULES = {  # public name -> module that has it, imported when the name is first used
    "Change": "plan.change",
    "Draw": "plan",
    "Draws": "plan",
    "Journal": "plan.journal",
    "Ledger": "ledger",
    "Manifest": "manifest",
    "MixedDataset": "dataset",
    "Mixture": "mixture",
    "MixtureSampler": "sampler",
    "Plan": "plan",
    "Source": "mixture",
    "Stage": "mixture",
}
_FOLDERS = ("manifest", "sources")  # public modules: `cuvee.sources.lengths_of` needs no import of its own


def __getattr__(name: str) -> object:
    value: object
    if name == "__version__":
        value = importlib.import_module("importlib.metadata").version("cuvee")
    elif name in _MODULES:
        value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    elif name in _FOLDERS:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_FOLDERS})
