"""The folder of a run: what it is called, whether it can be written, and which checkpoints are in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path

from ..errors import CuveeError
from .launch import rank_info

STATE_FILE = "dataset_mix_state.json"  # what makes the folder of a checkpoint whole
SPLIT_FILE = "split_optimizer.pt"  # in a checkpoint of a split model, instead of optimizer.pt
EVENTS_FILE = "metrics.jsonl"
SETTINGS_FILE = "run.yaml"
LATEST = "latest"
NEEDED = (  # of a checkpoint; one pattern of each line
    ("model.safetensors", "model*.safetensors", "pytorch_model*.bin"),
    ("optimizer.pt", SPLIT_FILE, "optimizer*"),
    ("scheduler.pt", SPLIT_FILE),
    ("rng_state.pth", "rng_state_*.pth", SPLIT_FILE),
    ("trainer_state.json",),
)


def new_run_folder() -> Path:
    """Return a folder named after the time that does not exist yet; nothing is made.

    Raises:
        CuveeError: a launcher started several processes, whose clocks would name several folders.
    """
    world_size = rank_info().world_size
    if world_size > 1:
        raise CuveeError(
            f"--output-dir must be given under a launcher, so that all {world_size} processes use one, but got none"
        )
    name = datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
    tried = [Path("runs", name), *(Path("runs", f"{name}-{number}") for number in range(2, 100))]
    return next((folder for folder in tried if not folder.exists()), tried[-1])


def checkpoint_of(resume: str, output_dir: Path) -> Path:
    """Return the folder of the checkpoint that `--resume` means.

    Raises:
        CuveeError: there is none, or it is not whole.
    """
    if resume == LATEST:
        checkpoints = checkpoints_of(output_dir)
        if not checkpoints:
            raise CuveeError(
                f"--resume latest must find a checkpoint in --output-dir, but got none in {str(output_dir)!r}; leave "
                "--resume out to begin a run"
            )
        return _complete(checkpoints[-1])
    checkpoint = Path(os.path.expanduser(resume))  # noqa: PTH111  (Path's fails where there is no such user)
    if not _exists(checkpoint / STATE_FILE):
        raise CuveeError(
            f"--resume must be latest or the folder of a checkpoint, with {STATE_FILE} in it, but got {resume!r}"
        )
    return _complete(checkpoint)


def run_of(checkpoint: Path) -> Path:
    """Return the folder of the run that a checkpoint is of."""
    return Path(os.path.abspath(os.path.expanduser(checkpoint))).parent  # noqa: PTH100, PTH111  (keeps links as they are)


def _complete(checkpoint: Path) -> Path:
    """Return a checkpoint that holds all that training goes on from.

    Raises:
        CuveeError: a file is missing; without it the run would go on, but not as it would have.
    """
    for patterns in NEEDED:
        if not any(any(checkpoint.glob(pattern)) for pattern in patterns):
            raise CuveeError(
                f"--resume must be of a whole checkpoint, but got {str(checkpoint)!r} without {patterns[0]}; to begin "
                "a new run with its weights, pass it as --ckpt"
            )
    return checkpoint


def check_writable(option: str, folder: Path) -> None:
    """Check that a folder is there to be written, or can be made; nothing is made here.

    Raises:
        CuveeError: naming the option and what is in the way.
    """
    try:
        reason = _obstacle(folder)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        raise CuveeError(f"{option} must be a folder that can be written, but got {str(folder)!r}: {reason}")


@contextlib.contextmanager
def held(folders: Collection[Path]) -> Iterator[None]:
    """Keep other runs out of folders while this one writes into them; rank 0 does so for all.

    Raises:
        CuveeError: another run writes into one.
    """
    with contextlib.ExitStack() as stack:
        for folder in sorted(folders) if rank_info().is_main else ():
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CuveeError(
                    f"--output-dir must be of no other run under way, but got {str(folder)!r}, which one writes into"
                ) from None
        yield


def check_unused(option: str, folder: Path) -> None:
    """Check that a folder holds no run.

    Raises:
        CuveeError: naming the option and what to do instead.
    """
    if _exists(folder / EVENTS_FILE) or checkpoints_of(folder):
        raise CuveeError(
            f"{option} must hold no run yet, but got {str(folder)!r}, which does; go on with it by --resume latest, or "
            "give another folder"
        )


def is_folder(path: str) -> bool:
    """Tell whether there is a folder at a path, whatever the path is like."""
    return os.path.isdir(os.path.expanduser(path))  # noqa: PTH111, PTH112  (Path's fail for odd names)


def _obstacle(folder: Path) -> str:
    """Return what stands in the way of writing into `folder`, or nothing."""
    place = Path(os.path.abspath(folder))  # noqa: PTH100  (keeps links as they are)
    try:
        os.fspath(place).encode()
    except UnicodeEncodeError:
        return "its name is not in UTF-8, as libraries that write models ask"
    place.exists()  # fails where the name is too long
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        return f"{str(place)!r} is no folder"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"{str(place)!r} is not writable"


def checkpoints_of(folder: Path) -> list[Path]:
    """Return the folders of whole checkpoints in the folder of a run, by their steps."""
    found = [place for place in folder.glob("checkpoint-*") if step_of(place) >= 0 and _exists(place / STATE_FILE)]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return the optimizer steps that a checkpoint's folder is named after, -1 for another folder."""
    digits = checkpoint.name.removeprefix("checkpoint-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else -1


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110  (Path's fails where a name is too long)
