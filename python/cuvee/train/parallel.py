"""Splits the layers of a model over processes (tensor parallelism), beside those that train on different rows.

A run of `world_size` processes is a grid: rows of `tp_size` neighbouring ranks hold one model together and train on the
same batch, and there are `world_size / tp_size` such groups, each with its own part of the batch. The weights are split
while they are loaded, by transformers' own plans; between the groups they are sharded too.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cuvee.errors import CuveeError

from .launch import rank_info
from .run_folder import SPLIT_FILE

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel, TrainerCallback

    from .model import Hub

HEADS = ("num_attention_heads", "num_key_value_heads")  # each rank computes whole heads
SPLITS_FROM = 5  # the first major release of transformers that does
SPLIT_OUTPUT = "colwise"  # the style of a layer whose outputs are dealt to the ranks


def trains_on_cpu() -> bool:
    """Return whether training runs on CPUs, because PyTorch sees no GPU."""
    import torch

    return not torch.cuda.is_available()


def check_parallel(
    world_size: int, tp_size: int, config: PreTrainedConfig | None = None, *, gpus: int | None = None
) -> None:
    """Check that a model can be trained by `world_size` processes, `tp_size` of them for each copy.

    Args:
        world_size: number of processes in all.
        tp_size: number of processes that hold one model together.
        config: the model's configuration; None checks the machine alone.
        gpus: how many GPUs this machine has, 0 for training on CPUs; None takes those PyTorch sees.

    Raises:
        CuveeError: naming the option that asks too much.
    """
    if world_size % tp_size:
        raise CuveeError(f"--tp-size must divide --world-size, which is {world_size}, but got {tp_size}")
    if tp_size > 1:
        _check_release(tp_size)
    if world_size > 1:
        _check_gpus(world_size, gpus)
    if config is not None and tp_size > 1:
        _check_plan(tp_size, config)


def training_arguments_for(world_size: int, tp_size: int, *, images: bool = False) -> dict[str, Any]:
    """Return what transformers' `TrainingArguments` must be given for a run of so many processes.

    Args:
        world_size: number of processes in all.
        tp_size: number of processes that hold one model together.
        images: whether rows have images, so that a batch without any leaves weights unused.
    """
    arguments: dict[str, Any] = {"use_cpu": trains_on_cpu(), "ddp_find_unused_parameters": images}
    if world_size > 1:
        arguments["average_tokens_across_devices"] = True
        if arguments["use_cpu"]:
            arguments["ddp_backend"] = "gloo"
    if tp_size > 1:
        arguments["save_only_model"] = True  # a Trainer cannot write the optimizer of a split model
    return arguments


def load_parallel_model(
    ckpt: str,
    hub: Hub = "hf",
    *,
    world_size: int,
    tp_size: int,
    dtype: torch.dtype | None = None,
    images: bool = False,
    seed: int = 42,
) -> PreTrainedModel:
    """Return the model of a checkpoint, in training mode; with `tp_size` > 1 this rank's part of it.

    Every rank of the run calls it, after `init_process_group`.

    Args:
        ckpt: "tiny", a folder, or a name on the hub.
        hub: which hub.
        world_size: number of processes in all.
        tp_size: number of processes that hold one model together.
        dtype: of the weights; None is float32.
        images: whether rows have images.
        seed: of the tiny model's weights.

    Raises:
        CuveeError: it cannot be loaded, or cannot be split so.
    """
    from .model import TINY, load_config, load_model

    if tp_size == 1:
        return load_model(ckpt, hub, dtype=dtype, images=images, seed=seed)
    check_parallel(world_size, tp_size, load_config(ckpt, hub))
    from transformers.distributed.configuration_utils import DistributedConfig

    from .split_state import accept_whole_weights

    if world_size > tp_size:
        _hush()
    split = DistributedConfig(tp_size=tp_size, fsdp_size=world_size // tp_size)
    if ckpt != TINY:
        model = load_model(ckpt, hub, dtype=dtype, images=images, distributed_config=split)
    else:
        whole = load_model(ckpt, dtype=dtype, seed=seed)
        model = type(whole).from_pretrained(
            None,
            config=whole.config,
            state_dict=dict(whole.named_parameters()),
            dtype=whole.dtype,
            distributed_config=split,
        )
    accept_whole_weights(model)
    return cast("PreTrainedModel", model.train())


def split_callbacks(tp_size: int, resume: Path | None) -> list[TrainerCallback]:
    """Return the callbacks by which a Trainer keeps the optimizer of a split model, or reads one so kept.

    Args:
        tp_size: number of processes that hold one model together.
        resume: the checkpoint that the run goes on from; None begins one.

    Raises:
        CuveeError: as `check_resume`.
    """
    check_resume(tp_size, resume)
    kept = resume is not None and (resume / SPLIT_FILE).is_file()
    if tp_size == 1 and not kept:
        return []
    from .split_state import SplitState

    return [SplitState(writes=tp_size > 1, resume=resume if kept else None)]


def check_resume(tp_size: int, resume: Path | None) -> None:
    """Check that a split model can go on from a checkpoint; one that is not split can from any.

    Args:
        tp_size: number of processes that hold one model together.
        resume: the checkpoint; None begins a run.

    Raises:
        CuveeError: if only a model that is not split can.
    """
    if tp_size > 1 and resume is not None and not (resume / SPLIT_FILE).is_file():
        raise CuveeError(
            f"--tp-size must be 1 to resume a run that had 1, but got {tp_size} for {str(resume)!r}, which has no "
            f"{SPLIT_FILE}; to begin a new run with its weights, pass it as --ckpt"
        )


class ParallelTrainerMixin:
    """Lets a `transformers.Trainer` train a model split over CPUs; on GPUs it changes nothing.

    Accelerate takes a tensor-parallel model for an error where there is no GPU, though it has nothing to do for one
    that was split while it was loaded. So on CPUs it is made without a look at the model.
    """

    args: Any
    model: Any

    def create_accelerator_and_postprocess(self) -> None:
        """Create the accelerator as the Trainer does."""
        model = self.model
        if self.args.use_cpu and getattr(model, "is_distributed_loading_by_transformers", False):
            self.model = None
        try:
            super().create_accelerator_and_postprocess()  # type: ignore[misc]
        finally:
            self.model = model


def _hush() -> None:
    """Leave out what torch tells its own developers about a model that is both split and sharded."""
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)  # which collectives it takes
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")  # no loss here changes its logits


def _check_gpus(world_size: int, gpus: int | None) -> None:
    if gpus is None:
        import torch

        gpus = torch.cuda.device_count()
    info = rank_info()
    here = info.local_world_size if info.world_size > 1 else world_size  # torchrun may spread over machines
    if 0 < gpus < here:
        raise CuveeError(
            f"--world-size must be at most {gpus}, the GPUs of this machine, but got {here}; "
            "set CUDA_VISIBLE_DEVICES= to train on CPUs"
        )


def _check_release(tp_size: int) -> None:
    """Check that transformers can load a model in parts that a Trainer can train."""
    import transformers

    if int(transformers.__version__.partition(".")[0]) < SPLITS_FROM:
        raise CuveeError(
            f"--tp-size must be 1 with transformers {transformers.__version__}, but got {tp_size}; transformers "
            f"{SPLITS_FROM} and newer can split models"
        )


def _check_plan(tp_size: int, config: PreTrainedConfig) -> None:
    text = config.get_text_config()
    plan = getattr(text, "base_model_tp_plan", None)
    if not plan:
        raise CuveeError(
            f"--tp-size must be 1 for models of type {text.model_type!r}, which transformers cannot split, but got "
            f"{tp_size}"
        )
    if not any(style == SPLIT_OUTPUT for style in plan.values()):
        return  # only experts are split
    for name in HEADS:
        heads = getattr(text, name, None)
        if isinstance(heads, int) and heads % tp_size:
            raise CuveeError(f"--tp-size must divide the model's {name}, which is {heads}, but got {tp_size}")
