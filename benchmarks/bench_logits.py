"""Entropy, varentropy and target log-probability of logits beside torch eager: time a logit, and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness
import peers
from harness import OURS, Case, Report, main, peak_growth_megabytes

EAGER = "torch eager"
LOGITS = 1 << 24  # in a call: more than caches hold, less than a batch of a real model has
ROWS_CHECKED = 8


def check(peer: Any, ours: Callable[[], Any], logits: Any, targets: Any) -> None:
    """Raise AssertionError unless ours is what float64 says, on some rows."""
    exact = peer.signals(logits[:ROWS_CHECKED].double(), targets[:ROWS_CHECKED])
    for mine, theirs in zip(ours(), exact, strict=True):
        assert (mine[:ROWS_CHECKED] - theirs).abs().max() < 3e-5, (mine[:ROWS_CHECKED], theirs)


def compare(report: Report, peer: Any, *, vocabulary: int, dtype: str, threads: int) -> None:
    """Time one vocabulary, type and number of threads; memory with one thread."""
    from cuvee.token_signals import token_signals

    tokens = max(ROWS_CHECKED, (LOGITS >> 8 if report.quick else LOGITS) // vocabulary)
    logits, targets = peer.batch(tokens, vocabulary, dtype)
    ways: dict[str, Callable[[], object]] = {
        OURS: lambda: token_signals(logits, targets, threads=threads),
        EAGER: lambda: peer.signals(logits, targets),
    }
    check(peer, lambda: token_signals(logits, targets, threads=threads), logits, targets)
    name = f"V={vocabulary}/{dtype}/{threads} threads"
    items = tokens * vocabulary
    with peer.threads(threads):
        cases = {who: Case(run=way, items=items, cores=threads, wall=threads > 1) for who, way in ways.items()}
        report.compare(f"logits/{name}", cases, unit="ns/logit")
        if threads == 1:
            for who, way in ways.items():
                output = f"the output is {3 * 4 * tokens / 2**20:.2g} MB, the logits {logits.nbytes / 2**20:.0f} MB"
                report.value(f"logits memory/{name}/{who}", peak_growth_megabytes(way), "MB", output)


def compare_on_gpu(report: Report, peer: Any, *, vocabulary: int, dtype: str) -> None:
    """Report the bandwidth at which logits are read on a GPU, as a share of a copy's (which reads and writes)."""
    from cuvee.token_signals import token_signals

    tokens = (LOGITS >> 8 if report.quick else 16 * LOGITS) // vocabulary
    logits, targets = (part.cuda() for part in peer.batch(tokens, vocabulary, dtype))
    check(peer, lambda: token_signals(logits, targets), logits, targets)
    room = logits.clone()
    name = f"logits on a GPU/V={vocabulary}/{dtype}"
    reading = logits.nbytes / peer.gpu_seconds(lambda: token_signals(logits, targets), report.rounds)
    copying = 2 * logits.nbytes / peer.gpu_seconds(lambda: room.copy_(logits), report.rounds)
    report.value(f"{name}/{OURS}", reading / 1e9, "GB/s")
    report.value(f"{name}/copy", copying / 1e9, "GB/s")
    report.value(f"{name}/copy over {OURS}", copying / reading, "times", "goal: at most 1.25")


def measure(report: Report) -> None:
    """Measure every vocabulary and type, with one thread and with all, and on a GPU if there is one."""
    peer = peers.load("torch_logits", report.skipped)
    if peer is None:
        return
    for vocabulary in (32_000, 128_256):
        for dtype in ("float32", "bfloat16"):
            for threads in sorted({1, len(harness.ALL_CORES)}):
                compare(report, peer, vocabulary=vocabulary, dtype=dtype, threads=threads)
            if peer.has_gpu():
                compare_on_gpu(report, peer, vocabulary=vocabulary, dtype=dtype)


if __name__ == "__main__":
    main(measure)
