"""A view in order: position i of the run is item i of a map-style dataset, for loaders that shard by themselves.

Nothing about the loader is special: `shuffle=False` and torch's own DistributedSampler are enough.
"""

from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from cuvee import MixedDataset, Mixture

MIX = Path(__file__).parent / "data" / "mix.json"
RANKS = 4


def batches_of(view: Any, rank: int) -> list[dict[str, Any]]:
    """Return what one of the ranks trains on; in a real run every rank is a process of its own."""
    sampler: DistributedSampler[Any] = DistributedSampler(view, num_replicas=RANKS, rank=rank, shuffle=False)
    return list(DataLoader(view, batch_size=8, sampler=sampler))


def main() -> None:
    """Deal one epoch to four ranks, and count what each of them gets."""
    mixture = Mixture.from_manifest(MIX)
    view = MixedDataset(mixture).in_order(mixture.plan())
    print(f"the view has {len(view)} rows; row 1000 is from {view[1000]['__cuvee_meta__']['source']!r}")

    seen: set[tuple[str, int, int]] = set()
    for rank in range(RANKS):
        batches = batches_of(view, rank)
        columns = [batch["__cuvee_meta__"] for batch in batches]
        names = [name for column in columns for name in column["source"]]
        rows = [row for column in columns for row in column["source_index"].tolist()]
        cycles = [cycle for column in columns for cycle in column["cycle"].tolist()]
        seen.update(zip(names, rows, cycles, strict=True))
        shares = {name: f"{names.count(name) / len(names):.1%}" for name in mixture.names}
        print(f"rank {rank}: {len(batches)} batches, {len(names)} rows, {shares}")
    assert len(seen) == len(view)
    print("together the ranks saw every position once")


if __name__ == "__main__":
    main()
