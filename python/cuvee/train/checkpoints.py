"""Checkpoints that are whole or absent: written beside their place, synced, and renamed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback  # noqa: TID253  (whoever imports this module trains)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR  # noqa: TID253

from .launch import rank_info
from .run_folder import checkpoints_of, step_of

UNFINISHED = ".unfinished"  # where the Trainer writes checkpoints, in the run's folder
SUPERSEDED = "superseded"  # where later checkpoints go when a run goes on from an earlier one


class CheckpointKeeper(TrainerCallback):
    """Moves each checkpoint that the Trainer has written to its place in the run's folder, once all of it is on disk.

    It must be the last of the callbacks, so that what others add to a checkpoint moves with it.

    Args:
        run: the run's folder; the Trainer's own `output_dir` is `UNFINISHED` in it.
        keep: how many checkpoints to keep, the newest; None keeps all.
    """

    def __init__(self, run: Path, *, keep: int | None = None) -> None:
        self._run = run
        self._keep = keep

    def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:  # noqa: ARG002
        """Clear away what was left half written, and put aside checkpoints of later steps than the run goes on from."""
        if rank_info().is_main:
            shutil.rmtree(self._run / UNFINISHED, ignore_errors=True)
            for checkpoint in checkpoints_of(self._run):
                if step_of(checkpoint) > state.global_step:
                    aside = self._run / SUPERSEDED / checkpoint.name
                    shutil.rmtree(aside, ignore_errors=True)
                    aside.parent.mkdir(exist_ok=True)
                    checkpoint.rename(aside)
        _all_ranks_here()

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:  # noqa: ARG002  (the Trainer's names)
        """Move the checkpoint just written."""
        _all_ranks_here()  # each has written its part
        if rank_info().is_main:
            name = f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            settle(self._run / UNFINISHED / name, self._run / name)
            if self._keep is not None:
                for old in checkpoints_of(self._run)[: -self._keep]:
                    remove(old)
        _all_ranks_here()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Leave no empty folder behind."""
        if rank_info().is_main:
            shutil.rmtree(self._run / UNFINISHED, ignore_errors=True)


def settle(scratch: Path, folder: Path) -> None:
    """Sync all files of `scratch` and rename it to `folder`, in place of a folder that may be there."""
    for path in scratch.rglob("*"):
        sync(path)
    sync(scratch)
    if folder.exists():
        remove(folder)
    scratch.rename(folder)
    sync(folder.parent)


def remove(folder: Path) -> None:
    """Remove a folder so that, if that is interrupted, what is left is not taken for it."""
    doomed = folder.parent / UNFINISHED / f"removed-{folder.name}"
    doomed.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _all_ranks_here() -> None:
    """Wait for all ranks."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
