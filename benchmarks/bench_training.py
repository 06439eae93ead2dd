"""What a mixture costs a training loop: the tiny model on 32 x 256 tokens a step, plain, mixed, and over a peer's mix.

One step is mostly the model, and what the mixture adds is less than a step varies by. So the mixture's own share is
measured where the model is next to nothing: the same loops over a hollow model, the plain one's time taken off.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from torch.utils.data import ConcatDataset, DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

import cuvee
from cuvee.integrations.transformers import MixtureTrainer
from cuvee.losses import SourceLosses, row_losses
from cuvee.train.model import tiny_config, tiny_model
from harness import OURS, Case, Report, main, time_in_turns
from workload import apportion, zipf

ROWS, TOKENS, SOURCES = 32, 256, 8
META = "__cuvee_meta__"
PLAIN, PEER = "plain PyTorch", "datasets interleave_datasets"
Batches = Callable[[], Iterable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Row:
    """A map-style source in memory: row i is the tensor `tokens[i]`."""

    tokens: torch.Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.tokens[index]}
