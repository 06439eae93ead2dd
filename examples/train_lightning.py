"""Lightning with the Trainer's default flags, in any number of processes: examples/train_lightning.py 2."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from cuvee import Mixture
from cuvee.integrations.lightning import LedgerCallback, MixtureDataModule
from tiny_model import collate, loss_of, tiny_model

MIX = Path(__file__).parent / "data" / "mix.json"
LOG = Path(tempfile.gettempdir()) / "cuvee-lightning"
PROCESSES = int(sys.argv[1]) if len(sys.argv) > 1 else 1
ROWS = 32  # of a step, over all processes


class Model(pl.LightningModule):
    """The tiny model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = tiny_model()

    def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        return loss_of(self.model, batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(checkpoint: str | None = None, **limits: int) -> tuple[LedgerCallback, str]:
    """Train, from a checkpoint if there is one; return the books, and where the last checkpoint is."""
    data = MixtureDataModule(Mixture.from_manifest(MIX), batch_size=ROWS // PROCESSES, collate_fn=collate)
    books = LedgerCallback(lambda batch: batch["targets"], log_dir=LOG)  # cuvee report makes a page of it
    saving = pl.callbacks.ModelCheckpoint(tempfile.mkdtemp(), every_n_train_steps=70)
    options: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, **limits}
    trainer = pl.Trainer(accelerator="cpu", devices=PROCESSES, callbacks=[books, saving], **options)
    trainer.fit(Model(), datamodule=data, ckpt_path=checkpoint)
    return books, saving.best_model_path


def main() -> None:
    """Break off in the middle of an epoch, go on from the last checkpoint, and show what was trained on."""
    _, checkpoint = fit(max_epochs=2, max_steps=80)
    books, _ = fit(checkpoint, max_epochs=2)
    total = books.totals()
    total.check()
    print(*(f"{name}: {rows} rows" for name, rows in zip(total.names, total.trained, strict=True)), sep="\n")


if __name__ == "__main__":
    main()
