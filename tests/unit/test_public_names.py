"""The public surface is a list: what is in it exists and is documented, what is not in it is private."""

import importlib
from collections.abc import Callable

import pytest

import cuvee

PROMISED = {
    "Source", "Stage", "Mixture", "Plan", "Draw", "Draws", "MixtureSampler", "MixedDataset", "Ledger", "Manifest",
    "CuveeError", "ManifestError", "SourceError", "MixtureError", "PlanError", "StateError",
    "OnlineMixer", "Online", "EXP3", "ODM", "DoReMi", "ADO", "Fixed", "Curriculum", "Bandit", "Reward",
    "OnlineMixingDataset", "compute_reward", "AutoCategorizeConfig",
}  # fmt: skip
REWARDS = {
    "RewardFunction", "Entropy", "EntropyVarentropy", "LastTokenEntropy", "TrainLoss", "ValidationLoss", "GradNorm",
    "Learnability", "Velocity", "Combined", "register_reward",
}  # fmt: skip


def test_promised_names_are_public() -> None:
    assert set(cuvee.__all__) >= PROMISED


def test_promised_rewards_are_public() -> None:
    assert set(cuvee.rewards.__all__) >= REWARDS
    for name in cuvee.rewards.__all__:
        assert (getattr(cuvee.rewards, name).__doc__ or "").strip(), name


def test_all_has_no_double() -> None:
    assert len(cuvee.__all__) == len(set(cuvee.__all__))


def test_what_is_not_in_all_is_private() -> None:
    ours = {name for name, value in vars(cuvee).items() if getattr(value, "__module__", "").startswith("cuvee.")}
    assert ours <= set(cuvee.__all__)


def test_dir_lists_every_public_name() -> None:
    assert set(dir(cuvee)) >= set(cuvee.__all__)


@pytest.mark.parametrize("name", cuvee.__all__)
def test_public_name_resolves_and_is_documented(name: str) -> None:
    value = getattr(cuvee, name)
    assert name == "__version__" or (value.__doc__ or "").strip()


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Mixtur"):
        _ = importlib.import_module("cuvee").Mixtur


def test_names_come_in_when_they_are_used(fresh_python: Callable[[str], str]) -> None:
    code = "import sys, cuvee; print(*(name for name in ('numpy', 'pydantic', 'torch') if name in sys.modules))"
    assert fresh_python(code).split() == []
    assert fresh_python(f"import cuvee; cuvee.Manifest; {code}").split() == ["numpy", "pydantic"]


def test_public_folders_need_no_import_of_their_own(fresh_python: Callable[[str], str]) -> None:
    code = "import cuvee; print(cuvee.sources.lengths_of.__name__, cuvee.manifest.load.__name__)"
    assert fresh_python(code).split() == ["lengths_of", "load"]
    code = "import cuvee; print(*(hasattr(cuvee, name) for name in ('bandits', 'odm', 'online', 'rewards')))"
    assert fresh_python(code).split() == ["True"] * 4


def test_names_of_online_mixing_need_no_torch_but_where_a_dataset_is_one(fresh_python: Callable[[str], str]) -> None:
    code = """
import sys
sys.modules["torch"] = None  # as if it were not installed
from cuvee import ADO, EXP3, AutoCategorizeConfig, Online, OnlineMixer, Reward
from cuvee.rewards import Entropy, register_reward
try:
    from cuvee import OnlineMixingDataset
except ModuleNotFoundError as error:
    print(error)
"""
    assert fresh_python(code) == (
        "OnlineMixingDataset must have the package torch, but it is not installed; "
        "install the extra hf: pip install '.[hf]' in a checkout of Cuvée\n"
    )


def test_star_import_gives_every_public_name(fresh_python: Callable[[str], str]) -> None:
    names = fresh_python("from cuvee import *; print(*(name for name in dir() if name != '__annotations__'))").split()
    assert set(names) >= set(cuvee.__all__)


def test_without_torch_the_sampler_says_what_to_install(fresh_python: Callable[[str], str]) -> None:
    code = """
import sys
sys.modules["torch"] = None  # as if it were not installed
from cuvee import MixedDataset  # does without
try:
    from cuvee import MixtureSampler
except ModuleNotFoundError as error:
    print(error)
"""
    said = fresh_python(code)
    assert said == (
        "MixtureSampler must have the package torch, but it is not installed; "
        "install the extra hf: pip install '.[hf]' in a checkout of Cuvée\n"
    )
