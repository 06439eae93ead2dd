"""A matrix of mixtures, and what one process makes of all of them: `python matrix.py RANK WORLD_SIZE` prints it."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

from cuvee import Mixture, MixtureSampler, Plan, Source
from cuvee.steps import StepSampler

SOURCES = (2, 3, 8, 32)
ENDS = (
    {"exhaustion": "stop"},
    {"exhaustion": "renormalize"},
    {"exhaustion": "cycle"},
    {"exhaustion": "cycle", "samples_per_epoch": 257},
    {"exhaustion": "cycle", "samples_per_epoch": "all_seen"},
)
SEEDS = (0, 42, 2**63 - 1)
EPOCHS = 2
BATCH = 6  # rows per rank at two ranks; at one it is twice that
MICRO_BATCHES = 3


def cases() -> dict[str, Mixture]:
    """Return every mixture by a name that says what it is."""
    found = {}
    for k, settings, seed in itertools.product(SOURCES, ENDS, SEEDS):
        sources = [Source(f"söurce {n}", rows=9 + 7 * (n % 5), weight=1 / (n + 1)) for n in range(k)]
        label = " ".join(map(str, (k, *settings.values(), seed)))
        found[label] = Mixture(sources, seed=seed, **settings)  # type: ignore[arg-type]
    return found


def plans(mixture: Mixture) -> list[Plan]:
    """Return the plans of the first epochs."""
    return [mixture.plan(epoch) for epoch in range(EPOCHS)]


def hashes() -> dict[str, list[str]]:
    """Return, for every case, the hash of its contract, then plan and schedule hashes of its epochs."""
    found = {}
    for name, mixture in cases().items():
        pairs = [(plan.plan_hash, plan.schedule_hash()) for plan in plans(mixture)]
        found[name] = [mixture.spec_hash, *itertools.chain(*pairs)]
    return found


def dealt(rank: int, world_size: int) -> dict[str, list[Any]]:
    """Return, for every case, what the samplers hand to a rank, as lists of keys: `MixtureSampler`'s, `StepSampler`'s.

    In each: for every epoch, for every step, the keys of this rank.
    """
    rows = 2 * BATCH
    found: dict[str, list[Any]] = {}
    for name, mixture in cases().items():
        sampler = MixtureSampler(mixture.plan(), rank=rank, world_size=world_size, batch_size=rows // world_size)
        steps = StepSampler(mixture.plan(), rows=rows, rank=rank, world_size=world_size, micro_batches=MICRO_BATCHES)
        found[name] = [[list(sampler) for _ in range(EPOCHS)], [list(epoch_of(steps)) for _ in range(EPOCHS)]]
    return found


def epoch_of(steps: StepSampler) -> Iterator[list[int]]:
    """Yield a plan epoch's steps as a training loop makes them: this rank's micro-batches of each, put together."""
    ended = None
    while ended is None:
        parts = iter(steps)
        for part in parts:
            yield [key for keys in (part, *itertools.islice(parts, MICRO_BATCHES - 1)) for key in keys]
            ended = steps.advance()
            if ended is not None:
                break


if __name__ == "__main__":
    here = {"hashes": hashes(), "dealt": dealt(int(sys.argv[1]), int(sys.argv[2])), "str_hash": hash("cuvee")}
    json.dump(here, sys.stdout)
