"""Check and time the kernels: `check_kernels.py [--cpu] [--quick] [--no-compile] [--json FILE] [--enforce-goals]`.

Each kernel's results are compared with its twin on the CPU, bit by bit, and with a reference in float64; its time with
torch's own operations, eager and compiled, and for logits with a copy of as many bytes. Without a GPU, or with --cpu,
the same is done for the CPU's kernels, and that is said. Exits with 1 if a result is wrong, or a goal missed that is to
be enforced.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: TID253

from cuvee.bandits import LowEntropyWarning, make_bandit
from cuvee.token_signals import by_torch, tally_by_torch, tally_values, token_signals

VOCABULARIES = (32_000, 131_072)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LOGITS = 1 << 28  # in a call on a GPU; far more than its caches hold
CHECKED = 64  # rows of logits that are checked; the CPU takes long for more
SOURCES = (128, 65_536)
RULES = ("exp3", "exp3_bounded", "odm", "doremi")
NEAR = 3e-5  # of what float64 says, relative to 1
GOALS = {"copy": 0.8, "bandit": 10e-6}  # least share of a copy's bandwidth; most seconds of an update

Run = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kernel in one case: whether it is right, and its seconds beside others'.

    Attributes:
        same_bits: as its twin on the CPU gives; None where there is nothing to compare.
        error: the largest distance from float64, relative to 1 + what it should be.
        ours, eager, compiled: seconds; None where it was not timed.
        of_copy: bytes read per second, as a share of those that a copy reads and writes.
        goal: what is wanted of it, in words; None if nothing.
        met: whether that was reached.
    """

    kernel: str
    case: str
    same_bits: bool | None
    error: float
    ours: float
    eager: float
    compiled: float | None = None
    of_copy: float | None = None
    goal: str | None = None
    met: bool | None = None

    @property
    def right(self) -> bool:
        """Whether its results are what they must be."""
        return self.same_bits is not False and self.error < NEAR


class Timer:
    """Seconds of calls: on a GPU those that kernels run, whatever launching them takes; else those on the clock."""

    def __init__(self, device: str, rounds: int) -> None:
        self._device, self._rounds = device, rounds

    def seconds(self, run: Run, *, only: str = "") -> float:
        """Return the time of a call, on a GPU of kernels with `only` in their name; a few go untimed before."""
        for _ in range(3):
            run()
        if self._device == "cpu":
            return min(self._clocked(run) for _ in range(self._rounds))
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(self._rounds):
                run()
            torch.cuda.synchronize()
        microseconds = sum(event.self_device_time_total for event in seen.key_averages() if only in event.key)
        return microseconds / 1e6 / self._rounds

    @staticmethod
    def _clocked(run: Run) -> float:
        begun = time.perf_counter()
        run()
        return time.perf_counter() - begun


def equal(found: Sequence[torch.Tensor], twin: Sequence[torch.Tensor]) -> bool:
    """Return whether both have the same bits, any NaN being like another."""
    pairs = zip((each.cpu() for each in found), twin, strict=True)
    return all(torch.equal(a.nan_to_num(nan=-7.0), b.nan_to_num(nan=-7.0)) for a, b in pairs)


def farthest(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """Return the largest distance, relative to 1 + what it should be."""
    pairs = zip((each.cpu().double() for each in found), exact, strict=True)
    return max(float(((a - b).abs() / (1 + b.abs())).max()) for a, b in pairs)


def check_logits(device: str, timer: Timer, *, quick: bool, compiles: bool) -> Iterator[Row]:
    """Yield what entropy, varentropy and log-probability of the target take, by vocabulary and type."""
    for vocabulary in VOCABULARIES:
        for name, dtype in DTYPES.items():
            tokens = max(CHECKED, (LOGITS >> (6 if device == "cpu" else 0) >> (6 if quick else 0)) // vocabulary)
            torch.manual_seed(vocabulary)
            logits = (torch.randn(tokens, vocabulary, device=device) * 4).to(dtype)
            logits[0, ::2], logits[1], logits[2, 7] = -torch.inf, logits[1] + 1e4, 200
            targets = torch.randint(1, vocabulary // 2, (tokens,), device=device) * 2 - 1
            few, here = logits[:CHECKED].cpu(), targets[:CHECKED].cpu()
            found = token_signals(logits[:CHECKED], targets[:CHECKED])
            ours = timer.seconds(lambda x=logits, t=targets: token_signals(x, t))
            room = torch.empty_like(logits)
            copy = timer.seconds(lambda x=logits, to=room: to.copy_(x))
            of_copy = (logits.nbytes / ours) / (2 * logits.nbytes / copy)
            on_gpu = device != "cpu"
            yield Row(
                kernel="logits",
                case=f"V={vocabulary} {name}",
                same_bits=equal(found, token_signals(few, here)) if on_gpu else None,
                error=farthest(found, signals_in_double(few, here)),
                ours=ours,
                eager=timer.seconds(lambda x=logits, t=targets: by_torch(x, t, None)),
                compiled=timer.seconds(compiled(logits_at_once, logits, targets)) if compiles else None,
                of_copy=of_copy if on_gpu else None,
                goal=f"{GOALS['copy']:.0%} of a copy" if on_gpu else None,
                met=of_copy >= GOALS["copy"] if on_gpu else None,
            )


def signals_in_double(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return entropy, varentropy and log-probability in float64."""
    return logits_at_once(logits.double(), targets)


def logits_at_once(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the same as `token_signals` in the fewest of torch's operations."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_p = logits.log_softmax(dim=-1)
    p = log_p.exp()
    surprise = torch.where(p > 0, log_p, 0)
    entropy = -(p * surprise).sum(dim=-1)
    varentropy = (p * (surprise + entropy[:, None]).square()).sum(dim=-1)
    return entropy, varentropy, log_p.gather(1, targets[:, None])[:, 0]


def compiled(function: Callable[..., object], *given: torch.Tensor) -> Run:
    """Return a call of a function as torch compiles it for these arguments."""
    torch.compiler.reset()
    made = torch.compile(function, dynamic=False)
    return lambda: made(*given)


def check_tally(device: str, timer: Timer, *, quick: bool, compiles: bool) -> Iterator[Row]:
    """Yield what sums per source take."""
    for k in (8, 1024):
        rows, width = (64 if quick or device == "cpu" else 1024), 2048
        torch.manual_seed(k)
        source = torch.randint(0, k, (rows,), dtype=torch.int32, device=device)
        values = torch.rand(rows, width, device=device) * 12
        found = tally_values(source, values, k=k)
        twin = tally_values(source.cpu(), values.cpu(), k=k)
        exact = torch.zeros(k, dtype=torch.float64).index_add_(0, source.cpu().long(), values.cpu().double().sum(dim=1))
        ids = source.long()

        def by_atomics(source: torch.Tensor = ids, values: torch.Tensor = values, k: int = k) -> torch.Tensor:
            return torch.zeros(k, device=values.device).index_add_(0, source, values.sum(dim=1))

        yield Row(
            kernel="tally",
            case=f"{rows} x {width} values, K={k}",
            same_bits=equal(found, twin) and equal(found, tally_by_torch(source.cpu(), values.cpu(), None, k)),
            error=farthest(found[1:], [exact]),
            ours=timer.seconds(lambda s=source, v=values, k=k: tally_values(s, v, k=k)),
            eager=timer.seconds(by_atomics),
            compiled=timer.seconds(compiled(by_atomics)) if compiles else None,
        )


def check_bandit(device: str, timer: Timer, *, compiles: bool) -> Iterator[Row]:
    """Yield what an update of the weights takes, by rule and number of sources."""
    for k in SOURCES:
        for rule in RULES:
            here, there = make_bandit(rule, k), make_bandit(rule, k, device=device)
            random = np.random.default_rng(k)
            alike = True
            for _ in range(20):
                scores = random.uniform(0, 12, k)
                alike &= there.update(scores).tobytes() == here.update(scores).tobytes()
            given: Any = torch.from_numpy(scores).to(device) if device != "cpu" else scores
            seconds = timer.seconds(lambda b=there, s=given: b.queue(s), only="update_kernel")
            tensors = [torch.from_numpy(scores).to(device), torch.zeros(k, dtype=torch.float64, device=device)]
            tensors.append(torch.full_like(tensors[1], 1 / k))
            by_hand = exp3_by_torch(*tensors)[1].cpu().numpy()
            fresh = make_bandit("exp3", k, device=device).update(scores)
            yield Row(
                kernel="bandit",
                case=f"{rule}, K={k}",
                same_bits=alike if device != "cpu" else None,
                error=float(np.abs(k * (fresh - by_hand)).max()),
                ours=seconds,
                eager=timer.seconds(lambda t=tensors: exp3_by_torch(*t)),
                compiled=timer.seconds(compiled(exp3_by_torch, *tensors)) if compiles else None,
                goal=f"{GOALS['bandit'] * 1e6:.0f} us" if device != "cpu" else None,
                met=seconds <= GOALS["bandit"] if device != "cpu" else None,
            )


def exp3_by_torch(scores: torch.Tensor, logs: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log weights and probabilities after an update of EXP3, in torch's operations."""
    logs = logs + 0.3 * scores / p / len(p)
    return logs, 0.9 * logs.softmax(dim=0) + 0.1 / len(p)


def printed(rows: Sequence[Row]) -> str:
    """Return the rows as one table."""
    heads = ("kernel", "case", "bits", "error", "ours us", "eager", "compiled", "of a copy", "goal")
    bits = {True: "same", False: "OTHER", None: "-"}
    lines = [
        (
            row.kernel, row.case, bits[row.same_bits], f"{row.error:.0e}", f"{row.ours * 1e6:,.1f}",
            f"{row.eager / row.ours:,.1f}x", "-" if row.compiled is None else f"{row.compiled / row.ours:,.1f}x",
            "-" if row.of_copy is None else f"{row.of_copy:.0%}",
            "-" if row.goal is None else f"{row.goal}: {'met' if row.met else 'MISSED'}",
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *lines)
    )


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="check the CPU's kernels, also where there is a GPU")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    parser.add_argument("--enforce-goals", action="store_true", help="exit with 1 if a goal is missed")
    return parser.parse_args(arguments)


def checked(device: str, timer: Timer, quick: bool, compiles: bool) -> list[Row]:  # noqa: FBT001
    """Return the rows of all kernels."""
    return [
        *check_logits(device, timer, quick=quick, compiles=compiles),
        *check_tally(device, timer, quick=quick, compiles=compiles),
        *check_bandit(device, timer, compiles=compiles),
    ]


def main(arguments: Sequence[str]) -> int:
    """Check all kernels, print one table, and return the exit code."""
    options = parsed(arguments)
    warnings.simplefilter("ignore", LowEntropyWarning)  # the scores here are of nothing
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    if device == "cpu":
        print("no GPU is used: the CPU's kernels are checked; no goal is set for them here")
    print(f"{name}; torch {torch.__version__}, CUDA {torch.version.cuda}")
    timer, compiles = Timer(device, 3 if options.quick else 20), not options.no_compile
    rows = checked(device, timer, options.quick, compiles)
    print(printed(rows))
    wrong, missed = [row for row in rows if not row.right], [row for row in rows if row.met is False]
    if options.json is not None:
        document = {
            "device": name,
            "torch": torch.__version__,
            "right": not wrong,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for row in wrong:
        print(f"{row.kernel}, {row.case}: results must be the CPU's and float64's, but are not", file=sys.stderr)
    return 1 if wrong or (missed and options.enforce_goals) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
