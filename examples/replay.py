"""Weights changed while a run is under way, from what training reports, and the same run again from its journal.

An update names the position from which it holds. Mixture and journal are enough to compute the whole order again.
"""

import tempfile
from pathlib import Path

from torch.utils.data import DataLoader

from cuvee import MixedDataset, Mixture, MixtureSampler, Source

NAMES = ("code", "math", "web")
BATCH, EVERY, AHEAD = 32, 80, 20  # rows a batch; batches between updates; batches that workers may be ahead


def losses_at(position: int) -> list[float]:
    """Return pretended losses of the three sources: code is learnt fast, web slowly."""
    return [2.0 / (1 + position / rows) for rows in (4_000, 8_000, 40_000)]


def run(mixture: Mixture, journal: Path) -> list[tuple[str, int]]:
    """Train an epoch, giving more weight to what has the higher loss; return the rows that came."""
    sampler = MixtureSampler(mixture.plan(), batch_size=BATCH)
    sampler.plan.journal.attach(journal)
    loader = DataLoader(MixedDataset(mixture), batch_sampler=sampler, num_workers=2)
    seen: list[tuple[str, int]] = []
    for step, batch in enumerate(sampler.track(loader), start=1):
        metadata = batch["__cuvee_meta__"]
        seen += zip(metadata["source"], metadata["source_index"].tolist(), strict=True)
        if step % EVERY == 0 and step + AHEAD < len(sampler):
            sampler.plan.update(losses_at(step * BATCH), at=(step + AHEAD) * BATCH, reason=f"losses after step {step}")
    return seen


def main() -> None:
    """Run, replay, compare."""
    mixture = Mixture([Source(name, [{"row": i} for i in range(10_000)]) for name in NAMES], samples_per_epoch=30_000)
    journal = Path(tempfile.mkdtemp()) / "journal.jsonl"
    seen = run(mixture, journal)
    plan = mixture.plan(journal=journal)
    assert seen == [(draw.name, draw.row) for draw in plan]
    print(f"{len(plan.journal)} updates; all {len(plan):,} rows came as the replay says ({plan.schedule_hash()})")
    for start in range(0, 30_000, 6_000):
        share = (plan.counts(start + 6_000) - plan.counts(start)) / 6_000
        print(f"rows {start:6,} on: " + "  ".join(f"{n} {s:.1%}" for n, s in zip(plan.names, share, strict=True)))


if __name__ == "__main__":
    main()
