"""What the training examples share: a model of bytes that predicts the next from the last one, and batches for it."""

from typing import Any

import torch
from torch import nn

LENGTH = 128  # bytes of a row that are read
MASKED = -100  # the label of what is no target


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return tokens and labels of shape (rows, LENGTH - 1), target tokens per row, and the rows' metadata."""
    texts = [f"{row['prompt']}\n{row['response']}".encode()[:LENGTH].ljust(LENGTH, b"\0") for row in rows]
    tokens = torch.tensor([list(text) for text in texts])
    labels = tokens[:, 1:].masked_fill(tokens[:, 1:] == 0, MASKED)
    metadata = [row["__cuvee_meta__"] for row in rows]
    for row, meta in enumerate(metadata):
        if meta["cycle"] < 0:  # padding of a short last batch
            labels[row] = MASKED
    targets = (labels != MASKED).sum(dim=1)
    return {"tokens": tokens[:, :-1], "labels": labels, "targets": targets, "__cuvee_meta__": metadata}


def tiny_model() -> nn.Module:
    """Return the model, the same in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(256, 32), nn.Linear(32, 256))


def loss_of(model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    """Return the mean cross entropy of a batch's targets, in nats."""
    logits = model(batch["tokens"]).flatten(0, 1)
    total = nn.functional.cross_entropy(logits, batch["labels"].flatten(), ignore_index=MASKED, reduction="sum")
    return total / batch["targets"].sum().clamp(min=1)
