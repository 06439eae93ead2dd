"""Data files -> `datasets.Dataset`: formats by suffix, checked line by line once, converted once, memory-mapped."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import xxh3_128
from ..cache import cache_folder, write_atomically
from ..checks import nearest
from ..errors import SourceError
from .fingerprint import fingerprint_of
from .scan import LONG_FILE, SCAN_RULES, Extent, check_header, refuse_json_row, scan_csv, scan_json

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

_COMPRESSIONS = (".gz", ".zst")
_ONE_GO = 256 << 20  # bytes of text up to which a file is converted in one piece
_FORMATS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file whose suffix says how to read it."""

    path: Path
    source: str
    suffix: str

    @property
    def format(self) -> str:
        """Name of the format: json, parquet, csv or arrow."""
        return _FORMATS[self.suffix]

    @property
    def delimiter(self) -> str:
        """What stands between the fields of a CSV or TSV row."""
        return "\t" if self.suffix == ".tsv" else ","

    @property
    def where(self) -> str:
        """Source and file, to begin an error with."""
        return f"source {self.source!r}: {self.path}"


def has_data_suffix(name: str) -> bool:
    """Tell whether a name ends like a data file."""
    return _suffix_of(name) in _FORMATS


def data_file(path: Path, *, source: str) -> DataFile:
    """Return what is known of a file before it is read.

    Raises:
        SourceError: it is no regular file, the suffix is unknown, or the file is empty.
    """
    if not path.is_file():
        raise SourceError(f"source {source!r}: {path}: a data file must be a regular file, but got a device or pipe")
    suffix = _suffix_of(path.name)
    packed = path.suffix.lower() in _COMPRESSIONS
    if suffix not in _FORMATS or (packed and _FORMATS[suffix] not in ("json", "csv")):
        hint = "" if packed else nearest(suffix, _FORMATS)
        raise SourceError(
            f"source {source!r}: {path}: the suffix must be one of {', '.join(_FORMATS)}, or of the text formats with "
            f"{' or '.join(_COMPRESSIONS)}, but got {''.join(path.suffixes[-2:]) or 'none'}{hint}"
        )
    if path.stat().st_size == 0:
        raise SourceError(f"source {source!r}: {path}: a data file must have rows, but got an empty file")
    return DataFile(path=path, source=source, suffix=suffix)


def load_file(file: DataFile, *, columns: Sequence[str] = ()) -> Dataset:
    """Return the rows of a file as a memory-mapped `datasets.Dataset`.

    Text files are checked from the first line to the last before they are converted. What was checked and converted is
    kept in the cache folder under the content's fingerprint, so it is done once for each content.

    Args:
        file: what to read.
        columns: columns that every row must have.

    Raises:
        SourceError: names source, file and, for text, the line.
    """
    fingerprint = fingerprint_of(file.path)
    folder = cache_folder() / "datasets" / str(fingerprint)
    try:
        with _quiet(bars=file.path.stat().st_size >= LONG_FILE):
            return _LOAD[file.format](file, folder, columns)
    except SourceError:
        raise
    except ModuleNotFoundError as error:
        raise SourceError(
            f"{file.where}: must have its package {error.name}, but it is not installed: pip install {error.name}"
        ) from None
    except PermissionError as error:
        raise SourceError(f"{file.where}: must be readable and {cache_folder()} writable, but got {error}") from None
    except Exception as error:
        raise SourceError(f"{file.where}: must be a valid {file.suffix[1:]} file, but got {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return the innermost cause of an error in one line."""
    while error.__cause__ or (error.__context__ and not error.__suppress_context__):
        error = error.__cause__ or error.__context__ or error
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _suffix_of(name: str) -> str:
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in _COMPRESSIONS else path.suffix


def _load_json(file: DataFile, folder: Path, columns: Sequence[str]) -> Dataset:
    from datasets import Dataset
    from datasets.packaged_modules.json.json import JsonConfig

    extent = _scanned(file, folder, columns)
    guesses = {field.name for field in dataclasses.fields(JsonConfig)} & {"parse_agent_traces"}  # not in all versions
    options = dict.fromkeys(guesses, False)
    try:
        return _convert(Dataset.from_json, file, folder, extent, whole=extent.size + 1, **options)
    except Exception:
        refuse_json_row(file.path, source=file.source)
        raise


def _load_csv(file: DataFile, folder: Path, columns: Sequence[str]) -> Dataset:
    from datasets import Dataset

    extent = _scanned(file, folder, columns)
    options = {"sep": file.delimiter, "keep_default_na": False, "na_values": [""]}
    return _convert(Dataset.from_csv, file, folder, extent, whole=extent.rows + 1, **options)


def _convert(
    read: Callable[..., Any], file: DataFile, folder: Path, extent: Extent, *, whole: int, **options: object
) -> Dataset:
    """Convert a file at one go; a long one in chunks, unless the first chunk's types do not hold for the rest."""
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError

    if extent.rows == 0:
        return Dataset.from_dict({})
    convert = partial(read, glob.escape(str(file.path.resolve())), cache_dir=str(folder), **options)
    data = None
    if extent.size > _ONE_GO:
        with contextlib.suppress(DatasetGenerationError):
            data = convert()
    data = convert(chunksize=whole) if data is None else data
    if len(data) != extent.rows:
        raise SourceError(f"{file.where}: datasets must read all its {extent.rows} rows, but got {len(data)}")
    return data


def _load_parquet(file: DataFile, folder: Path, columns: Sequence[str]) -> Dataset:  # noqa: ARG001
    import pyarrow.parquet
    from datasets import Dataset

    with pyarrow.parquet.ParquetFile(file.path) as parquet:
        check_header(parquet.schema_arrow.names, file.where)
        if parquet.metadata.num_rows == 0:
            return Dataset(parquet.schema_arrow.empty_table())
    return Dataset.from_parquet(glob.escape(str(file.path.resolve())), cache_dir=str(folder))


def _load_arrow(file: DataFile, folder: Path, columns: Sequence[str]) -> Dataset:  # noqa: ARG001
    """Map the stream format as it lies; copy the file format into a stream first."""
    import pyarrow as pa
    from datasets import Dataset

    with pa.memory_map(str(file.path)) as mapped:
        if mapped.read(6) != b"ARROW1":
            return Dataset.from_file(str(file.path))
        stream = folder / "stream.arrow"
        if not stream.exists():
            with pa.ipc.open_file(mapped) as reader:
                _write_stream(reader, stream)
    return Dataset.from_file(str(stream))


def _write_stream(reader: pa.ipc.RecordBatchFileReader, path: Path) -> None:
    import pyarrow as pa

    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with pa.OSFile(str(scratch), "wb") as sink, pa.ipc.new_stream(sink, reader.schema) as writer:
        for number in range(reader.num_record_batches):
            writer.write_batch(reader.get_batch(number))
    scratch.replace(path)


_LOAD: dict[str, Callable[[DataFile, Path, Sequence[str]], Dataset]] = {
    "json": _load_json,
    "csv": _load_csv,
    "parquet": _load_parquet,
    "arrow": _load_arrow,
}


def _scanned(file: DataFile, folder: Path, columns: Sequence[str]) -> Extent:
    """Scan the file, unless this content was found good before."""
    key = xxh3_128(json.dumps([SCAN_RULES, file.suffix, sorted(columns)]).encode())
    note = folder / f"checked-{key}.json"
    if note.exists():
        return Extent(**json.loads(note.read_bytes()))
    if file.format == "json":
        extent = scan_json(file.path, source=file.source, columns=columns)
    else:
        extent = scan_csv(file.path, source=file.source, delimiter=file.delimiter)
    write_atomically(note, json.dumps(extent._asdict()).encode())
    return extent


@contextlib.contextmanager
def _quiet(*, bars: bool) -> Iterator[None]:
    """Keep `datasets` from logging errors that are raised anyway, and from drawing bars for work too short to watch."""
    from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    verbosity, hide_bars = logging.get_verbosity(), not (bars or are_progress_bars_disabled())
    logging.set_verbosity(logging.CRITICAL)
    if hide_bars:
        disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if hide_bars:
            enable_progress_bars()
