"""A mixture in transformers' Trainer and what derives from it: its order, losses, accounts, and checkpoints."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # noqa: TID253  (whoever imports this module trains)
from accelerate.utils import send_to_device  # noqa: TID253
from torch.utils.data import DataLoader  # noqa: TID253
from transformers import Trainer, TrainerCallback  # noqa: TID253
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, RemoveColumnsCollator, get_last_checkpoint  # noqa: TID253

from ..cache import write_atomically
from ..dataset import META, PADDING, MixedDataset
from ..errors import PlanError, StateError
from ..losses import MASKED, CausalLoss, ForwardLosses, target_counts
from ..mix_run import MixRun, Standing
from ..online.mixer import GRADNORM
from ..online.run import OnlineRun
from ..online.setup import ENTROPIES, Online
from ..online.signals import ForwardEntropies, gradient_norm
from ..run_log import RunLog
from ..steps import StepSampler

if TYPE_CHECKING:
    from ..mixture import Mixture

STATE_FILE = "dataset_mix_state.json"
DRAWS = "cuvee_draws"  # of a batch: source, row and cycle of each of its rows
REARRANGING = ("packing", "padding_free", "shuffle_dataset")  # arguments of trainers that prepare rows, as TRL's do
RESTARTING = "auto_find_batch_size"  # changes the rows of a step in the middle of a run
MOST_LOGGED = 32  # sources whose shares and losses stand in the Trainer's own logs


class MixtureCollator:
    """Collates rows as another collator does, and keeps beside them what was drawn.

    Args:
        collator: makes a batch of rows that lack `__cuvee_meta__`.
        names: the sources' names, as `mixture.names`.
        masks: whether labels of a batch of padding are masked: so that they do not count where a loss is divided by
            the number of targets in a step.
    """

    def __init__(
        self, collator: Callable[[list[Any]], Mapping[str, Any]], names: Iterable[str], *, masks: bool = True
    ) -> None:
        self._collator = collator
        self._masks = masks
        self._ids = {name: source for source, name in enumerate(names)}

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch with `DRAWS`, int64 of shape (n, 3): of the rows that are no padding, if there are any.

        Raises:
            PlanError: if the collator runs rows together, so that nothing of a batch can be told apart by source.
        """
        rows = [row for row in rows if row[META]["cycle"] != PADDING] or rows
        metas = [row.pop(META) for row in rows]
        draws = torch.tensor([[self._ids[meta["source"]], meta["source_index"], meta["cycle"]] for meta in metas])
        batch = dict(self._collator(rows))
        labels = batch.get("labels")
        if isinstance(labels, torch.Tensor):
            if len(labels) != len(draws):
                raise PlanError(
                    f"labels must have one row for each of {len(draws)} rows, but got shape {tuple(labels.shape)}; use "
                    "a collator that pads rows instead of running them together"
                )
            if self._masks and not labels.is_floating_point():
                labels[draws[:, 2] == PADDING] = MASKED
        return {**batch, DRAWS: draws}


if TYPE_CHECKING:
    TrainerBase = Trainer
else:
    TrainerBase = object  # put before a class derived from Trainer, the mixin needs no base of its own


class MixtureTrainerMixin(TrainerBase):
    """Makes a class derived from transformers' Trainer train on a mixture, in the order of its plan.

    Put it first: `class MixtureSFTTrainer(MixtureTrainerMixin, SFTTrainer)`. An optimizer step takes the next
    `per_device_train_batch_size * gradient_accumulation_steps * ranks` rows of the order, so it is the same at any
    number of ranks if that product is. Resuming from a checkpoint goes on with the very next row.

    A Trainer's epoch is as many steps as the plan's first epoch has. Shares and losses per source are added to what the
    Trainer logs; `trainer.mix.ledger` counts what this rank trained on, its `reduced()` what all did.

    Args:
        args: as the Trainer's, which follow.
        mixture: its sources must hold data.
        train_dataset: rows to train on in place of the sources' own: all of theirs end to end, for a trainer to
            prepare. It must keep their number and order.
        mix_log_dir: folder for the events and plan files that `cuvee report` reads; None writes none.
        accept_changes: names of sources that may have changed since the checkpoint, as in `Plan.load_state_dict`.
        online: how the weights learn while the model trains; None leaves them as they are. Journal and record of the
            updates go to `mix_log_dir`, for `cuvee replay`.
        kwargs: as the Trainer's.

    Attributes:
        mix: the run's accounts, once training has begun.

    Raises:
        SourceError: if `train_dataset` has, or was left by the trainer with, another number of rows than the sources.
        StateError: on resuming, if the checkpoint is of another mixture or of steps of another size.
        PlanError: if the trainer's arguments would change number or order of the rows; while training, if what arrives
            is not what the plan says.
    """

    mix: MixRun
    model: Any

    def __init__(
        self,
        *args: Any,
        mixture: Mixture,
        train_dataset: Any = None,
        mix_log_dir: str | Path | None = None,
        accept_changes: Iterable[str] = (),
        online: Online | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_other_rows(kwargs.get("args", args[1] if len(args) > 1 else None))
        MixedDataset(mixture, data=train_dataset)  # says what is wrong with them before they are prepared
        reward = None if online is None else online.parts(mixture)[1]  # says what is wrong before anything is loaded
        super().__init__(*args, **{**kwargs, "train_dataset": train_dataset})
        self.mixture = mixture
        self._mix_online = online
        self._mix_dataset = MixedDataset(mixture, data=self.mix_rows())
        self._mix_log_dir = mix_log_dir
        self._mix_accepted = tuple(accept_changes)
        self._mix_checkpoint: Path | None = None
        self._mix_losses = self._row_losses()
        unsure = reward is not None and not ENTROPIES.isdisjoint(reward.needs)
        self._mix_entropies = ForwardEntropies(self.model) if unsure else None
        self.add_callback(MixCallback(self))

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,  # noqa: FBT001  (the Trainer's)
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Train as the Trainer does; a checkpoint to resume from must hold the mixture's state.

        Raises:
            StateError: if it does not.
        """
        checkpoint = resume_from_checkpoint or None
        if checkpoint is True:
            checkpoint = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
            if checkpoint is None:
                raise StateError(f"output_dir must hold a checkpoint to resume from, but got {self.args.output_dir!r}")
        if checkpoint and self.args.ignore_data_skip:
            raise StateError(
                "ignore_data_skip must be False to resume within a mixture, but got True; skipping takes no time here"
            )
        self._mix_checkpoint = Path(checkpoint) if checkpoint else None
        return super().train(checkpoint, *args, **kwargs)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this rank's micro-batches, in the order of the plan from where the run stands."""
        args = self.args
        rows = self.get_total_train_batch_size(args)
        ranks = rows // (args.train_batch_size * args.gradient_accumulation_steps)  # that train on different rows
        alike = self.accelerator.num_processes // ranks  # neighbouring processes that share a model, and so their rows
        rank, first = divmod(self.accelerator.process_index, alike)
        steps = StepSampler(
            self.mixture.plan(), rows=rows, rank=rank, world_size=ranks, micro_batches=args.gradient_accumulation_steps
        )
        loader = DataLoader(
            self._mix_dataset,
            batch_sampler=steps,
            collate_fn=MixtureCollator(self._mix_collator(), self.mixture.names, masks=self._counts_targets()),
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
        )
        counts = first == 0
        log = None
        if self._mix_log_dir is not None:
            log = RunLog(self._mix_log_dir, rank=self.accelerator.process_index, names=self.mixture.names)
        checkpoint = self._mix_checkpoint
        state = None if checkpoint is None else read_state(checkpoint)
        online = self._online_run(steps, loader, state)
        self.mix = MixRun(steps, log=log, counts=counts, loader=loader, online=online)
        if checkpoint is not None and state is not None:
            journal = None if online is None else online.journal_beside(checkpoint)
            self.mix.load_state_dict(state, journal=journal, accept_changes=self._mix_accepted)
        return loader

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """Train on a micro-batch that is what the plan says, and count it."""
        mix = self.mix
        draws = inputs.pop(DRAWS).numpy()  # still on the host: nothing here waits for a device
        mix.arrived(draws)
        if (draws[:, 2] == PADDING).all():
            loss = self._padding_step(model, inputs, *args, **kwargs)
        else:
            tokens = self._targets(inputs, len(draws))
            loss = super().training_step(model, inputs, *args, **kwargs)
            signals = {} if self._mix_entropies is None else self._mix_entropies.take()
            mix.trained(draws, tokens, None if self._mix_losses is None else self._mix_losses.take(), **signals)
        if mix.online is not None and mix.online.needs(frozenset({GRADNORM})) and self.accelerator.sync_gradients:
            mix.online.gradnorm = gradient_norm(model, self.accelerator.scaler)
        return loss

    def _padding_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Go through a micro-batch that only fills up a short step, in step with other ranks; nothing is learnt."""
        model.train()
        with self.compute_loss_context_manager():
            moved = send_to_device(inputs, self.args.device)
            loss: Any = self.compute_loss(model, moved, num_items_in_batch=num_items_in_batch)
        self.accelerator.backward(loss * 0.0)
        for measured in (self._mix_losses, self._mix_entropies):
            if measured is not None:
                measured.take()
        nothing: torch.Tensor = loss.detach() * 0.0
        return nothing

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log as the Trainer does, with the shares and losses of the sources beside its training loss."""
        if "loss" in logs:
            now = self.mix.progress(logs)
            logs = {**logs, **logged(now)}
            self.mix_standing(now, logs)
        super().log(logs, *args, **kwargs)

    def mix_rows(self) -> Any:
        """Return what to read rows from: `train_dataset` as the trainer prepared it; None for the sources' own data."""
        return self.train_dataset

    def mix_standing(self, now: Standing, logs: Mapping[str, float]) -> None:
        """Take note of where the run stands, whenever the Trainer logs; for those who derive from this class."""

    def mix_facts(self) -> dict[str, Any]:
        """Return what to keep of the run beside its mixture, as JSON values by name."""
        config = getattr(self.model, "config", None)
        return {"model": getattr(config, "name_or_path", None) or None, "steps": self.state.max_steps}

    def max_steps_reached(self) -> int | None:
        """Return the limit on steps that ended the run, None if it went through its epochs."""
        limit = self.args.max_steps
        return limit if 0 < limit <= self.state.global_step else None

    def _counts_targets(self) -> bool:
        """Return whether the loss is divided by the number of targets in a step, which the Trainer counts."""
        return bool(self.model_accepts_loss_kwargs or self.compute_loss_func is not None)

    def _targets(self, inputs: Mapping[str, Any], rows: int) -> np.ndarray:
        labels = inputs.get("labels")
        if not isinstance(labels, torch.Tensor) or labels.is_floating_point():
            return np.zeros(rows, dtype=np.int64)
        counts: np.ndarray = target_counts(labels, shifted=self._shifts).numpy()
        return counts

    @property
    def _shifts(self) -> bool:
        """Whether the model predicts each label from the position before it."""
        return not getattr(getattr(self.model, "config", None), "is_encoder_decoder", False)

    def _online_run(
        self, steps: StepSampler, loader: DataLoader[Any], state: Mapping[str, Any] | None
    ) -> OnlineRun | None:
        """Return what moves the weights."""
        if self._mix_online is None:
            return None
        fetched = -(-loader.num_workers * (loader.prefetch_factor or 0) // steps.micro_batches)
        folder = None if self._mix_log_dir is None else Path(self._mix_log_dir)
        kept = None if state is None else state.get("online")
        return OnlineRun(self._mix_online, steps, folder=folder, fetched=fetched, kept=kept)

    def _row_losses(self) -> CausalLoss | ForwardLosses | None:
        """Return what measures each row's loss: the loss itself where the Trainer lets it be given, else a hook."""
        standard = type(self).compute_loss is Trainer.compute_loss
        if not standard or not self._is_causal():
            return ForwardLosses(self.model, shifted=self._shifts)
        loss = CausalLoss(self.compute_loss_func)
        self.compute_loss_func = loss
        return loss

    def _is_causal(self) -> bool:
        """Return whether the model's loss is the cross entropy of the next token and nothing else."""
        config = getattr(self.model, "config", None)
        plain = not getattr(config, "output_router_logits", False) and self.label_smoother is None
        can_generate = hasattr(self.model, "can_generate") and self.model.can_generate()
        return bool(plain and can_generate and self._shifts and not self.args.use_liger_kernel)

    def _mix_collator(self) -> Callable[[list[Any]], Mapping[str, Any]]:
        """Return the Trainer's collator, behind one that drops columns the model does not take, if it would."""
        if not self.args.remove_unused_columns or self.train_dataset is not None:
            return self.data_collator
        taken = [*inspect.signature(self.model.forward).parameters, "label", "label_ids", *self.label_names]
        return RemoveColumnsCollator(self.data_collator, taken)


class MixtureTrainer(MixtureTrainerMixin, Trainer):
    """transformers' Trainer over a mixture; see `MixtureTrainerMixin`."""


class MixCallback(TrainerCallback):
    """Tells a mixture's run of the Trainer's steps, and keeps its state in the Trainer's checkpoints."""

    def __init__(self, trainer: MixtureTrainerMixin) -> None:
        self._trainer = trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin the run's record."""
        trainer, mix = self._trainer, self._trainer.mix
        state = trainer.state
        if mix.steps.step != state.global_step:
            raise StateError(
                f"checkpoint's steps must be {mix.steps.step}, as in its {STATE_FILE}, but got {state.global_step}"
            )
        mix.steps.last = state.max_steps  # the Trainer itself asks only after a step whether it was the last
        checkpoint = trainer._mix_checkpoint  # noqa: SLF001  (one class in two, as callbacks demand)
        mix.start(None if checkpoint is None else checkpoint.name, **trainer.mix_facts())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Count the step, and have the last one logged."""
        self._trainer.mix.stepped(total_steps=state.max_steps)
        control.should_log |= state.global_step >= state.max_steps

    def on_save(self, *_: Any, **__: Any) -> None:
        """Write the run's state into the checkpoint just written, as its last file."""
        trainer = self._trainer
        mix_state = trainer.mix.state_dict()
        if trainer.state.is_world_process_zero:
            folder = Path(str(trainer.args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
            write_atomically(folder / STATE_FILE, json.dumps(mix_state).encode())

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the run's record."""
        trainer = self._trainer
        trainer.mix.finish({}, max_steps=trainer.max_steps_reached())


def refuse_other_rows(config: object) -> None:
    """Raise if a trainer's arguments would have it change number or order of the rows that it prepares.

    Raises:
        PlanError: naming the argument.
    """
    if getattr(config, RESTARTING, False):
        raise PlanError(
            f"{RESTARTING} must be False to train on a mixture, but got True; a step has as many rows from the first on"
        )
    for name in REARRANGING:
        if getattr(config, name, False):
            raise PlanError(
                f"{name} must be False to train on a mixture, but got {getattr(config, name)!r}; its plan needs every "
                "row by itself and in its place"
            )


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the mixture's state in a checkpoint of the Trainer.

    Raises:
        StateError: if there is none, or it cannot be read.
    """
    path = checkpoint / STATE_FILE
    try:
        state = json.loads(path.read_bytes(), parse_constant=_no_number)
    except (OSError, ValueError) as error:
        raise StateError(
            f"checkpoint must hold {STATE_FILE}, written when it was complete, but got {str(checkpoint)!r} ({error})"
        ) from None
    if not isinstance(state, dict):
        raise StateError(f"{str(path)!r} must hold a JSON object, but got {type(state).__name__}")
    return state


def _no_number(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def logged(now: Standing) -> dict[str, float]:
    """Return what is known of the sources under names that TensorBoard and others group; at most `MOST_LOGGED`."""
    logs: dict[str, float] = dict(now.rates)
    rows, tokens = now.ledger.shares("trained").tolist(), now.ledger.shares("tokens").tolist()
    largest = sorted(range(len(rows)), key=lambda source: (-rows[source], source))[:MOST_LOGGED]
    for source in sorted(largest):
        name = now.ledger.names[source]
        logs[f"mix/row_share/{name}"] = rows[source]
        logs[f"mix/token_share/{name}"] = tokens[source]
        loss = now.losses[name]
        if loss is not None:
            logs[f"mix/loss/{name}"] = loss
        if now.weights is not None:
            logs[f"mix/weight/{name}"] = now.weights[name]
    return logs
