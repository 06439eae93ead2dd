"""What tests of training share: rows of tokens that say where they come from, and a very small language model."""
# ruff: noqa: TID253

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers

from cuvee import Mixture, Source

VOCABULARY = 64
MASKED = -100


@dataclass(frozen=True)
class TokenRows:
    """Rows of 6 to 11 tokens, the first two a prompt; token 0 is the source, token 1 the row."""

    source: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.size:
            raise IndexError(index)
        tokens = [
            self.source,
            index % VOCABULARY,
            *((self.source * 11 + index * k) % 13 + 20 for k in range(4 + index % 6)),
        ]
        return {"input_ids": tokens, "labels": [MASKED, MASKED, *tokens[2:]], "origin": f"{self.source}:{index}"}


def mixture(sizes=(60, 40), weights=(0.7, 0.3), **settings: Any) -> Mixture:
    sources = [
        Source(f"s{k}", TokenRows(k, size), weight) for k, (size, weight) in enumerate(zip(sizes, weights, strict=True))
    ]
    return Mixture(sources, **{"samples_per_epoch": 100, **settings})


def pad(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Collate token rows, padded on the right."""
    width = max(len(row["input_ids"]) for row in rows)

    def column(name: str, filler: int) -> torch.Tensor:
        return torch.tensor([row[name] + [filler] * (width - len(row[name])) for row in rows])

    ids = column("input_ids", 0)
    mask = torch.tensor([[int(place < len(row["input_ids"])) for place in range(width)] for row in rows])
    return {"input_ids": ids, "labels": column("labels", MASKED), "attention_mask": mask}


def model(**settings: Any) -> transformers.LlamaForCausalLM:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "attention_dropout": 0.1,
            **settings,
        }
    )
    return transformers.LlamaForCausalLM(config)


def weights(module: torch.nn.Module) -> torch.Tensor:
    """Return all parameters as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def arguments(folder, **settings: Any) -> transformers.TrainingArguments:
    defaults = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 1,
        "save_strategy": "no",
        "logging_steps": 5,
        "learning_rate": 1e-2,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_num_workers": 0,
    }
    return transformers.TrainingArguments(str(folder), **{**defaults, **settings})
