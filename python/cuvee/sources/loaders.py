"""Loader functions: the user's own code, `FILE.py[:function]`, that turns a source into rows the training reads."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from .._core import xxh3_128
from ..errors import SourceError
from .schemas import Rows

DEFAULT_FUNCTION = "load_training_dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A loader function and where it stands.

    `function(data, name)` gets the opened source and its name. A function with a parameter `default_loader` is called
    as `function(path, default_loader=..., load_dataset=..., load_from_disk=...)` instead and opens the source itself.
    """

    function: Callable[..., Any]
    file: str
    function_name: str
    opens_paths: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Loader":
        """Return the loader around any callable; one that is a Loader already stays as it is."""
        if isinstance(function, Loader):
            return function
        code = getattr(function, "__code__", None)
        return cls(
            function=function,
            file=getattr(code, "co_filename", "?"),
            function_name=getattr(function, "__qualname__", type(function).__qualname__),
            opens_paths="default_loader" in _parameters(function),
        )

    def __call__(self, data: Rows, name: str) -> Rows:
        """Apply a function of the first form to opened data."""
        return self.load(path="", name=name, open_path=lambda _: data)

    def load(self, *, path: str, name: str, open_path: Callable[[str], Rows]) -> Rows:
        """Return what the function makes of a source.

        Args:
            path: the source's path or Hub reference.
            name: the source's name.
            open_path: opens a path as Cuvée does without a loader.

        Raises:
            SourceError: the function failed; names file, line, function and source.
        """
        if not self.opens_paths:
            data = open_path(path)
            return self._guarded(name, data, name)
        import datasets

        return self._guarded(
            name,
            path,
            default_loader=open_path,
            load_dataset=datasets.load_dataset,
            load_from_disk=datasets.load_from_disk,
        )

    def _guarded(self, source: str, /, *arguments: object, **options: object) -> Rows:
        try:
            return cast(Rows, self.function(*arguments, **options))
        except SourceError:  # the source itself could not be opened: already told
            raise
        except (Exception, SystemExit) as error:
            raise SourceError(
                f"source {source!r}: loader {self.function_name!r} of {self.file} must return the rows, but got "
                f"{type(error).__name__}: {error}{line_in(self.file, error)}"
            ) from error


def load_function(reference: str, *, called: str = "loader") -> Loader:
    """Return the loader function that `FILE.py[:function]` names.

    Args:
        reference: path of a Python file, with the function's name after the last colon. Without it, the function is
            `load_training_dataset`, or else the only public function that the file defines.
        called: what errors call it.

    Raises:
        SourceError: no such file, the file fails when run, or has no such function.
    """
    file_name, function_name = (reference, "") if reference.endswith(".py") else reference.rpartition(":")[::2]
    file = Path(file_name).expanduser()
    if file.suffix != ".py" or (file_name != reference and not function_name):
        raise SourceError(f"{called} must be FILE.py or FILE.py:function, but got {reference!r}")
    if not file.is_file():
        raise SourceError(f"{called} must be a Python file that exists, but got {reference!r}")
    module = _run(file.resolve())
    name = function_name or _default_name(module, file, called)
    function = getattr(module, name, None)
    if not callable(function):
        near = ", ".join(_public_functions(module)) or "none"
        raise SourceError(f"{called} must be a function of {file}, but got {name!r}; it defines: {near}")
    return Loader(
        function=function,
        file=str(file.resolve()),
        function_name=name,
        opens_paths="default_loader" in _parameters(function),
    )


def line_in(file: str, error: BaseException) -> str:
    """Return `, line N`, the line of a file where an error came up; nothing if it was elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        return f", line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f", line {frames[-1].lineno}" if frames else ""


def _run(file: Path) -> ModuleType:
    name = f"cuvee_loader_{xxh3_128(str(file).encode())[:16]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SourceError(f"code must be a Python file, but got {str(file)!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that what it defines can be pickled
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where = f"{file}{line_in(str(file), error)}"
        raise SourceError(f"{where}: the file must run, but got {type(error).__name__}: {error}") from error
    return module


def _default_name(module: ModuleType, file: Path, called: str) -> str:
    if hasattr(module, DEFAULT_FUNCTION):
        return DEFAULT_FUNCTION
    names = _public_functions(module)
    if len(names) != 1:
        raise SourceError(
            f"{called} must name its function where the file has not just one, but got {str(file)!r}, which defines: "
            f"{', '.join(names) or 'none'}; write {file}:function"
        )
    return names[0]


def _public_functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some builtins have no signature
        return set()
