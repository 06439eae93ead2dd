"""`cuvee train`: trains a model on a mixture."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .inputs import ManifestArgument
from .output import working


@dataclass(frozen=True, slots=True)
class Shown:
    """How `--help` shows an option.

    Args:
        value: what stands for its value; "" for a flag.
        help: what it does.
        default: the value it has if it is not given.
    """

    value: str
    help: str
    default: str = ""


GROUPS: Mapping[str, Mapping[str, Shown]] = {
    "Data, in one of these ways": {
        "dataset_mix_config": Shown("PATH", "The same as MANIFEST."),
        "dataset_source": Shown("NAME=PATH:WEIGHT", "Inline mixture: a source; repeat it, at least twice."),
        "dataset_path": Shown("PATH", "A single dataset, without a mixture."),
    },
    "About the data": {
        "dataset_mix_seed": Shown("N", "Inline mixture: seed of the order.", "42"),
        "dataset_mix_exhaustion": Shown(
            "POLICY", "Inline mixture: when a source is used up, stop, cycle or renormalize.", "cycle"
        ),
        "dataset_mix_samples_per_epoch": Shown(
            "N", "Inline mixture: rows per epoch under cycle, or all_seen.", "the sum of rows"
        ),
        "dataset_loader_fn": Shown("FILE.py[:FUNCTION]", "Function that makes rows of each source."),
        "num_workers": Shown("N", "Processes that read rows ahead, for each training process.", "0"),
    },
    "Limits; longer rows are skipped, never cut": {
        "max_length": Shown("N", "Most tokens of a row, prompt and response together.", "what the model can read"),
        "max_prompt_tokens": Shown("N", "Most tokens of a prompt."),
        "max_new_tokens": Shown("N", "Most tokens of a response."),
    },
    "Model": {
        "algo": Shown("ALGO", "What to train for: sft, supervised fine-tuning.", "sft"),
        "ckpt": Shown("MODEL", "A folder, a name on the hub, or tiny: a small model to try things with.", "tiny"),
        "model_hub": Shown("HUB", "Where names are looked up: hf, modelscope, or local for no network.", "hf"),
        "seed": Shown("N", "Seed of the model and of training.", "42"),
    },
    "Steps": {
        "batch_size": Shown("N", "Rows of an optimizer step, over all processes.", "32"),
        "mini_bs": Shown("N", "Rows of a forward pass on each process.", "all of its part of the step"),
        "epochs": Shown("N", "Epochs of the plan.", "1"),
        "max_steps": Shown("N", "Optimizer steps to end after, if the epochs have more."),
        "lr": Shown("X", "Highest learning rate.", "0.001 for tiny, else 2e-05"),
        "lr_schedule": Shown("NAME", "How it falls after the warm-up: linear, cosine or constant.", "linear"),
        "warmup_steps": Shown("N", "Steps in which it rises from 0.", "0"),
        "weight_decay": Shown("X", "Weight decay of AdamW.", "0"),
    },
    "Online mixing: weights that learn": {
        "online": Shown(
            "NAME[:OPTION=X,...]",
            "How weights follow from rewards: learning_speed, exp3, exp3_bounded, odm, doremi, ado or fixed.",
        ),
        "reward": Shown(
            "NAME[:OPTION=X,...]",
            "What a source is worth: train_loss, entropy, gradnorm, velocity:loss=train, ...",
            "train_loss",
        ),
        "update_interval": Shown("N", "Steps between updates.", "10"),
        "lag": Shown("N", "Steps between an update and its effect.", "what workers read ahead, and one more"),
    },
    "Machine": {
        "world_size": Shown("N", "Processes in all; leave it out under torchrun.", "1"),
        "tp_size": Shown("N", "Processes that share one copy of the model (tensor parallel).", "1"),
        "bf16": Shown("", "Compute in bfloat16.", "no"),
        "gradient_checkpointing": Shown("", "Recompute activations, to save memory.", "no"),
        "deterministic": Shown("", "The same bits in every repeat, at some cost in speed.", "no"),
    },
    "Run": {
        "output_dir": Shown("RUN", "Folder of the run.", "runs/DATE_TIME"),
        "metrics_log_dir": Shown("PATH", "Folder of its metrics and plans.", "RUN"),
        "resume": Shown("CHECKPOINT", "Go on from this folder, or from the latest in RUN: latest."),
        "accept_changes": Shown("NAME", "Go on although this source changed since the checkpoint; repeatable."),
        "save_steps": Shown("N", "Steps between checkpoints; the last step has one too.", "500"),
        "save_total_limit": Shown("N", "Checkpoints to keep, the newest.", "all"),
        "logging_steps": Shown("N", "Steps between reports.", "10"),
        "tensorboard": Shown("", "Write the metrics for TensorBoard too.", "no"),
    },
}

ConfigFileOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="YAML file of options, such as a run's run.yaml; what is given here goes before it.",
        show_default=False,
    ),
]


REPEATED = ("dataset_source", "accept_changes")


class GroupedCommand(TyperCommand):
    """A command whose help shows its options in the groups of `GROUPS`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, each group of options under its title, and the options of no group."""
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        sections = {"Arguments": ["manifest"]} | {title: list(options) for title, options in GROUPS.items()}
        grouped = {name for names in sections.values() for name in names}
        sections["Other options"] = [name for name in records if name not in grouped]
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([records[name] for name in names])


def _parameter(name: str, shown: Shown) -> inspect.Parameter:
    """Return the parameter of the command that takes an option as the text that was typed."""
    option = name.replace("_", "-")
    default = f"  [default: {shown.default}]" if shown.default else ""
    declared = typer.Option(
        f"--{option}" if shown.value else f"--{option}/--no-{option}",
        metavar=shown.value or None,
        help=shown.help + default,
        show_default=False,
    )
    kind: Any = bool if not shown.value else list[str] if name in REPEATED else str
    annotation = Annotated[kind | None, declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of its `**given`, a parameter for each option of `GROUPS`."""
    signature = inspect.signature(command, eval_str=True)
    named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    options = [_parameter(name, shown) for group in GROUPS.values() for name, shown in group.items()]
    command.__signature__ = inspect.Signature([*named, *options])  # type: ignore[attr-defined]
    return command


@_with_options
def train(manifest: ManifestArgument = None, *, config: ConfigFileOption = None, **given: Any) -> None:
    """Train a model on a mixture of datasets, each row where the plan has it.

    Example: cuvee train mix.json --ckpt tiny --max-steps 200
    """
    from cuvee.train.reading import read_settings

    settings = read_settings(given, manifest=manifest, config=config)
    from cuvee.train import open_data, train  # here, so that a wrong option is told before torch is loaded

    with working("Opening sources"):
        data = open_data(settings)
    train(settings, data)
