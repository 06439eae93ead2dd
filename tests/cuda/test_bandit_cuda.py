"""Bandits on a GPU: the bits of the CPU, one launch, nothing waited for."""
# ruff: noqa: TID253

from __future__ import annotations

import numpy as np
import pytest
import torch

from cuvee import _core
from cuvee.bandits import make_bandit
from cuvee.bandits.arms import cuda_kernels

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::cuvee.bandits.LowEntropyWarning"),
]

LEARNERS = ["exp3", "exp3_bounded", "odm", "doremi"]


@pytest.mark.parametrize("sources", [1, 2, 7, 128, 1023, 1024, 1025, 5000, 65536])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_gpu_gives_the_bits_of_a_cpu(name: str, sources: int) -> None:
    random = np.random.default_rng(sources)
    here, there = make_bandit(name, sources), make_bandit(name, sources, device="cuda")
    for _ in range(20):
        scores = random.uniform(0, 12, sources)
        scores[random.random(sources) < 0.1] = np.nan
        counts = random.integers(0, 3, sources)
        assert there.update(scores, counts).tobytes() == here.update(scores, counts).tobytes()
    assert there.state_dict() == here.state_dict()


@pytest.mark.parametrize("sources", [4, 1500])
@pytest.mark.parametrize("name", LEARNERS)
def test_floors_caps_and_states_too(name: str, sources: int) -> None:
    random = np.random.default_rng(sources)
    floor = random.uniform(0, 0.9 / sources, sources)
    cap = np.full(sources, 3 / sources)
    options = {"floor": floor, "cap": cap}
    here, there, third = (make_bandit(name, sources, device=device, **options) for device in ("cpu", "cuda", "cuda"))
    for update in range(20):
        scores = random.exponential(3, sources) ** 2
        assert there.update(scores).tobytes() == here.update(scores).tobytes()
        if update == 10:
            third.load_state_dict(here.state_dict())
        elif update > 10:
            third.update(scores)
    assert third.state_dict() == here.state_dict()


def test_wild_scores_are_the_same() -> None:
    for name in LEARNERS:
        here, there = make_bandit(name, 3), make_bandit(name, 3, device="cuda")
        for scores in ([1e308, -1e308, 5e-324], [np.inf, np.nan, -0.0], [0.0, 0.0, 0.0]) * 10:
            assert there.update(scores).tobytes() == here.update(scores).tobytes()


def test_an_update_of_device_tensors_waits_for_nothing() -> None:
    bandit = make_bandit("exp3_bounded", 128, device="cuda")
    scores = torch.rand(128, dtype=torch.float64, device="cuda")
    counts = torch.ones(128, dtype=torch.int64, device="cuda")
    bandit.queue(scores, counts)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(10):
            bandit.queue(scores, counts)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert bandit.probabilities.sum() == pytest.approx(1, abs=1e-12)


def test_updates_follow_the_stream_they_are_queued_in() -> None:
    here, there = make_bandit("exp3", 64), make_bandit("exp3", 64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for number in range(5):
            scores = torch.full((64,), float(number), dtype=torch.float64, device="cuda")
            scores[number] += 1
            there.queue(scores)
            here.queue(scores.cpu().numpy())
    assert there.probabilities.tobytes() == here.probabilities.tobytes()


@pytest.mark.parametrize("sources", [128, 65536])
def test_one_update_is_one_launch(sources: int) -> None:
    bandit = make_bandit("exp3_bounded", sources, device="cuda")
    scores = torch.rand(sources, dtype=torch.float64, device="cuda")
    bandit.queue(scores)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        bandit.queue(scores)
        torch.cuda.synchronize()
    kernels = [event.name for event in seen.events() if "update_kernel" in event.name]
    assert len(kernels) == 1


def test_the_kernels_refuse_too_many_sources() -> None:
    nothing = dict.fromkeys(("state", "p", "summary", "scores", "rows", "floor", "cap", "workspace", "stream"), 0)
    settings = {"eta": 0.3, "gamma": 0.1, "decay": 0.0, "quantiles": (0.0, 1.0), "rate": 0.0, "max_collision": 1.0}
    with pytest.raises(IndexError, match=r"sources must be 1\.\.65536"):
        cuda_kernels().update_bandit(**nothing, k=_core.MAX_BANDIT_SOURCES + 1, rule="exp3", **settings)
