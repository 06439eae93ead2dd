"""A score of one's own in a Python file: `FILE.py:function`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .._core import xxh3_128
from ..errors import MixtureError, SourceError
from ..sources import load_function
from ..sources.loaders import line_in

if TYPE_CHECKING:
    from ..sources.loaders import Loader


class FileScore:
    """A score in a user's file, which every process loads for itself.

    Args:
        reference: `FILE.py:function`; without the function, the only public one of the file.

    Attributes:
        name: the function's name.
        digest: xxh3-128 of the file.

    Raises:
        MixtureError: there is no such file or function.
    """

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._loader: Loader | None = self._loaded()
        self.name = self._loader.function_name
        self._reference = f"{self._loader.file}:{self.name}"  # as it can be loaded from any folder
        self.digest = xxh3_128(Path(self._loader.file).read_bytes())

    def __call__(self, weights: Mapping[str, float], budget: float, seed: int) -> Mapping[str, float]:
        """Return what the user's function returns.

        Raises:
            MixtureError: it failed; names its error, file and line.
        """
        if self._loader is None:
            self._loader = self._loaded()
        try:
            return cast("Mapping[str, float]", self._loader.function(weights, budget, seed))
        except (Exception, SystemExit) as error:
            where = f"{self._loader.file}{line_in(self._loader.file, error)}"
            raise MixtureError(
                f"{where}: score {self.name!r} must return losses by name, but got {type(error).__name__}: {error}"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_loader": None}  # what was loaded belongs to this process

    def _loaded(self) -> Loader:
        try:
            return load_function(self._reference, called="it")
        except SourceError as error:
            raise MixtureError(
                f"--score must be FILE.py:function, a function of a Python file, but got {self._reference!r}: {error}"
            ) from None
