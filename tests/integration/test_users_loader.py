"""What users asked of loading: one order for all topologies, exact resume under prefetch, elastic resume."""
# ruff: noqa: TID253

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from cuvee import MixedDataset, MixtureSampler, Plan
from loading import mixture, reassembled, samplers

META = "__cuvee_meta__"
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def fork_quietly():
    """Let torch fork beside the threads other tests left behind, and on machines with fewer CPUs than workers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        warnings.filterwarnings("ignore", message="'set_vital' is deprecated", category=UserWarning)  # torchdata 0.11
        yield


def loader(dataset, sampler, workers, kind=DataLoader):
    options = {"prefetch_factor": 2, "multiprocessing_context": multiprocessing.get_context("fork")} if workers else {}
    return kind(dataset, batch_sampler=sampler, collate_fn=list, num_workers=workers, **options)


def draws(batches):
    """Return per batch its rows as (source, row, cycle), padding left out."""
    return [[tuple(row[META].values()) for row in batch if row[META]["cycle"] >= 0] for batch in batches]


def order(plan, start=0, stop=None):
    return [(draw.name, draw.row, draw.cycle) for draw in (plan[i] for i in range(start, stop or len(plan)))]


# --- one order for all topologies


@pytest.mark.parametrize(("world_size", "workers"), [(1, 0), (1, 4), (2, 2), (4, 3), (8, 1)])
def test_one_order_for_all_topologies(world_size, workers) -> None:
    mix = mixture(samples_per_epoch=8000)
    dataset = MixedDataset(mix)
    ranks = [draws(loader(dataset, sampler, workers)) for sampler in samplers(mix.plan(), world_size, 64 // world_size)]
    assert [len(batches) for batches in ranks] == [125] * world_size
    whole = reassembled(ranks)
    assert whole == order(mix.plan())
    assert len(set(whole)) == 8000
    assert Counter(name for name, _, _ in whole) == {"a": 3200, "b": 2400, "c": 1600, "d": 800}
    rows = [row for name, row, _ in whole if name == "a"]
    assert set(rows[:1000]) == set(rows[1000:2000]) == set(range(1000))
    assert rows[:1000] != rows[1000:2000]


@pytest.mark.parametrize("kind", ["view", "batch sampler", "sampler"])
def test_accelerate_shards_once(kind) -> None:
    prepare = pytest.importorskip("accelerate.data_loader").prepare_data_loader
    mix = mixture(samples_per_epoch=8000)
    dataset = MixedDataset(mix)

    def loader_of_every_process():
        if kind == "view":
            return DataLoader(dataset.in_order(mix.plan()), batch_size=16, collate_fn=list)
        if kind == "batch sampler":
            return DataLoader(dataset, batch_sampler=MixtureSampler(mix.plan(), batch_size=16), collate_fn=list)
        return DataLoader(dataset, sampler=MixtureSampler(mix.plan()), batch_size=16, collate_fn=list)

    ranks = [
        draws(prepare(loader_of_every_process(), num_processes=4, process_index=rank, put_on_device=False))
        for rank in range(4)
    ]
    assert [len(batches) for batches in ranks] == [125] * 4
    assert reassembled(ranks) == order(mix.plan())


# --- resume, twice, with prefetch

LATER = """
    import json, sys
    from test_users_loader import go_on
    state, kind = json.load(sys.stdin)
    print(json.dumps(go_on(kind, state, 10)))
"""


def go_on(kind, state, batches=None):
    """Return (draws of the next batches, all that are left by default, the state after them) from `state` on."""
    warnings.simplefilter("ignore")
    mix = mixture(samples_per_epoch=4000)
    sampler = MixtureSampler(mix.plan(), batch_size=8)
    stateful = kind == "stateful"
    loading = loader(MixedDataset(mix), sampler, 4, StatefulDataLoader if stateful else DataLoader)
    if state is not None:
        (loading if stateful else sampler).load_state_dict(state)
    seen = []
    for batch in loading if stateful else sampler.track(loading):
        seen += draws([batch])
        if len(seen) == batches:
            break
    return seen, (loading if stateful else sampler).state_dict()


def go_on_in_a_new_process(kind, state):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LATER)], input=json.dumps([state, kind]), capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(TESTS), *sys.path])},
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen, state = json.loads(done.stdout)
    return [[tuple(draw) for draw in batch] for batch in seen], state


@pytest.mark.parametrize("kind", ["stateful", "tracked"])
def test_resume_twice_with_prefetch(kind) -> None:
    plan = mixture(samples_per_epoch=4000).plan()
    first, state = go_on(kind, None, 30)
    second, state = go_on_in_a_new_process(kind, json.loads(json.dumps(state)))
    before = copy.deepcopy(state)
    third, end = go_on(kind, state)
    assert state == before
    assert third[0] == order(plan, 320, 328)
    assert [draw for batch in first + second + third for draw in batch] == order(plan)
    assert len(first + second + third) == 500
    following, _ = go_on(kind, json.loads(json.dumps(end)), 1)
    assert following[0] == order(mixture(samples_per_epoch=4000).plan(1), 0, 8)


def test_state_is_small_exact_and_loads_without_a_draw(monkeypatch) -> None:
    mix = mixture(samples_per_epoch=4_000_000_000)
    sampler = MixtureSampler(mix.plan(), batch_size=8, start=1_000_000_000)
    next(iter(sampler))
    state = sampler.state_dict(batches=1)
    assert state["position"] == 1_000_000_008
    assert len(json.dumps(state)) < 4096
    other = MixtureSampler(mix.plan(), batch_size=8)
    with monkeypatch.context() as patched:
        patched.setattr(Plan, "draws", None)  # nothing is drawn on the way to position 1e9
        other.load_state_dict(state)
    assert other.state_dict() == state


# --- elastic resume


def run_ranks(world_size, workers, rows, state=None, steps=None):
    """Return (per step the draws of all ranks, rank 0's state after them)."""
    mix = mixture(samples_per_epoch=12_800)
    ranks = []
    for sampler in samplers(mix.plan(), world_size, rows):
        if state is not None:
            sampler.load_state_dict(state)
        seen = []
        for batch in sampler.track(loader(MixedDataset(mix), sampler, workers)):
            seen += draws([batch])
            if len(seen) == steps:
                break
        ranks.append((seen, sampler.state_dict()))
    assert all(other == ranks[0][1] for _, other in ranks)
    return [list(chain(*step)) for step in zip(*(seen for seen, _ in ranks), strict=True)], ranks[0][1]


@pytest.mark.parametrize(("world_size", "workers", "rows"), [(2, 8, 32), (8, 0, 8), (3, 1, 32)])
def test_elastic_resume(world_size, workers, rows) -> None:
    plan = mixture(samples_per_epoch=12_800).plan()
    head, state = run_ranks(4, 2, 16, steps=100)
    assert state["position"] == 6400
    tail, end = run_ranks(world_size, workers, rows, json.loads(json.dumps(state)))
    assert [draw for step in head + tail for draw in step] == order(plan)
    assert end["position"] == 12_800
    if world_size * rows == 64:
        expected = order(plan)
        assert [set(step) for step in tail] == [set(expected[i : i + 64]) for i in range(6400, 12_800, 64)]
