"""Opening sources: data files, `save_to_disk` folders, Hub references and loader functions -> map-style data.

Lengths, fingerprints and the comparison of schemas are re-exported from the modules they live in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from ..checks import nearest
from ..errors import INSTALL_HF, SourceError
from .files import DataFile, data_file, has_data_suffix, load_file, reason
from .fingerprint import arrow_kind, fingerprint_of, saved_data_files
from .kept import keep_rows
from .lengths import lengths_of
from .loaders import Loader, load_function
from .schemas import RESERVED_FIELD, Rows, check_column, check_reserved, check_schemas, columns_of

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = [
    "RESERVED_FIELD",
    "check_rows",
    "check_schemas",
    "fingerprint_of",
    "lengths_of",
    "load_function",
    "open_source",
    "open_sources",
]

MOST_SHOWN = 400  # characters of a path in an error
_T = TypeVar("_T")
_HUB_REFERENCE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(:(?P<config>[^:]*)(:(?P<split>.+))?)?")


class SourceRequest(Protocol):
    """What is needed to open a source: the fields of a manifest's source."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def split(self) -> str | None: ...
    @property
    def columns(self) -> Sequence[str] | None: ...
    @property
    def rows(self) -> str | None: ...


def open_sources(
    requests: Iterable[SourceRequest],
    *,
    loader: Callable[..., Any] | None = None,
    folder: Path | None = None,
    alike: bool = True,
) -> dict[str, Rows]:
    """Open all sources of a mixture and check that they fit together.

    First every path is looked up, then every source is opened and validated, then the schemas are compared; each stage
    reports all its problems at once, one line each, and nothing of a later stage is touched before.

    Args:
        requests: name, path, split, columns and index of rows of each source.
        loader: applied to each source; see `open_source`.
        folder: what relative paths start from.
        alike: whether rows of all sources must have columns in common, and of one type.

    Returns:
        Name to map-style data, in the order given.

    Raises:
        SourceError: one line for each source that cannot be used.
    """
    requests = list(requests)
    if loader is None or not Loader.of(loader).opens_paths:
        _each(requests, lambda request: _locate(request.path, request.name, folder))
    opened = _each(
        requests,
        lambda request: open_source(
            request.path,
            name=request.name,
            split=request.split,
            columns=request.columns,
            rows=request.rows,
            loader=loader,
            folder=folder,
        ),
    )
    if alike:
        check_schemas(opened)
    return opened


def open_source(
    path: str | os.PathLike[str],
    *,
    name: str,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    rows: str | os.PathLike[str] | None = None,
    loader: Callable[..., Any] | None = None,
    folder: Path | None = None,
    allow_empty: bool = False,
) -> Rows:
    """Open one source.

    Args:
        path: a JSON, JSON Lines, CSV or TSV file (also .gz and .zst), a Parquet or Arrow file, a folder written by
            `save_to_disk`, or a Hub reference `repo/name[:config[:split]]`.
        name: the source's name, for errors and the loader.
        split: which split, or slice of one (`"train[:10%]"`); default the only one, else `train`.
        columns: columns to keep; each must exist, in JSON in every row.
        rows: a .npy file of the numbers of the rows to keep, int64 and rising; rows of what a loader returns, if there
            is one.
        loader: `function(data, name)` that returns the rows to use; or a function with a parameter `default_loader`,
            which gets the path and opens it itself. `load_function` makes one from `FILE.py[:function]`.
        folder: what a relative path starts from; default the working folder.
        allow_empty: let the source have no rows.

    Returns:
        An object with `__len__` and `__getitem__`; a `datasets.Dataset` unless a loader made something else.

    Raises:
        SourceError: the source cannot be opened or used; names source, file and, where there is one, the line.
    """
    reference = os.fspath(path)

    def open_path(path: str | os.PathLike[str]) -> Rows:
        data = _open(_locate(os.fspath(path), name, folder), split=split, columns=columns or ())
        return cast(Rows, _chosen(data, columns, name))

    if loader is None:
        data = open_path(reference)
    else:
        data = Loader.of(loader).load(path=_resolved(reference, folder), name=name, open_path=open_path)
        _check_loaded(data, Loader.of(loader), name)
    if rows is not None:
        data = keep_rows(data, _place(os.fspath(rows), folder), name=name, loaded=loader is not None)
    check_rows(data, name=name, allow_empty=allow_empty)
    return data


def check_rows(data: object, *, name: str, allow_empty: bool = False) -> None:
    """Check that an object works as a source: `__len__`, `__getitem__` by row number, rows without the reserved field.

    Args:
        data: any object; its first row is read, unless it is a `datasets.Dataset`.
        name: the source's name.
        allow_empty: let it have no rows.

    Raises:
        SourceError: it does not work as a source; says what to do about it.
    """
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    where = f"source {name!r}"
    if isinstance(data, Mapping):
        raise SourceError(f"{where}: data must be one dataset, but got {kind} of {list(data)[:5]}; choose one of them")
    if isinstance(data, str | bytes) or arrow_kind(data) == "table" or kind.startswith("pandas."):
        raise SourceError(
            f"{where}: data must give a row for a row number, but got {kind}; wrap it in datasets.Dataset"
        )
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise SourceError(
            f"{where}: data must have __len__ and __getitem__, but got {kind}; streams cannot be mixed by position"
        )
    rows = cast(Rows, data)
    if len(rows) == 0 and not allow_empty:
        raise SourceError(f"{where}: data must have at least one row, but got none; leave it out")
    try:
        columns = columns_of(rows)
    except Exception as error:
        raise SourceError(f"{where}: row 0 must be readable, but got {reason(error)} from {kind}") from error
    check_reserved(columns or (), where=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedFolder:
    path: Path
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _HubDataset:
    repo: str
    config: str | None
    split: str | None
    source: str
    reference: str


def _each(requests: list[SourceRequest], act: Callable[[SourceRequest], _T]) -> dict[str, _T]:
    done: dict[str, _T] = {}
    problems: list[str] = []
    for request in requests:
        try:
            done[request.name] = act(request)
        except SourceError as error:
            problems.append(str(error))
    if problems:
        raise SourceError("\n".join(problems))
    return done


def _resolved(reference: str, folder: Path | None) -> str:
    path = _place(reference, folder)
    return str(path) if _exists(path) else reference


def _place(reference: str, folder: Path | None) -> Path:
    return (folder or Path()) / os.path.expanduser(reference)  # noqa: PTH111  (Path's fails where there is no such user)


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110  (Path's fails where a name is too long)


def _locate(reference: str, name: str, folder: Path | None) -> DataFile | _SavedFolder | _HubDataset:
    path = _place(reference, folder)
    if _exists(path) and path.is_dir():
        try:
            saved_data_files(path)
        except SourceError as error:
            raise SourceError(f"source {name!r}: {error}") from None
        return _SavedFolder(path=path, source=name)
    if _exists(path):
        return data_file(path, source=name)
    match = _HUB_REFERENCE.fullmatch(reference)
    if match is None or has_data_suffix(reference) or _exists(path.parent):
        shown = repr(str(path) if len(str(path)) <= MOST_SHOWN else f"{str(path)[:MOST_SHOWN]}…")
        raise SourceError(
            f"source {name!r}: path must be a file or folder that exists, but got {shown}{_nearest(path)}"
        )
    return _HubDataset(
        repo=match["repo"], config=match["config"] or None, split=match["split"], source=name, reference=reference
    )


def _nearest(path: Path) -> str:
    if not _exists(path.parent):
        return f"; there is no folder {str(path.parent)[:MOST_SHOWN]!r}"
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    if path.name in names:
        return ", a link that leads nowhere"
    return nearest(path.name, sorted(names))


def _open(place: DataFile | _SavedFolder | _HubDataset, *, split: str | None, columns: Sequence[str]) -> Dataset:
    try:
        import datasets  # noqa: F401
    except ModuleNotFoundError as error:
        raise SourceError(
            f"source {place.source!r}: opening a path needs the package {error.name}, but it is not installed; "
            f"{INSTALL_HF}"
        ) from None
    if isinstance(place, DataFile):
        return _split_of({"train": load_file(place, columns=columns)}, split, where=place.where)
    if isinstance(place, _SavedFolder):
        return _open_saved(place, split)
    return _open_hub(place, split)


def _open_saved(place: _SavedFolder, split: str | None) -> Dataset:
    from datasets import Dataset, load_from_disk

    where = f"source {place.source!r}: {place.path}"
    try:
        data = load_from_disk(str(place.path))
    except Exception as error:
        raise SourceError(f"{where}: must be a whole save_to_disk folder, but got {reason(error)}") from error
    parts = {str(data.split or "train"): data} if isinstance(data, Dataset) else {str(key): data[key] for key in data}
    return _split_of(parts, split, where=where)


def _open_hub(place: _HubDataset, split: str | None) -> Dataset:
    from datasets import load_dataset

    where = f"source {place.source!r}: Hub reference {place.reference!r}"
    if split is not None and place.split is not None and split != place.split:
        raise SourceError(f"{where}: split must be given once, but got {place.split!r} and {split!r}")
    try:
        return load_dataset(place.repo, place.config, split=split or place.split or "train")
    except Exception as error:
        raise SourceError(
            f"{where}: must be a local path or a dataset that can be loaded from the Hub, but got {reason(error)}; "
            "offline, give the path of a local copy (save_to_disk) or download it to the Hub cache beforehand, and set "
            "HF_HUB_OFFLINE=1, so that nothing waits for the network"
        ) from error


def _split_of(parts: Mapping[str, Dataset], split: str | None, *, where: str) -> Dataset:
    """Return a split, or a slice or sum of splits in the notation of `datasets`."""
    from datasets import ReadInstruction, concatenate_datasets

    chosen = split or (next(iter(parts)) if len(parts) == 1 else "train")
    if chosen in parts:
        return parts[chosen]
    try:
        spans = ReadInstruction.from_spec(chosen).to_absolute({key: len(part) for key, part in parts.items()})
    except (ValueError, AssertionError, KeyError):
        spans = []
    if not spans:
        raise SourceError(f"{where}: split must be of {sorted(parts)}, or a slice of one, but got {chosen!r}")
    pieces = [parts[span.splitname].select(range(span.from_ or 0, span.to or 0)) for span in spans]
    return pieces[0] if len(pieces) == 1 else concatenate_datasets(pieces)


def _chosen(data: Dataset, columns: Sequence[str] | None, name: str) -> Dataset:
    if columns is None or len(data) == 0:
        return data
    for column in columns:
        check_column(column, data.column_names, where=f"source {name!r}")
    return data.select_columns(list(columns))


def _check_loaded(data: Rows, loader: Loader, name: str) -> None:
    """Check that a loader returned rows, and that a row is a dict."""
    where = f"source {name!r}: loader {loader.function_name!r} of {loader.file}"
    try:
        check_rows(data, name=name, allow_empty=True)
    except SourceError as error:
        raise SourceError(f"{where} must return rows, but got {type(data).__name__} ({error})") from None
    if len(data) and not isinstance(row := data[0], Mapping):
        raise SourceError(f"{where} must return rows that are dicts, but got {type(row).__name__}: {row!r:.60}")
