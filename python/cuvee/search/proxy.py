"""Proxy runs: tiny language models trained on mixtures of domains, all that is not the mixture being the same.

Two runs with one seed start from the same weights, read each domain's text in the same order, turn shares into domains
by the same numbers, and are measured on the same held-out text: what differs in their losses is the mixture's doing.
Nothing is drawn from a generator of the process.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..checks import as_choice, as_flag, as_int, as_weight, nearest
from ..errors import MixtureError
from .domains import MOST_SEEDS, Domain, checked_domains, windows_of
from .proxy_reads import UNITS, Stream, Unit, checked_mixtures, unit_of
from .repetition import Repetition

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

    from .proxy_model import Models, Shape, State

F64 = NDArray[np.float64]
EVALUATION_SEED = 999_000
MOST_STEPS = 2**31
MOST_SIZE = 2**20
MOST_LR = 1e6  # beyond any use, and still a float of 32 bits
KEPT_BYTES = 1 << 28  # of models that a `Proxy` keeps so that their runs can go on, and of text of each kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """The model of a proxy run, and how it is trained and measured.

    Args:
        batch_size: windows a step.
        d_model: width of the model, divisible by `n_head`.
        n_layer: layers.
        n_head: heads of attention.
        block: tokens of a window.
        lr: learning rate of Adam, the same all along, so that a run cut short is the beginning of a longer one.
        eval_tokens: held-out tokens of each domain, rounded up to whole windows.
        eval_seed: what held-out text is drawn from.
        unit: what domains take turns in, "tokens" or "windows"; None: tokens, and windows where a domain is of texts.
        target_tokens: of the run that the mixture is for; texts are then thinned, so that proxy runs repeat each of
            them as often as that run does. None: they are whole.

    Raises:
        MixtureError: naming the setting that is out of its range.
    """

    batch_size: int = 16
    d_model: int = 16
    n_layer: int = 1
    n_head: int = 2
    block: int = 8
    lr: float = 3e-3
    eval_tokens: int = 512
    eval_seed: int = EVALUATION_SEED
    unit: Unit | None = None
    target_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "d_model", "n_layer", "n_head", "block", "eval_tokens"):
            as_int(getattr(self, name), name, 0 if name == "n_layer" else 1, MOST_SIZE, MixtureError)
        as_int(self.eval_seed, "eval_seed", 0, MOST_SEEDS, MixtureError)
        if self.unit is not None:
            as_choice(self.unit, "unit", UNITS, MixtureError)
        if self.target_tokens is not None:
            as_int(self.target_tokens, "target_tokens", 1, MOST_SEEDS, MixtureError)
        if not 0 < as_weight(self.lr, "lr", MixtureError) <= MOST_LR:
            raise MixtureError(f"lr must be above 0 and at most {MOST_LR:g}, but got {self.lr!r}")
        if self.d_model % self.n_head:
            raise MixtureError(f"d_model must be divisible by n_head, which is {self.n_head}, but got {self.d_model}")

    @property
    def eval_windows(self) -> int:
        """Held-out windows of each domain."""
        return -(-self.eval_tokens // self.block)

    def shape(self, vocab: int) -> Shape:
        """Return the model's shape."""
        from .proxy_model import Shape

        return Shape(vocab=vocab, block=self.block, d_model=self.d_model, n_layer=self.n_layer, n_head=self.n_head)


class Proxy:
    """Makes proxy runs of mixtures of some domains; a score for a search.

    Runs are trained many at a time on one thread, which costs a fraction of one after the other and gives the same
    losses; more processes use more cores. A run that was made with a part of the steps and is asked for again with more
    of them goes on from where it was.

    Args:
        domains: at least two, with unique names and one vocabulary.
        steps: optimizer steps of a whole run.
        settings: those of `ProxySettings`.

    Raises:
        MixtureError: naming the argument that is wrong.
    """

    def __init__(self, domains: Iterable[Domain], steps: int, **settings: Any) -> None:
        self.domains = checked_domains(domains)
        self.steps = as_int(steps, "proxy_steps", 1, MOST_STEPS, MixtureError)
        self.settings = checked_settings(settings)
        self.names = tuple(domain.name for domain in self.domains)
        self.repetition = self._repetition()
        if self.repetition is not None:
            self.domains = self.repetition.thinned(self.domains)
        self._shape = self.settings.shape(self.domains[0].vocab)
        self.trained_steps = 0  # of all runs together
        self._streams: OrderedDict[int, Stream] = OrderedDict()
        self._held_outs: OrderedDict[int, Tensor] = OrderedDict()
        self._kept: OrderedDict[tuple[int, bytes], State] = OrderedDict()

    def _repetition(self) -> Repetition | None:
        size = self.settings
        if size.target_tokens is None:
            return None
        return Repetition(
            steps=self.steps, batch_size=size.batch_size, block=size.block, target_tokens=size.target_tokens
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What should be known of its runs, one sentence each."""
        return () if self.repetition is None else self.repetition.remarks(self.domains)

    def __call__(self, weights: Mapping[str, float], budget: float = 1.0, seed: int = 0) -> dict[str, float]:
        """Return the held-out loss of one mixture by domain, in nats.

        Args:
            weights: share of each domain by name; scaled to sum 1.
            budget: part of the steps to train, in (0, 1].
            seed: of weights and of training text.
        """
        if not isinstance(weights, Mapping):
            raise MixtureError(f"weights must be a mapping of domains to shares, but got {weights!r:.200}")
        if weights.keys() != set(self.names):
            raise MixtureError(f"weights must name the domains {list(self.names)}, but got {list(weights)}")
        return self.many([[weights[name] for name in self.names]], budget, seed)[0]

    def many(self, weights: ArrayLike, budget: float = 1.0, seed: int = 0) -> list[dict[str, float]]:
        """Return what `__call__` does for M mixtures, weights of shape (M, K)."""
        losses = self.evaluate(weights, fidelity=budget, training_seed=seed)
        return [dict(zip(self.names, row.tolist(), strict=True)) for row in losses]

    def evaluate(
        self,
        weights: ArrayLike,
        *,
        fidelity: float = 1.0,
        training_seed: int = 0,
        evaluation_seed: int | None = None,
    ) -> F64:
        """Return the held-out losses of mixtures in nats, float64 of shape (M, K).

        Args:
            weights: M mixtures, shape (M, K), at least 0; scaled to sum 1.
            fidelity: part of the steps to train, in (0, 1]; rounded up to whole steps.
            training_seed: of weights and of training text.
            evaluation_seed: of held-out text; None is that of the settings.

        Raises:
            MixtureError: naming the argument that is wrong.
        """
        mixtures = checked_mixtures(weights, len(self.domains))
        seed = as_int(training_seed, "seed", 0, MOST_SEEDS, MixtureError)
        if evaluation_seed is None:
            evaluation_seed = self.settings.eval_seed
        evaluation_seed = as_int(evaluation_seed, "eval_seed", 0, MOST_SEEDS, MixtureError)
        steps = self._steps_of(fidelity)
        unique, where = np.unique(mixtures, axis=0, return_inverse=True)
        losses = np.empty(unique.shape)
        with _torch_as_always():
            for group in self._groups(unique, seed, steps):
                models = self._trained(unique[group], seed, steps)
                found = models.losses(self._held_out(evaluation_seed))
                losses[group] = found.double().view(*losses[group].shape, -1).mean(2).numpy()
        return losses[where.reshape(-1)]

    def _steps_of(self, fidelity: float) -> int:
        part = as_weight(fidelity, "budget", MixtureError)
        if not 0 < part <= 1:
            raise MixtureError(f"budget must be in (0, 1], a part of the run, but got {fidelity!r}")
        return math.ceil(part * self.steps - 1e-9)

    def _groups(self, mixtures: F64, seed: int, steps: int) -> Iterator[list[int]]:
        """Yield which mixtures to train together: those with as many steps behind them, a bounded number."""
        most = self._shape.models_at_once(self.settings.batch_size)
        by_updates: dict[int, list[int]] = {}
        for number, mixture in enumerate(mixtures):
            state = self._kept.get((seed, mixture.tobytes()))
            updates = state.updates if state is not None and state.updates <= steps else 0
            by_updates.setdefault(updates, []).append(number)
        for numbers in by_updates.values():
            yield from (numbers[first : first + most] for first in range(0, len(numbers), most))

    def _trained(self, mixtures: F64, seed: int, steps: int) -> Models:
        """Return models after `steps` steps, and keep what is needed to go on with them."""
        import torch

        from .proxy_model import Models

        keys = [(seed, mixture.tobytes()) for mixture in mixtures]
        begun = [state for key in keys if (state := self._kept.get(key)) is not None and state.updates <= steps]
        models = Models(self._shape, begun or [self._shape.start(seed)] * len(keys))
        self.trained_steps += len(keys) * (steps - models.updates)
        for windows in self._stream(seed).batches(mixtures, models.updates, steps):
            models.train(torch.from_numpy(windows), lr=self.settings.lr)
        for key, state in zip(keys, models.states(), strict=True):
            _keep(self._kept, key, state, most=max(1, KEPT_BYTES // state.nbytes))
        return models

    def _stream(self, seed: int) -> Stream:
        """Return what training reads."""
        if seed not in self._streams:
            size, unit = self.settings, self.settings.unit or unit_of(self.domains)
            stream = Stream.of(
                self.domains, self.steps, batch_size=size.batch_size, block=size.block, unit=unit, seed=seed
            )
            _keep(self._streams, seed, stream, most=max(1, KEPT_BYTES // stream.nbytes))
        return self._streams[seed]

    def _held_out(self, seed: int) -> Tensor:
        """Return held-out windows, those of each domain after those of the one before: (K windows, block + 1)."""
        import torch

        if seed not in self._held_outs:
            count, length = self.settings.eval_windows, self.settings.block + 1
            windows = [windows_of(domain, count, length, seed=seed, held_out=True) for domain in self.domains]
            text = torch.from_numpy(np.concatenate(windows))
            _keep(self._held_outs, seed, text, most=max(1, KEPT_BYTES // text.nbytes))
        return self._held_outs[seed]


@contextmanager
def _torch_as_always() -> Iterator[None]:
    """Let torch work on one CPU thread in float32, whatever the process has it do, so that losses are the same.

    So small a model gains little by more threads, and the last bits depend on how many there are.
    """
    import torch

    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)


Key = TypeVar("Key")
Value = TypeVar("Value")


def _keep(kept: OrderedDict[Key, Value], key: Key, value: Value, *, most: int) -> None:
    """Keep a value under a key, and drop what was kept longest ago."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def proxy_run_scores(
    mixtures: ArrayLike, domains: Iterable[Domain], proxy_steps: int, *, seed: int = 0, **settings: Any
) -> F64:
    """Make many proxy runs at once; return held-out losses in nats, float64 of shape (M, K).

    Args:
        mixtures: M mixtures, shape (M, K), at least 0; scaled to sum 1.
        domains: K domains, with unique names and one vocabulary.
        proxy_steps: optimizer steps.
        seed: of weights and of training text.
        settings: those of `ProxySettings`.

    Raises:
        MixtureError: naming the argument that is wrong.
    """
    return Proxy(domains, proxy_steps, **settings).evaluate(mixtures, training_seed=seed)


def proxy_run_score(
    mixture_weights: ArrayLike,
    domains: Iterable[Domain],
    proxy_steps: int,
    *,
    batch_size: int = 16,
    d_model: int = 16,
    n_layer: int = 1,
    n_head: int = 2,
    block: int = 8,
    lr: float = 3e-3,
    eval_tokens: int = 512,
    seed: int = 0,
    eval_seed: int = EVALUATION_SEED,
    return_detail: bool = False,
) -> float | tuple[float, dict[str, float]]:
    """Train a tiny language model on a mixture; return the mean over the domains of its held-out loss, in nats.

    The same arguments give the same loss, bit for bit on one machine, whatever other runs are made with it.

    Args:
        mixture_weights: K shares, at least 0; scaled to sum 1.
        domains: K domains, with unique names and one vocabulary.
        proxy_steps: optimizer steps.
        batch_size: windows a step.
        d_model: width of the model.
        n_layer: its layers.
        n_head: its heads of attention.
        block: tokens of a window.
        lr: learning rate.
        eval_tokens: held-out tokens of each domain.
        seed: of weights and of training text.
        eval_seed: of held-out text, and of nothing else.
        return_detail: return (loss, loss by domain) instead.

    Raises:
        MixtureError: naming the argument that is wrong.
    """
    given, detailed = checked_domains(domains), as_flag(return_detail, "return_detail", MixtureError)
    checked_mixtures(mixture_weights, len(given), "mixture_weights", single=True)
    losses = proxy_run_scores(
        np.atleast_2d(mixture_weights),
        given,
        proxy_steps,
        batch_size=batch_size,
        d_model=d_model,
        n_layer=n_layer,
        n_head=n_head,
        block=block,
        lr=lr,
        eval_tokens=eval_tokens,
        seed=seed,
        eval_seed=eval_seed,
    )[0]
    loss = float(losses.mean())
    return (loss, dict(zip((domain.name for domain in given), losses.tolist(), strict=True))) if detailed else loss


def checked_settings(settings: Mapping[str, Any]) -> ProxySettings:
    """Return settings of proxy runs by name.

    Raises:
        MixtureError: naming one that there is not, or that is out of its range.
    """
    known = [field.name for field in fields(ProxySettings)]
    for name in settings:
        if name not in known:
            raise MixtureError(f"proxy settings must be of {known}, but got {name!r}{nearest(name, known)}")
    return ProxySettings(**settings)
