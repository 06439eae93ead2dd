"""Accelerate, any number of processes: accelerate launch --num_processes 2 examples/train_accelerate.py."""

import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from cuvee import Mixture
from cuvee.integrations.accelerate import MixtureLoader, loader_for
from tiny_model import collate, loss_of, tiny_model

MIX = Path(__file__).parent / "data" / "mix.json"
ROWS = 32  # of a step, over all processes


def train(folder: Path, *, epochs: int, stop: int | None = None) -> MixtureLoader:
    """Train from the checkpoint in `folder`, if there is one; stop after `stop` batches and save."""
    accelerator = Accelerator(cpu=True)
    rows = ROWS // accelerator.num_processes
    loader = loader_for(accelerator, Mixture.from_manifest(MIX), batch_size=rows, collate_fn=collate)
    model = tiny_model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    if any(folder.iterdir()):
        accelerator.load_state(folder)
    for epoch in range(loader.epoch, epochs):
        for number, batch in enumerate(loader, start=1):
            loss = loss_of(model, batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            loader.count(batch, batch["targets"].cpu())
            if number == stop:
                accelerator.save_state(folder)
                return loader
        accelerator.print(f"epoch {epoch}: loss {loss.item():.2f}")
    return loader


def main() -> None:
    """Stop in the middle of an epoch, go on from the checkpoint, and show what was trained on."""
    accelerator = Accelerator(cpu=True)
    (folder,) = broadcast_object_list([tempfile.mkdtemp()])
    train(Path(folder), epochs=2, stop=70)
    total = train(Path(folder), epochs=2).totals()
    total.check()
    accelerator.print(
        *(f"{name}: {rows} rows" for name, rows in zip(total.names, total.trained, strict=True)), sep="\n"
    )
    accelerator.end_training()


if __name__ == "__main__":
    main()
