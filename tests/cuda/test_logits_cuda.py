"""Kernels for logits and sums per source on a GPU: the bits of the CPU's, without waiting and in the stream's order."""
# ruff: noqa: TID253

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
import torch

from cuvee import _core
from cuvee.errors import CuveeError
from cuvee.token_signals import NO_TARGET, by_torch, tally_by_torch, tally_values, token_signals

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
needs_kernels = pytest.mark.skipif(
    importlib.util.find_spec("cuvee._cuda") is None, reason="this build has no CUDA kernels: set CUVEE_CUDA=ON"
)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def batch(vocabulary: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of shape (3, 4, V) with banned, far and broken rows, targets and a mask, all on the CPU."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(3, 4, vocabulary, generator=generator) * 4
    logits[0, 0, ::2] = -math.inf
    logits[0, 1] += 1e4
    logits[0, 2] -= 1e4
    logits[1, 0, -1] = math.nan
    logits[1, 1, 0] = math.inf
    logits[1, 2] = -math.inf
    logits[1, 3, vocabulary // 2] = 200
    targets = torch.randint(0, vocabulary, (3, 4), generator=generator)
    targets[2, 0] = NO_TARGET
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[2, 1] = False
    return logits.to(dtype), targets, mask


def assert_same_bits(found, expected) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.device.type == "cuda"
        both_nan = mine.cpu().isnan() & theirs.isnan()
        assert torch.equal(mine.cpu().masked_fill(both_nan, 0), theirs.masked_fill(both_nan, 0))


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [1, 7, 256, 1000, 4096, 5003, 32000, 50257, 131072, 200001])
def test_signals_have_the_bits_of_the_cpu(dtype, vocabulary) -> None:
    logits, targets, mask = batch(vocabulary, dtype)
    expected = token_signals(logits, targets, mask)
    assert_same_bits(token_signals(logits.cuda(), targets.cuda(), mask.cuda()), expected)
    shifted = token_signals(logits.cuda()[:, :-1], targets[:, 1:].cuda())
    assert_same_bits(shifted, token_signals(logits[:, :-1], targets[:, 1:]))


@needs_kernels
def test_many_rows_and_their_sums_have_the_bits_of_the_cpu() -> None:
    logits = (torch.randn(70_000, 33, generator=torch.Generator().manual_seed(1)) * 3).bfloat16()
    source = torch.arange(70_000, dtype=torch.int32) % 129
    expected = token_signals(logits)
    found = token_signals(logits.cuda())
    assert_same_bits(found[:2], expected[:2])
    for values in (expected.entropy, expected.entropy.view(-1, 7)):
        ids, on_gpu = source[: len(values)], values.cuda()
        mask = values > 1
        counts, sums = tally_values(ids, values, mask, k=129)
        found_counts, found_sums = tally_values(ids.cuda(), on_gpu, mask.cuda(), k=129)
        assert torch.equal(found_counts.cpu(), counts)
        assert torch.equal(found_sums.cpu(), sums)


@needs_kernels
def test_nothing_waits_and_other_streams_are_kept_in_order() -> None:
    logits = torch.zeros(64, 32000, device="cuda")
    source = torch.zeros(64, dtype=torch.int32, device="cuda")
    targets = torch.full((64,), 5, device="cuda")
    token_signals(logits, targets)  # loads the kernels
    tally_values(source, torch.zeros(64, device="cuda"), k=1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            for _ in range(50):
                logits += 1
            logits[:, 5] += 100
            signals = token_signals(logits, targets)
            _, sums = tally_values(source, signals.log_prob, k=1)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    stream.synchronize()
    assert signals.log_prob.abs().max() < 1e-6
    assert sums.abs().max() < 1e-4


@needs_kernels
def test_targets_and_sources_out_of_range_touch_nothing() -> None:
    logits = torch.zeros(3, 10, device="cuda")
    log_prob = token_signals(logits, torch.tensor([10, -1, 2], device="cuda")).log_prob
    assert log_prob.isnan().tolist() == [True, True, False]
    source = torch.tensor([0, 7, -1], dtype=torch.int32, device="cuda")
    counts, sums = tally_values(source, torch.ones(3, device="cuda"), k=2)
    assert (counts.tolist(), sums.tolist()) == ([1, 0], [1, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_s_operations_stand_in_for_the_kernels(dtype) -> None:
    logits, targets, mask = batch(5003, dtype)
    found = by_torch(logits.cuda(), targets.cuda(), mask.cuda())
    for mine, theirs in zip(found, token_signals(logits, targets, mask), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, atol=2e-4, rtol=1e-4, equal_nan=True)
    source = torch.tensor([0, 1, 0], dtype=torch.int32)
    values = torch.arange(12.0).view(3, 4) / 7
    for mine, theirs in zip(
        tally_by_torch(source.cuda(), values.cuda(), None, 3), tally_values(source, values, k=3), strict=True
    ):
        assert torch.equal(mine.cpu(), theirs)


def test_what_lies_elsewhere_is_refused() -> None:
    logits = torch.zeros(2, 5, device="cuda")
    with pytest.raises(CuveeError, match="targets must be on cuda:0, as logits, but got cpu"):
        token_signals(logits, torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="logits must be on the CPU, but got DLPack device 2"):
        _core.token_signals(logits, np.zeros(2, np.int64))
