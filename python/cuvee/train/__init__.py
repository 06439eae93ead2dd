"""Training on a mixture: what `cuvee train` runs."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from .data import Data, open_data
from .launch import launch, ranks_to_launch
from .parallel import check_parallel, check_resume
from .settings import TrainSettings

__all__ = ["Data", "TrainSettings", "open_data", "train"]


def train(settings: TrainSettings, data: Data | None = None) -> None:
    """Train a model on a mixture, in as many processes as the settings say.

    Every source is opened and checked before a model is looked at or a process started.

    Args:
        settings: what to do.
        data: the sources it names, if they were opened before.

    Raises:
        CuveeError: something given is wrong; nothing has been trained then.
    """
    data = data or open_data(settings)
    check_parallel(settings.world_size, settings.tp_size)
    check_resume(settings.tp_size, settings.checkpoint)
    processes = ranks_to_launch(settings.world_size)
    if processes > 1:
        launch(_rank, settings, world_size=processes)
        return
    from .run import train_rank

    train_rank(settings, data)


def _rank(settings: TrainSettings) -> None:
    """Train in one of several processes, each of which opens the sources for itself."""
    from .run import train_rank

    with redirect_stdout(sys.stderr):  # a loader of the user's may print
        data = open_data(settings)
    train_rank(settings, data)
