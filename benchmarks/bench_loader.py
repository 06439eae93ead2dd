"""A DataLoader without workers over trivial rows: our sampler beside torch's, and what the metadata costs a row."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from functools import partial
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler

import cuvee
from harness import OURS, Case, Report, main

BATCH = 256


class Integers:
    """Map-style: item i is i."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> int:
        return index


class Rows(Integers):
    """Map-style: item i is a row of one field."""

    def __getitem__(self, index: int) -> Any:
        return {"number": index}


def drain(loader: Iterable[Sized]) -> int:
    """Read one epoch; return how many samples came."""
    return sum(len(batch) for batch in loader)


def as_is(rows: list[Any]) -> list[Any]:
    """Collate nothing: the rows themselves are timed."""
    return rows


def compare_samplers(report: Report, n: int) -> None:
    """Time the loader over integers, fed sample by sample and batch by batch."""
    data: Any = Integers(n)
    plan = cuvee.Mixture([cuvee.Source("integers", data)]).plan()
    by_sample, by_batch = cuvee.MixtureSampler(plan), cuvee.MixtureSampler(plan, batch_size=BATCH)
    random = RandomSampler(data)
    loaders = {
        OURS: DataLoader(data, BATCH, sampler=by_sample),
        "torch RandomSampler": DataLoader(data, BATCH, sampler=random),
    }
    batch_loaders = {
        OURS: DataLoader(data, batch_sampler=by_batch),
        "torch BatchSampler(RandomSampler)": DataLoader(data, batch_sampler=BatchSampler(random, BATCH, False)),
    }
    for what, group in {"sampler": loaders, "batch_sampler": batch_loaders}.items():
        assert all(drain(loader) == n for loader in group.values())
        cases = {name: Case(run=partial(drain, loader), items=n) for name, loader in group.items()}
        report.compare(f"loader/{what}", cases, unit="ns/row")


def compare_metadata(report: Report, n: int) -> None:
    """Time rows with and without `__cuvee_meta__`, beside the bare dataset."""
    data: Any = Rows(n)
    mixture = cuvee.Mixture([cuvee.Source("rows", data)])
    sampler = cuvee.MixtureSampler(mixture.plan(), batch_size=BATCH)
    with_metadata: Any = cuvee.MixedDataset(mixture)
    without: Any = cuvee.MixedDataset(mixture, metadata=False)
    first = next(iter(DataLoader(with_metadata, batch_sampler=sampler, collate_fn=as_is)))[0]
    assert first["__cuvee_meta__"]["source_index"] == first["number"]
    bare = BatchSampler(RandomSampler(data), BATCH, False)
    loaders = {
        OURS: DataLoader(with_metadata, batch_sampler=sampler, collate_fn=as_is),
        "cuvee, metadata=False": DataLoader(without, batch_sampler=sampler, collate_fn=as_is),
        "the dataset alone, torch RandomSampler": DataLoader(data, batch_sampler=bare, collate_fn=as_is),
    }
    cases = {name: Case(run=partial(drain, loader), items=n) for name, loader in loaders.items()}
    report.compare("loader/metadata", cases, unit="ns/row")
    medians = {measure.name.rsplit("/", 1)[1]: measure.value for measure in report.measures[-len(cases) :]}
    report.value("loader/metadata/cost", medians[OURS] - medians["cuvee, metadata=False"], "ns/row")


def measure(report: Report) -> None:
    """Measure samplers and metadata."""
    n = (20_000 if report.quick else 500_000) // BATCH * BATCH
    compare_samplers(report, n)
    compare_metadata(report, n)


if __name__ == "__main__":
    main(measure)
