"""What the tests of loading share: sources that any worker can unpickle, and the order as the sampler's integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cuvee import Mixture, MixtureSampler, Plan, Source, _core

SIZES = {"a": 1000, "b": 2000, "c": 3000, "d": 4000}
WEIGHTS = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}


@dataclass(frozen=True)
class Rows:
    """A map-style source whose row i is {"name": name, "row": i}."""

    name: str
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.size:
            raise IndexError(f"row must be in [0, {self.size}), but got {index}")
        return {"name": self.name, "row": index}


def mixture(sizes: dict[str, int] = SIZES, weights: dict[str, float] = WEIGHTS, **settings: Any) -> Mixture:
    return Mixture([Source(name, Rows(name, size), weights[name]) for name, size in sizes.items()], **settings)


def packed(plan: Plan, start: int = 0, stop: int | None = None, *, passing: bool = False) -> list[int]:
    """Return the draws at these positions as the integers that travel to workers."""
    draws = plan.draws(start, len(plan) if stop is None else stop)
    kept = plan.passes(draws) if passing else slice(None)
    return _core.pack(draws.source[kept], draws.row[kept], draws.cycle[kept])


def samplers(plan: Plan, world_size: int, batch_size: int | None = None, **options: Any) -> list[MixtureSampler]:
    """Return the samplers of all ranks."""
    return [
        MixtureSampler(plan, rank=rank, world_size=world_size, batch_size=batch_size, **options)
        for rank in range(world_size)
    ]


def reassembled(ranks: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the global order: what each rank yielded, read by step, rank and slot."""
    steps = zip(*ranks, strict=True)
    return [item for step in steps for batch in step for item in (batch if isinstance(batch, list) else [batch])]
