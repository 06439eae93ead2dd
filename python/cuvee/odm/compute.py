"""The reward of one batch, or of what a run has logged, for loops that mix their data by themselves."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import as_int, as_weight
from ..errors import CuveeError, StateError
from ..rewards import Reward, SequenceEntropies, as_reward, sequence_entropies
from ..rewards.entropy import ENTROPY_PART, VARENTROPY_PART
from ..rewards.evaluation import combine, learnability_share, relative_drop
from ..rewards.training import inverse_norm

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Batch = Mapping[str, Any]
    History = Sequence[Mapping[str, Any]]

UNSEEN = 1e-100  # of a category of which nothing is known yet: no reward, and yet one that has a logarithm
MOST_CATEGORIES = 2**31
SUMMED = frozenset({Reward.ENTROPY, Reward.ENTROPY3_VARENT1, Reward.ENTROPY_LAST_TOKEN})


def compute_reward(
    model: Any,
    batch: Batch | None,
    *,
    reward_type: Reward | str,
    state: MutableMapping[str, Any] | None = None,
    vocab_size: int | None = None,
    train_loss_history: History | None = None,
    eval_loss_history: History | None = None,
    gradnorm_history: History | None = None,
    last_sampled_category: int | None = None,
    total_categories: int | None = None,
    current_category: int | None = None,
    zero_shot_batch: Batch | None = None,
    few_shot_batch: Batch | None = None,
    train_step: int | None = None,
    total_steps: int | None = None,
    beta: float = 1.0,
) -> float:
    """Return the reward of a category.

    The rewards in `SUMMED` are sums over the batch's sequences of values in [0, 1]. The others are one value for the
    category, however many sequences the batch has. What is not finite counts as not measured.

    The model is put into evaluation mode for the time of the call; where it and the batch lie is the caller's concern.

    Args:
        model: a causal model as transformers has them.
        batch: what the model takes, of the current category; for rewards of a history it may be None.
        reward_type: a member of `Reward` or its name.
        state: a dict that the caller keeps between calls, and in checkpoints (it holds JSON values); None remembers
            nothing: every category but the one last sampled is unseen then, and velocity always 0.
        vocab_size: the vocabulary's size for entropies; None for the model's own.
        train_loss_history: log entries in order; the last one with `loss` is the last sampled category's.
        eval_loss_history: the same of the current category, with `eval_loss`, or if none has it with `loss`.
        gradnorm_history: log entries in order; the last one with `grad_norm` is the last sampled category's.
        last_sampled_category: the category trained on last.
        total_categories: number of categories.
        current_category: the category to reward. These three may be left out together if there is only one.
        zero_shot_batch: sequences of the current category with labels, for learnability.
        few_shot_batch: the same sequences with examples before them.
        train_step: optimizer steps made, for `Reward.COMBINED`.
        total_steps: optimizer steps to make; None or 0 if unknown, which leaves learnability alone.
        beta: how fast learnability gives way to velocity, at least 0.

    Raises:
        CuveeError: if an argument that the reward needs is missing or wrong; `state` has not changed then.
        StateError: if `state` is not of these categories.
    """
    asked = _Request(
        model=model,
        batch=batch,
        reward=as_reward(reward_type),
        state=state,
        vocab_size=vocab_size,
        train_loss_history=train_loss_history,
        eval_loss_history=eval_loss_history,
        gradnorm_history=gradnorm_history,
        last_sampled_category=last_sampled_category,
        total_categories=total_categories,
        current_category=current_category,
        zero_shot_batch=zero_shot_batch,
        few_shot_batch=few_shot_batch,
        train_step=train_step,
        total_steps=total_steps,
        beta=beta,
    )
    return _COMPUTE[asked.reward](asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The arguments of one call."""

    model: Any
    batch: Batch | None
    reward: Reward
    state: MutableMapping[str, Any] | None
    vocab_size: int | None
    train_loss_history: History | None
    eval_loss_history: History | None
    gradnorm_history: History | None
    last_sampled_category: int | None
    total_categories: int | None
    current_category: int | None
    zero_shot_batch: Batch | None
    few_shot_batch: Batch | None
    train_step: int | None
    total_steps: int | None
    beta: float

    @property
    def total(self) -> int | None:
        """The number of categories, None if it was not given."""
        if self.total_categories is None:
            return None
        return as_int(self.total_categories, "total_categories", 1, MOST_CATEGORIES, CuveeError)

    def category(self, name: str) -> int:
        """Return the argument of that name, the number of a category."""
        given = (self.total_categories, self.current_category, self.last_sampled_category)
        if all(value is None for value in given):
            return 0  # the only one there is
        total = MOST_CATEGORIES if self.total is None else self.total
        return as_int(getattr(self, name), name, 0, total, CuveeError)


def _entropy(asked: _Request) -> float:
    return _sum(_batch_entropies(asked).entropy)


def _entropy_varentropy(asked: _Request) -> float:
    found = _batch_entropies(asked)
    return _sum(ENTROPY_PART * found.entropy + VARENTROPY_PART * found.varentropy)


def _last_token_entropy(asked: _Request) -> float:
    return _sum(_batch_entropies(asked).last)


def _train_loss(asked: _Request) -> float:
    loss = _last_of(asked.train_loss_history, "train_loss_history", ("loss",))
    return _told(asked, "last_sampled_category", loss)


def _validation_loss(asked: _Request) -> float:
    loss = _last_of(asked.eval_loss_history, "eval_loss_history", ("eval_loss", "loss"))
    return _told(asked, "current_category", loss)


def _gradnorm(asked: _Request) -> float:
    norm = _last_of(asked.gradnorm_history, "gradnorm_history", ("grad_norm",))
    return _told(asked, "last_sampled_category", _one(inverse_norm, norm))


def _learnability(asked: _Request) -> float:
    few, zero = (_loss(asked, name) for name in ("few_shot_batch", "zero_shot_batch"))
    return _finite(_one(relative_drop, few, zero))


def _velocity(asked: _Request) -> float:
    memory, category = _Memory(asked), asked.category("current_category")
    now = _loss(asked, "batch")
    before = memory.get(category)
    memory.set(category, now)
    return 0.0 if before is None else _finite(_one(relative_drop, now, before))


def _combined(asked: _Request) -> float:
    beta = as_weight(asked.beta, "beta", CuveeError)
    steps = [
        None if value is None else as_int(value, name, 0, 2**63, CuveeError)
        for name, value in (("train_step", asked.train_step), ("total_steps", asked.total_steps))
    ]
    share = learnability_share(beta, *steps, name="train_step")
    learnability = _learnability(asked)  # first: it raises before velocity remembers a loss
    return _one(combine, share, learnability, _velocity(asked))


_COMPUTE: Mapping[Reward, Callable[[_Request], float]] = {
    Reward.ENTROPY: _entropy,
    Reward.ENTROPY3_VARENT1: _entropy_varentropy,
    Reward.ENTROPY_LAST_TOKEN: _last_token_entropy,
    Reward.TRAIN_LOSS: _train_loss,
    Reward.VALIDATION_LOSS: _validation_loss,
    Reward.GRADNORM: _gradnorm,
    Reward.LEARNABILITY: _learnability,
    Reward.VELOCITY: _velocity,
    Reward.COMBINED: _combined,
}


class _Memory:
    """One number per category, in a list of the caller's `state` under the reward's name."""

    def __init__(self, asked: _Request) -> None:
        self._state: MutableMapping[str, Any] = {} if asked.state is None else asked.state
        if not isinstance(self._state, MutableMapping):
            raise StateError(
                f"state must be a dict that you keep between calls, but got {type(self._state).__name__}; what a "
                "trainer logged goes in the arguments that end in _history"
            )
        self._key = str(asked.reward)
        self._total = asked.total
        values = self._state.get(self._key, [])
        fits = isinstance(values, list) and (self._total is None or len(values) <= self._total)
        if not fits or any(value is not None and type(value) not in (int, float) for value in values):
            size = "" if self._total is None else f"at most {self._total} "
            raise StateError(
                f"state[{self._key!r}] must be a list of {size}numbers or None, but got {reprlib.repr(values)}"
            )
        self._values: list[float | None] = values

    def get(self, category: int) -> float | None:
        """Return the category's number, None if there is none yet."""
        return self._values[category] if category < len(self._values) else None

    def set(self, category: int, value: float) -> None:
        """Remember a number of the category; one that is not finite is forgotten at once."""
        if math.isfinite(value):
            missing = max(category + 1, self._total or 0) - len(self._values)
            self._values = [*self._values, *[None] * missing]
            self._values[category] = value
            self._state[self._key] = self._values


def _told(asked: _Request, owner: str, value: float) -> float:
    """Return the current category's value, after the category named by the argument `owner` was given `value`."""
    memory = _Memory(asked)
    current = asked.category("current_category")
    memory.set(asked.category(owner), value)
    known = memory.get(current)
    return UNSEEN if known is None else known


def _last_of(history: History | None, name: str, keys: Sequence[str]) -> float:
    """Return the last number in a history under the first of `keys` that it has at all."""
    wanted = " or ".join(repr(key) for key in keys)
    if isinstance(history, Mapping | str) or not isinstance(history, Sequence):
        raise CuveeError(f"{name} must be a list of mappings with {wanted}, but got {reprlib.repr(history)}")
    for key in keys:
        for entry in reversed(history):
            if isinstance(entry, Mapping) and key in entry:
                return _number(entry[key], f"{key} in {name}")
    raise CuveeError(
        f"{name} must have an entry with {wanted}, but got {len(history)} without; log one before rewards are due"
    )


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise CuveeError(f"{name} must be a number, but got {value!r}") from None


def _loss(asked: _Request, name: str) -> float:
    """Return the model's mean loss on the batch in the argument of that name."""
    loss = _output(asked, name, "loss")
    if loss is None:
        raise CuveeError(
            f"{name} must hold labels, so that the model returns a loss, but got {sorted(_batch(asked, name))}"
        )
    return _number(loss.detach().double() if hasattr(loss, "detach") else loss, "the model's loss")


def _batch_entropies(asked: _Request) -> SequenceEntropies:
    batch = _batch(asked, "batch")
    logits: Tensor | None = _output(asked, "batch", "logits")
    if logits is None:
        raise CuveeError(f"model must return logits for {asked.reward.name}, but {type(asked.model).__name__} does not")
    return sequence_entropies(logits, batch.get("attention_mask"), vocab_size=asked.vocab_size)


def _batch(asked: _Request, name: str) -> Batch:
    batch = getattr(asked, name)
    if not isinstance(batch, Mapping):
        raise CuveeError(f"{name} must be a mapping of tensors for {asked.reward.name}, but got {reprlib.repr(batch)}")
    return batch


def _output(asked: _Request, name: str, part: str) -> Any:
    """Return a part of what the model gives for the batch in the argument of that name; None if it lacks it."""
    import torch

    batch = _batch(asked, name)
    with evaluating(asked.model), torch.no_grad():  # not inference_mode: a model may keep what it computes for later
        outputs = asked.model(**batch)
    return outputs.get(part) if isinstance(outputs, Mapping) else getattr(outputs, part, None)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode, and each of its modules back into the mode it had."""
    training = [module for module in model.modules() if module.training] if hasattr(model, "modules") else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _sum(values: Tensor) -> float:
    return float(values.double().nan_to_num(nan=0.0).sum())


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _one(formula: Callable[..., NDArray[np.float64]], *values: float) -> float:
    """Return what a formula for arrays gives for single numbers."""
    return float(formula(*(np.array([value]) for value in values))[0])
