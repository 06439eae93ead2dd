"""What holds of token signals and their sums for any logits."""
# ruff: noqa: TID253

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cuvee import _core
from cuvee.token_signals import by_torch, tally_by_torch, tally_values, token_signals

LEVELS = st.floats(-1e4, 1e4, width=32)
ROWS = st.tuples(st.integers(1, 4), st.integers(1, 600)).flatmap(
    lambda shape: arrays.arrays(np.float32, shape, elements=LEVELS | st.floats(-5, 5, width=32), fill=LEVELS)
)
VALUES = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(logits=ROWS, seed=st.integers(0, 99))
def test_signals_are_those_of_float64(logits, seed) -> None:
    targets = np.random.default_rng(seed).integers(0, logits.shape[1], len(logits))
    entropy, varentropy, log_prob = (part.numpy() for part in token_signals(*map(torch.from_numpy, (logits, targets))))
    log_p = torch.from_numpy(logits).double().log_softmax(-1).numpy()
    p = np.exp(log_p)
    exact_entropy = -(p * log_p).sum(-1)
    np.testing.assert_allclose(entropy, exact_entropy, atol=1e-5)
    np.testing.assert_allclose(varentropy, (p * (log_p + exact_entropy[:, None]) ** 2).sum(-1), atol=1e-4, rtol=1e-5)
    np.testing.assert_allclose(log_prob, np.take_along_axis(log_p, targets[:, None], 1)[:, 0], atol=1e-5, rtol=2e-7)
    assert (entropy >= 0).all()
    assert (entropy <= math.log(logits.shape[1]) + 1e-5).all()
    assert (varentropy >= 0).all()


@given(logits=ROWS, banned=st.integers(0, 700), threads=st.integers(1, 8))
def test_bits_depend_on_the_row_alone(logits, banned, threads) -> None:
    """Not on the instruction set, the threads, the rows beside it, where it lies, or banned logits at its end."""
    whole = _core.token_signals(logits, threads=threads)
    room = np.full((len(logits), logits.shape[1] + banned + 1), -np.inf, np.float32)
    room[:, 1 : logits.shape[1] + 1] = logits
    for isa in _core.ISAS:
        for t, row in enumerate(logits):
            alone = _core.token_signals(row[None], isa=isa)
            longer = _core.token_signals(room[t : t + 1, 1:], isa=isa)
            for part, one, padded in zip(whole[:2], alone, longer, strict=False):
                assert part[t] == one[0] == padded[0]


@given(logits=ROWS, shift=st.integers(-1000, 1000))
def test_a_shift_that_rounds_nothing_changes_nothing(logits, shift) -> None:
    steps = np.rint(logits).astype(np.float32)
    for mine, shifted in zip(
        _core.token_signals(steps)[:2], _core.token_signals(steps + np.float32(shift)), strict=False
    ):
        assert np.array_equal(mine, shifted)


@given(logits=ROWS)
def test_torch_s_operations_mean_the_same(logits) -> None:
    tensor = torch.from_numpy(logits)
    targets = torch.zeros(len(logits), dtype=torch.long)
    for mine, theirs in zip(token_signals(tensor, targets), by_torch(tensor, targets, None), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-4)


@given(
    values=arrays.arrays(np.float32, st.tuples(st.integers(0, 40), st.integers(1, 9)), elements=VALUES),
    k=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_sums_are_exact_in_any_order(values, k, seed) -> None:
    generator = np.random.default_rng(seed)
    source = torch.from_numpy(generator.integers(0, k, len(values)).astype(np.int32))
    mask = torch.from_numpy(generator.random(values.shape) < 0.8)
    given_values = torch.from_numpy(values)
    counts, sums = tally_values(source, given_values, mask, k=k)
    order = torch.from_numpy(generator.permutation(len(values)))
    others = [
        tally_values(source[order], given_values[order], mask[order], k=k),
        tally_values(source.repeat_interleave(values.shape[1]), given_values.view(-1), mask.view(-1), k=k),
        tally_by_torch(source, given_values, mask, k),
    ]
    for other_counts, other_sums in others:
        assert torch.equal(other_counts, counts)
        np.testing.assert_array_equal(other_sums.numpy().view(np.int64), sums.numpy().view(np.int64))
    for index in range(k):
        mine = values[source.numpy() == index][mask.numpy()[source.numpy() == index]]
        assert counts[index] == len(mine)
        if not (np.abs(mine) < 2.0**23).all():
            assert sums[index].isnan()
        else:
            exact = float(sum(map(Fraction, mine.tolist())))
            assert abs(sums[index].item() - exact) <= len(mine) * 2.0**-46 + 2.0**-52 * abs(exact)
