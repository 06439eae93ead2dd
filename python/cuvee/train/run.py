"""Supervised fine-tuning from sources to a trained model: what each rank of `cuvee train` does, in order."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import transformers  # noqa: TID253  (whoever imports this module trains)
from numpy.typing import NDArray
from rich.console import Console

from ..cache import write_atomically
from ..errors import CuveeError, StateError
from ..integrations.transformers import STATE_FILE, MixtureTrainer, read_state
from ..ledger import Ledger
from ..mix_run import MixRun, Standing, journal_at
from ..mixture import Mixture
from ..online.run import JOURNAL_FILE
from ..steps import StepSampler
from .checkpoints import UNFINISHED, CheckpointKeeper, settle
from .collate import SFTCollator
from .data import Data
from .encoder import Encoder
from .encoding import EncodedRows, Limits, encode, encoded_or_none
from .launch import first_here, init_process_group, rank_info
from .model import load_processor, load_tokenizer, max_positions
from .parallel import (
    ParallelTrainerMixin,
    load_parallel_model,
    split_callbacks,
    training_arguments_for,
    trains_on_cpu,
)
from .progress import MixProgress
from .run_folder import SETTINGS_FILE, checkpoints_of, held
from .settings import TrainSettings

if TYPE_CHECKING:
    from ..plan import Plan
    from ..sources.schemas import Rows
    from .sources import TrainSources

MODEL_FOLDER = "model"
ROOM = 1 << 20  # bytes; a disk with less is full
STATE_FILES = ("optimizer*", "scheduler*", "scaler*", "rng_state*", "split_*", "train*", STATE_FILE)  # of a checkpoint


def train_rank(settings: TrainSettings, data: Data) -> Ledger:
    """Train a model in this process, which is one rank of the run, and return what all ranks trained on.

    The run's folder gets checkpoints, the trained model, the run's events and plan files.

    Args:
        settings: what to do.
        data: the sources it names.

    Raises:
        CuveeError: something given is wrong; nothing has been trained then.
    """
    with _quiet_transformers():
        init_process_group(use_cpu=trains_on_cpu())
        processor = load_processor(settings.ckpt, settings.model_hub) if data.images else None
        tokenizer = load_tokenizer(settings.ckpt, settings.model_hub) if processor is None else processor.tokenizer
        mixture = mixture_of(settings, data, Encoder(tokenizer, processor))
        made = steps_made(settings, mixture)
        if made >= total_steps(settings, mixture.plan()):
            return finished(settings, made)
        model = load_parallel_model(
            settings.ckpt,
            settings.model_hub,
            world_size=settings.world_size,
            tp_size=settings.tp_size,
            images=data.images,
            seed=settings.seed,
        )
        check_vocabulary(settings, mixture, model, len(tokenizer))
        collator = SFTCollator(tokenizer.pad_token_id, processor=processor)
        trainer = SFTTrainer(settings, mixture, model, collator, tokenizer if processor is None else processor)
        return trainer.run()


def check_vocabulary(settings: TrainSettings, mixture: Mixture, model: Any, tokens: int) -> None:
    """Raise if rows hold tokens that the model has no embedding for; only a tokenizer that has more is looked into."""
    known = model.get_input_embeddings().weight.shape[0]
    if tokens <= known:
        return
    for source in mixture.sources:
        largest = source.data.largest_token() if isinstance(source.data, EncodedRows) else 0
        if largest >= known:
            raise CuveeError(
                f"--ckpt {settings.ckpt}: the model must have an embedding for every token, but got {known}, and token "
                f"{largest} in source {source.name!r}"
            )


def steps_made(settings: TrainSettings, mixture: Mixture) -> int:
    """Return the optimizer steps of the checkpoint to go on from, 0 without one; no model was loaded yet.

    Raises:
        StateError: if the checkpoint is of another mixture, or of steps of another size.
    """
    if settings.checkpoint is None:
        return 0
    state = read_state(settings.checkpoint)
    steps = state.get("steps")
    rows = steps.get("rows") if isinstance(steps, Mapping) else None
    if rows is not None and rows != settings.batch_size:
        raise StateError(f"--batch-size must be {rows}, as in the checkpoint, but got {settings.batch_size}")
    state.pop("online", None)  # how weights learn is compared once there is a model
    run = MixRun(StepSampler(mixture.plan(), rows=settings.batch_size))
    journals = [folder / JOURNAL_FILE for folder in (settings.metrics_folder, settings.checkpoint.parent)]
    journal = next((file for file in journals if file.exists()), None)
    try:
        entries = None if journal is None else journal_at(steps, journal)
        if entries is not None:
            entries.detach()  # nothing is written yet
        run.load_state_dict(state, journal=entries, accept_changes=settings.accept_changes)
    except StateError as error:
        cure = "pass accept_changes="
        text = str(error)
        raise StateError(text.replace(cure, "give --accept-changes ") if cure in text else text) from None
    return run.steps.step


def finished(settings: TrainSettings, steps: int) -> Ledger:
    """Return the accounts of a run that has nothing left to train, its model kept as of the checkpoint."""
    checkpoint, folder = Path(str(settings.checkpoint)), settings.output_dir
    ledger = Ledger.from_state(read_state(checkpoint)["ledger"])
    if rank_info().is_main:
        if not (folder / MODEL_FOLDER).exists():
            scratch = folder / UNFINISHED / MODEL_FOLDER
            shutil.copytree(checkpoint, scratch, ignore=shutil.ignore_patterns(*STATE_FILES), dirs_exist_ok=True)
            settle(scratch, folder / MODEL_FOLDER)
            shutil.rmtree(folder / UNFINISHED)
        err = Console(stderr=True, markup=False, highlight=False, emoji=False)
        err.print(f"nothing left to train: the run ended at step {steps:,} (--epochs, --max-steps)", soft_wrap=True)
        tell(settings, ledger)
    return ledger


def mixture_of(settings: TrainSettings, data: Data, encoder: Encoder) -> Mixture:
    """Return the mixture of the sources' rows as tokens, rows over the limits to be skipped."""
    fingerprints = data.sources.fingerprints(data.rows)
    encoded = encode_together(data.rows, encoder=encoder, fingerprints=fingerprints)
    limits = limits_of(settings, data.sources)
    lengths: dict[str, NDArray[np.int32]] = {}
    most = None
    for name, rows in encoded.items():
        lengths[name], most = rows.lengths(limits)
    if most is not None and all(int(each.max(initial=0)) <= most for each in lengths.values()):
        most = None  # a limit that no row is over is no part of the contract: the hashes are those of `cuvee plan`
    return data.sources.mixture(encoded, fingerprints=fingerprints, lengths=lengths, max_length=most)


def encode_together(
    rows: Mapping[str, Rows], *, encoder: Encoder, fingerprints: Mapping[str, str | None]
) -> dict[str, EncodedRows]:
    """Return all rows as tokens: made once on each machine, and found in the cache by its other ranks."""
    with first_here():
        found = encoded_or_none(rows, encoder=encoder, fingerprints=fingerprints)
        return found or encode(rows, encoder=encoder, fingerprints=fingerprints)


def limits_of(settings: TrainSettings, sources: TrainSources) -> Limits:
    """Return the limits on a row's tokens: those given, and never more than the model can read."""
    positions = max_positions(settings.ckpt, settings.model_hub)
    totals = [total for total in (sources.max_length, positions) if total is not None]
    return Limits(total=min(totals, default=None), prompt=settings.max_prompt_tokens, response=settings.max_new_tokens)


class SFTTrainer(ParallelTrainerMixin, MixtureTrainer):
    """The trainer of `cuvee train --algo sft`: a run folder, exact epochs of the plan, and a live display.

    Args:
        settings: what to do.
        mixture: of rows as tokens.
        model: to be trained.
        collator: makes batches.
        processing: the tokenizer or processor, kept with the model.
    """

    def __init__(
        self, settings: TrainSettings, mixture: Mixture, model: Any, collator: SFTCollator, processing: Any
    ) -> None:
        self.settings = settings
        self.total_steps = total_steps(settings, mixture.plan())
        super().__init__(
            model=model,
            args=training_arguments(settings, self.total_steps),
            data_collator=collator,
            processing_class=processing,
            mixture=mixture,
            mix_log_dir=settings.metrics_folder,
            online=settings.learning,
            accept_changes=settings.accept_changes,
        )
        self.remove_callback(transformers.PrinterCallback)
        for callback in split_callbacks(settings.tp_size, settings.checkpoint):
            self.add_callback(callback)
        self.add_callback(CheckpointKeeper(settings.output_dir, keep=settings.save_total_limit))
        self.progress: MixProgress | None = None

    def run(self) -> Ledger:
        """Train, keep the model, and return what all ranks trained on."""
        folder, checkpoint = self.settings.output_dir, self.settings.checkpoint
        record = _Record(self.settings)
        self.add_callback(record)
        try:
            with held({folder, self.settings.metrics_folder}), self._display():
                self.train(None if checkpoint is None else str(checkpoint))
        except KeyboardInterrupt:
            if rank_info().is_main:
                self._say_how_to_go_on()
            raise
        except CuveeError:
            raise
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if checkpoint is not None and not record.begun:
                raise StateError(
                    f"--resume must be of a checkpoint that --ckpt {self.settings.ckpt} can go on from, but got "
                    f"{str(checkpoint)!r} ({reason})"
                ) from error
            if shutil.disk_usage(folder).free < ROOM:
                raise CuveeError(
                    f"--output-dir must have room for checkpoints, but got {str(folder)!r}, which is full ({reason})"
                ) from error
            raise
        scratch = folder / UNFINISHED / MODEL_FOLDER
        self.save_model(str(scratch))
        if rank_info().is_main:
            settle(scratch, folder / MODEL_FOLDER)
            shutil.rmtree(folder / UNFINISHED)
        ledger = self.mix.ledger.reduced()
        if rank_info().is_main:
            tell(self.settings, ledger)
        return ledger

    def mix_standing(self, now: Standing, logs: Mapping[str, float]) -> None:
        """Show where the run stands."""
        if self.progress is not None:
            self.progress.update(now.ledger, step=now.step, losses=now.losses, metrics=logs, requested=now.weights)

    def mix_facts(self) -> dict[str, Any]:
        """Return the settings beside what every run keeps."""
        return {**super().mix_facts(), "ckpt": self.settings.ckpt, "settings": self.settings.to_document()}

    def max_steps_reached(self) -> int | None:
        """Return `--max-steps` if it ended the run."""
        limit = self.settings.max_steps
        return limit if limit is not None and limit <= self.state.global_step else None

    def _say_how_to_go_on(self) -> None:
        """Tell an interrupted user what is kept, and the command that goes on from there."""
        folder = self.settings.output_dir
        kept = checkpoints_of(folder)
        err = Console(stderr=True, markup=False, highlight=False, emoji=False)
        err.print(f"interrupted after step {self.state.global_step:,}", end="", soft_wrap=True)
        if not kept:
            err.print("; no checkpoint was saved yet (--save-steps)", soft_wrap=True)
            return
        run = shlex.quote(str(folder))
        command = f"cuvee train --config {run}/{SETTINGS_FILE} --output-dir {run} --resume latest"
        err.print(f"; go on from step {int(kept[-1].name.rpartition('-')[2]):,}: {command}", soft_wrap=True)

    @contextlib.contextmanager
    def _display(self) -> Iterator[None]:
        """Show the run on rank 0."""
        if not rank_info().is_main:
            yield
            return
        summary = self.mixture.plan().summary()
        requested = {source["name"]: source["weight_requested"] for source in summary["sources"]}
        rows = {source.name: source.rows for source in self.mixture.sources}
        with MixProgress(requested, rows=rows, total_steps=self.total_steps, unit=self.mixture.unit) as progress:
            self.progress = progress
            self.add_callback(_Advance(progress))
            for warning in summary["warnings"] if self.settings.checkpoint is None else ():
                progress.note(f"an epoch of {summary['planned_rows']:,} rows: {warning}")
            yield
        self.progress = None


class _Record(transformers.TrainerCallback):
    """Keeps the settings in the run's folder once all that they ask for was accepted."""

    def __init__(self, settings: TrainSettings) -> None:
        self._settings = settings
        self.begun = False

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Write them."""
        self.begun = True
        if rank_info().is_main:
            write_atomically(self._settings.output_dir / SETTINGS_FILE, self._settings.to_yaml().encode())


class _Advance(transformers.TrainerCallback):
    """Moves the display's bar."""

    def __init__(self, progress: MixProgress) -> None:
        self._progress = progress

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:  # noqa: ARG002  (the Trainer's names)
        self._progress.advance(state.global_step)


def total_steps(settings: TrainSettings, plan: Plan) -> int:
    """Return the optimizer steps of the run: those of its epochs, or fewer if `--max-steps` ends it before."""
    steps = StepSampler(plan, rows=settings.batch_size).steps_in(settings.epochs)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def training_arguments(settings: TrainSettings, steps: int) -> transformers.TrainingArguments:
    """Return what the settings are to transformers."""
    if settings.tensorboard:
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(settings.metrics_folder / "tensorboard")  # its only way to be told
    known = transformers.TrainingArguments.__dataclass_fields__
    recompute = "activation_checkpointing" if "activation_checkpointing" in known else "gradient_checkpointing"
    renamed: dict[str, Any] = {recompute: settings.gradient_checkpointing}  # transformers 5 calls it by the first name
    return transformers.TrainingArguments(
        str(settings.output_dir / UNFINISHED),
        per_device_train_batch_size=settings.rows_per_rank // settings.micro_batches,
        gradient_accumulation_steps=settings.micro_batches,
        max_steps=steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.lr_schedule,
        warmup_steps=settings.warmup_steps,
        weight_decay=settings.weight_decay,
        bf16=settings.bf16,
        seed=settings.seed,
        full_determinism=settings.deterministic,
        dataloader_num_workers=settings.num_workers,
        logging_steps=settings.logging_steps,
        logging_first_step=True,
        save_strategy="steps",
        save_steps=settings.save_steps,
        report_to=["tensorboard"] if settings.tensorboard else [],
        disable_tqdm=True,
        remove_unused_columns=False,
        **renamed,
        **training_arguments_for(settings.world_size, settings.tp_size),
    )


def tell(settings: TrainSettings, ledger: Ledger) -> None:
    """Print what was trained on and where the model is."""
    out = Console(markup=False, highlight=False, emoji=False)
    out.print(ledger.table())
    out.print(f"model     {settings.output_dir / MODEL_FOLDER}", soft_wrap=True)
    out.print(f"report    cuvee report {shlex.quote(str(settings.metrics_folder))}", soft_wrap=True)


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Let the run's own display be the only one."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()  # type: ignore[no-untyped-call]
