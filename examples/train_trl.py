"""TRL's SFTTrainer on a mixture: TRL prepares rows, the plan orders them, a checkpoint goes on with the very next."""

import tempfile
from pathlib import Path

import datasets
from transformers import PrinterCallback
from transformers.utils import logging
from trl import SFTConfig

from cuvee import Mixture
from cuvee.integrations.trl import MixtureSFTTrainer, concatenated
from cuvee.train.model import tiny_model, tiny_tokenizer

MIX = Path(__file__).parent / "data" / "mix.json"


def train(folder: str, *, until: int, resume: bool) -> MixtureSFTTrainer:
    """Train up to step `until`, and show the loss of each source and what was trained on."""
    config = SFTConfig(
        folder,
        max_steps=until,
        max_length=None,  # TRL would drop rows that it cuts before the completion, and the plan knows of all
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        logging_steps=10,
        save_steps=10,
        activation_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    mixture = Mixture.from_manifest(MIX)
    rows = concatenated(mixture, columns=["prompt", "response"]).rename_column("response", "completion")
    trainer = MixtureSFTTrainer(
        tiny_model(), config, processing_class=tiny_tokenizer(), mixture=mixture, train_dataset=rows, mix_log_dir=folder
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    logs = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    losses = ", ".join(f"{name} {logs[f'mix/loss/{name}']:.2f}" for name in mixture.names)
    print(f"step {logs['step']}: loss {logs['loss']:.2f} ({losses})")
    return trainer


if __name__ == "__main__":
    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as output:
        train(output, until=10, resume=False)
        ledger = train(output, until=20, resume=True).mix.ledger.reduced()  # over all processes
        ledger.check()
        print(*(f"{n}: {r} rows" for n, r in zip(ledger.names, ledger.trained, strict=True)), sep="\n")
