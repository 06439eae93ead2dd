"""A short training of the tiny model in the processes of a launch, whole or split over some of them."""
# ruff: noqa: TID253

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments
from transformers.utils import logging

from cuvee.train.launch import init_process_group, rank_info
from cuvee.train.parallel import (
    ParallelTrainerMixin,
    load_parallel_model,
    split_callbacks,
    training_arguments_for,
)

ROWS, TOKENS, BATCH, STEPS = 32, 12, 4, 8


class Sequences(Dataset[dict[str, torch.Tensor]]):
    """Random token sequences, row by row the same in every process."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 264, (TOKENS,), generator=torch.Generator().manual_seed(row))
        return {"input_ids": tokens, "labels": tokens.clone()}


class DealtTrainer(ParallelTrainerMixin, Trainer):
    """Deals each batch of `BATCH` rows to the copies of the model, as the mixture's sampler does."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        info, alike = rank_info(), getattr(self.model, "tp_size", None) or 1  # neighbours that hold one model together
        rank, size = info.rank // alike, info.world_size // alike
        part = BATCH // size
        batches = [
            list(range(first + rank * part, first + (rank + 1) * part)) for first in range(0, STEPS * BATCH, BATCH)
        ]
        return DataLoader(Sequences(), batch_sampler=batches)


def train(task: dict[str, Any]) -> None:
    """Train the tiny model and write each step's loss and gradient norm to `losses.json`."""
    logging.disable_progress_bar()
    init_process_group(use_cpu=True)
    info, tp_size, folder = rank_info(), task["tp_size"], Path(task["folder"])
    copies = info.world_size // tp_size
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=BATCH // copies,
        max_steps=STEPS,
        learning_rate=5e-3,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        report_to=[],
        save_steps=STEPS // 2,
        logging_steps=1,
        disable_tqdm=True,
        seed=3,
        **training_arguments_for(info.world_size, tp_size),
    )
    trainer = DealtTrainer(
        model=load_parallel_model("tiny", world_size=info.world_size, tp_size=tp_size),
        args=arguments,
        train_dataset=Sequences(),
        callbacks=split_callbacks(tp_size, task.get("resume")),
    )
    trainer.train(resume_from_checkpoint=task.get("resume") and str(task["resume"]))
    if info.is_main:
        steps = [[line["loss"], line["grad_norm"]] for line in trainer.state.log_history if "loss" in line]
        (folder / "losses.json").write_text(json.dumps(steps))
