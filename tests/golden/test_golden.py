"""The order of this build is the order of every release: draws, hashes and checkpoints are those of the golden file."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cuvee import Plan, Source
from cuvee._core import ISAS, ORDER_FORMAT

MAKE = Path(__file__).with_name("make.py")


def load_make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_make", MAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = load_make()
GOLDEN: dict[str, Any] = json.loads(make.path_of(ORDER_FORMAT).read_text())


def print_golden(environment: dict[str, str], *, check: bool) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(MAKE), "--print"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=check, timeout=120)


@pytest.mark.parametrize("name", make.CASES)
def test_order_is_the_golden_one(name: str) -> None:
    assert make.record(make.CASES[name]()) == GOLDEN["orders"][name]


def test_every_golden_order_is_checked() -> None:
    assert list(make.CASES) == list(GOLDEN["orders"])


@pytest.mark.parametrize("isa", ISAS)
def test_order_is_the_same_in_any_process_on_any_instruction_set(isa: str) -> None:
    environment = os.environ | {"CUVEE_ISA": isa, "PYTHONHASHSEED": str(len(isa))}
    assert json.loads(print_golden(environment, check=True).stdout) == GOLDEN


def test_instruction_set_that_is_not_there_is_an_error() -> None:
    environment = os.environ | {"CUVEE_ISA": "mmx"}
    done = subprocess.run(
        [sys.executable, str(MAKE), "--print"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: isa must be one of scalar")
    assert done.stderr.splitlines()[-1].endswith("but got mmx")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_hash_does_not_depend_on_threads(threads: int) -> None:
    plan = make.zipf(32, samples_per_epoch=400_000).plan()
    draws = plan.draws(0, len(plan), threads=threads)
    assert plan.schedule_hash(threads=threads) == plan.schedule_hash(threads=1)
    once = plan.draws(0, len(plan), threads=1)
    for column in ("source", "row", "cycle"):
        np.testing.assert_array_equal(getattr(draws, column), getattr(once, column))


def test_checkpoint_of_every_release_goes_on_as_it_did() -> None:
    plan = make.updated()
    mixture = make.zipf(4, samples_per_epoch=5000, seed=7)
    loaded = Plan.load_state_dict(mixture, GOLDEN["checkpoint"], add=[Source("joined", rows=333)])
    assert loaded.issued == 3000
    assert loaded.plan_hash == plan.plan_hash == GOLDEN["orders"]["updates, joins and returns"]["plan_hash"]
    assert loaded.schedule_hash() == GOLDEN["orders"]["updates, joins and returns"]["schedule_hash"]
