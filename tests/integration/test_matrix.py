"""Hashes and orders over a matrix of mixtures: the same in every process and at every number of ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import matrix
from cuvee import _core

PROCESSES = {"rank 0 of 2": (0, 2, "0"), "rank 1 of 2": (1, 2, "4294967295"), "rank 0 of 1": (0, 1, "random")}
CASES = matrix.cases()


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """Return what fresh processes, each with another order of Python's sets, make of all cases."""
    script = Path(matrix.__file__)
    running = {
        name: subprocess.Popen(
            [sys.executable, str(script), str(rank), str(world_size)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
        )
        for name, (rank, world_size, seed) in PROCESSES.items()
    }
    outputs = {name: process.communicate(timeout=120)[0] for name, process in running.items()}
    assert [process.returncode for process in running.values()] == [0] * len(running)
    return {name: json.loads(output) for name, output in outputs.items()}


def test_all_of_the_matrix_is_there() -> None:
    assert len(CASES) == 4 * 5 * 3
    assert {mixture.exhaustion for mixture in CASES.values()} == {"stop", "cycle", "renormalize"}


def test_processes_agree_on_every_hash(told) -> None:
    here = matrix.hashes()
    assert len({output["str_hash"] for output in told.values()} | {hash("cuvee")}) >= 3  # they did differ
    for output in told.values():
        assert output["hashes"] == here


def test_no_two_mixtures_share_a_hash() -> None:
    hashes = list(matrix.hashes().values())
    assert len({spec for spec, *_ in hashes}) == len(CASES)
    for column in range(1, 1 + 2 * matrix.EPOCHS):
        assert len({row[column] for row in hashes}) == len(CASES)


def digest(keys: list[int]) -> str:
    """Return XXH3-128 of draws as docs/algorithm.md lays them out, worked out without the core's own hashing."""
    source, row, cycle = _core.unpack(keys)
    table = np.zeros(len(keys), dtype=[("source", "<u4"), ("cycle", "<u4"), ("row", "<u8")])
    table["source"], table["cycle"], table["row"] = source, cycle, row
    return xxhash.xxh3_128_hexdigest(table.tobytes())


def in_order(ranks: list[list[list[int]]]) -> list[int]:
    """Return the global order of an epoch from the ranks' parts of its steps, padding left out."""
    steps = zip(*ranks, strict=True)
    return [key for step in steps for part in step for key in part if key >= 0]


@pytest.mark.parametrize("sampler", [0, 1], ids=["MixtureSampler", "StepSampler"])
@pytest.mark.parametrize("ranks", [["rank 0 of 1"], ["rank 0 of 2", "rank 1 of 2"]], ids=["1 rank", "2 ranks"])
def test_ranks_put_together_give_the_schedule_of_the_plan(told, sampler, ranks) -> None:
    for name, mixture in CASES.items():
        parts = [told[rank]["dealt"][name][sampler] for rank in ranks]
        for epoch, plan in enumerate(matrix.plans(mixture)):
            order = in_order([part[epoch] for part in parts])
            assert len(order) == len(plan), name
            assert digest(order) == plan.schedule_hash(), name
