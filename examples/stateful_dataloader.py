"""torchdata's StatefulDataLoader: it keeps the sampler's place itself, so its own state_dict is all you save.

The loop goes through `sampler.track`, which compares every batch of the first epoch with the plan.
"""

import json
from itertools import islice
from pathlib import Path
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader

from cuvee import MixedDataset, Mixture, MixtureSampler

MIX = Path(__file__).parent / "data" / "mix.json"


def loader_of(mixture: Mixture) -> tuple[MixtureSampler, StatefulDataLoader[Any]]:
    """Return a sampler and a loader with two workers over one epoch."""
    sampler = MixtureSampler(mixture.plan(), batch_size=32)
    return sampler, StatefulDataLoader(MixedDataset(mixture), batch_sampler=sampler, num_workers=2)


def rows_of(batch: dict[str, Any]) -> list[tuple[str, int]]:
    """Return which row of which source each row of a batch is."""
    metadata = batch["__cuvee_meta__"]
    return list(zip(metadata["source"], metadata["source_index"].tolist(), strict=True))


def main() -> None:
    """Interrupt an epoch twice, and compare with the order that the plan states."""
    mixture = Mixture.from_manifest(MIX)
    seen: list[tuple[str, int]] = []
    state = None
    for batches in (30, 50, None):
        sampler, loader = loader_of(mixture)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        for batch in islice(sampler.track(loader), batches):
            seen += rows_of(batch)
        print(f"{len(seen)} rows so far")
        state = json.dumps(loader.state_dict())
    assert seen == [(draw.name, draw.row) for draw in mixture.plan()]
    print("interrupted twice, and every row came in its place")


if __name__ == "__main__":
    main()
