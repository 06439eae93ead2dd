"""The public surface is a list: what is in it exists and is documented, what is not in it is private."""

import importlib

import pytest

import cuvee

PROMISED = {
    "Source", "Stage", "Mixture", "Plan", "Draw", "Draws", "MixtureSampler", "MixedDataset", "Ledger", "Manifest",
    "CuveeError", "ManifestError", "SourceError", "MixtureError", "PlanError", "StateError",
}  # fmt: skip


def test_promised_names_are_public() -> None:
    assert set(cuvee.__all__) >= PROMISED


def test_all_is_sorted_and_has_no_double() -> None:
    assert list(cuvee.__all__) == sorted(set(cuvee.__all__))


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
