"""Many tiny transformers trained side by side: one call of torch does the same step of all of them.

The models have one shape and differ in weights and in what they read. Every weight has a leading axis of M models, so
that M matrices are one `bmm`; forward and backward are written out, because at this size an autograd graph costs more
than the arithmetic. M = 1 is no case of its own: a model's numbers are the same whatever others are trained beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch  # noqa: TID253
from torch import Tensor  # noqa: TID253

from .._core import key64

EPSILON = 1e-5  # of the norms
BETAS = (0.9, 0.999)  # of Adam
ADAM_EPSILON = 1e-8
WIDENING = 4  # of the middle of a layer's second half
MOST_MODELS = 32  # trained at once: more gain nothing, and leave the caches
MOST_ACTIVATIONS = 1 << 24  # numbers kept at a time while models are trained: 64 MiB
MOST_EVALUATED = 1 << 22  # and while they are evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder with learned places, norms before each half of a layer and without biases or gains.

    Args:
        vocab: V, tokens that there are.
        block: T, tokens of a window.
        d_model: width, divisible by `n_head`.
        n_layer: layers.
        n_head: heads of each.
    """

    vocab: int
    block: int
    d_model: int
    n_layer: int
    n_head: int

    @property
    def parts(self) -> dict[str, tuple[int, int]]:
        """Name and shape of every matrix, in the order in which they lie in a model's weights."""
        d = self.d_model
        parts = {"tokens": (self.vocab, d), "places": (self.block, d)}
        for layer in range(self.n_layer):
            parts |= {
                f"{layer}.qkv": (d, 3 * d),
                f"{layer}.out": (d, d),
                f"{layer}.up": (d, WIDENING * d),
                f"{layer}.down": (WIDENING * d, d),
            }
        return parts | {"head": (d, self.vocab)}

    @property
    def size(self) -> int:
        """P, weights of a model."""
        return sum(rows * columns for rows, columns in self.parts.values())

    def start(self, seed: int) -> State:
        """Return where training starts.

        Weights are normal, of variance 1 / (number of inputs), those of tokens and places of variance 1; the head is 0,
        so that the loss of an untrained model is log(V).
        """
        random = np.random.Generator(np.random.PCG64(key64("proxy weights", seed=seed)))
        scales = {"tokens": 1.0, "places": 1.0, "head": 0.0}
        weights = np.concatenate(
            [
                np.float32(scales.get(name, rows**-0.5)) * random.standard_normal(rows * columns, dtype=np.float32)
                for name, (rows, columns) in self.parts.items()
            ]
        )
        return State(torch.from_numpy(weights), torch.zeros(self.size), torch.zeros(self.size), 0)

    def models_at_once(self, windows: int) -> int:
        """Return how many models may be trained at once on so many windows a step, for the memory they take."""
        return max(1, min(MOST_MODELS, MOST_ACTIVATIONS // self.numbers(windows)))

    def numbers(self, windows: int) -> int:
        """Return about how many numbers a model keeps of so many windows until its backward pass is done."""
        layer = 16 * self.d_model + self.n_head * self.block
        return windows * self.block * (2 * self.vocab + self.n_layer * layer)


class State(NamedTuple):
    """A model in training: weights and running moments of their gradients, float32 of shape (P,)."""

    weights: Tensor
    first: Tensor
    second: Tensor
    updates: int

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return 3 * self.weights.nbytes


class _Norm(NamedTuple):
    """What the backward pass of a norm needs."""

    x: Tensor
    mean: Tensor
    rate: Tensor


class _Layer(NamedTuple):
    """What the backward pass of a layer needs; tensors of M models, N tokens each."""

    norm_1: _Norm
    read: Tensor  # (M, N, d), what attention reads
    qkv: Tensor  # (3, M windows heads, T, d / heads)
    attention: Tensor  # (M windows heads, key, query)
    mixed: Tensor  # (M, N, d)
    norm_2: _Norm
    thought: Tensor  # (M, N, d), what the second half reads
    middle: Tensor  # (M, N, 4 d)


class _Pass(NamedTuple):
    """What the backward pass of the whole model needs."""

    layers: list[_Layer]
    norm: _Norm
    last: Tensor  # (M, N, d)


class Models:
    """M models of one shape under Adam, with as many updates behind them.

    Args:
        shape: of each.
        states: where each is in its training, all with as many updates; they are copied.
    """

    def __init__(self, shape: Shape, states: Sequence[State]) -> None:
        self.shape = shape
        self.updates = states[0].updates
        self._count = len(states)
        self._weights, self._first, self._second, self._grads = torch.zeros(4, self._count * shape.size)
        self._part, self._grad = self._parts_of(self._weights), self._parts_of(self._grads)
        flats = (self._weights, self._first, self._second)
        for flat, rows in zip(flats, list(zip(*states, strict=True))[:3], strict=True):
            views = self._parts_of(flat).values()
            parts = torch.split(torch.stack(rows), [view[0].numel() for view in views], 1)
            for view, part in zip(views, parts, strict=True):
                view.copy_(part.view_as(view))
        ahead = torch.ones(shape.block, shape.block).tril(-1).bool()  # key after query, as (key, query)
        self._mask = torch.zeros(shape.block, shape.block).masked_fill_(ahead, -math.inf)

    def __len__(self) -> int:
        return self._count

    @torch.inference_mode()
    def states(self) -> list[State]:
        """Return where each model is, as copies."""
        flats = (self._weights, self._first, self._second)
        rows = (torch.cat([view.flatten(1) for view in self._parts_of(flat).values()], 1) for flat in flats)
        each = zip(*(row.unbind() for row in rows), strict=True)
        return [State(weights, first, second, self.updates) for weights, first, second in each]

    @torch.inference_mode()
    def losses(self, windows: Tensor) -> Tensor:
        """Return the loss of each model on each window, float32 of shape (M, W), mean over its T targets, in nats.

        Args:
            windows: int64 of shape (W, T + 1), the same for all models.
        """
        at_once = max(1, MOST_EVALUATED // (len(self) * self.shape.numbers(1)))
        return torch.cat([self._losses(some) for some in torch.split(windows, at_once)], 1)

    def _losses(self, windows: Tensor) -> Tensor:
        inputs = windows[:, :-1].expand(len(self), -1, -1)
        targets = windows[:, 1:].reshape(1, -1, 1).expand(len(self), -1, 1)
        logits, _ = self._forward(inputs)
        nats = -torch.log_softmax(logits, 2).gather(2, targets)
        losses: Tensor = nats.view(len(self), *windows[:, 1:].shape).mean(2)
        return losses

    @torch.inference_mode()
    def train(self, windows: Tensor, *, lr: float) -> None:
        """Take one step of Adam on the mean loss of each model's own windows.

        Args:
            windows: int64 of shape (M, B, T + 1).
            lr: learning rate.
        """
        self.gradients(windows)
        self._adam(lr)

    @torch.inference_mode()
    def gradients(self, windows: Tensor) -> dict[str, Tensor]:
        """Return the gradients of each model's mean loss, (M, rows, columns) by matrix; valid until the next call."""
        inputs, targets = windows[..., :-1], windows[..., 1:].reshape(len(self), -1, 1)
        logits, kept = self._forward(inputs)
        grad = torch.softmax(logits, 2)
        grad.scatter_add_(2, targets, grad.new_full((), -1.0).expand(targets.shape)).div_(targets.shape[1])
        self._backward(grad, inputs, kept)
        return self._grad

    def _forward(self, inputs: Tensor) -> tuple[Tensor, _Pass]:
        """Return logits of shape (M, B T, V) of inputs of shape (M, B, T), and what the backward pass needs."""
        models, windows, block = inputs.shape
        rows = inputs + torch.arange(0, models * self.shape.vocab, self.shape.vocab).view(-1, 1, 1)
        x = self._part["tokens"].flatten(0, 1).index_select(0, rows.flatten()).view(models, windows * block, -1)
        x.view(models, windows, *self._part["places"].shape[1:]).add_(self._part["places"].unsqueeze(1))
        layers = []
        for layer in range(self.shape.n_layer):
            x, kept = self._layer(x, layer, windows)
            layers.append(kept)
        last, norm = _normed(x)
        return torch.bmm(last, self._part["head"]), _Pass(layers, norm, last)

    def _layer(self, x: Tensor, layer: int, windows: int) -> tuple[Tensor, _Layer]:
        part = self._part
        read, norm_1 = _normed(x)
        qkv = self._by_head(torch.bmm(read, part[f"{layer}.qkv"]), windows, 3)
        q, k, v = qkv
        # Softmax runs over keys, the middle axis: much faster than over a short last one.
        attention = torch.softmax(torch.baddbmm(self._mask, k, q.mT, alpha=q.shape[2] ** -0.5), 1)
        mixed = self._by_token(torch.bmm(attention.mT, v).unsqueeze(0), windows)
        x = torch.baddbmm(x, mixed, part[f"{layer}.out"])
        thought, norm_2 = _normed(x)
        middle = torch.bmm(thought, part[f"{layer}.up"]).relu_()
        x = torch.baddbmm(x, middle, part[f"{layer}.down"])
        return x, _Layer(norm_1, read, qkv, attention, mixed, norm_2, thought, middle)

    def _backward(self, grad: Tensor, inputs: Tensor, kept: _Pass) -> None:
        """Fill the gradients, given that of the logits."""
        models, windows, block = inputs.shape
        torch.bmm(kept.last.mT, grad, out=self._grad["head"])
        grad = _normed_back(torch.bmm(grad, self._part["head"].mT), kept.norm)
        for layer in reversed(range(self.shape.n_layer)):
            grad = self._layer_back(grad, kept.layers[layer], layer, windows)
        torch.sum(grad.view(models, windows, block, -1), 1, out=self._grad["places"])
        index = inputs.reshape(models, -1, 1).expand_as(grad)
        self._grad["tokens"].zero_().scatter_add_(1, index, grad)

    def _layer_back(self, grad: Tensor, kept: _Layer, layer: int, windows: int) -> Tensor:
        part, found = self._part, self._grad
        torch.bmm(kept.middle.mT, grad, out=found[f"{layer}.down"])
        middle = torch.ops.aten.threshold_backward(torch.bmm(grad, part[f"{layer}.down"].mT), kept.middle, 0)
        torch.bmm(kept.thought.mT, middle, out=found[f"{layer}.up"])
        grad = _normed_back(torch.bmm(middle, part[f"{layer}.up"].mT), kept.norm_2).add_(grad)
        torch.bmm(kept.mixed.mT, grad, out=found[f"{layer}.out"])
        mixed = self._by_head(torch.bmm(grad, part[f"{layer}.out"].mT), windows, 1)[0]
        q, k, v = kept.qkv
        weighted = torch.bmm(v, mixed.mT).mul_(kept.attention)
        scores = torch.addcmul(weighted, kept.attention, weighted.sum(1, keepdim=True), value=-1)
        scores.mul_(q.shape[2] ** -0.5)
        qkv = torch.empty_like(kept.qkv)
        torch.bmm(scores.mT, k, out=qkv[0])
        torch.bmm(scores, q, out=qkv[1])
        torch.bmm(kept.attention, mixed, out=qkv[2])
        read = self._by_token(qkv, windows)
        torch.bmm(kept.read.mT, read, out=found[f"{layer}.qkv"])
        return _normed_back(torch.bmm(read, part[f"{layer}.qkv"].mT), kept.norm_1).add_(grad)

    def _by_head(self, x: Tensor, windows: int, kinds: int) -> Tensor:
        """Return (M, B T, kinds d) as (kinds, M B heads, T, d / heads)."""
        heads, block = self.shape.n_head, self.shape.block
        apart = x.view(len(x), windows, block, kinds, heads, -1)
        return apart.permute(3, 0, 1, 4, 2, 5).reshape(kinds, len(x) * windows * heads, block, -1)

    def _by_token(self, x: Tensor, windows: int) -> Tensor:
        """Undo `_by_head`."""
        kinds, _, block, size = x.shape
        apart = x.view(kinds, -1, windows, self.shape.n_head, block, size)
        return apart.permute(1, 2, 4, 0, 3, 5).reshape(-1, windows * block, kinds * self.shape.n_head * size)

    def _parts_of(self, flat: Tensor) -> dict[str, Tensor]:
        """Return views of shape (M, rows, columns) of (M P,) numbers: the first matrix of all models, the second ..."""
        sizes = [self._count * rows * columns for rows, columns in self.shape.parts.values()]
        parts = zip(self.shape.parts.items(), torch.split(flat, sizes), strict=True)
        return {name: view.view(self._count, *shape) for (name, shape), view in parts}

    def _adam(self, lr: float) -> None:
        """Move the weights by their gradients (Kingma and Ba 2015, algorithm 1)."""
        self.updates += 1
        self._first.lerp_(self._grads, 1 - BETAS[0])
        self._second.mul_(BETAS[1]).addcmul_(self._grads, self._grads, value=1 - BETAS[1])
        spread = self._second.sqrt().div_(math.sqrt(1 - BETAS[1] ** self.updates)).add_(ADAM_EPSILON)
        self._weights.addcdiv_(self._first, spread, value=-lr / (1 - BETAS[0] ** self.updates))


def _normed(x: Tensor) -> tuple[Tensor, _Norm]:
    out, mean, rate = torch.native_layer_norm(x, [x.shape[-1]], None, None, EPSILON)
    return out, _Norm(x, mean, rate)


def _normed_back(grad: Tensor, kept: _Norm) -> Tensor:
    back = torch.ops.aten.native_layer_norm_backward
    found: Tensor = back(grad, kept.x, [grad.shape[-1]], kept.mean, kept.rate, None, None, [True, False, False])[0]
    return found
