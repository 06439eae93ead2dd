"""Content identity of a source: the same 32 hex digits wherever, whenever and under whatever name the data lies.

Not `datasets`' own fingerprint, which follows the history of an object and changes when a file is moved or touched.
docs/sources.md states each rule.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._core import Digest
from ..errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

_FILE_BLOCK = 8 << 20  # bytes read at a time
_ROW_BLOCK = 4096  # rows hashed at a time; part of the definition, so never to be changed


def fingerprint_of(path_or_data: object) -> str | None:
    """Return the content identity of a file, a `save_to_disk` folder or data in memory.

    Args:
        path_or_data: a path (`str` or `os.PathLike`), a `datasets.Dataset`, a `pyarrow.Table`, a NumPy array, or a list
            or tuple of rows made of JSON values.

    Returns:
        32 hex digits (xxh3-128), or None for any other object: its content cannot be known without reading all of it
        through code of its own.

    Raises:
        SourceError: the path does not exist, or is a folder that `save_to_disk` did not write.
    """
    if isinstance(path_or_data, str | os.PathLike):
        return _of_path(Path(path_or_data))
    if isinstance(path_or_data, np.ndarray):
        return None if path_or_data.dtype.hasobject else _of_array(path_or_data)
    if isinstance(path_or_data, list | tuple):
        return _of_rows(path_or_data)
    kind = arrow_kind(path_or_data)
    return None if kind is None else _of_arrow(cast("Dataset | pa.Table", path_or_data), kind)


def arrow_kind(data: object) -> str | None:
    """Return "dataset" for a `datasets.Dataset`, "table" for a `pyarrow.Table`, else None; imports neither package."""
    for base in type(data).__mro__:
        package, name = base.__module__.partition(".")[0], base.__name__
        if (package, name) == ("datasets", "Dataset"):
            return "dataset"
        if (package, name) == ("pyarrow", "Table"):
            return "table"
    return None


def saved_data_files(folder: Path) -> list[Path]:
    """Return the data files of a `save_to_disk` folder, in the order of their names inside the folder.

    Args:
        folder: a saved `Dataset`, or a saved `DatasetDict` with a folder for each split. Caches that `map` left in it
            are no data.

    Raises:
        SourceError: `save_to_disk` did not write this folder, or a data file is missing.
    """
    states = sorted(folder.glob("state.json")) or sorted(folder.glob("*/state.json"))
    if not states:
        raise SourceError(f"{folder}: a folder must be one that datasets' save_to_disk wrote, but it has no state.json")
    files = [state.parent / name for state in states for name in _listed_files(state)]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise SourceError(f"{folder}: every file that state.json lists must exist, but missing: {', '.join(missing)}")
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def _listed_files(state: Path) -> list[str]:
    try:
        document = json.loads(state.read_bytes())
        entries = document["_data_files"] + (document.get("_indices_data_files") or [])
        return [str(entry["filename"]) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{state}: must be the state that datasets' save_to_disk wrote, but got {error!r}") from None


def _of_path(path: Path) -> str:
    if path.is_dir():
        return _of_files(saved_data_files(path))
    if not path.exists():
        raise SourceError(f"{path}: a path must exist to be fingerprinted, but there is no such file")
    digest = Digest()
    for block in _blocks(path):
        digest.update(block)
    return digest.hexdigest()


def _of_files(files: list[Path]) -> str:
    digest = Digest()
    for file in files:
        digest.update(_number(file.stat().st_size))
        for block in _blocks(file):
            digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_FILE_BLOCK):
            yield block


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _text(value: str) -> bytes:
    content = value.encode()
    return _number(len(content)) + content


def _of_array(array: np.ndarray[Any, Any]) -> str:
    digest = Digest()
    digest.update(_text(f"array {array.dtype.newbyteorder('<').str} {array.shape}"))
    content = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    digest.update(content.tobytes())
    return digest.hexdigest()


def _of_rows(rows: list[Any] | tuple[Any, ...]) -> str | None:
    encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode
    digest = Digest()
    digest.update(_text("rows"))
    try:
        for row in rows:
            digest.update(_text(encode(row)))
    except (TypeError, ValueError):  # not JSON: no identity
        return None
    return digest.hexdigest()


def _of_arrow(data: Dataset | pa.Table, kind: str) -> str:
    """Digest the values, not the memory: slices, chunks, index mappings and garbage under nulls leave no trace."""
    names = sorted(data.column_names)
    digest = Digest()
    digest.update(_text("arrow") + _number(len(data)) + _number(len(names)))
    for name in names:
        digest.update(_text(name))
    for table in _tables(data, kind):
        for name in names:
            _digest_column(table.column(name), digest)
    return digest.hexdigest()


def _tables(data: Dataset | pa.Table, kind: str) -> Iterator[pa.Table]:
    view = data.with_format("arrow") if kind == "dataset" else None
    for start in range(0, len(data), _ROW_BLOCK):
        yield data.slice(start, _ROW_BLOCK) if view is None else view[start : start + _ROW_BLOCK]


def _digest_column(column: pa.ChunkedArray, digest: Digest) -> None:
    import pyarrow as pa

    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(column.type)
    if wide is not None:  # a block of long texts may pass 2 GB, more than one plain array holds
        column = column.cast(wide)
    _digest_array(pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type), digest)


def _digest_array(array: pa.Array, digest: Digest) -> None:
    """Feed type, length, nulls and the values that are not null, nested types from the outside in."""
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        digest.update(_text("bool"))
    array = _plain(array)
    tag, is_types = array.type, pa.types
    digest.update(_number(len(array)) + _number(array.null_count))
    if array.null_count:
        digest.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes())
        array = array.drop_null()
    if is_types.is_null(tag):
        digest.update(_text("null"))
    elif is_types.is_struct(tag):
        digest.update(_text("struct") + _number(tag.num_fields))
        for field, child in zip(tag, array.flatten(), strict=True):
            digest.update(_text(field.name))
            _digest_array(child, digest)
    elif is_types.is_large_list(tag):
        digest.update(_text("list") + array.value_lengths().cast(pa.int64()).to_numpy().tobytes())
        _digest_array(array.flatten(), digest)
    elif is_types.is_large_string(tag) or is_types.is_large_binary(tag):
        _digest_bytes(array, digest, name="string" if is_types.is_large_string(tag) else "binary")
    else:
        _digest_fixed_width(array, digest)


def _plain(array: pa.Array) -> pa.Array:
    """Return the same values in the one layout that is hashed for their kind."""
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary_decode())
    layout = _layout(array.type)
    return array if layout is None else array.cast(layout)


def _layout(tag: pa.DataType) -> pa.DataType | None:
    import pyarrow as pa

    if pa.types.is_map(tag):
        return pa.large_list(pa.struct([("key", tag.key_type), ("value", tag.item_type)]))
    name = str(tag)
    if name.startswith(("list", "large_list", "fixed_size_list")):
        return pa.large_list(tag.value_type)
    return {
        "bool": pa.uint8(),
        "string": pa.large_string(),
        "string_view": pa.large_string(),
        "binary": pa.large_binary(),
        "binary_view": pa.large_binary(),
    }.get(name)


def _digest_bytes(array: pa.Array, digest: Digest, *, name: str) -> None:
    _, offsets, values = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1] if len(array) else np.zeros(1)
    digest.update(_text(name) + np.diff(ends).astype("<i8").tobytes())
    if values is not None and ends[-1] > ends[0]:
        digest.update(memoryview(values)[int(ends[0]) : int(ends[-1])])


def _digest_fixed_width(array: pa.Array, digest: Digest) -> None:
    import pyarrow as pa

    try:
        width = array.type.bit_width // 8
    except ValueError:
        raise SourceError(
            f"a column must be of a type that can be fingerprinted, but got {array.type}; give the source a fingerprint"
        ) from None
    digest.update(_text(str(array.type)))
    if len(array) and not pa.types.is_null(array.type):
        values = memoryview(array.buffers()[1])
        digest.update(values[array.offset * width : (array.offset + len(array)) * width])
