"""Checkpoints of models split over processes: whole weights go in, and the optimizer is kept by parameter names.

A `transformers.Trainer` writes such a model's weights whole, but not its optimizer, and cannot read either back. What
is kept here can be read at any `tp_size` and `world_size`, 1 included.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253
from torch.distributed.tensor import DTensor, distribute_tensor  # noqa: TID253
from transformers import TrainerCallback  # noqa: TID253

from .run_folder import SPLIT_FILE

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import TrainerState, TrainingArguments

Kept = dict[str, dict[str, Any]]  # by name of the parameter, then of what the optimizer knows about it


class SplitState(TrainerCallback):
    """Writes the optimizer and the learning rate's place into each checkpoint, and reads them when a run goes on.

    Args:
        writes: whether checkpoints of this run are written; reading needs no split model.
        resume: the checkpoint to go on from, if it has such a state.
    """

    def __init__(self, *, writes: bool, resume: Path | None) -> None:
        self.writes = writes
        self.resume = resume

    def on_save(self, args: TrainingArguments, state: TrainerState, *_: Any, **parts: Any) -> None:
        """Write the state beside the weights; every rank takes part, rank 0 writes."""
        if not self.writes:
            return
        scheduler, writer = parts["lr_scheduler"], state.is_world_process_zero
        kept = {
            "optimizer": whole_optimizer(parts["model"], parts["optimizer"], keep=writer),
            "steps": scheduler.last_epoch,
            "rate": scheduler.get_last_lr()[0],
        }
        if writer:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            part = folder / f"{SPLIT_FILE}.part"
            torch.save(kept, part)
            part.rename(folder / SPLIT_FILE)

    def on_train_begin(self, *_: Any, **parts: Any) -> None:
        """Read the state of the checkpoint, once the optimizer is there."""
        if self.resume is None:
            return
        kept = torch.load(self.resume / SPLIT_FILE, map_location="cpu", weights_only=True, mmap=True)
        load_whole_optimizer(parts["model"], parts["optimizer"], kept["optimizer"])
        _go_to(parts["lr_scheduler"], kept["steps"], kept["rate"])


def accept_whole_weights(model: nn.Module) -> None:
    """Let `model.load_state_dict`, by which a Trainer resumes, take whole tensors for split parameters."""

    def split(module: nn.Module, state: dict[str, Any], *_: object) -> None:
        targets = dict(module.named_parameters(remove_duplicate=False))
        for name, tensor in state.items():
            if name in targets:
                state[name] = like(targets[name], tensor)

    model.register_load_state_dict_pre_hook(split)  # type: ignore[no-untyped-call]


def whole_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, *, keep: bool = True) -> Kept:
    """Return the optimizer's state by parameter name, of whole tensors on the CPU. All ranks must call it.

    Args:
        model: the model, split or whole.
        optimizer: its optimizer.
        keep: whether this rank wants the state; without, it only takes part and gets nothing.
    """
    kept: Kept = {}
    for name, parameter in model.named_parameters():
        if parameter in optimizer.state:
            whole = {key: _whole(value) for key, value in optimizer.state[parameter].items()}
            if keep:
                kept[name] = {
                    key: value.cpu() if isinstance(value, torch.Tensor) else value for key, value in whole.items()
                }
    return kept


def load_whole_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, kept: Kept) -> None:
    """Give each parameter what `whole_optimizer` returned for its name, split as the parameter is."""
    for name, parameter in model.named_parameters():
        if name in kept:
            optimizer.state[parameter] = {key: like(parameter, value) for key, value in kept[name].items()}


def like(parameter: Tensor, value: Any) -> Any:
    """Return a whole tensor of a parameter's shape split and placed as the parameter is; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.shape != parameter.shape or isinstance(value, DTensor):
        return value
    moved = value.to(parameter.device)
    if not isinstance(parameter, DTensor):
        return moved
    return distribute_tensor(moved, parameter.device_mesh, parameter.placements, src_data_rank=None)


def _whole(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _go_to(scheduler: Any, steps: int, rate: float) -> None:
    """Put a Trainer's schedule, which has one rate for all groups, where it was after `steps` steps."""
    groups = scheduler.optimizer.param_groups
    for group in groups:
        group["lr"] = rate
    scheduler.load_state_dict({**scheduler.state_dict(), "last_epoch": steps, "_last_lr": [rate] * len(groups)})
