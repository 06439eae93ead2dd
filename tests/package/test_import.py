"""Importing the package is light: heavy packages come in only where they are used."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = {
    "accelerate", "datasets", "lightgbm", "lightning", "matplotlib", "optuna", "pandas", "plotly", "pyarrow", "ray",
    "scipy", "sentence_transformers", "sklearn", "torch", "torchdata", "transformers", "trl", "zstandard",
}  # fmt: skip


@pytest.mark.parametrize("module", ["cuvee", "cuvee.cli", "cuvee.manifest", "cuvee.mixture", "cuvee.plan"])
def test_import_loads_no_heavy_package(module: str, fresh_python: Callable[[str], str]) -> None:
    loaded = json.loads(fresh_python(f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"))
    assert module in loaded
    assert HEAVY & set(loaded) == set()


def test_every_heavy_package_is_banned_at_module_level() -> None:
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    banned = settings["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"]
    assert set(banned) == HEAVY
