"""The sampler deals the plan's order: the same for every world size and batch size, and from any place again."""

from __future__ import annotations

import copy
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvee import Ledger, MixedDataset, Mixture, MixtureSampler, Plan, PlanError, Source, Stage, StateError
from loading import mixture, packed, reassembled, samplers

SMALL = {"a": 50, "b": 30, "c": 20}
SHARES = {"a": 5.0, "b": 3.0, "c": 2.0}


def small(rows: int = 100, **settings):
    return mixture(SMALL, SHARES, samples_per_epoch=rows, **settings)


def limited(rows: int = 200, *, max_length: int = 10, long: float = 0.4, seed: int = 0) -> Mixture:
    """Return a mixture in which a share `long` of the rows is over the limit."""
    random = np.random.default_rng(seed)
    sources = [
        Source(
            name, weight=SHARES[name], rows=size, lengths=np.r_[1, random.choice([5, 50], size - 1, p=[1 - long, long])]
        )
        for name, size in SMALL.items()
    ]
    return Mixture(sources, samples_per_epoch=rows, max_length=max_length)


# --- dealing


@settings(max_examples=60)
@given(
    rows=st.integers(1, 300),
    world_size=st.integers(1, 9),
    batch_size=st.none() | st.integers(1, 40),
    drop_last=st.booleans(),
    filtered=st.booleans(),
)
def test_all_ranks_together_give_the_order(rows, world_size, batch_size, drop_last, filtered) -> None:
    plan = (limited(rows) if filtered else small(rows)).plan()
    order = packed(plan, passing=filtered)
    everyone = samplers(plan, world_size, batch_size, drop_last=drop_last)
    promised = {len(sampler) for sampler in everyone}
    dealt = [list(sampler) for sampler in everyone]
    assert promised == {len(items) for items in dealt}
    whole = reassembled(dealt)
    real = [key for key in whole if key >= 0]
    step = world_size * (batch_size or 1)
    if drop_last:
        assert whole == order[: len(order) // step * step]
    else:
        assert real == order
        assert len(whole) - len(real) == -len(order) % step % world_size
        assert {~key for key in whole if key < 0} <= set(order[-1:])


def test_short_last_batch_is_dealt_evenly() -> None:
    plan = small(100).plan()
    last = [list(sampler)[-1] for sampler in samplers(plan, 4, 16)]  # 64 + 36 rows
    assert [len(batch) for batch in last] == [9, 9, 9, 9]
    last = [list(sampler)[-1] for sampler in samplers(small(66).plan(), 4, 16)]  # 64 + 2 rows
    assert [[key >= 0 for key in batch] for batch in last] == [[True], [True], [False], [False]]


def test_without_batch_size_rank_takes_every_nth_row() -> None:
    plan = small(100).plan()
    assert list(MixtureSampler(plan, rank=2, world_size=5)) == packed(plan)[2::5]


def test_batch_larger_than_a_chunk() -> None:
    plan = mixture(samples_per_epoch=40_000).plan()
    assert reassembled([list(MixtureSampler(plan, batch_size=17_000))]) == packed(plan)


def test_start_begins_within_the_epoch() -> None:
    plan = small(100).plan()
    sampler = MixtureSampler(plan, batch_size=8, start=90)
    assert len(sampler) == 2
    assert reassembled([list(sampler)]) == packed(plan, 90)
    assert len(sampler) == 2  # until the next one is begun
    assert len(list(sampler)) == len(sampler) == 13


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", -1), ("rank", 2), ("rank", True), ("rank", 0.5), ("world_size", 0), ("world_size", "2"),
        ("batch_size", 0), ("batch_size", -3), ("batch_size", 2.0), ("batch_size", False),
    ],
)  # fmt: skip
def test_bad_argument_is_named_with_its_value(name, value) -> None:
    arguments = {"rank": 0, "world_size": 2, "batch_size": 4} | {name: value}
    with pytest.raises(PlanError, match=f"^{name} must be .* but got {value!r}"):
        MixtureSampler(small().plan(), **arguments)


@pytest.mark.parametrize("start", [-1, 101, 2**63])
def test_start_outside_the_plan_is_an_index_error(start) -> None:
    with pytest.raises(IndexError, match=rf"start must be in \[0, 100\].* but got {start}"):
        MixtureSampler(small(100).plan(), start=start)


# --- epochs


def test_iterating_again_gives_the_next_epoch() -> None:
    mix = small(100)
    sampler = MixtureSampler(mix.plan(), batch_size=8)
    for epoch in range(3):
        assert reassembled([list(sampler)]) == packed(mix.plan(epoch))
        assert sampler.epoch == epoch


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_loop_that_stops_at_len_gives_the_next_epoch_too(drop_last) -> None:
    mix = small(100)
    sampler = MixtureSampler(mix.plan(), batch_size=8, drop_last=drop_last)
    for epoch in range(3):
        items = iter(sampler)
        batches = [next(items) for _ in range(len(sampler))]  # nobody asks for the end
        assert reassembled([batches]) == packed(mix.plan(epoch))[: 96 if drop_last else 100]


def test_set_epoch_gives_that_epoch() -> None:
    mix = small(100)
    sampler = MixtureSampler(mix.plan())
    for epoch in (0, 1, 1, 4, 0, 0, 2):
        sampler.set_epoch(epoch)
        assert list(sampler) == packed(mix.plan(epoch))


def test_set_epoch_of_the_epoch_under_way_keeps_a_loaded_place() -> None:
    plan = small(100).plan(1)
    sampler = MixtureSampler(plan)
    sampler.load_state_dict(MixtureSampler(plan, start=40).state_dict())
    sampler.set_epoch(1)
    assert list(sampler) == packed(plan, 40)


def test_set_epoch_before_the_loaded_one_is_refused() -> None:
    mix = small(100)
    sampler = MixtureSampler(mix.plan())
    sampler.load_state_dict(MixtureSampler(mix.plan(2), start=40).state_dict())
    with pytest.raises(StateError, match=r"epoch must be at least 2, .* but got 0; .*sampler.epoch"):
        sampler.set_epoch(0)


def test_break_starts_over() -> None:
    plan = small(100).plan()
    sampler = MixtureSampler(plan, start=10)
    assert list(itertools.islice(sampler, 5)) == packed(plan, 10, 15)
    assert list(sampler) == packed(plan, 10)


def test_after_the_last_epoch_there_is_nothing() -> None:
    sources = [Source(name, rows=rows, max_epochs=1) for name, rows in SMALL.items()]
    sampler = MixtureSampler(Mixture(sources, samples_per_epoch=100).plan(), batch_size=10)
    assert len(list(sampler)) == len(sampler) == 10
    with pytest.raises(PlanError):
        iter(sampler)


@pytest.mark.parametrize("exhaustion", ["stop", "renormalize"])
def test_fresh_epochs_follow_each_other(exhaustion) -> None:
    mix = mixture(SMALL, SHARES, exhaustion=exhaustion)
    sampler = MixtureSampler(mix.plan(), batch_size=7)
    for epoch in range(3):
        assert len(sampler) == -(-len(mix.plan(epoch)) // 7)
        assert reassembled([list(sampler)]) == packed(mix.plan(epoch))


# --- state


@settings(max_examples=40)
@given(
    taken=st.integers(0, 12),
    filtered=st.booleans(),
    ranks=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    batches=st.tuples(st.integers(1, 9), st.none() | st.integers(1, 9)),
)
def test_a_state_goes_on_at_any_world_size_and_batch_size(taken, filtered, ranks, batches) -> None:
    mix = limited(500) if filtered else small(500)
    order = packed(mix.plan(), passing=filtered)
    first = MixtureSampler(mix.plan(), rank=ranks[0] - 1, world_size=ranks[0], batch_size=batches[0])
    items = iter(first)
    taken = min(taken, len(first))
    for _ in range(taken):
        next(items)
    state = json.loads(json.dumps(first.state_dict(batches=taken)))
    assert state["accepted"] == min(taken * ranks[0] * batches[0], len(order))
    others = samplers(mix.plan(), ranks[1], batches[1])
    for sampler in others:
        sampler.load_state_dict(state)
    rest = reassembled([list(sampler) for sampler in others])
    expected = order[state["accepted"] :] or packed(mix.plan(1), passing=filtered)
    assert [key for key in rest if key >= 0] == expected


@pytest.mark.parametrize("filtered", [False, True])
def test_state_of_a_loaded_state_is_the_same(filtered) -> None:
    mix = limited() if filtered else small()
    sampler = MixtureSampler(mix.plan(1), batch_size=8)
    items = iter(sampler)
    for step in range(len(sampler)):
        next(items)
        state = items.state_dict()
        before = copy.deepcopy(state)
        other = MixtureSampler(mix.plan(), batch_size=8)
        other.load_state_dict(state)
        assert other.state_dict() == state == before == sampler.state_dict(batches=step + 1)
    assert state["position"] == len(sampler.plan)


def test_state_at_the_end_goes_on_with_the_next_epoch() -> None:
    mix = small(100)
    for drop_last in (False, True):
        sampler = MixtureSampler(mix.plan(), batch_size=8, drop_last=drop_last)
        list(sampler)
        state = sampler.state_dict()
        other = MixtureSampler(mix.plan(), batch_size=8, drop_last=drop_last)
        other.load_state_dict(state)
        assert len(other) == len(mix.plan(1)) // 8 + (not drop_last)
        assert next(iter(other)) == packed(mix.plan(1), 0, 8)


def test_state_under_prefetch_counts_what_was_consumed() -> None:
    plan = limited(20_000, long=0.5).plan()
    order = packed(plan, passing=True)
    sampler = MixtureSampler(plan, batch_size=4)
    list(sampler)  # a loader with workers runs ahead
    for consumed in (0, 1, 100, 1500):
        other = MixtureSampler(plan, batch_size=4)
        other.load_state_dict(sampler.state_dict(batches=consumed))
        assert next(iter(other)) == order[consumed * 4 : consumed * 4 + 4]


def test_state_of_more_batches_than_handed_out_is_refused() -> None:
    sampler = MixtureSampler(small(100).plan(), batch_size=8)
    next(iter(sampler))
    with pytest.raises(StateError, match=r"batches must be in \[0, 1\], .* but got 2"):
        sampler.state_dict(batches=2)
    with pytest.raises(StateError, match=r"batches must be .* but got -1"):
        sampler.state_dict(batches=-1)


def test_track_counts_batches_as_they_are_yielded() -> None:
    plan = small(100).plan()
    sampler = MixtureSampler(plan, batch_size=8)
    ahead = list(sampler)
    for number, _ in enumerate(sampler.track(ahead), start=1):
        assert sampler.state_dict()["position"] == min(8 * number, 100)


def test_state_within_an_epoch_needs_to_know_what_was_consumed() -> None:
    sampler = MixtureSampler(small(100).plan(), batch_size=8)
    assert sampler.state_dict()["position"] == 0
    items = iter(sampler)
    next(items)
    for ask in (sampler.state_dict, lambda: sampler.account(Ledger(sampler.plan.names))):
        with pytest.raises(
            StateError, match=r"of the 1 handed out .* but got None.*sampler\.track\(loader\).*batches="
        ):
            ask()
    assert sampler.state_dict(batches=1)["position"] == 8
    list(items)
    with pytest.raises(StateError, match="of the 13 handed out"):
        sampler.state_dict()  # whoever holds the iterator may not be through with what it gave
    del items
    assert sampler.state_dict()["position"] == 100


def test_track_of_a_loader_with_another_sampler_is_refused() -> None:
    from torch.utils.data import DataLoader

    plan = small(100).plan()
    sampler, other = MixtureSampler(plan), MixtureSampler(plan)
    for sampling in ({"sampler": other, "batch_size": 5}, {"batch_sampler": MixtureSampler(plan, batch_size=5)}, {}):
        with pytest.raises(
            StateError, match=r"loader must take its batches from this sampler, but got one with a .*Sampler"
        ):
            sampler.track(DataLoader(list(range(100)), **sampling))
    loader = DataLoader(MixedDataset(small(100)), sampler=sampler, batch_size=5)
    assert sum(1 for _ in sampler.track(loader)) == 20


@pytest.mark.parametrize("given", [small(100), None])
def test_what_is_no_plan_is_refused(given) -> None:
    with pytest.raises(PlanError, match=rf"plan must be a Plan, but got {type(given).__name__}; .*mixture\.plan\(\)"):
        MixtureSampler(given)


def test_iterator_carries_its_own_state() -> None:
    mix = small(100)
    items = iter(MixtureSampler(mix.plan(), batch_size=8))
    for _ in range(5):
        next(items)
    sampler = MixtureSampler(mix.plan(), batch_size=8)
    resumed = iter(sampler)
    next(resumed)  # even one under way
    resumed.load_state_dict(items.state_dict())
    assert reassembled([list(resumed)]) == packed(mix.plan(), 40)
    assert reassembled([list(sampler)]) == packed(mix.plan(1))


def test_iterator_loaded_with_the_end_of_an_epoch_is_empty() -> None:
    mix = small(24)
    done = iter(MixtureSampler(mix.plan(), batch_size=8))
    assert len(list(done)) == 3
    sampler = MixtureSampler(mix.plan(), batch_size=8)
    items = iter(sampler)
    items.load_state_dict(done.state_dict())
    assert list(items) == []
    assert reassembled([list(sampler)]) == packed(mix.plan(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version must be 1, but got 99"),
        ({"position": -1}, "state position must be .* but got -1"),
        ({"accepted": "x"}, "state accepted must be .* but got 'x'"),
        ({"position": 7}, "state position must be 0, as in its plan, but got 7"),
        ({"accepted": 7}, "state accepted must be 0, its position, but got 7"),
        ({"accepted": 2**62}, "state accepted must be 0, its position"),
        ({"plan": 5}, "state must be a mapping .* got 5"),
    ],
)
def test_bad_state_is_named(change, message) -> None:
    sampler = MixtureSampler(small().plan())
    with pytest.raises(StateError, match=message):
        sampler.load_state_dict(sampler.state_dict() | change)


@pytest.mark.parametrize("state", [None, 5, [], "x"])
def test_a_state_must_be_a_mapping(state) -> None:
    sampler = MixtureSampler(small().plan(), start=10)
    before = sampler.state_dict()
    with pytest.raises(StateError, match=r"state must be from MixtureSampler\.state_dict, but got"):
        sampler.load_state_dict(state)
    assert sampler.state_dict() == before


def test_a_refused_place_changes_nothing() -> None:
    mix = limited()
    sampler = MixtureSampler(mix.plan(), start=50)
    before = sampler.state_dict()
    with pytest.raises(StateError, match=r"state accepted must be in \[0, 60\], but got 61"):
        sampler.load_state_dict(MixtureSampler(mix.plan(), start=60).state_dict() | {"accepted": 61})
    assert sampler.state_dict() == before


@pytest.mark.parametrize("start", [1.5, True, "x", None])
def test_start_must_be_an_integer(start) -> None:
    with pytest.raises(PlanError, match=f"start must be an integer, .* but got {start!r}"):
        MixtureSampler(small().plan(), start=start)


def test_start_may_be_an_integer_of_any_type() -> None:
    plan = small(300).plan()
    assert packed(plan)[250:] == list(MixtureSampler(plan, start=np.uint8(250)))


@pytest.mark.parametrize(("batch_size", "world_size"), [(2**62, 1), (1, 2**62), (2**16, 2**15), (None, 2**31)])
def test_a_global_batch_has_a_limit(batch_size, world_size) -> None:
    with pytest.raises(PlanError, match=r"batch_size \* world_size must be below 2\*\*31, but got"):
        MixtureSampler(small().plan(), batch_size=batch_size, world_size=world_size)


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(StateError, match=r"but got one without \['accepted', 'plan'\]"):
        MixtureSampler(small().plan()).load_state_dict({"version": 1, "position": 3})


def test_a_state_of_another_mixture_is_refused() -> None:
    with pytest.raises(StateError, match="seed"):
        MixtureSampler(small(seed=1).plan()).load_state_dict(MixtureSampler(small(seed=2).plan()).state_dict())


def test_far_positions_load_without_a_draw(monkeypatch) -> None:
    sources = [Source(name, weight=share, rows=3_000_000_000) for name, share in SHARES.items()]
    mix = Mixture(sources, samples_per_epoch=4_000_000_000)
    state = MixtureSampler(mix.plan(), batch_size=8, start=1_000_000_000).state_dict()
    assert len(json.dumps(state)) < 4096
    sampler = MixtureSampler(mix.plan(), batch_size=8)
    with monkeypatch.context() as patched:
        patched.setattr(Plan, "draws", None)
        sampler.load_state_dict(state)
    assert next(iter(sampler)) == packed(sampler.plan, 1_000_000_000, 1_000_000_008)


def token_lengths(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(1, 50, size)


KINDS = {
    "all rows seen": lambda: mixture(SMALL, SHARES, samples_per_epoch="all_seen"),
    "renormalize": lambda: mixture(SMALL, SHARES, exhaustion="renormalize"),
    "stop": lambda: mixture(SMALL, SHARES, exhaustion="stop"),
    "filtered": lambda: limited(150),
    "tokens": lambda: Mixture(
        [Source(name, rows=size, weight=SHARES[name], lengths=token_lengths(size)) for name, size in SMALL.items()],
        unit="tokens", control_interval=64, samples_per_epoch=150, max_length=40,
    ),
    "curriculum": lambda: mixture(
        SMALL, SHARES, samples_per_epoch=150, control_interval=16,
        stages=[Stage(200, {"a": 1, "b": 1, "c": 8}, "linear")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=8)
def test_interruptions_change_nothing(kind, data) -> None:
    mix = KINDS[kind]()
    plan, expected = mix.plan(), []
    for _ in range(4):
        expected += packed(plan, passing=True)
        plan = plan.next_epoch()
    whole, state = [], None
    while len(whole) < len(expected) - 200:
        sampler = MixtureSampler(mix.plan(), batch_size=data.draw(st.integers(1, 20)))
        if state is not None:
            sampler.load_state_dict(json.loads(json.dumps(state)))
        handed = list(itertools.islice(sampler, data.draw(st.integers(1, 20))))
        trained = data.draw(st.integers(1, len(handed)))
        whole += reassembled([handed[:trained]])
        state = sampler.state_dict(batches=trained)
    assert whole == expected[: len(whole)]


# --- updates


def test_an_update_while_iterating_takes_effect_where_it_says() -> None:
    mix = small(1000, window=10)
    plan = mix.plan()
    sampler = MixtureSampler(plan, batch_size=8)
    items = iter(sampler)
    head = [next(items) for _ in range(20)]
    with pytest.raises(PlanError, match="but got 150"):
        plan.update({"a": 1.0, "b": 1.0, "c": 1.0}, at=150)  # 160 positions were handed out
    plan.update({"a": 0.0, "b": 1.0, "c": 1.0}, at=500)
    whole = reassembled([head + list(items)])
    assert whole == packed(plan)
    assert not (plan.draws(500, 1000).source == 0).any()
    assert whole[:500] == packed(mix.plan(), 0, 500)


def test_updates_are_in_the_state() -> None:
    mix = small(1000, window=10)
    plan = mix.plan()
    sampler = MixtureSampler(plan, batch_size=8)
    items = iter(sampler)
    next(items)
    plan.update({"a": 0.0, "b": 1.0, "c": 1.0}, at=500)
    other = MixtureSampler(mix.plan(), batch_size=8)
    other.load_state_dict(sampler.state_dict(batches=1))
    assert reassembled([list(other)]) == packed(plan, 8)
    assert other.plan.plan_hash == plan.plan_hash
    assert reassembled([list(other)]) == packed(plan.next_epoch())


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("window", [1, 7, 64])
def test_single_rows_are_issued_up_to_the_next_window(world_size, window) -> None:
    plan = small(1000, window=window).plan()
    items = iter(MixtureSampler(plan, world_size=world_size))
    for step in range(1, 100):
        next(items)
        handed = step * world_size
        assert handed <= plan.issued <= -(-handed // window) * window or plan.issued == handed


def test_batches_are_issued_one_by_one() -> None:
    plan = small(1000).plan()
    for step, _ in enumerate(MixtureSampler(plan, rank=1, world_size=2, batch_size=8), start=1):
        assert plan.issued == min(16 * step, 1000)


# --- accounting


@pytest.mark.parametrize("drop_last", [False, True])
def test_account_counts_what_was_scheduled_over_epochs_and_ranks(drop_last) -> None:
    mix = limited(500)
    ranks = samplers(mix.plan(), 3, 4, drop_last=drop_last)
    ledgers = [Ledger(mix.names) for _ in ranks]
    for _ in range(3):
        dealt = [list(sampler) for sampler in ranks]
    for sampler, ledger in zip(ranks, ledgers, strict=True):
        sampler.account(ledger, batches=2)
    total = ledgers[0].merged(ledgers[1:])
    step = 2 * 3 * 4
    ends = [
        step,
        *(
            len(packed(mix.plan(e), passing=True)) // (12 if drop_last else 1) * (12 if drop_last else 1)
            for e in (0, 1)
        ),
    ]
    assert int((total.scheduled - total.filtered).sum()) == sum(ends)
    assert len(dealt) == 3
    if not drop_last:
        whole = sum(np.bincount(mix.plan(e).draws(0, 500).source, minlength=3) for e in (0, 1))
        position = ranks[0].state_dict(batches=2)["position"]
        whole = whole + np.bincount(mix.plan(2).draws(0, position).source, minlength=3)
        assert total.scheduled.tolist() == whole.tolist()


def test_account_adds_only_what_is_new() -> None:
    sampler = MixtureSampler(small(100).plan(), batch_size=10)
    ledger = Ledger(sampler.plan.names)
    for number, _ in enumerate(sampler.track(sampler), start=1):
        sampler.account(ledger)
        assert int(ledger.scheduled.sum()) == 10 * number
    sampler.account(ledger)
    assert ledger.scheduled.tolist() == [50, 30, 20]


# --- going on after a break


@settings(max_examples=60)
@given(
    stops=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    world_size=st.integers(1, 3),
    batch_size=st.sampled_from([None, 3, 10]),
    drop_last=st.booleans(),
    filtered=st.booleans(),
)
def test_keep_place_goes_on_after_what_was_tracked(stops, world_size, batch_size, drop_last, filtered) -> None:
    mix = limited(150) if filtered else small(100)
    plain, broken = (
        MixtureSampler(mix.plan(), world_size=world_size, batch_size=batch_size, drop_last=drop_last) for _ in range(2)
    )
    ledgers = [Ledger(mix.names) for _ in range(2)]
    seen = []
    for stop in stops:
        broken.keep_place()
        epoch = broken.upcoming
        for number, item in enumerate(broken.track(broken), start=1):
            assert broken.epoch == epoch
            seen.append(item)
            if number == stop:
                break
    whole = itertools.chain.from_iterable(plain.track(plain) for _ in stops)
    assert seen == list(itertools.islice(whole, len(seen)))
    for sampler, ledger in zip((plain, broken), ledgers, strict=True):
        sampler.account(ledger)
    assert ledgers[0].scheduled.tolist() == ledgers[1].scheduled.tolist()
    assert broken.state_dict() == plain.state_dict()


def test_keep_place_without_tracking_changes_nothing() -> None:
    sampler = MixtureSampler(small().plan(), batch_size=10)
    first = next(iter(sampler))
    sampler.keep_place()
    assert next(iter(sampler)) == first


def test_upcoming_is_the_epoch_that_comes_next() -> None:
    sampler = MixtureSampler(small(100).plan(), batch_size=10)
    assert sampler.upcoming == 0
    for number, _ in enumerate(sampler.track(sampler), start=1):
        assert (sampler.epoch, sampler.upcoming) == (0, int(number == 10))
    state = sampler.state_dict()
    sampler = MixtureSampler(small(100).plan(), batch_size=10)
    sampler.load_state_dict(state)
    assert (sampler.epoch, sampler.upcoming) == (0, 1)
    next(iter(sampler.track(sampler)))
    assert (sampler.epoch, sampler.upcoming) == (1, 1)
