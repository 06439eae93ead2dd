"""The same proxy model as anyone would write it: modules, autograd, torch's own Adam, one run after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


class Layer(nn.Module):
    """Attention and a middle of four times the width, a norm before each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm_2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        windows, block, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(windows, block, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(windows, block, width))
        return x + self.down(torch.relu(self.up(self.norm_2(x))))


class LanguageModel(nn.Module):
    """A decoder with learned places."""

    def __init__(self, *, vocab: int, block: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Embedding(block, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def start_from(self, matrices: Mapping[str, Tensor]) -> None:
        """Take weights, (inputs, outputs) by name: tokens, places, 0.qkv, ..., head."""
        with torch.no_grad():
            for name, matrix in matrices.items():
                if name in ("tokens", "places"):
                    getattr(self, name).weight.copy_(matrix)
                else:
                    module = self.get_submodule(f"layers.{name}" if "." in name else name)
                    module.weight.copy_(matrix.T)


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    """Return the mean loss on the last tokens but the first of each window, in nats."""
    return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def train(model: LanguageModel, batches: Iterable[Tensor], *, lr: float) -> None:
    """Take a step of Adam for each batch of windows, int64 of shape (B, block + 1)."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for windows in batches:
        optimizer.zero_grad()
        loss_of(model, windows).backward()
        optimizer.step()


@torch.no_grad()
def held_out(model: LanguageModel, windows: Tensor) -> list[float]:
    """Return the loss by domain on held-out windows, int64 of shape (K, W, block + 1)."""
    return [float(loss_of(model, of_domain)) for of_domain in windows]
