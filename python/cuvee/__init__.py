"""Cuvée: deterministic mixtures of datasets, in exact proportions, that may change while a model trains."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .errors import CuveeError, ManifestError, MixtureError, PlanError, SourceError, StateError

if TYPE_CHECKING:
    from . import bandits, manifest, odm, online, rewards, sources  # noqa: F401  (public, see __getattr__)
    from .bandits import ADO, EXP3, ODM, Bandit, Curriculum, DoReMi, Fixed
    from .categorize import AutoCategorizeConfig
    from .dataset import MixedDataset
    from .ledger import Ledger
    from .manifest import Manifest
    from .mixture import Mixture, Source, Stage
    from .odm import OnlineMixingDataset, compute_reward
    from .online import Online, OnlineMixer
    from .plan import Draw, Draws, Plan
    from .plan.change import Change
    from .plan.journal import Journal
    from .rewards import Reward
    from .sampler import MixtureSampler

    __version__: str

__all__ = [
    "ADO",
    "EXP3",
    "ODM",
    "AutoCategorizeConfig",
    "Bandit",
    "Change",
    "Curriculum",
    "CuveeError",
    "DoReMi",
    "Draw",
    "Draws",
    "Fixed",
    "Journal",
    "Ledger",
    "Manifest",
    "ManifestError",
    "MixedDataset",
    "Mixture",
    "MixtureError",
    "MixtureSampler",
    "Online",
    "OnlineMixer",
    "OnlineMixingDataset",
    "Plan",
    "PlanError",
    "Reward",
    "Source",
    "SourceError",
    "Stage",
    "StateError",
    "__version__",
    "compute_reward",
]

_MODULES = {  # public name -> module that has it, imported when the name is first used
    "ADO": "bandits",
    "AutoCategorizeConfig": "categorize",
    "Bandit": "bandits",
    "Change": "plan.change",
    "Curriculum": "bandits",
    "DoReMi": "bandits",
    "Draw": "plan",
    "Draws": "plan",
    "EXP3": "bandits",
    "Fixed": "bandits",
    "Journal": "plan.journal",
    "Ledger": "ledger",
    "Manifest": "manifest",
    "MixedDataset": "dataset",
    "Mixture": "mixture",
    "MixtureSampler": "sampler",
    "ODM": "bandits",
    "Online": "online",
    "OnlineMixer": "online",
    "OnlineMixingDataset": "odm",
    "Plan": "plan",
    "Reward": "rewards",
    "Source": "mixture",
    "Stage": "mixture",
    "compute_reward": "odm",
}
_FOLDERS = (  # public modules: `cuvee.sources.lengths_of` needs no import of its own
    "bandits",
    "manifest",
    "odm",
    "online",
    "rewards",
    "sources",
)


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
