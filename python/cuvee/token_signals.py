"""What a model's logits say about each token, in one pass over them, and the sums of such values per source."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _core
from .checks import as_int
from .errors import CuveeError

if TYPE_CHECKING:
    from torch import Tensor

NO_TARGET = -100  # the label of a token that is no target, as in torch and transformers
DTYPES = ("torch.float32", "torch.float16", "torch.bfloat16")
WORTH_A_THREAD = 1 << 16  # logits
HIGH_BITS, LOW_BITS = 12, 46  # of the fixed point that values are summed in, as csrc/core/tally.hpp has them
BLOCK = 1 << 24  # logits of which torch's own operations hold float32 copies at a time


class TokenSignals(NamedTuple):
    """Per token, float32, in nats, without gradient. `log_prob` is None where no targets were given."""

    entropy: Tensor
    varentropy: Tensor
    log_prob: Tensor | None


def token_signals(
    logits: Tensor, targets: Tensor | None = None, mask: Tensor | None = None, *, threads: int | None = None
) -> TokenSignals:
    """Return each token's entropy, the variance of -log p under its softmax, and log p of its target.

    The logits are read once, and nothing of their size is written. On the CPU the results are the same bits for every
    instruction set and number of threads; the kernels for CUDA do the same arithmetic. Logits of -inf (a masked
    vocabulary) have probability 0; a row with NaN or +inf, or with nothing but -inf, gives NaN.

    Args:
        logits: of shape (N, V) or (B, T, V), float32, float16 or bfloat16; copied first unless its last dimension is
            contiguous. Others need not be: `logits[:, :-1]` is read in place.
        targets: integers of shape (N,) or (B, T), in [0, V) or -100, which is no target: its `log_prob` is 0.
            On the CPU others are an error; elsewhere, where looking at them would mean waiting, they give NaN.
        mask: of the same shape; where it is False or 0, all three are 0 and targets may be anything.
        threads: CPU threads, torch's own number by default.

    Returns:
        Three tensors of shape (N,) or (B, T) on the device of `logits`.

    Raises:
        CuveeError: shapes, types or devices do not fit, or a target on the CPU is outside the vocabulary.
    """
    logits, targets, mask = _checked(logits.detach(), targets, mask)
    if logits.device.type == "cpu":
        return _on_cpu(logits, targets, mask, threads)
    if logits.device.type == "cuda" and _kernels() is not None:
        return _on_cuda(logits, targets, mask)
    return by_torch(logits, targets, mask)


def tally_values(source: Tensor, values: Tensor, mask: Tensor | None = None, *, k: int) -> tuple[Tensor, Tensor]:
    """Return how many values each source has, and their sums: the same bits in any order and on every device.

    They are summed in fixed point: exactly for values from 2**-23 to 2**23, and what is smaller is cut off at 2**-46.
    A larger value, or NaN, makes the sum of its source NaN.

    Args:
        source: ids in [0, k) of shape (B,). On the CPU others are an error; elsewhere their rows are left out.
        values: float32 of shape (B,) or (B, T), as `token_signals` returns them; fewer than 2**28.
        mask: of the same shape; where it is False or 0, values do not count.
        k: number of sources.

    Returns:
        Two tensors of shape (k,) on the device of `values`: counts, int64, and sums, float64.

    Raises:
        CuveeError: shapes, types or devices do not fit, or an id on the CPU is out of range.
    """
    source, values, mask = _checked_values(source, values, mask)
    k = as_int(k, "k", 0, 1 << 31, CuveeError)
    if values.device.type == "cpu":
        return _tally_on_cpu(source, values, mask, k)
    if values.device.type == "cuda" and _kernels() is not None:
        return _tally_on_cuda(source, values, mask, k)
    return tally_by_torch(source, values, mask, k)


def by_torch(logits: Tensor, targets: Tensor | None, mask: Tensor | None) -> TokenSignals:
    """Return the same by torch's own operations, within rounding: for devices that there is no kernel for."""
    import torch

    shape = logits.shape[:-1]
    rows = logits.reshape(-1, logits.shape[-1])
    labels = torch.full_like(rows[:, 0], NO_TARGET, dtype=torch.int64) if targets is None else targets.reshape(-1)
    size = max(1, BLOCK // max(1, rows.shape[1]))
    blocks = [slice(start, start + size) for start in range(0, max(1, len(rows)), size)]
    parts = [_block_by_torch(rows[block], labels[block]) for block in blocks]
    columns = [torch.cat(column).view(shape) for column in zip(*parts, strict=True)]
    if mask is not None:
        columns = [torch.where(mask, column, 0) for column in columns]
    return TokenSignals(columns[0], columns[1], None if targets is None else columns[2])


def _block_by_torch(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    log_p = logits.float().log_softmax(dim=-1)
    p = log_p.exp()
    finite = log_p.masked_fill(p == 0, 0)  # 0 log 0 = 0
    entropy = -(p * finite).sum(dim=-1)
    varentropy = (p * (finite + entropy[:, None]).square()).sum(dim=-1)
    inside = (targets >= 0) & (targets < logits.shape[1])
    log_prob = log_p.gather(1, targets.where(inside, 0)[:, None])[:, 0]
    log_prob = log_prob.masked_fill(~inside, float("nan")).masked_fill(targets == NO_TARGET, 0)
    return entropy, varentropy, log_prob


def _checked(
    logits: Tensor, targets: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return logits with a contiguous vocabulary, int64 targets and a bool mask."""
    if str(logits.dtype) not in DTYPES:
        raise CuveeError(f"logits must be of {', '.join(DTYPES)}, but got {logits.dtype}; convert them with .float()")
    if logits.dim() not in {2, 3} or logits.shape[-1] == 0:
        raise CuveeError(f"logits must have the shape (N, V) or (B, T, V), V > 0, but got {tuple(logits.shape)}")
    for name, given in (("targets", targets), ("mask", mask)):
        if given is not None and given.shape != logits.shape[:-1]:
            raise CuveeError(f"{name} must have the shape {tuple(logits.shape[:-1])}, but got {tuple(given.shape)}")
        if given is not None and given.device != logits.device:
            raise CuveeError(f"{name} must be on {logits.device}, as logits, but got {given.device}")
    if targets is not None and (targets.is_floating_point() or targets.is_complex()):
        raise CuveeError(f"targets must be integers, but got {targets.dtype}")
    return (
        logits if logits.stride(-1) == 1 else logits.contiguous(),
        None if targets is None else targets.long().contiguous(),
        None if mask is None else mask.bool().contiguous(),
    )


def _on_cpu(logits: Tensor, targets: Tensor | None, mask: Tensor | None, threads: int | None) -> TokenSignals:
    import torch

    wanted = torch.get_num_threads() if threads is None else as_int(threads, "threads", 1, 1 << 16, CuveeError)
    try:
        entropy, varentropy, log_prob = _core.token_signals(
            logits,
            None if targets is None else targets.view(-1).numpy(),
            None if mask is None else mask.view(-1).numpy(),
            threads=min(wanted, 1 + logits.numel() // WORTH_A_THREAD),
        )
    except IndexError as error:
        raise CuveeError(str(error)) from None
    shape = logits.shape[:-1]
    return TokenSignals(
        torch.from_numpy(entropy).view(shape),
        torch.from_numpy(varentropy).view(shape),
        None if log_prob is None else torch.from_numpy(log_prob).view(shape),
    )


@cache
def _kernels() -> Any:
    """Return the kernels for CUDA, None where they are not built."""
    return import_module("cuvee._cuda") if find_spec("cuvee._cuda") else None


def _on_cuda(logits: Tensor, targets: Tensor | None, mask: Tensor | None) -> TokenSignals:
    import torch

    shape = logits.shape[:-1]
    entropy, varentropy = logits.new_empty((2, *shape), dtype=torch.float32).unbind()
    log_prob = None if targets is None else torch.empty_like(entropy)
    out: tuple[Any, ...] = (entropy, varentropy, log_prob)
    with torch.cuda.device(logits.device):
        _kernels().token_signals(logits, targets, mask, *out, stream=torch.cuda.current_stream().cuda_stream)
    return TokenSignals(entropy, varentropy, log_prob)


def tally_by_torch(source: Tensor, values: Tensor, mask: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """Return the same bits as `tally_values` by torch's own operations: for devices that there is no kernel for."""
    import torch

    ids = source.long().view(-1, *[1] * (values.dim() - 1)).expand_as(values).reshape(-1)
    flat = values.reshape(-1)
    counted = (ids >= 0) & (ids < k) & (True if mask is None else mask.reshape(-1))
    inside = (flat > -(2.0**23)) & (flat < 2.0**23)
    scaled = torch.where(counted & inside, flat, 0) * 2.0**HIGH_BITS
    whole = scaled.trunc()
    parts = torch.stack([counted, whole, (scaled - whole) * 2.0 ** (LOW_BITS - HIGH_BITS), counted & ~inside])
    totals = parts.new_zeros((4, k), dtype=torch.int64)  # integers: any order of adding gives the same
    totals.index_add_(1, ids.where(counted, 0), parts.long())
    count, high, low, outside = totals.unbind()
    carry = torch.div(low, 1 << (LOW_BITS - HIGH_BITS), rounding_mode="trunc")
    rest = low - carry * (1 << (LOW_BITS - HIGH_BITS))
    sums = (high + carry).double() / 2.0**HIGH_BITS + rest.double() / 2.0**LOW_BITS
    return count, sums.masked_fill(outside > 0, float("nan"))


def _checked_values(source: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return int32 ids, detached contiguous values and a bool mask."""
    if str(values.dtype) != DTYPES[0] or values.dim() not in {1, 2}:
        raise CuveeError(
            f"values must be {DTYPES[0]} of shape (B,) or (B, T), but got {values.dtype}, {tuple(values.shape)}"
        )
    if source.shape != values.shape[:1] or source.is_floating_point() or source.is_complex():
        raise CuveeError(
            f"source must be integers of shape ({len(values)},), but got {source.dtype}, {tuple(source.shape)}"
        )
    if mask is not None and mask.shape != values.shape:
        raise CuveeError(f"mask must have the shape {tuple(values.shape)}, but got {tuple(mask.shape)}")
    for name, given in (("source", source), ("mask", mask)):
        if given is not None and given.device != values.device:
            raise CuveeError(f"{name} must be on {values.device}, as values, but got {given.device}")
    return source.int().contiguous(), values.detach().contiguous(), None if mask is None else mask.bool().contiguous()


def _tally_on_cpu(source: Tensor, values: Tensor, mask: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    import torch

    flags = None if mask is None else mask.view(-1).numpy()
    try:
        counts, sums = _core.tally_values(source.numpy(), values.view(-1).numpy(), flags, k=k)
    except IndexError as error:
        raise CuveeError(str(error)) from None
    return torch.from_numpy(counts), torch.from_numpy(sums)


def _tally_on_cuda(source: Tensor, values: Tensor, mask: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    import torch

    integers = torch.empty((5, k), dtype=torch.int64, device=values.device)
    sums = torch.empty(k, dtype=torch.float64, device=values.device)
    counts = integers[4]
    with torch.cuda.device(values.device):
        stream = torch.cuda.current_stream().cuda_stream
        _kernels().tally_values(source, values, mask, integers[:4], counts, sums, stream=stream)
    return counts, sums
