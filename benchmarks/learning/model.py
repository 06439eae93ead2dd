"""A byte-level transformer that trains in seconds on one core, and its losses."""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, BYTES, CONTEXT = 64, 2, 4, 256, 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x))))


class ByteModel(nn.Module):
    """Logits of the next byte; initial weights from `seed` alone."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(BYTES, WIDTH)
            self.places = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.last = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, BYTES, bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1 and parameter is not self.places:
                    nn.init.normal_(parameter, std=0.06)

    def forward(self, windows: Tensor) -> Tensor:
        return self.head(self.last(self.blocks(self.embedding(windows) + self.places[: windows.shape[1]])))


def logits_and_losses(model: ByteModel, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (n, T, BYTES) and losses in nats (n, T) of windows, uint8 of shape (n, T + 1), T <= CONTEXT."""
    rows = rows.long()
    logits = model(rows[:, :-1])
    losses = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
    return logits, losses.view(len(rows), -1)


@torch.no_grad()
def held_out_loss(model: ByteModel, windows: Tensor) -> float:
    """Return the mean loss of a domain's held-out windows, nats a byte."""
    sums = [logits_and_losses(model, part)[1].double().sum().item() for part in windows.split(128)]
    return sum(sums) / (len(windows) * CONTEXT)
