"""Online mixing: an update of the weights beside the published rule, and what a row of an online mix costs."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import peers
from cuvee.bandits import BANDITS, make_bandit
from harness import OURS, Case, Report, main
from workload import apportion, zipf

UPDATES = 2_000  # in a call; a rule in linear space overflows after some thousands
ROWS = 200_000
SOURCES = (8, 128)
LEARNING = ("exp3", "exp3_bounded", "odm", "doremi")


def compare_updates(report: Report, k: int) -> None:
    """Time updates of `exp3`, and beside it the published rule, an array operation a line and source by source."""
    published: Any = peers.load("published_exp3", report.skipped)
    updates = UPDATES // 10 if report.quick else UPDATES
    rewards = np.random.default_rng(k).uniform(0, 0.05, k)
    counts = np.ones(k, dtype=np.int64)
    plain = (rewards.tolist(), counts.tolist())
    expected = published.Arrays(np.ones(k)).update(rewards, counts)
    assert np.allclose(make_bandit("exp3", k).update(rewards, counts), expected, rtol=1e-12)
    assert np.allclose(published.Loop([1.0] * k).update(*plain), expected, rtol=1e-12)

    def repeated(make: Callable[[], Any], *given: object) -> Callable[[], None]:
        def run() -> None:
            bandit = make()
            for _ in range(updates):
                bandit.update(*given)

        return run

    ways = {
        OURS: repeated(lambda: make_bandit("exp3", k), rewards, counts),
        "published rule, NumPy": repeated(lambda: published.Arrays(np.ones(k)), rewards, counts),
        "published rule, Python": repeated(lambda: published.Loop([1.0] * k), *plain),
        **{
            f"cuvee {name}": repeated(lambda name=name: make_bandit(name, k), rewards, counts)
            for name in LEARNING
            if name != "exp3" and name in BANDITS
        },
    }
    cases = {who: Case(run=way, items=updates) for who, way in ways.items()}
    report.compare(f"bandit update/K={k}", cases, unit="ns/update")


def compare_rows(report: Report, k: int) -> None:
    """Time rows of an `OnlineMixingDataset` after an update, and of what chooses them alone."""
    import torch

    from cuvee import OnlineMixingDataset

    rows = ROWS // 100 if report.quick else ROWS
    sizes = apportion(100 * k * k, zipf(k))
    data = {f"s{number:03d}": Rows(torch.arange(size)) for number, size in enumerate(sizes.tolist())}
    with tempfile.TemporaryDirectory() as folder:
        dataset = OnlineMixingDataset(data, dict.fromkeys(data, first), {}, {}, output_dir=folder)
        weights = dataset.bandit.update(np.linspace(0, 1, k), np.ones(k, dtype=np.int64))
        dataset.choices.update(weights, 0, "an update")
        places = 1024  # whole windows
        assert np.abs(dataset.choices.counts(places) - places * weights).max() < 2

        def choose() -> None:
            place = 0
            while place < rows:
                place += len(dataset.choices.block(place)[1])

        report.compare(
            f"rows of an online mix/K={k}",
            {
                OURS: Case(run=choose, items=rows),
                "cuvee, whole rows": Case(run=lambda: sum(1 for _ in itertools.islice(dataset, rows)), items=rows),
            },
            unit="ns/row",
        )


class Rows:
    """Map-style rows of one number each."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"number": self.numbers[row]}


def first(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate the one row that an online mix hands to a collator."""
    return {"number": rows[0]["number"][None]}


def measure(report: Report) -> None:
    """Measure updates and rows."""
    for k in SOURCES:
        compare_updates(report, k)
    if peers.load("torch_random", report.skipped) is not None:
        for k in SOURCES:
            compare_rows(report, k)


if __name__ == "__main__":
    main(measure)
