"""A plain DataLoader with workers: stop in the middle, save, and go on in another process with the next batch."""

import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from cuvee import Ledger, MixedDataset, Mixture, MixtureSampler

MIX = Path(__file__).parent / "data" / "mix.json"


def loader_of(mixture: Mixture, sampler: MixtureSampler) -> DataLoader[Any]:
    """Return a loader whose two workers fetch batches ahead of the training loop."""
    return DataLoader(MixedDataset(mixture), batch_sampler=sampler, num_workers=2, prefetch_factor=2)


def main() -> None:
    """Train on 40 batches, save, resume, and train on the rest."""
    mixture = Mixture.from_manifest(MIX)
    sampler = MixtureSampler(mixture.plan(), batch_size=32)
    ledger = Ledger(mixture.names)
    for batch in islice(sampler.track(loader_of(mixture, sampler)), 40):
        ledger.add_batch(batch["__cuvee_meta__"], batch["n_tokens"])  # a real loop would train here
    sampler.account(ledger)

    checkpoint = Path(tempfile.mkdtemp()) / "checkpoint.json"
    checkpoint.write_text(json.dumps({"sampler": sampler.state_dict(), "ledger": ledger.state_dict()}))
    print(f"stopped after 40 batches; the checkpoint has {checkpoint.stat().st_size} bytes")

    state = json.loads(checkpoint.read_text())
    sampler = MixtureSampler(mixture.plan(), batch_size=32)
    sampler.load_state_dict(state["sampler"])
    ledger = Ledger.from_state(state["ledger"])
    print(f"{len(sampler)} batches are left, from position {state['sampler']['position']} on")
    for batch in sampler.track(loader_of(mixture, sampler)):
        ledger.add_batch(batch["__cuvee_meta__"], batch["n_tokens"])
    sampler.account(ledger)

    ledger.check()
    assert ledger.trained.tolist() == mixture.plan().counts(4000).tolist()
    for name, rows, tokens in zip(ledger.names, ledger.trained, ledger.tokens, strict=True):
        print(f"{name}: {rows} rows, {tokens} tokens")


if __name__ == "__main__":
    main()
