"""What a training run is asked to do: every option of `cuvee train`, checked before any work begins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

from ..bandits import BANDITS, make_bandit
from ..errors import CuveeError
from ..manifest.outputs import same_place
from ..mixture import Exhaustion
from ..mixture.given import GivenMixture
from ..online.setup import Online
from ..rewards import make_reward, reward_names
from .launch import rank_info, ranks_to_launch
from .rules import Choice, Data, Flag, Loader, Named, Names, Number, Place, Rule, Sources, Text, Whole, with_options
from .run_folder import (
    LATEST,
    check_unused,
    check_writable,
    checkpoint_of,
    is_folder,
    new_run_folder,
    run_of,
)

TINY = "tiny"
TINY_LR, USUAL_LR = 1e-3, 2e-5
ALGORITHMS = tuple(name for name in BANDITS if name != "curriculum")  # a manifest's stages are one
REWARD, UPDATE_INTERVAL = "train_loss", 10
OF_THIS_RUN = ("output_dir", "metrics_log_dir", "resume", "accept_changes")  # where its files are, and how it goes on

Algo = Literal["sft"]
Hub = Literal["hf", "modelscope", "local"]
Schedule = Literal["linear", "cosine", "constant"]


def _running_processes() -> int:
    return rank_info().world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Every option of `cuvee train`; a field is called as its option, with "_" for "-".

    Exactly one of `dataset_mix_config`, `dataset_source` and `dataset_path` is given.

    Args:
        dataset_mix_config: path of a manifest.
        dataset_source: an inline mixture: at least two texts NAME=PATH:WEIGHT.
        dataset_mix_seed: only with `dataset_source`, like the next two: seed of the order; None is 42.
        dataset_mix_exhaustion: what happens when a source is used up; None is "cycle".
        dataset_mix_samples_per_epoch: rows in an epoch under "cycle", or "all_seen"; None is the sum of rows.
        dataset_path: path or Hub reference of a single dataset.
        dataset_loader_fn: FILE.py or FILE.py:FUNCTION, applied to each source.
        num_workers: processes that read rows ahead, for each training process.
        max_length: rows of more tokens, prompt and response together, are skipped.
        max_prompt_tokens: rows of more prompt tokens are skipped.
        max_new_tokens: rows of more response tokens are skipped.
        algo: what to train for.
        ckpt: the model to start from: "tiny", a folder, or a name on the hub.
        model_hub: where a model's name is looked up.
        seed: of the model, of training, and of the order of a single dataset.
        batch_size: rows of an optimizer step, over all processes.
        mini_bs: rows of a forward pass on each process; None is all of its part of the step.
        epochs: epochs of the plan.
        max_steps: optimizer steps after which the run ends if its epochs have more.
        lr: the highest learning rate; None is 1e-3 for "tiny", else 2e-5.
        lr_schedule: how the learning rate falls after the warm-up.
        warmup_steps: optimizer steps in which the learning rate rises from 0.
        weight_decay: of AdamW.
        online: how the weights of the sources learn while the model trains, a name in `cuvee.bandits.BANDITS`, perhaps
            with options: "exp3:eta=0.3,gamma=0.1"; None leaves them as they are.
        reward: what the weights go by, a name that `cuvee.rewards.make_reward` takes, perhaps with options; None is
            "train_loss". Only with `online`, like the next two.
        update_interval: optimizer steps between updates of the weights; None is 10.
        lag: optimizer steps between such a decision and its effect; None is what workers read ahead, and one more.
        world_size: processes in all; the default is as many as a launcher started, or 1.
        tp_size: processes that share one copy of the model.
        bf16: compute in bfloat16.
        gradient_checkpointing: recompute activations in the backward pass.
        deterministic: use only algorithms that give the same bits every time.
        output_dir: folder of the run; the default is a new one in `runs`, named after the time.
        metrics_log_dir: folder of its metrics and plan files; None is `output_dir`.
        resume: folder of the checkpoint to go on from; "latest" becomes that of the last one in `output_dir`.
        accept_changes: names of sources whose content may have changed since the checkpoint.
        save_steps: optimizer steps between two checkpoints.
        save_total_limit: checkpoints to keep; None is all.
        logging_steps: optimizer steps between two reports.
        tensorboard: write the metrics for TensorBoard too.

    Raises:
        ManifestError: the data are not given in exactly one way.
        CuveeError: a value is out of its range, or two contradict each other, or a folder cannot be used; says
            `--option must be RULE, but got VALUE`.
    """

    dataset_mix_config: Annotated[Path | None, Place("the path of a manifest")] = None
    dataset_source: Annotated[tuple[str, ...], Sources()] = ()
    dataset_mix_seed: Annotated[int | None, Whole(0, 2**63)] = None
    dataset_mix_exhaustion: Annotated[Exhaustion | None, Choice(get_args(Exhaustion))] = None
    dataset_mix_samples_per_epoch: Annotated[int | Literal["all_seen"] | None, Whole(1, 2**63, "all_seen")] = None
    dataset_path: Annotated[str | None, Data("the path or Hub reference of a dataset")] = None
    dataset_loader_fn: Annotated[str | None, Loader("FILE.py or FILE.py:FUNCTION")] = None
    num_workers: Annotated[int, Whole(0, 1025)] = 0

    max_length: Annotated[int | None, Whole(1)] = None
    max_prompt_tokens: Annotated[int | None, Whole(1)] = None
    max_new_tokens: Annotated[int | None, Whole(1)] = None

    algo: Annotated[Algo, Choice(get_args(Algo))] = "sft"
    ckpt: Annotated[str, Text("tiny, a folder or a name on the hub", (TINY,))] = TINY
    model_hub: Annotated[Hub, Choice(get_args(Hub))] = "hf"
    seed: Annotated[int, Whole(0, 2**32)] = 42

    batch_size: Annotated[int, Whole(1)] = 32
    mini_bs: Annotated[int | None, Whole(1)] = None
    epochs: Annotated[int, Whole(1)] = 1
    max_steps: Annotated[int | None, Whole(1)] = None
    lr: Annotated[float | None, Number()] = None
    lr_schedule: Annotated[Schedule, Choice(get_args(Schedule))] = "linear"
    warmup_steps: Annotated[int, Whole(0)] = 0
    weight_decay: Annotated[float, Number(zero=True)] = 0.0

    online: Annotated[str | None, Named(ALGORITHMS)] = None
    reward: Annotated[str | None, Named(tuple(reward_names()))] = None
    update_interval: Annotated[int | None, Whole(1)] = None
    lag: Annotated[int | None, Whole(1)] = None

    world_size: Annotated[int, Whole(1, 2**20)] = field(default_factory=_running_processes)
    tp_size: Annotated[int, Whole(1, 2**20)] = 1
    bf16: Annotated[bool, Flag()] = False
    gradient_checkpointing: Annotated[bool, Flag()] = False
    deterministic: Annotated[bool, Flag()] = False

    output_dir: Annotated[Path, Place("a folder")] = field(default_factory=new_run_folder)
    metrics_log_dir: Annotated[Path | None, Place("a folder")] = None
    resume: Annotated[str | None, Text("latest or the folder of a checkpoint", (LATEST,))] = None
    accept_changes: Annotated[tuple[str, ...], Names()] = ()
    save_steps: Annotated[int, Whole(1)] = 500
    save_total_limit: Annotated[int | None, Whole(1)] = None
    logging_steps: Annotated[int, Whole(1)] = 10
    tensorboard: Annotated[bool, Flag()] = False

    def __post_init__(self) -> None:
        rules = rules_of_settings()
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                object.__setattr__(self, each.name, rules[each.name].accepted(value, option_of(each.name)))
        self.given_data()
        _check_processes(self)
        _check_steps(self)
        _check_online(self)
        check_writable("--output-dir", self.output_dir)
        check_writable("--metrics-log-dir", self.metrics_folder)
        if self.resume is not None:
            object.__setattr__(self, "resume", str(checkpoint_of(self.resume, self.output_dir)))
        _check_folders(self)

    def given_data(self) -> GivenData:
        """Return the options that say what to train on."""
        return GivenData(
            config=self.dataset_mix_config,
            sources=self.dataset_source,
            seed=self.dataset_mix_seed,
            exhaustion=self.dataset_mix_exhaustion,
            samples_per_epoch=self.dataset_mix_samples_per_epoch,
            dataset_path=self.dataset_path,
        )

    @property
    def learning_rate(self) -> float:
        """The highest learning rate."""
        if self.lr is not None:
            return self.lr
        return TINY_LR if self.ckpt == TINY else USUAL_LR

    @property
    def learning(self) -> Online | None:
        """How the weights learn, if they do."""
        if self.online is None:
            return None
        algorithm, algorithm_options = with_options(self.online)
        reward, reward_options = with_options(self.reward or REWARD)
        return Online(
            algorithm=algorithm,
            reward=reward,
            algorithm_options=algorithm_options,
            reward_options=reward_options,
            update_interval=self.update_interval or UPDATE_INTERVAL,
            lag=self.lag,
        )

    @property
    def dp_size(self) -> int:
        """How many groups of processes train on different rows."""
        return self.world_size // self.tp_size

    @property
    def rows_per_rank(self) -> int:
        """Rows of an optimizer step that one of these groups trains on."""
        return self.batch_size // self.dp_size

    @property
    def micro_batches(self) -> int:
        """Forward passes of an optimizer step, on each process."""
        return self.rows_per_rank // (self.mini_bs or self.rows_per_rank)

    @property
    def metrics_folder(self) -> Path:
        """Where the run's events and plan files go."""
        return self.metrics_log_dir or self.output_dir

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the checkpoint to go on from; None for a new run."""
        return None if self.resume is None else Path(self.resume)

    def to_document(self) -> dict[str, Any]:
        """Return all that decides what the run does, as JSON values by option: with defaults, and with absolute paths.

        What is left out is where the run's files are, so that `cuvee train --config` repeats the run in a new folder.
        """
        here = Path.cwd()
        document: dict[str, Any] = {}
        for name, rule in rules_of_settings().items():
            value = self.learning_rate if name == "lr" else getattr(self, name)
            if name in OF_THIS_RUN or value is None or value == ():
                continue
            document[name.replace("_", "-")] = _plain(rule.anchored(value, here))
        return document

    def to_yaml(self) -> str:
        """Return `to_document` as the content of a file for `--config`."""
        import yaml

        text: str = yaml.safe_dump(self.to_document(), sort_keys=False, width=1 << 20)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenData(GivenMixture):
    """What the user gave to train on: a mixture, or a single dataset."""

    WAYS = "MANIFEST, --dataset-mix-config, --dataset-source or --dataset-path"

    dataset_path: str | None = None

    def forms(self) -> Mapping[str, object]:
        """Return each way to name data, as the user wrote it, and its value."""
        return {**GivenMixture.forms(self), f"--dataset-path {self.dataset_path!r}": self.dataset_path}

    def instead_of_sources(self) -> str:
        """Return what was given where inline sources were not, and the cure."""
        if self.dataset_path is None:
            return GivenMixture.instead_of_sources(self)
        return f"a single dataset: --dataset-path {self.dataset_path!r}"


@cache
def rules_of_settings() -> Mapping[str, Rule]:
    """Return what each field of `TrainSettings` may be, by name and in their order."""
    hints = get_type_hints(TrainSettings, include_extras=True)
    return {each.name: hints[each.name].__metadata__[0] for each in fields(TrainSettings)}


def option_of(name: str) -> str:
    """Return the option that a field is called after: `batch_size` is `--batch-size`."""
    return f"--{name.replace('_', '-')}"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, tuple):
        return list(value)
    return os.fspath(value) if isinstance(value, Path) else value


def _check_processes(settings: TrainSettings) -> None:
    ranks_to_launch(settings.world_size)
    if settings.world_size % settings.tp_size:
        raise CuveeError(
            f"--tp-size must divide --world-size, which is {settings.world_size}, but got {settings.tp_size}"
        )
    if settings.batch_size % settings.dp_size:
        below = settings.batch_size // settings.dp_size * settings.dp_size
        cure = f"{below} or {below + settings.dp_size}" if below else str(settings.dp_size)
        raise CuveeError(
            f"--batch-size must be a multiple of {settings.dp_size}, the processes that train on different rows, but "
            f"got {settings.batch_size}; give {cure}"
        )
    if settings.mini_bs is not None and settings.rows_per_rank % settings.mini_bs:
        raise CuveeError(
            f"--mini-bs must divide {settings.rows_per_rank}, the rows of a step on each process, but got "
            f"{settings.mini_bs}"
        )


def _check_steps(settings: TrainSettings) -> None:
    if settings.max_steps is not None and settings.warmup_steps > settings.max_steps:
        raise CuveeError(
            f"--warmup-steps must be at most --max-steps, which is {settings.max_steps}, but got "
            f"{settings.warmup_steps}"
        )


def _check_online(settings: TrainSettings) -> None:
    learning = settings.learning
    if learning is None:
        for name in ("reward", "update_interval", "lag"):
            if getattr(settings, name) is not None:
                raise CuveeError(
                    f"{option_of(name)} must be given with --online, but got {getattr(settings, name)!r} without it"
                )
        return
    try:
        make_bandit(str(learning.algorithm), 2, **learning.algorithm_options)
    except CuveeError as error:
        raise CuveeError(f"--online {settings.online!r}: {error}") from None
    try:
        reward = make_reward(str(learning.reward), 2, **learning.reward_options)
        learning.check_measured(reward)
    except CuveeError as error:
        raise CuveeError(f"--reward {settings.reward or REWARD!r}: {error}") from None


def _check_folders(settings: TrainSettings) -> None:
    """Check that the model is there, and that neither it nor another run is written over."""
    if settings.ckpt != TINY and same_place(settings.output_dir, Path(settings.ckpt)):
        raise CuveeError(
            f"--output-dir must be another folder than --ckpt, but got {str(settings.output_dir)!r} for both"
        )
    if settings.ckpt.startswith((".", "/", "~")) and not is_folder(settings.ckpt):
        raise CuveeError(f"--ckpt must be a folder that exists where it is a path, but got {settings.ckpt!r}")
    if settings.checkpoint is None or not same_place(run_of(settings.checkpoint), settings.output_dir):
        check_unused("--output-dir", settings.output_dir)
        check_unused("--metrics-log-dir", settings.metrics_folder)
