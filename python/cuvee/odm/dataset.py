"""A torch dataset whose mix learns while a model trains: online mixing over plan, reward and bandit."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info  # noqa: TID253  (whoever imports this module trains)

from ..bandits import EXP3
from ..categorize import AutoCategorizeConfig, as_config
from ..checks import as_int
from ..errors import CuveeError, StateError
from ..ranks import gathered, place
from ..rewards import Reward, make_reward
from .categories import by_category, categories_of, with_evaluation
from .choices import Choices
from .collate import training_row
from .history import read_state
from .loaders import LoaderState, asked_by, device_of, rows_held
from .log import OdmLog, rank_in_environment
from .packing import reason_of
from .report import FROM_EXAMPLES, Signals, measured, refuse_silence, total

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F64 = NDArray[np.float64]

STATE_VERSION = 1
MOST = 2**62
LOGGED = 1024  # rows after which their counts are logged, if no update comes before


class OnlineMixingDataset(IterableDataset[dict[str, Any]]):
    """Rows of several categories, endlessly, in proportions that follow rewards of the model.

    The order is that of a plan: proportions are met at every moment, each row of a category comes once before one comes
    again, and a state goes on exactly. An update moves the weights by EXP3 on rewards as they are:

        est = (reward / count) / p,   w <- w * exp(eta * est / K),   p = (1 - gamma) * w / sum(w) + gamma / K

    and takes effect at most 64 rows later, or with the next choice where `sampling_interval` is 64 or more.

    It is read in the training process: a DataLoader needs num_workers=0. Under several ranks every rank calls
    `update_sampling_weights`; evaluation batches are dealt to the ranks.

    Args:
        dataset_dict: map-style datasets by category; a single one is put into categories by its texts.
        collators_dict: by category what makes a batch of rows; None or {} stacks tensors. One is enough for automatic
            categories.
        eval_dataset_dict: evaluation rows by category, for rewards that are measured on them; a single dataset goes
            into the automatic categories of the training rows.
        eval_collators_dict: as `collators_dict`.
        sampling_weights: weights to begin with by category; None for equal ones.
        gamma: share of the uniform distribution, 0..1.
        eta: learning rate, over 0.
        sampling_interval: rows of one category in a row.
        eval_batch_size: evaluation rows of a forward pass.
        output_dir: where `odm.jsonl` is written.
        reward_type: a member of `Reward`, its name, or the name of a registered reward.
        auto_categorize_config: how a single dataset is put into categories.
        seed: of the order and the categories; None for 42.
        templated_eval_dataset_dict: the evaluation rows with examples before them, for LEARNABILITY and COMBINED.
        templated_eval_collators_dict: as `collators_dict`.
        beta: of COMBINED.

    Attributes:
        category_list: names of the categories, sorted; an index of a category is one into this.
        total_categories: their number.
        produced: rows handed out so far.
        choices: the plan underneath.
        bandit: what moves the weights.
        reward: what scores the categories.

    Raises:
        CuveeError: naming the argument and the category that is wrong; nothing was embedded or read then where that
            could be known before.
    """

    def __init__(  # noqa: PLR0917  (the order is the contract's)
        self,
        dataset_dict: Any,
        collators_dict: Mapping[str, Any] | None,
        eval_dataset_dict: Any,
        eval_collators_dict: Mapping[str, Any] | None,
        sampling_weights: Mapping[str, float] | None = None,
        gamma: float = 0.1,
        eta: float = 0.3,
        sampling_interval: int = 1,
        eval_batch_size: int = 5,
        output_dir: str | os.PathLike[str] = "odm",
        reward_type: Reward | str = Reward.ENTROPY,
        auto_categorize_config: Mapping[str, Any] | AutoCategorizeConfig | None = None,
        seed: int | None = 42,
        templated_eval_dataset_dict: Any = None,
        templated_eval_collators_dict: Mapping[str, Any] | None = None,
        beta: float = 1.0,
    ) -> None:
        super().__init__()
        self.sampling_interval = as_int(sampling_interval, "sampling_interval", 1, 2**31, CuveeError)
        self.eval_batch_size = as_int(eval_batch_size, "eval_batch_size", 1, 2**31, CuveeError)
        self.seed = 42 if seed is None else as_int(seed, "seed", 0, 2**63, CuveeError)
        self.reward_type = _known_reward(reward_type)
        templated = (templated_eval_dataset_dict, templated_eval_collators_dict)
        self._options = {"beta": beta} if self.reward_type == Reward.COMBINED else {}
        if FROM_EXAMPLES & set(make_reward(self.reward_type, 1, **self._options).needs) and None in templated:
            raise CuveeError(
                "templated_eval_dataset_dict and templated_eval_collators_dict must both be given for reward "
                f"{self.reward_type.upper()}, but got {' and '.join(type(each).__name__ for each in templated)}"
            )
        EXP3(1, eta=eta, gamma=gamma, normalize="none")  # wrong settings show before anything is embedded
        categories, fit = categories_of(
            dataset_dict, collators_dict, config=as_config(auto_categorize_config), seed=self.seed
        )
        self._categories = with_evaluation(categories, fit, (eval_dataset_dict, eval_collators_dict), templated)
        self.category_list = [category.name for category in self._categories]
        self.total_categories = len(self.category_list)
        self.reward = make_reward(self.reward_type, self.total_categories, **self._options)
        self.bandit = EXP3(self._initial(sampling_weights), eta=eta, gamma=gamma, normalize="none")
        self.choices = Choices(
            [category.source for category in self._categories],
            self.bandit.probabilities,
            seed=self.seed,
            interval=self.sampling_interval,
        )
        self.produced = 0
        self._ready: deque[tuple[int, Any]] = deque()  # category and row of the places that come next
        self._reads = False  # whether this process has read rows
        self._held = 0  # the most rows that a loader was found to hold back
        self._seen: list[Any] = []  # of the trainer's log, at the last update
        self._logged = 0  # rows in the log
        self._log = OdmLog(output_dir, rank=place()[0] or rank_in_environment())

    # --- what it is

    @property
    def dataset_dict(self) -> dict[str, Any]:
        """The training rows by category."""
        return {category.name: category.data for category in self._categories}

    @property
    def collators_dict(self) -> dict[str, Any]:
        """The collators by category, None where tensors are stacked."""
        return {category.name: category.collator for category in self._categories}

    @property
    def arm_idx(self) -> int:
        """The category of the row handed out last; 0 before the first."""
        return self.choices.category(self.produced - 1) if self.produced else 0

    @property
    def sampling_ratio(self) -> list[float]:
        """The probabilities in force or to come with the next update's place, by category."""
        ratio: list[float] = self.bandit.probabilities.tolist()
        return ratio

    @property
    def sampling_weights(self) -> list[float]:
        """EXP3's weights by category, scaled to the sum 1; they are kept as logarithms."""
        logs = np.array(self.bandit.state_dict()["log_weights"])
        weights = np.exp(logs - logs.max())
        shares: list[float] = (weights / weights.sum()).tolist()
        return shares

    @property
    def curr_cat_count(self) -> list[int]:
        """Rows handed out by category."""
        counts: list[int] = self.choices.counts(self.produced).tolist()
        return counts

    @property
    def log(self) -> dict[str, Any]:
        """The line of `odm.jsonl` written last."""
        return dict(self._log.last)

    # --- rows

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Any]:
        if not self._ready:
            self._fetch()
        number, row = self._ready[0]
        category = self._categories[number]
        sample = training_row(category.collate([row]), category=category.name)
        self._ready.popleft()
        self.produced += 1
        return sample

    def _fetch(self) -> None:
        """Read the rows that come next, each category's at once, as many as no update can change."""
        if get_worker_info() is not None:
            raise CuveeError(
                "num_workers must be 0 for an OnlineMixingDataset, but it is read in a worker process, which no update "
                "of the weights reaches; tokenise beforehand, so that reading is fast"
            )
        if self.produced >= len(self.choices):
            raise StopIteration
        if self.produced - self._logged >= LOGGED:
            self._log_samples()
        numbers, rows = self.choices.block(self.produced)
        read: dict[int, deque[Any]] = {}
        for number in np.unique(numbers).tolist():
            read[number] = deque(self._categories[number].read(rows[numbers == number].tolist()))
        self._reads = True
        self._ready.extend((number, read[number].popleft()) for number in numbers.tolist())

    # --- updates

    def update_sampling_weights(self, model: Any, accelerator: Any = None, state: Any = None) -> None:
        """Reward the categories and move the weights; under several ranks every rank must call.

        Rewards that are measured take a forward pass per evaluation batch, in evaluation mode. The others are read off
        the trainer's log: the last loss or gradient norm belongs to the category of the row trained on last, so
        `sampling_interval` should be the rows of an optimizer step, and each step logged.

        Args:
            model: the model; where it is spread over ranks, each rank's part.
            accelerator: accelerate's, or None: then the device is the model's.
            state: with `log_history`, `global_step` and `max_steps`, as a Trainer's; None where the reward is measured.

        Raises:
            CuveeError: if nothing can be known: no evaluation rows and no log.
            StateError: if ranks have different plans.
        """
        logged = read_state(state, [category.aliases for category in self._categories], seen=self._seen)
        needs = frozenset(self.reward.needs)
        device = device_of(model, accelerator)
        parts = gathered(
            {
                "logged": logged,
                "sums": measured(
                    model, self._categories, needs, size=self.eval_batch_size, device=device, logged=logged
                ),
                "produced": self.produced,
                "held": rows_held(self),
                "plan": self.choices.plan.plan_hash,
            }
        )
        plans = {part["plan"] for part in parts}
        if len(plans) > 1:
            raise StateError(f"ranks must have the same plan, but got {sorted(plans)}; load the same state in each")
        logged = parts[0]["logged"]
        refuse_silence(state, logged, self._categories, needs, reward=self.reward_type)
        held = max(part["held"] for part in parts)
        self._go_to(max(part["produced"] for part in parts))  # where one rank reads for all, the others follow
        self._held = max(self._held, held)
        trained = self.produced - held
        signals = Signals(
            logged=logged,
            sums=total([part["sums"] for part in parts]),
            category=self.choices.category(trained - 1) if trained > 0 else None,
            categories=self.total_categories,
        )
        self.reward.observe(signals.report(needs))
        self._seen = logged.seen
        self._move(self.reward.scores(), signals.count(needs), trained)

    def _move(self, scores: F64, count: F64, trained: int) -> None:
        """Move the weights by scores, NaN of what is not known, and log them."""
        known = np.isfinite(scores)
        self._log_samples()
        if known.any():
            probabilities = self.bandit.update(scores)
            place_of_effect = max(self.produced, trained + self._held)
            self.choices.update(probabilities, place_of_effect, reason_of(self.bandit.updates))
        counts = np.where(known, np.maximum(count, 1), 0)
        self._write("update", rewards=np.where(known, scores * counts, 0.0).tolist(), count=counts.tolist())

    def _go_to(self, position: int) -> None:
        if position > self.produced:
            self.produced = position
            self._ready.clear()

    # --- state

    def state_dict(self, *, held: int | None = None) -> dict[str, Any]:
        """Return all that the rows to come depend on, as JSON values; it may be taken at any row.

        Args:
            held: rows handed out last that come again, because nobody trained on them. None: those that accelerate's
                loader holds back; a StatefulDataLoader, which asks by itself, has none.
        """
        if held is None and asked_by("torchdata"):
            state = self._state(self.produced)
            return LoaderState(state, self._state_trained) if asked_by("accelerate") else state
        held = rows_held(self) if held is None else as_int(held, "held", 0, self.produced + 1, CuveeError)
        return self._state(max(self.produced - held, 0))

    def _state_trained(self) -> dict[str, Any]:
        """Return the state as of the rows trained on, for a loader of accelerate that is saved now."""
        mine = (self.produced, rows_held(self))
        together = asked_by("accelerate.checkpointing")  # every rank writes the state, some into the same file
        parts = gathered(mine) if together else [mine]
        rank, _ = place()
        if rank and not together and not self._reads:
            raise CuveeError(
                f"state of an online mix must be saved by a rank that reads, but rank {rank} does not; call "
                "accelerator.save_state on every rank, or save on rank 0"
            )
        self._go_to(max(produced for produced, _ in parts))
        return self._state(max(self.produced - max(held for _, held in parts), 0))

    def _state(self, position: int) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "position": position,
            "categories": self.category_list,
            "sampling_interval": self.sampling_interval,
            "held": self._held,
            "seen": self._seen,
            "plan": self.choices.state_dict(position),
            "bandit": self.bandit.state_dict(),
            "reward": self.reward.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where a state was taken.

        Raises:
            StateError: if it is of other categories, other data or other settings; nothing has changed then.
        """
        state = state_dict
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
            raise StateError(f"state_dict must be from OnlineMixingDataset.state_dict, but got {state!r:.60}")
        for name, mine in (("categories", self.category_list), ("sampling_interval", self.sampling_interval)):
            if state.get(name) != mine:
                raise StateError(f"state {name} must be {mine!r}, as this dataset's, but got {state.get(name)!r}")
        position, held = (
            as_int(state.get(name), f"state {name}", 0, MOST, StateError) for name in ("position", "held")
        )
        missing = [name for name in ("bandit", "reward", "plan") if name not in state]
        if missing or not isinstance(state.get("seen"), list):
            raise StateError(f"state must have {', '.join(missing or ['seen, a list'])}, but got only {sorted(state)}")
        before = (self.bandit.state_dict(), self.reward.state_dict())
        try:
            self.bandit.load_state_dict(state["bandit"])
            self.reward.load_state_dict(state["reward"])
            self.choices.load_state_dict(state["plan"])
        except BaseException:
            self.bandit.load_state_dict(before[0])
            self.reward.load_state_dict(before[1])
            raise
        self._held, self._seen = held, list(state["seen"])
        self.produced = self._logged = position
        self._ready.clear()

    # --- the log

    def _log_samples(self) -> None:
        if self.produced > self._logged:
            self._write("sample")
            self._logged = self.produced

    def _write(self, action: str, **metrics: Any) -> None:
        zeros = [0.0] * self.total_categories
        self._log.write(
            **{
                "samples_produced_so_far": self.produced,
                "sampling_interval": self.sampling_interval,
                "total_categories": self.total_categories,
                "current_sampling_weights": self.sampling_weights,
                "current_sampling_ratio": self.sampling_ratio,
                "arm_idx": self.arm_idx,
                "category_level_counts_so_far": self.curr_cat_count,
                "rewards": self._log.last.get("rewards", zeros),
                "count": self._log.last.get("count", zeros),
                "action": action,
                **metrics,
            }
        )

    def _initial(self, weights: Mapping[str, float] | None) -> list[float] | int:
        if not weights:
            return self.total_categories
        given = by_category(weights, [category.aliases for category in self._categories], "sampling_weights")
        return [given[name] for name in self.category_list]


def _known_reward(value: Any) -> str:
    """Return a reward's name, as a member of `Reward` where it is one."""
    make_reward(value, 1)
    name = str(value).lower()
    return Reward(name) if name in set(Reward) else name
