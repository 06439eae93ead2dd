"""StepSampler: the n-th optimizer step is the same at any world size, accumulation, loop epoch and after any resume."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee import Ledger, Mixture, MixtureSampler, PlanError, Source, StateError
from cuvee.dataset import PADDING, _unpacked
from cuvee.run_log import RunLog
from cuvee.steps import StepSampler, split

ROWS = 12  # of an optimizer step


def mixture(*, sizes=(50, 20, 7), weights=(0.5, 0.3, 0.2), max_length=None, **settings) -> Mixture:
    sources = [
        Source(f"s{k}", weight=weight, rows=size, lengths=np.arange(size, dtype=np.int32) % 10 + 1)
        for k, (size, weight) in enumerate(zip(sizes, weights, strict=True))
    ]
    return Mixture(sources, max_length=max_length, **settings)


def steps_of(mix: Mixture, **arguments) -> StepSampler:
    return StepSampler(mix.plan(), **{"rows": ROWS, **arguments})


def drawn(keys: list[int]) -> list[tuple[int, int, int]]:
    """Return (source, row, cycle) of keys, padding left out."""
    return [draw for draw in zip(*_unpacked(keys), strict=True) if draw[2] != PADDING] if keys else []


def run(sampler: StepSampler, steps: int) -> list[list[tuple[int, int, int]]]:
    """Return what this rank trains on in each of the next steps, through as many loop epochs as it takes."""
    done: list[list[tuple[int, int, int]]] = []
    while len(done) < steps:
        part: list[int] = []
        for number, micro in enumerate(sampler, start=1):
            part += micro
            if number % sampler.micro_batches == 0:
                if part:  # else it was made before the state was loaded
                    done.append(drawn(part))
                    sampler.advance()
                    part = []
                if len(done) == steps:
                    return done
    return done


def ordered(mix: Mixture, epochs: int) -> list[list[tuple[int, int, int]]]:
    """Return the run's steps as the plans have them."""
    steps = []
    plan = mix.plan()
    for _ in range(epochs):
        draws = plan.draws(0, len(plan))
        kept = np.flatnonzero(plan.passes(draws))
        rows = list(zip(*(column[kept].tolist() for column in (draws.source, draws.row, draws.cycle)), strict=True))
        steps += [rows[first : first + ROWS] for first in range(0, len(rows), ROWS)]
        plan = plan.next_epoch()
    return steps


MIXES = {
    "budget": {"samples_per_epoch": 100},
    "filtered": {"samples_per_epoch": 100, "max_length": 7},
    "stop": {"exhaustion": "stop"},
    "renormalize": {"exhaustion": "renormalize", "max_length": 8},
    "all seen": {"samples_per_epoch": "all_seen"},
}


@pytest.mark.parametrize("settings", MIXES.values(), ids=MIXES)
@pytest.mark.parametrize(("world_size", "micro_batches"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 4), (12, 1)])
def test_steps_are_the_plans_rows_on_any_ranks_and_micro_batches(settings, world_size, micro_batches) -> None:
    mix = mixture(**settings)
    expected = ordered(mix, 3)
    ranks = [
        run(steps_of(mix, rank=rank, world_size=world_size, micro_batches=micro_batches), len(expected))
        for rank in range(world_size)
    ]
    assert [[draw for part in parts for draw in part] for parts in zip(*ranks, strict=True)] == expected


@given(
    settings=st.sampled_from(list(MIXES.values())),
    before=st.integers(0, 25),
    ahead=st.integers(0, 9),
    world_size=st.sampled_from([1, 2, 3]),
    micro_batches=st.sampled_from([1, 2]),
)
def test_resumed_run_is_the_uninterrupted_one_whatever_was_fetched_ahead(
    settings, before, ahead, world_size, micro_batches
) -> None:
    mix = mixture(**settings)
    expected = ordered(mix, 12)
    first = steps_of(mix)
    done = run(first, before)
    for _, _micro in zip(range(ahead), first, strict=False):  # a loader that prefetches
        pass
    state = json.loads(json.dumps(first.state_dict()))
    assert state["step"] == before
    ranks = []
    for rank in range(world_size):
        resumed = steps_of(mix, rank=rank, world_size=world_size, micro_batches=micro_batches)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state or before == 0 or resumed.plan.epoch > state["plan"]["epoch"]
        ranks.append(run(resumed, 10))
    after = [[draw for part in parts for draw in part] for parts in zip(*ranks, strict=True)]
    assert done + after == expected[: before + 10]


@pytest.mark.parametrize("settings", MIXES.values(), ids=MIXES)
def test_loop_epoch_has_the_length_it_says_and_made_steps_come_empty(settings) -> None:
    mix = mixture(**settings)
    sampler = steps_of(mix, micro_batches=2)
    assert len(list(sampler)) == len(sampler) == 2 * sampler.steps_per_epoch
    fresh = steps_of(mix, micro_batches=2)
    run(fresh, 2)
    resumed = steps_of(mix, micro_batches=2)
    resumed.load_state_dict(fresh.state_dict())
    micros = list(resumed)
    assert len(micros) == len(resumed)
    assert micros[:4] == [[]] * 4
    assert all(micros[4:])


@pytest.mark.parametrize("settings", MIXES.values(), ids=MIXES)
def test_accounts_add_up_to_the_plans_counts(settings) -> None:
    mix = mixture(**settings)
    sampler, ledger = steps_of(mix), Ledger(mix.names)
    ended = 0
    for _ in range(3):
        for keys in sampler:
            source, _, cycle = map(np.asarray, _unpacked(keys))
            plan = sampler.advance()
            ledger.add_trained(source[cycle >= 0].astype(np.int32))
            if plan is not None:
                ended += 1
                sampler.account(ledger)
                assert ledger.pending.sum() == 0
                if ended == 1:
                    assert ledger.scheduled.tolist() == plan.counts(len(plan)).tolist()
    sampler.account(ledger)
    ledger.check()
    assert ledger.pending.sum() == 0
    assert ended >= 2
    assert (ledger.filtered.sum() > 0) == (mix.max_length is not None)


def test_other_ranks_account_for_nothing_scheduled() -> None:
    sampler, ledger = steps_of(mixture(samples_per_epoch=100), rank=1, world_size=2), None
    ledger = Ledger(("s0", "s1", "s2"))
    run(sampler, 4)
    sampler.account(ledger)
    assert ledger.scheduled.sum() == 0


@pytest.mark.parametrize("settings", MIXES.values(), ids=MIXES)
def test_steps_in_epochs_are_those_that_are_made(settings) -> None:
    mix = mixture(**settings)
    for epochs in (1, 2, 3):
        assert steps_of(mix).steps_in(epochs) == len(ordered(mix, epochs))


def test_capped_stream_ends() -> None:
    sources = [Source("a", rows=10, max_epochs=2), Source("b", rows=10, max_epochs=2)]
    mix = Mixture(sources, samples_per_epoch=15)
    sampler = StepSampler(mix.plan(), rows=5)
    assert sampler.steps_in(9) == 8
    assert sum(len([sampler.advance() for _ in sampler]) for _ in range(4)) == 8


def test_loop_that_breaks_off_gets_what_it_did_not_train_on_again() -> None:
    sampler = steps_of(mixture(samples_per_epoch=100))
    for number, _ in enumerate(sampler, start=1):
        if number <= 3:
            sampler.advance()
        if number == 6:
            break
    assert run(sampler, 4) == ordered(mixture(samples_per_epoch=100), 1)[3:7]


def test_state_is_also_a_mixture_samplers() -> None:
    mix = mixture(samples_per_epoch=100)
    sampler = steps_of(mix)
    run(sampler, 3)
    plain = MixtureSampler(mix.plan(), batch_size=ROWS)
    plain.load_state_dict(sampler.state_dict())
    assert drawn(next(iter(plain))) == ordered(mix, 1)[3]


def test_epoch_without_a_row_within_the_limit_is_an_error() -> None:
    sources = [Source("a", rows=5, lengths=np.full(5, length, dtype=np.int32)) for length in (9,)]
    sources.append(Source("b", rows=5, lengths=np.ones(5, dtype=np.int32), weight=1e-6))
    mix = Mixture(sources, max_length=5, samples_per_epoch=3)
    with pytest.raises(PlanError, match="epoch 0 must have rows within the length limit, but got none of 3"):
        StepSampler(mix.plan(), rows=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rows": 10, "world_size": 4}, "rows must be a multiple of world_size .* = 4 . 1, but got 10; nearest: 8"),
        ({"rows": 0}, "rows must be an integer in"),
        ({"rank": 2, "world_size": 2}, "rank must be an integer in"),
        ({"micro_batches": 0}, "micro_batches must be an integer in"),
    ],
)
def test_bad_arguments(arguments, text) -> None:
    with pytest.raises(PlanError, match=text):
        steps_of(mixture(), **arguments)


def test_state_of_steps_of_another_size_is_refused() -> None:
    state = steps_of(mixture()).state_dict()
    with pytest.raises(StateError, match="rows of an optimizer step must be 12, as in the state, but got 6"):
        steps_of(mixture(), rows=6).load_state_dict(state)


def test_advance_beyond_what_was_handed_out_is_refused() -> None:
    with pytest.raises(StateError, match="step must be one that was handed out, but got step 1 of 0"):
        steps_of(mixture()).advance()


@given(keys=st.lists(st.integers(-(2**100), 2**100), min_size=1, max_size=20), parts=st.integers(1, 8))
def test_split_keeps_order_and_pads_with_the_last_key(keys, parts) -> None:
    lists = split(keys, parts)
    assert len(lists) == parts
    assert all(lists)
    padding = lists[len(keys) :] if len(keys) < parts else []
    assert [key for part in lists[: len(keys)] for key in part] == keys
    assert padding == [[min(keys[-1], ~keys[-1])]] * len(padding)


def test_nothing_is_handed_out_beyond_the_last_step() -> None:
    sampler = steps_of(mixture(samples_per_epoch=100))
    sampler.last = 5
    assert len([sampler.advance() for _ in sampler]) == 5
    assert list(sampler) == []


@pytest.mark.parametrize("exhaustion", ["stop", "cycle", "renormalize"])
def test_plan_steered_by_tokens_is_told_whole_after_a_resume(tmp_path, exhaustion) -> None:
    lengths = np.arange(40, dtype=np.int32) % 7 + 1
    sources = [Source("a", rows=40, lengths=lengths), Source("b", rows=30, lengths=lengths[:30])]
    mix = Mixture(
        sources, unit="tokens", exhaustion=exhaustion, control_interval=16, window=8,
        samples_per_epoch=60 if exhaustion == "cycle" else None,
    )  # fmt: skip
    first = StepSampler(mix.plan(), rows=4)
    run(first, 6)
    resumed = StepSampler(mix.plan(), rows=4)
    resumed.load_state_dict(first.state_dict())
    log = RunLog(tmp_path, names=mix.names)
    log.start()
    told = json.loads(log.plan(resumed.plan, step=6).read_text())
    assert told["schedule_hash"] == mix.plan().schedule_hash()
