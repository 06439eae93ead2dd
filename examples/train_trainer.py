"""transformers' Trainer on a mixture: the plan's order, the loss of each source, and going on from a checkpoint."""

import tempfile
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainingArguments
from transformers.utils import logging

from cuvee import Mixture
from cuvee.integrations.transformers import MixtureTrainer
from cuvee.train.model import tiny_model, tiny_tokenizer

MIX = Path(__file__).parent / "data" / "mix.json"
TOKENIZER = tiny_tokenizer()


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first 96 tokens of each row, all of them to be learnt."""
    texts = [f"{row['prompt']}\n{row['response']}" for row in rows]
    batch = TOKENIZER(texts, padding=True, truncation=True, max_length=96, return_tensors="pt")
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


def train(folder: str, *, until: int, resume: bool) -> MixtureTrainer:
    """Train up to step `until`, and show the loss of each source and what was trained on."""
    arguments = TrainingArguments(
        folder,
        max_steps=until,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        logging_steps=20,
        save_steps=20,
        remove_unused_columns=False,  # collate makes tokens of what the model does not take
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    mixture = Mixture.from_manifest(MIX)
    trainer = MixtureTrainer(
        tiny_model(), arguments, mixture=mixture, data_collator=collate, mix_log_dir=folder
    )  # cuvee report FOLDER makes a page of the log
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    logs = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    losses = ", ".join(f"{name} {logs[f'mix/loss/{name}']:.2f}" for name in mixture.names)
    print(f"step {logs['step']}: loss {logs['loss']:.2f} ({losses})")
    return trainer


if __name__ == "__main__":
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as output:
        train(output, until=20, resume=False)
        ledger = train(output, until=40, resume=True).mix.ledger.reduced()  # over all processes
        ledger.check()
        print(*(f"{n}: {r} rows" for n, r in zip(ledger.names, ledger.trained, strict=True)), sep="\n")
