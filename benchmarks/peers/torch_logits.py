"""torch eager: the usual lines for entropy, varentropy and log-probability of the targets."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator

import torch


def batch(tokens: int, vocabulary: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits as spread as a trained model's, and targets."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(tokens, vocabulary, generator=generator).mul_(3).to(getattr(torch, dtype))
    return logits, torch.randint(0, vocabulary, (tokens,), generator=generator)


@torch.no_grad()
def signals(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (entropy, varentropy, log-probability of the targets), by log_softmax in at least float32."""
    log_p = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
    p = log_p.exp()
    entropy = -(p * log_p).sum(-1)
    varentropy = (p * (log_p + entropy.unsqueeze(-1)).square()).sum(-1)
    return entropy, varentropy, log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def has_gpu() -> bool:
    """Return whether torch can compute on a GPU here."""
    return torch.cuda.is_available()


def gpu_seconds(run: Callable[[], object], rounds: int) -> float:
    """Return the median time of a call on the GPU; a few go untimed before."""
    for _ in range(3):
        run()
    seconds = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(seconds)
