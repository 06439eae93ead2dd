"""Real loaders, workers and processes: whatever carries the rows, the order is the plan's."""
# ruff: noqa: TID253

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from cuvee import Ledger, MixedDataset, Mixture, MixtureSampler, PlanError, Source, SourceError, StateError
from loading import SIZES, WEIGHTS, Rows, mixture, reassembled, samplers

META = "__cuvee_meta__"
TESTS = Path(__file__).parents[1]


def expected(mix, epoch=0, start=0, stop=None):
    """Return the rows of an epoch, read one by one."""
    plan = mix.plan(epoch)
    return [
        {"name": draw.name, "row": draw.row, META: {"source": draw.name, "source_index": draw.row, "cycle": draw.cycle}}
        for draw in (plan[position] for position in range(start, len(plan) if stop is None else stop))
    ]


def flat(batches):
    return [row for batch in batches for row in batch]


def workers(count, context="fork", *, persistent=False):
    if count == 0:
        return {"num_workers": 0}
    return {
        "num_workers": count, "prefetch_factor": 2, "persistent_workers": persistent,
        "multiprocessing_context": multiprocessing.get_context(context),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def fork_quietly():
    """Let torch fork beside the threads other tests left behind, and on machines with fewer CPUs than workers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        warnings.filterwarnings("ignore", message="'set_vital' is deprecated", category=UserWarning)  # torchdata 0.11
        yield


# --- torch's own loader


@pytest.mark.parametrize(
    "options",
    [
        workers(0), workers(2), workers(4), workers(2, persistent=True), workers(2, "spawn", persistent=True),
    ],
    ids=["0", "2-fork", "4-fork", "2-fork-persistent", "2-spawn-persistent"],
)  # fmt: skip
def test_batches_come_in_the_order_of_the_plan(options) -> None:
    mix = mixture(samples_per_epoch=500)
    loader = DataLoader(
        MixedDataset(mix), batch_sampler=MixtureSampler(mix.plan(), batch_size=16), collate_fn=list, **options
    )
    for epoch in range(2):
        assert len(loader) == 32
        assert flat(loader) == expected(mix, epoch)


def test_single_rows_make_the_loaders_own_batches() -> None:
    mix = mixture(samples_per_epoch=500)
    loader = DataLoader(
        MixedDataset(mix), sampler=MixtureSampler(mix.plan()), batch_size=16, collate_fn=list, **workers(2)
    )
    assert len(loader) == 32
    assert flat(loader) == expected(mix)


def test_default_collation_keeps_the_metadata_and_marks_padding() -> None:
    mix = mixture(samples_per_epoch=9)
    first, second = (
        list(DataLoader(MixedDataset(mix), batch_sampler=sampler)) for sampler in samplers(mix.plan(), 2, 2)
    )
    assert torch.cat([batch[META]["cycle"] for batch in first]).tolist() == [0, 0, 0, 0, 0]
    assert torch.cat([batch[META]["cycle"] for batch in second]).tolist() == [0, 0, 0, 0, -1]
    assert all(isinstance(batch[META]["source"], list) for batch in first)


def test_length_filter_leaves_batches_full() -> None:
    lengths = {name: np.random.default_rng(k).integers(1, 20, size) for k, (name, size) in enumerate(SIZES.items())}
    sources = [Source(name, Rows(name, size), WEIGHTS[name], lengths=lengths[name]) for name, size in SIZES.items()]
    mix = Mixture(sources, samples_per_epoch=1000, max_length=10)
    loader = DataLoader(
        MixedDataset(mix), batch_sampler=MixtureSampler(mix.plan(), batch_size=16), collate_fn=list, **workers(2)
    )
    batches = list(loader)
    passing = [row for row in expected(mix) if lengths[row["name"]][row["row"]] <= 10]
    assert flat(batches) == passing
    assert {len(batch) for batch in batches[:-1]} == {16}
    assert len(batches) == len(loader)


def test_error_in_a_worker_names_source_and_row() -> None:
    mix = Mixture([Source("short", [{"x": 0}] * 3 + [None])], shuffle_within_sources=False)
    loader = DataLoader(MixedDataset(mix), batch_sampler=MixtureSampler(mix.plan(), batch_size=2), **workers(1))
    with pytest.raises(SourceError, match="source 'short': rows must be mappings"):
        list(loader)


def test_plain_shuffling_is_refused() -> None:
    with pytest.raises(TypeError, match="MixtureSampler"):
        DataLoader(MixedDataset(mixture()), shuffle=True)
    with pytest.raises(TypeError, match="MixtureSampler"):
        list(DataLoader(MixedDataset(mixture())))


def test_a_sampler_in_the_wrong_place_is_named() -> None:
    mix = mixture()
    dataset, batches = MixedDataset(mix), MixtureSampler(mix.plan(), batch_size=4)
    for size in (2, None):
        with pytest.raises(SourceError, match="goes into the loader as batch_sampler="):
            list(DataLoader(dataset, sampler=batches, batch_size=size))
    with pytest.raises(SourceError, match="goes into the loader as sampler=, or give it a batch_size"):
        list(DataLoader(dataset, batch_sampler=MixtureSampler(mix.plan())))


@pytest.mark.parametrize("options", [workers(0), workers(2)], ids=["0", "2"])
def test_state_of_a_loader_that_is_not_tracked_is_refused(options) -> None:
    sampler = MixtureSampler(mixture(samples_per_epoch=400).plan(), batch_size=8)
    loader = DataLoader(MixedDataset(mixture()), batch_sampler=sampler, collate_fn=list, **options)
    for _ in loader:
        with pytest.raises(StateError, match=r"sampler\.track\(loader\)"):
            sampler.state_dict()
    assert sampler.state_dict()["position"] == 400


# --- torchdata's StatefulDataLoader


def stateful(mix, options, *, batched=True):
    plan = mix.plan()
    how = (
        {"batch_sampler": MixtureSampler(plan, batch_size=8)}
        if batched
        else {"sampler": MixtureSampler(plan), "batch_size": 8}
    )
    return StatefulDataLoader(MixedDataset(mix), collate_fn=list, **how, **options)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("options", [workers(0), workers(2)], ids=["0", "2"])
def test_stateful_loader_resumes_again_and_again(options, batched) -> None:
    mix = mixture(samples_per_epoch=400)
    whole, state = [], None
    for taken in (7, 9, 1, None):
        loader = stateful(mix, options, batched=batched)
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        batches = iter(loader)
        whole += flat(batches) if taken is None else flat(next(batches) for _ in range(taken))
        state = loader.state_dict()
        del batches
    assert whole == expected(mix)
    loader = stateful(mix, options, batched=batched)
    loader.load_state_dict(state)
    assert flat(loader) == expected(mix, 1)  # no epoch is dropped
    assert flat(loader) == expected(mix, 2)


@pytest.mark.parametrize(
    "options", [workers(0), workers(2), workers(2, persistent=True)], ids=["0", "2", "2-persistent"]
)
def test_stateful_loader_after_an_epoch_shorter_than_the_prefetch(options) -> None:
    mix = mixture(samples_per_epoch=24)
    loader = stateful(mix, options)
    assert flat(loader) == expected(mix)
    state = loader.state_dict()
    assert flat(loader) == expected(mix, 1)
    other = stateful(mix, options)
    other.load_state_dict(state)
    assert flat(other) == expected(mix, 1)
    assert flat(other) == expected(mix, 2)


def test_stateful_loader_carries_updates_once_the_prefetched_batches_are_through() -> None:
    mix = mixture(samples_per_epoch=2000)
    loader = stateful(mix, workers(2))
    batches = iter(loader)
    head = flat(next(batches) for _ in range(10))
    loader.batch_sampler.plan.update({"a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}, at=1024)
    head += flat(next(batches) for _ in range(5))  # 4 of them were handed out before the update
    other = stateful(mix, workers(2))
    other.load_state_dict(loader.state_dict())
    rest = flat(other)
    assert (head + rest)[:1024] == expected(mix, stop=1024)
    assert {row["name"] for row in (head + rest)[1024:]} == {"b"}
    assert len(head + rest) == 2000


def test_tracked_loader_carries_updates_at_once() -> None:
    mix = mixture(samples_per_epoch=2000)
    sampler = MixtureSampler(mix.plan(), batch_size=8)
    loader = DataLoader(MixedDataset(mix), batch_sampler=sampler, collate_fn=list, **workers(2))
    head = []
    for step, batch in enumerate(sampler.track(loader), start=1):
        head += batch
        if step == 10:
            sampler.plan.update({"a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}, at=1024)
            break
    other = MixtureSampler(mix.plan(), batch_size=8)
    other.load_state_dict(sampler.state_dict())
    rest = flat(DataLoader(MixedDataset(mix), batch_sampler=other, collate_fn=list))
    assert (head + rest)[:1024] == expected(mix, stop=1024)
    assert {row["name"] for row in (head + rest)[1024:]} == {"b"}
    assert len(head + rest) == 2000


def test_ledger_stays_exact_over_a_resume_of_the_stateful_loader() -> None:
    mix = mixture(samples_per_epoch=400)
    ledger, state = Ledger(mix.names).state_dict(), None
    for taken in (7, 12, 100):
        loader, book = stateful(mix, workers(2)), Ledger.from_state(ledger)
        if state is not None:
            loader.load_state_dict(state)
        for batch in itertools.islice(loader.batch_sampler.track(loader), taken):
            book.add_batch([row[META] for row in batch])
        loader.batch_sampler.account(book)
        assert book.scheduled.tolist() == book.trained.tolist()
        ledger, state = book.state_dict(), loader.state_dict()
    assert ledger["trained"] == mix.plan().counts(400).tolist()


# --- the view in order


@pytest.mark.parametrize("options", [workers(0), workers(2), workers(1, "spawn")], ids=["0", "2-fork", "1-spawn"])
def test_view_needs_no_sampler(options) -> None:
    mix = mixture(samples_per_epoch=500)
    loader = DataLoader(
        MixedDataset(mix).in_order(mix.plan()), batch_size=16, shuffle=False, collate_fn=list, **options
    )
    assert flat(loader) == expected(mix)


@pytest.mark.parametrize("world_size", [1, 4])
def test_view_under_distributed_sampler(world_size) -> None:
    mix = mixture(samples_per_epoch=480)
    view = MixedDataset(mix).in_order(mix.plan())
    ranks = [
        flat(
            DataLoader(
                view, batch_size=8, collate_fn=list,
                sampler=DistributedSampler(view, num_replicas=world_size, rank=rank, shuffle=False),
            )
        )
        for rank in range(world_size)
    ]  # fmt: skip
    assert reassembled(ranks) == expected(mix)


def test_view_of_an_updated_plan_is_refused_by_the_loader() -> None:
    mix = mixture(samples_per_epoch=500)
    plan = mix.plan()
    loader = DataLoader(MixedDataset(mix).in_order(plan), batch_size=16, collate_fn=list, **workers(1))
    plan.update(dict.fromkeys(mix.names, 1.0), at=64)
    with pytest.raises(PlanError, match="make a new view"):
        list(loader)


# --- processes

RANK = """
    import json
    import torch.distributed as dist
    from torch.utils.data import DataLoader
    from cuvee import Ledger, MixedDataset, MixtureSampler
    from loading import mixture

    dist.init_process_group("gloo")
    mix = mixture(samples_per_epoch=500)
    sampler = MixtureSampler(mix.plan(), rank=dist.get_rank(), world_size=dist.get_world_size(), batch_size=12)
    loader = DataLoader(MixedDataset(mix), batch_sampler=sampler, collate_fn=list, num_workers=1)
    ledger, seen = Ledger(mix.names), []
    for batch in sampler.track(loader):
        metadata = [row["__cuvee_meta__"] for row in batch]
        ledger.add_batch(metadata, [3] * len(batch))
        seen.append([[row["source"], row["source_index"], row["cycle"]] for row in metadata])
    sampler.account(ledger)
    total = ledger.reduced()
    total.check()
    print(json.dumps({"seen": seen, "total": total.counts.tolist()}))
    dist.destroy_process_group()
"""


def run_ranks(code, world_size):
    """Run `code` as torchrun would, and return what each rank printed last."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world_size)
    ]  # fmt: skip
    printed = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world_size, printed
    return [json.loads(out.splitlines()[-1]) for out, _ in printed]


def test_two_processes_cover_the_plan_once() -> None:
    reports = run_ranks(RANK, 2)
    plan = mixture(samples_per_epoch=500).plan()
    assert reassembled(report["seen"] for report in reports) == [[draw.name, draw.row, draw.cycle] for draw in plan]
    counts = plan.counts(500).tolist()
    for report in reports:
        assert report["total"] == [counts, [0] * 4, counts, [3 * count for count in counts]]
