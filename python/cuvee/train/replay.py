"""The replay of a run of `cuvee train`, over the mixture that its settings name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import StateError
from ..online.record import read_record
from .data import open_data
from .reading import read_settings
from .run_folder import SETTINGS_FILE

if TYPE_CHECKING:
    from ..mixture import Mixture
    from ..online.replay import Replay


def replay_folder(folder: Path, metrics: Path | None = None) -> Replay:
    """Replay the run in a folder, with its sources opened and their rows counted as training did.

    Args:
        folder: `--output-dir` of the run.
        metrics: its `--metrics-log-dir`, where it had one.

    Raises:
        StateError: if the folder holds no run with online mixing.
        CuveeError: if its sources, or the tokenizer of its model, cannot be opened.
    """
    read_record(metrics or folder)  # says what is wrong with it before anything is opened
    file = folder / SETTINGS_FILE
    if not file.exists():
        raise StateError(
            f"run folder must hold {SETTINGS_FILE}, which cuvee train writes, but got {str(folder)!r}; of other runs, "
            "call cuvee.online.replay.replay_run(folder, mixture)"
        )
    from ..online.replay import replay_run

    return replay_run(metrics or folder, mixture_of_run(file))


def mixture_of_run(file: Path) -> Mixture:
    """Return the mixture that the settings in a run's file name."""
    from .encoder import Encoder
    from .model import load_processor, load_tokenizer
    from .run import mixture_of

    settings = read_settings({}, config=file)
    data = open_data(settings)
    processor = load_processor(settings.ckpt, settings.model_hub) if data.images else None
    tokenizer = load_tokenizer(settings.ckpt, settings.model_hub) if processor is None else processor.tokenizer
    return mixture_of(settings, data, Encoder(tokenizer, processor))
