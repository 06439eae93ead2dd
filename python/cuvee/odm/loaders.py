"""What loaders around an online mix do: rows they hold back, and states they ask for."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..errors import CuveeError

FRAMES = 8  # of a loader's own code between the asker and the dataset


def rows_held(dataset: object) -> int:
    """Return the rows over all ranks that accelerate's loader of `dataset` holds back while its loop trains.

    Its loaders fetch one batch ahead, to know which one is the last. 0 if no such loader is under way.

    Raises:
        CuveeError: if each process takes its part of a stateful loader, which then keeps no state of the mix.
    """
    state = sys.modules.get("accelerate.state")
    loaders = [] if state is None else state.GradientState().dataloader_references
    return max((_held_by(loader, dataset) for loader in loaders if loader is not None), default=0)


def _held_by(loader: Any, dataset: object) -> int:
    layer, batch, processes = loader, int(loader.batch_size or 1), 1
    if hasattr(loader, "split_batches"):  # one process reads for all
        processes = 1 if loader.split_batches else loader.state.num_processes
    shards = False
    while layer is not None and layer is not dataset:
        if layer is not loader and hasattr(layer, "num_processes"):  # each process takes its part of all rows
            batch, processes = int(layer.batch_size), 1 if layer.split_batches else int(layer.num_processes)
            shards = True
        layer = getattr(layer, "dataset", None)
    if layer is not None and shards and getattr(loader, "use_stateful_dataloader", False):
        raise CuveeError(
            "dispatch_batches must be True for an online mix in a StatefulDataLoader of several processes, but got "
            "False, and no state of the mix would be saved; or give use_stateful_dataloader=False and "
            "accelerator.register_for_checkpointing(dataset)"
        )
    return 0 if layer is None else batch * processes


def asked_by(package: str) -> bool:
    """Return whether a function of that package or module is asking for a dataset's state."""
    frame = sys._getframe(2)  # noqa: SLF001  (who called state_dict)
    for _ in range(FRAMES):
        if f"{frame.f_globals.get('__name__')}.".startswith(f"{package}."):
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


class LoaderState(dict[str, Any]):
    """A state that accelerate's loader keeps for a later checkpoint: pickled, it is the state at that time.

    The loader asks before it fetches a batch ahead, and so before the update that follows the batch it hands out.
    """

    def __init__(self, state: dict[str, Any], now: Callable[[], dict[str, Any]]) -> None:
        super().__init__(state)
        self._now = now

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self._now().items())  # the one mapping that torch.load takes so


def device_of(model: Any, accelerator: Any) -> Any:
    """Return the device that a model computes on."""
    import torch

    if accelerator is not None:
        return accelerator.device
    first = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    return torch.device("cpu") if first is None else first.device
