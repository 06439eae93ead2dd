"""What reaches a loop is compared with the plan; what differs is told with the tool that did it."""
# ruff: noqa: TID253

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Sampler

from cuvee import MixedDataset, Mixture, MixtureSampler, PlanError, Source, _core
from cuvee.course import Deal, Place
from cuvee.dataset import META
from cuvee.delivery import DeliveryCheck, dealt_by, metadata_of, refuse_resharding
from loading import mixture, samplers

START = Place(position=0, accepted=0)
BATCH = 4


def deal_of(sampler: MixtureSampler) -> Deal:
    return Deal(
        rank=sampler.rank,
        world_size=sampler.world_size,
        rows=sampler.batch_size or 1,
        drop_last=sampler.drop_last,
        batched=sampler.batch_size is not None,
    )


def columns(item):
    """Return the arrays of one of a sampler's items, padding with cycle -1."""
    keys = item if isinstance(item, list) else [item]
    source, row, cycle = _core.unpack([key if key >= 0 else ~key for key in keys])
    return source, row, np.where(np.array(keys) < 0, -1, cycle)


def small(rows=400, **settings):
    return mixture(sizes={"a": 60, "b": 40, "c": 30, "d": 20}, samples_per_epoch=rows, **settings)


def filtered(rows=400):
    lengths = np.arange(100) % 7
    sources = [Source(name, [{"x": 1}] * 100, 1.0 + k, lengths=lengths) for k, name in enumerate("ab")]
    return Mixture(sources, samples_per_epoch=rows, max_length=4)


def steps_of(rank=0, world_size=2, mix=None):
    """Return a check of one rank and the columns of its steps."""
    plan = (mix or small()).plan()
    sampler = MixtureSampler(plan, rank=rank, world_size=world_size, batch_size=BATCH)
    return DeliveryCheck(plan, deal_of(sampler), START), [columns(item) for item in sampler]


# --- what comes as planned


@given(
    world_size=st.integers(1, 4),
    batch_size=st.sampled_from([None, 1, 3, 8]),
    drop_last=st.booleans(),
    rows=st.integers(1, 250),
    passing=st.booleans(),
    start=st.integers(0, 40),
)
def test_what_a_sampler_yields_is_what_the_plan_says(world_size, batch_size, drop_last, rows, passing, start) -> None:
    plan = (filtered(rows) if passing else small(rows)).plan()
    for sampler in samplers(plan, world_size, batch_size, drop_last=drop_last, start=min(start, rows)):
        state = sampler.state_dict()
        check = DeliveryCheck(plan, deal_of(sampler), Place(position=state["position"], accepted=state["accepted"]))
        epoch = sampler.epoch
        for item in sampler:
            if sampler.epoch == epoch:
                check.step(*columns(item))
        check.step([0], [0], [0])  # of the next epoch
        assert check.finished


def test_rows_dealt_one_by_one_may_come_in_batches_of_any_size() -> None:
    plan = small(40_000).plan()
    (_, sampler) = samplers(plan, 2)
    items = list(sampler)
    check = DeliveryCheck(plan, deal_of(sampler), START)
    first = 0
    for size in [1, 700, 3, 9_000, 5_000, len(items)]:
        if items[first : first + size]:
            check.step(*columns(items[first : first + size]))
        first += size
    assert not check.finished
    check.step([0], [0], [0])
    assert check.finished


def test_padding_may_come_or_be_left_out() -> None:
    for padded in (True, False):
        check, steps = steps_of(rank=1, world_size=2, mix=small(401))
        for source, row, cycle in steps:
            kept = slice(None) if padded else cycle >= 0
            check.step(source[kept], row[kept], cycle[kept])
        assert (steps[-1][2] == -1).any()


@pytest.mark.parametrize("batch_size", [8, None])
def test_a_weight_update_is_followed(batch_size) -> None:
    plan = small(40_000).plan()
    sampler = MixtureSampler(plan, batch_size=batch_size)
    check = DeliveryCheck(plan, deal_of(sampler), START)
    for number, item in enumerate(sampler):
        check.step(*columns(item))
        if number in (5, 1000):
            plan.update([1.0, 2.0, 3.0, 4.0 + number])
    assert sampler.plan is plan


# --- what does not


@given(
    data=st.data(),
    world_size=st.integers(1, 3),
    change=st.sampled_from(["swap", "drop", "repeat", "row", "cycle", "reverse"]),
)
def test_any_change_is_noticed(data, world_size, change) -> None:
    rank = data.draw(st.integers(0, world_size - 1))
    check, steps = steps_of(rank, world_size)
    at = data.draw(st.integers(0, len(steps) - 2))
    source, row, cycle = steps[at]
    if change == "swap":
        steps[at] = steps[at + 1]
    elif change == "drop":
        steps[at] = (source[1:], row[1:], cycle[1:])
    elif change == "repeat":
        steps[at + 1] = steps[at]
    elif change == "row":
        steps[at] = (source, np.append(row[:-1], row[-1] + 1), cycle)
    elif change == "cycle":
        steps[at] = (source, row, cycle + 1)
    else:
        steps[at] = (source[::-1], row[::-1], cycle[::-1])
    with pytest.raises(PlanError, match="must have row"):
        check_all(check, steps)


def check_all(check, steps) -> None:
    for step in steps:
        check.step(*step)


def joined(steps, places):
    flat = [np.concatenate([step[column] for step in steps]) for column in range(3)]
    return tuple(column[places] for column in flat)


@pytest.mark.parametrize(
    ("story", "made"),
    [
        ("the rows of the batch come in another order", lambda own, other, flat: joined(own, [0, 2, 1, 3])),
        ("they are of step 3: steps before it were skipped", lambda own, other, flat: own[3]),
        ("they are rank 1's, of step 0", lambda own, other, flat: other[0]),
        ("3 rows came where 4 were due", lambda own, other, flat: joined(own, [0, 1, 2])),
        ("they are one row in 2 of the order", lambda own, other, flat: joined(flat, [0, 2, 4, 6])),
        ("they come in a shuffled order", lambda own, other, flat: joined(flat, [9, 2, 77, 30])),
        ("4 of the rows looked for are nowhere near", lambda own, other, flat: (*own[0][:2], own[0][2] + 40)),
    ],
)
def test_the_error_says_what_came(story, made) -> None:
    check, own = steps_of()
    _, other = steps_of(rank=1)
    _, flat = steps_of(world_size=1)
    with pytest.raises(PlanError) as raised:
        check.step(*made(own, other, flat))
    assert story in str(raised.value)
    assert str(raised.value).startswith("step 0 of rank 0 in epoch 0 must have row ")


def test_the_error_says_that_steps_come_again() -> None:
    check, own = steps_of()
    check.step(*own[0])
    check.step(*own[1])
    with pytest.raises(PlanError, match="they are of step 0: steps are repeated"):
        check.step(*own[0])


@pytest.mark.parametrize(("rank", "wrong"), [(0, 1), (1, 0)])
def test_the_error_says_that_steps_were_dealt_twice(rank, wrong) -> None:
    check, own = steps_of(rank)
    dealt_again = own[rank::2]
    for step in dealt_again[:wrong]:
        check.step(*step)
    with pytest.raises(
        PlanError, match=rf"of step {wrong * 2 + rank}, the steps having been dealt to the ranks a second"
    ):
        check.step(*dealt_again[wrong])


def test_a_source_of_another_mixture_is_told() -> None:
    check, _ = steps_of()
    row = {META: {"source": "other", "source_index": 0, "cycle": 0}}
    with pytest.raises(PlanError, match="got row 0 of 'another source'"):
        check.batch([row] * BATCH)


# --- track


class Reversed(Sampler):
    """A sampler that a user, or a tool, puts around another."""

    def __init__(self, sampler) -> None:
        self.sampler = sampler

    def __iter__(self):
        return iter(list(self.sampler)[::-1])

    def __len__(self) -> int:
        return len(self.sampler)


def loader_of(sampler, wrap=lambda sampler: sampler, **options):
    return DataLoader(MixedDataset(sampler.plan.mixture), batch_sampler=wrap(sampler), **options)


def test_track_names_what_is_around_the_sampler() -> None:
    sampler = MixtureSampler(small().plan(), batch_size=BATCH)
    with pytest.raises(PlanError, match=r"\(between sampler and loop: \w+'s Reversed\); nothing after"):
        next(iter(sampler.track(loader_of(sampler, Reversed))))


@pytest.mark.parametrize("collate", [None, list])
def test_track_compares_the_first_epoch_alone(collate) -> None:
    sampler = MixtureSampler(small().plan(), batch_size=BATCH)
    loader = loader_of(sampler, collate_fn=collate)
    assert len(list(sampler.track(loader))) == 100
    assert len(list(sampler.track(loader_of(sampler, Reversed, collate_fn=collate)))) == 100


def test_track_compares_after_a_break_too() -> None:
    sampler = MixtureSampler(small().plan(), batch_size=BATCH)
    next(iter(sampler.track(loader_of(sampler))))
    with pytest.raises(PlanError, match="Reversed"):
        next(iter(sampler.track(loader_of(sampler, Reversed))))


def test_track_compares_nothing_if_told_so_or_without_metadata() -> None:
    sampler = MixtureSampler(small().plan(), batch_size=BATCH)
    assert len(list(sampler.track(loader_of(sampler, Reversed), verify=False))) == 100
    sampler = MixtureSampler(small().plan(), batch_size=BATCH)
    loader = DataLoader(MixedDataset(sampler.plan.mixture, metadata=False), batch_sampler=Reversed(sampler))
    assert len(list(sampler.track(loader))) == 100


@pytest.mark.parametrize("size", [None, 1, 7])
def test_track_compares_single_rows(size) -> None:
    plan = small().plan()
    for sampler in samplers(plan, 2):
        loader = DataLoader(MixedDataset(plan.mixture), sampler=sampler, batch_size=size)
        assert len(list(sampler.track(loader))) == len(loader)
    (_, sampler) = samplers(plan, 2)
    loader = DataLoader(MixedDataset(plan.mixture), sampler=Reversed(sampler), batch_size=size)
    with pytest.raises(PlanError, match="Reversed"):
        list(sampler.track(loader))


@pytest.mark.parametrize("batches", [1, 13, 100])
def test_track_compares_from_a_loaded_place_on(batches) -> None:
    plan = small().plan()
    sampler = MixtureSampler(plan, batch_size=BATCH)
    list(sampler.track(loader_of(sampler)))
    state = json.loads(json.dumps(sampler.state_dict(batches)))
    sampler = MixtureSampler(small().plan(), rank=1, world_size=2, batch_size=3)
    sampler.load_state_dict(state)
    assert len(list(sampler.track(loader_of(sampler)))) == -(-((400 - batches * BATCH) or 400) // 6)


# --- tools that deal again


def sharded(sampler, ranks=2, rank=1, **options):
    shard = pytest.importorskip("accelerate.data_loader").BatchSamplerShard
    return shard(sampler, num_processes=ranks, process_index=rank, **options)


@pytest.mark.parametrize("single", [False, True])
def test_a_sampler_of_one_rank_is_not_dealt_by_accelerate(single) -> None:
    plan = small().plan()
    sampler = MixtureSampler(plan, rank=1, world_size=2, batch_size=None if single else BATCH)
    batches = BatchSampler(sampler, BATCH, drop_last=False) if single else sampler
    with pytest.raises(
        PlanError, match=r"^world_size must be 1 .* accelerate's BatchSamplerShard .* got 2: .*loader_for"
    ):
        next(iter(sharded(batches)))
    with pytest.raises(PlanError, match="accelerate's BatchSamplerShard"):
        sampler.track(DataLoader(MixedDataset(plan.mixture), batch_sampler=sharded(batches)))
    assert len(list(sharded(batches, ranks=1, rank=0))) == 50


@pytest.mark.parametrize(("split", "rows"), [(False, BATCH), (True, BATCH // 2)])
@pytest.mark.parametrize("single", [False, True])
def test_a_sampler_of_all_ranks_may_be_dealt_by_accelerate(split, rows, single) -> None:
    mix = small(402)
    for rank in range(2):
        sampler = MixtureSampler(mix.plan(), batch_size=None if single else BATCH)
        batches = BatchSampler(sampler, BATCH, drop_last=False) if single else sampler
        loader = DataLoader(MixedDataset(mix), batch_sampler=sharded(batches, rank=rank, split_batches=split))
        seen = 0
        for batch in sampler.track(loader):
            seen += 1
            assert len(batch["row"]) == rows
            if seen == 5:
                assert sampler.state_dict()["position"] == seen * 2 * rows
        assert seen == -(-402 // (2 * rows))
        deal = dealt_by(loader, deal_of(sampler))
        assert (deal.rank, deal.world_size, deal.rows) == (rank, 2, rows)


def test_steps_skipped_by_accelerate_are_told() -> None:
    skip = pytest.importorskip("accelerate.data_loader").SkipBatchSampler
    sampler = MixtureSampler(small().plan(), batch_size=BATCH)
    with pytest.raises(PlanError, match=r"of step 3: steps before it were skipped \(.*accelerate's SkipBatchSampler\)"):
        next(iter(sampler.track(loader_of(sampler, lambda sampler: skip(sampler, skip_batches=3)))))


def test_lightning_shuffling_a_sampler_is_refused() -> None:
    wrapper = pytest.importorskip("lightning.fabric.utilities.distributed").DistributedSamplerWrapper
    sampler = MixtureSampler(small().plan())
    with pytest.raises(PlanError, match=r"^sampler must be read in its order, but got lightning's .*MixtureDataModule"):
        iter(wrapper(sampler, num_replicas=2, rank=0))


def test_nobody_who_deals_is_no_error() -> None:
    refuse_resharding(8)
    assert len(list(MixtureSampler(small().plan(), world_size=8, batch_size=BATCH))) == 13


# --- metadata


def test_metadata_is_found_in_every_form() -> None:
    rows = [{META: {"source": name, "source_index": k, "cycle": 0}} for k, name in enumerate("ab")]
    expected = (["a", "b"], [0, 1], [0, 0])
    collated = torch.utils.data.default_collate(rows)
    assert metadata_of(rows) == metadata_of(tuple(rows)) == metadata_of(collated) == expected
    assert metadata_of({META: [row[META] for row in rows]}) == expected
    assert metadata_of(rows[0]) == (["a"], [0], [0])


@pytest.mark.parametrize("batch", [None, 3, "text", [], {}, {"x": 1}, [1, 2], torch.ones(2, 2), [{"x": 1}], {META: 5}])
def test_batches_without_metadata_have_none(batch) -> None:
    assert metadata_of(batch) is None


def test_importing_the_check_needs_no_torch() -> None:
    code = "import sys, cuvee.delivery; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
