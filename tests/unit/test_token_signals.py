"""Entropy, varentropy and target log-probability: against float64, in place, detached, and what is refused."""
# ruff: noqa: TID253

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
import torch

from cuvee import _core
from cuvee.errors import CuveeError
from cuvee.token_signals import NO_TARGET, TokenSignals, by_torch, tally_by_torch, tally_values, token_signals

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
WAYS = [token_signals, by_torch]


def logits_of(*shape: int, spread: float = 3, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).mul(spread).to(dtype)


def exact(logits: torch.Tensor, targets: torch.Tensor) -> TokenSignals:
    """The definition, in float64; logits must be finite."""
    log_p = logits.double().log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    varentropy = (log_p.exp() * (log_p + entropy.unsqueeze(-1)) ** 2).sum(-1)
    return TokenSignals(entropy, varentropy, log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1))


def assert_close(found: TokenSignals, expected: TokenSignals, atol: float = 1e-5) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=2e-6, atol=atol)


@pytest.mark.parametrize("way", WAYS)
def test_a_row_worked_by_hand(way) -> None:
    """p = (1/2, 1/4, 1/4): H = 1.5 ln 2 and Var = (0.25 + 0.25) * (ln 2)^2 / 2."""
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log() + 7
    entropy, varentropy, log_prob = way(logits, torch.tensor([1]), None)
    assert entropy.item() == pytest.approx(1.5 * math.log(2), abs=1e-6)
    assert varentropy.item() == pytest.approx(0.25 * math.log(2) ** 2, abs=1e-6)
    assert log_prob.item() == pytest.approx(-2 * math.log(2), abs=1e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [2, 100, 4097, 32000])
def test_every_dtype_agrees_with_float64(way, dtype, vocabulary) -> None:
    logits = logits_of(2, 3, vocabulary, dtype=dtype)
    targets = torch.tensor([[0, 1, 0], [1, vocabulary - 1, 1]])
    found = way(logits, targets, None)
    assert [part.dtype for part in found] == [torch.float32] * 3
    assert_close(found, exact(logits, targets))


@pytest.mark.parametrize("way", WAYS)
def test_far_from_zero_and_masked_vocabulary(way) -> None:
    logits = logits_of(4, 5000)
    logits[0] += 1e4
    logits[1] -= 1e4
    logits[2, 0], logits[2, 1] = 1e4, -1e4
    targets = torch.tensor([4, 4, 1, 4])
    assert_close(way(logits, targets, None), exact(logits, targets))
    logits[3, 4:] = -math.inf
    found = way(logits[3:], torch.tensor([3]), None)
    assert_close(found, exact(logits[3:, :4], torch.tensor([3])))
    assert way(logits[3:], torch.tensor([4]), None).log_prob.item() == -math.inf


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_rows_without_a_softmax_are_nan_and_spoil_no_other(way, wrong) -> None:
    logits = logits_of(3, 600)
    before = way(logits, torch.tensor([0, 0, 0]), None)
    logits[1, 599] = wrong
    found = way(logits, torch.tensor([0, 0, 0]), None)
    for part, clean in zip(found, before, strict=True):
        assert part.isnan().tolist() == [False, True, False]
        assert torch.equal(part[::2], clean[::2])
    nothing = way(torch.full((1, 10), -math.inf), torch.tensor([0]), None)
    assert all(part.isnan().all() for part in nothing)


@pytest.mark.parametrize("way", WAYS)
def test_mask_and_missing_targets_give_zeros(way) -> None:
    logits = logits_of(2, 2, 50)
    targets = torch.tensor([[3, NO_TARGET], [10**6, 4]])
    mask = torch.tensor([[True, True], [False, True]])
    found = way(logits, targets, mask)
    every = way(logits, torch.tensor([[3, 3], [3, 4]]), None)
    assert torch.equal(found.entropy, every.entropy * mask)
    assert torch.equal(found.varentropy, every.varentropy * mask)
    assert found.log_prob.tolist() == [[every.log_prob[0, 0].item(), 0], [0, every.log_prob[1, 1].item()]]
    assert way(logits, None, mask).log_prob is None


def test_an_attention_mask_of_integers_is_a_mask() -> None:
    logits = logits_of(3, 20)
    assert token_signals(logits, mask=torch.tensor([1, 0, 1])).entropy[1] == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_logits_give_the_same_bits(dtype) -> None:
    logits = logits_of(3, 5, 700, dtype=dtype)
    targets = torch.arange(12).view(3, 4)
    expected = token_signals(logits[:, :-1].clone(), targets)
    for view in (
        logits[:, :-1],
        logits.transpose(0, 1).contiguous().transpose(0, 1)[:, :-1],
        logits.mT.clone().mT[:, :-1],
    ):
        found = token_signals(view, targets)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
    cut = token_signals(logits[..., 1:650])  # rows that begin anywhere
    assert torch.equal(cut.entropy, token_signals(logits[..., 1:650].clone()).entropy)


@pytest.mark.parametrize("isa", _core.ISAS)
def test_instruction_sets_and_threads_give_the_same_bits(isa) -> None:
    logits = logits_of(7, 5003)
    targets = np.arange(7)
    expected = _core.token_signals(logits, targets, isa="scalar")
    for threads in (1, 2, 5, 64):
        for mine, theirs in zip(_core.token_signals(logits, targets, isa=isa, threads=threads), expected, strict=True):
            assert np.array_equal(mine, theirs)


def test_logits_that_need_gradients_are_only_looked_at() -> None:
    logits = logits_of(2, 30).requires_grad_()
    found = token_signals(logits, torch.tensor([0, 1]))
    assert not any(part.requires_grad for part in found)
    assert logits.grad is None


def test_empty_batches_and_numpy_arrays() -> None:
    assert token_signals(torch.empty(0, 10), torch.empty(0, dtype=torch.long)).log_prob.shape == (0,)
    assert by_torch(torch.empty(0, 10), None, None).entropy.shape == (0,)
    logits = logits_of(3, 40)
    assert np.array_equal(_core.token_signals(logits.numpy())[0], token_signals(logits).entropy.numpy())


def test_threads_may_call_at_once() -> None:
    logits = logits_of(64, 2000)
    expected = token_signals(logits).entropy
    found: list[torch.Tensor] = []
    callers = [
        threading.Thread(target=lambda: found.append(token_signals(logits, threads=2).entropy)) for _ in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 8
    assert all(torch.equal(entropy, expected) for entropy in found)


LOGITS = torch.zeros(2, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"logits": LOGITS.double()},
            "logits must be of torch.float32, torch.float16, torch.bfloat16, but got torch.float64",
        ),
        ({"logits": LOGITS[0]}, r"logits must have the shape \(N, V\) or \(B, T, V\), V > 0, but got \(5,\)"),
        ({"logits": LOGITS[:, :0]}, r"V > 0, but got \(2, 0\)"),
        ({"logits": LOGITS, "targets": torch.zeros(3).long()}, r"targets must have the shape \(2,\), but got \(3,\)"),
        ({"logits": LOGITS, "targets": torch.zeros(2)}, "targets must be integers, but got torch.float32"),
        ({"logits": LOGITS, "targets": torch.tensor([0, 5])}, r"targets must be in 0..4 or -100, but got 5"),
        ({"logits": LOGITS, "targets": torch.tensor([-1, 0])}, r"targets must be in 0..4 or -100, but got -1"),
        ({"logits": LOGITS, "mask": torch.ones(2, 5)}, r"mask must have the shape \(2,\), but got \(2, 5\)"),
        ({"logits": LOGITS, "mask": torch.ones(2, device="meta")}, "mask must be on cpu, as logits, but got meta"),
        ({"logits": LOGITS, "threads": 0}, r"threads must be an integer in \[1, 65536\), but got 0"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message) -> None:
    with pytest.raises(CuveeError, match=message):
        token_signals(**arguments)


def test_the_core_checks_what_it_is_given() -> None:
    with pytest.raises(TypeError, match="logits must be a tensor, but got <class 'list'>"):
        _core.token_signals([[1.0]])
    with pytest.raises(ValueError, match="logits must be 2-D or 3-D, but got 1-D"):
        _core.token_signals(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="logits must be of float32, float16 or bfloat16, but got float64"):
        _core.token_signals(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="contiguous over the vocabulary, but got a stride of 3"):
        _core.token_signals(np.zeros((3, 3), np.float32).T)
    with pytest.raises(ValueError, match="threads must be at least 1, but got 0"):
        _core.token_signals(np.zeros((3, 3), np.float32), threads=0)


@pytest.mark.parametrize("way", [tally_values, lambda s, v, m=None, *, k: tally_by_torch(s, v, m, k)])
def test_values_are_summed_per_source(way) -> None:
    source = torch.tensor([2, 0, 2], dtype=torch.int32)
    values = torch.tensor([[1.5, 2.25], [-4, 0.125], [2.0**-23, 7]])
    counts, sums = way(source, values, k=4)
    assert (counts.tolist(), sums.tolist()) == ([2, 0, 4, 0], [-3.875, 0, 10.75 + 2.0**-23, 0])
    counts, sums = way(source, values, torch.tensor([[1, 0], [0, 0], [1, 1]]).bool(), k=4)
    assert (counts.tolist(), sums.tolist()) == ([0, 0, 3, 0], [0, 0, 8.5 + 2.0**-23, 0])
    values[1, 1] = math.nan
    assert way(source, values, k=3)[1].isnan().tolist() == [True, False, False]
    assert way(source[:0], values[:0], k=2)[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.tensor([0, 3]), torch.zeros(2)), "source must be in 0..2, but got 3"),
        ((torch.tensor([0]), torch.zeros(2)), r"source must be integers of shape \(2,\), but got torch.int64, \(1,\)"),
        ((torch.tensor([0, 1]), torch.zeros(2).double()), r"values must be torch.float32 of shape \(B,\) or \(B, T\)"),
        ((torch.tensor([0, 1]), torch.zeros(2), torch.ones(1)), r"mask must have the shape \(2,\), but got \(1,\)"),
    ],
)
def test_tallies_that_do_not_fit_are_refused(arguments, message) -> None:
    with pytest.raises(CuveeError, match=message):
        tally_values(*arguments, k=3)
