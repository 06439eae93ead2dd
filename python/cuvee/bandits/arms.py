"""The arrays of an exponential-weights bandit, on CPU or on a GPU, and the update, of the same bits on both."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import WeightRule
from ..errors import MixtureError, StateError
from .checks import as_counts, as_scores

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

SUMMARY = 4  # running low and high quantile of the scores, updates they have seen, sum of squares before the floor

Bounds = tuple["NDArray[np.float64] | None", "NDArray[np.float64] | None"]


class HostArms:
    """Arrays of NumPy.

    Args:
        p: the weights to begin with, float64 of shape (K,).
        state: log weights, or what the rule keeps in their place.
        settings: of `_core.WeightRule`.
        bounds: least and greatest probabilities.
    """

    def __init__(
        self, p: NDArray[np.float64], state: NDArray[np.float64], settings: dict[str, Any], bounds: Bounds
    ) -> None:
        self._p, self._state, self._summary = p.copy(), state.copy(), np.zeros(SUMMARY)
        self._rule = WeightRule(
            **settings, state=self._state, p=self._p, summary=self._summary, floor=bounds[0], cap=bounds[1]
        )

    def update(self, scores: ArrayLike, counts: ArrayLike | None) -> None:
        """Update all arrays."""
        try:
            self._rule.update(scores, counts)  # type: ignore[arg-type]  # taken as they are where their types fit
        except TypeError:
            sources = len(self._p)
            self._rule.update(as_scores(scores, sources), as_counts(counts, sources))
        except ValueError as error:  # says which shape or count is wrong
            raise StateError(str(error)) from None

    def schedule(self, eta: float, gamma: float) -> None:
        """Set the rates of the next update."""
        self._rule.eta, self._rule.gamma = eta, gamma

    def get(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return copies of probabilities, state and summary."""
        return self._p.copy(), self._state.copy(), self._summary.copy()

    def put(
        self,
        p: NDArray[np.float64],
        state: NDArray[np.float64] | None = None,
        summary: NDArray[np.float64] | None = None,
    ) -> None:
        """Replace arrays."""
        self._p[:] = p
        if state is not None:
            self._state[:] = state
        if summary is not None:
            self._summary[:] = summary

    def probabilities(self) -> NDArray[np.float64]:
        """Return a copy of the probabilities."""
        return self._p.copy()

    def add_to(self, total: NDArray[np.float64]) -> None:
        """Add the probabilities to an array."""
        total += self._p

    def collision(self) -> float:
        """Return the sum of squared probabilities before the entropy floor."""
        return self._summary.item(3)


@cache
def cuda_kernels() -> ModuleType:
    """Return the extension with the kernels."""
    try:
        return importlib.import_module("cuvee._cuda")
    except ImportError as error:
        error.add_note("this build has no CUDA kernels: reinstall with CUVEE_CUDA=ON, or use device='cpu'")
        raise


class DeviceArms:
    """Tensors on a GPU: an update is one launch in the current stream, and an asynchronous copy of what it gave.

    Args:
        p: the weights to begin with, float64 of shape (K,).
        state: log weights, or what the rule keeps in their place.
        settings: of `_core.WeightRule`.
        bounds: least and greatest probabilities.
        device: as torch names it, "cuda" or "cuda:1".
    """

    def __init__(
        self,
        p: NDArray[np.float64],
        state: NDArray[np.float64],
        settings: dict[str, Any],
        bounds: Bounds,
        device: str,
    ) -> None:
        import torch

        if not torch.cuda.is_available():
            raise MixtureError(f"device must be one that PyTorch can use, but got {device!r} and no GPU; use 'cpu'")
        self._kernels = cuda_kernels()
        self._settings = dict(settings)
        self._all = torch.from_numpy(np.concatenate([p, state, np.zeros(SUMMARY)])).to(device)
        self._p, self._state, self._summary = _split(self._all, len(p))
        self._bounds = [None if bound is None else torch.from_numpy(bound).to(device) for bound in bounds]
        self._workspace = self._all.new_empty(self._kernels.BANDIT_WORKSPACE)
        self._host = torch.empty(self._all.shape, dtype=torch.float64, pin_memory=True)
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._fetch()

    def update(self, scores: ArrayLike | Tensor, counts: ArrayLike | Tensor | None) -> None:
        """Queue an update of all arrays and the copy of them; nothing is waited for."""
        import torch

        sources = len(self._p)
        given = self._here(scores if torch.is_tensor(scores) else as_scores(scores, sources), torch.float64, "scores")
        rows = None
        if counts is not None:
            rows = self._here(counts if torch.is_tensor(counts) else as_counts(counts, sources), torch.int64, "counts")
        floor, cap = self._bounds
        arrays = {"state": self._state, "p": self._p, "summary": self._summary, "scores": given, "rows": rows}
        addresses = {
            name: 0 if tensor is None else tensor.data_ptr()
            for name, tensor in {**arrays, "floor": floor, "cap": cap, "workspace": self._workspace}.items()
        }
        stream = torch.cuda.current_stream(self._all.device)
        with torch.cuda.device(self._all.device):
            self._kernels.update_bandit(**addresses, k=sources, stream=stream.cuda_stream, **self._settings)
        self._fetch()

    def schedule(self, eta: float, gamma: float) -> None:
        """Set the rates of the next update."""
        self._settings.update(eta=eta, gamma=gamma)

    def get(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return copies of probabilities, state and summary; waits for their copy alone."""
        self._copied.synchronize()
        p, state, summary = _split(self._host, len(self._p))
        return p.numpy().copy(), state.numpy().copy(), summary.numpy().copy()

    def put(
        self,
        p: NDArray[np.float64],
        state: NDArray[np.float64] | None = None,
        summary: NDArray[np.float64] | None = None,
    ) -> None:
        """Replace arrays."""
        import torch

        for tensor, values in ((self._p, p), (self._state, state), (self._summary, summary)):
            if values is not None:
                tensor.copy_(torch.from_numpy(values))
        self._fetch()

    def probabilities(self) -> NDArray[np.float64]:
        """Return a copy of the probabilities; waits for their copy alone."""
        return self.get()[0]

    def add_to(self, total: NDArray[np.float64]) -> None:
        """Add the probabilities to an array; waits for their copy alone."""
        total += self.get()[0]

    def collision(self) -> float:
        """Return the sum of squared probabilities before the entropy floor."""
        return self.get()[2].item(3)

    def _here(self, values: Any, dtype: Any, name: str) -> Tensor:
        """Return values as a tensor on the device."""
        import torch

        tensor = values if torch.is_tensor(values) else torch.from_numpy(values)
        if tensor.shape != self._p.shape or tensor.dtype != dtype:
            wanted = f"{dtype} of shape {tuple(self._p.shape)}"
            raise StateError(f"{name} must be {wanted}, but got {tensor.dtype} of {tuple(tensor.shape)}")
        return tensor.to(self._all.device, non_blocking=True).contiguous()

    def _fetch(self) -> None:
        import torch

        self._host.copy_(self._all, non_blocking=True)
        self._copied.record(torch.cuda.current_stream(self._all.device))


def _split(tensor: Tensor, sources: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities, state and summary, views of the tensor that holds all three."""
    return tensor[:sources], tensor[sources : 2 * sources], tensor[2 * sources :]


def make_arms(
    p: NDArray[np.float64], state: NDArray[np.float64], settings: dict[str, Any], bounds: Bounds, device: str
) -> HostArms | DeviceArms:
    """Return arrays on `device`, "cpu" or one of torch's names of a GPU."""
    if device == "cpu":
        return HostArms(p, state, settings, bounds)
    if not (isinstance(device, str) and device.partition(":")[0] == "cuda"):
        raise MixtureError(f"device must be 'cpu', 'cuda' or 'cuda:N', but got {device!r}")
    return DeviceArms(p, state, settings, bounds, device)
