"""Where documents come from: lists, columns of datasets, Arrow arrays, rows and streams, read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..checks import canonical_json
from ..errors import SourceError
from ..sources.fingerprint import arrow_kind, fingerprint_of
from ..sources.schemas import Rows, check_column, columns_of

Packed = tuple[NDArray[np.uint8], NDArray[np.int64]]  # UTF-8 bytes, and where each text begins and the last one ends
Block = list[str] | Packed  # what the core reads
BLOCK = 8192  # documents read at a time
FORMS = (("text",), ("messages",), ("prompt", "response"))  # columns of the forms of rows that training reads


class Texts(Protocol):
    """Documents by number, of some columns where they are in any."""

    columns: tuple[str, ...]

    def __len__(self) -> int: ...
    def at(self, rows: range | NDArray[np.int64]) -> Block:
        """Return some documents, in the order asked for."""
        ...

    def identity(self) -> str | None:
        """Return the identity of the content, None where it cannot be known."""
        ...


def texts_of(data: object, *, name: str, column: str | None = None, spool: Path | None = None) -> Texts:
    """Return the documents of anything that has some.

    Args:
        data: strings in a list or tuple, an Arrow array of strings, a dataset or map-style rows, or an iterable of
            strings, which is read once and kept in a file.
        name: of the source, for errors.
        column: of a dataset or rows; without one "text", or "messages", or "prompt" and "response", or the only column
            of texts.
        spool: folder for the file of what can be read only once.

    Raises:
        SourceError: there are no documents in it.
    """
    kind = arrow_kind(data)
    if kind is None and not isinstance(data, str | bytes | Mapping):
        if _is_arrow_array(data):
            return ArrowTexts(name, len(cast(Any, data)), _array_reader(cast(Any, data)), None)
        if isinstance(data, Sequence) and _holds_texts(data):
            return ListTexts(name, data)
        if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
            return _of_rows(cast(Rows, data), name, column)
        if isinstance(data, Iterable):
            return SpooledTexts(name, data, spool)
    if kind is not None:
        return _of_arrow(data, name, column)
    raise SourceError(f"source {name!r}: documents must be in a list, dataset or stream, but got {type(data).__name__}")


def has_columns(data: object) -> bool:
    """Tell whether a column of it can be named: of strings in a list, Arrow array or stream none can."""
    if arrow_kind(data) is not None or isinstance(data, str | bytes | Mapping):  # the latter are refused otherwise
        return True
    if _is_arrow_array(data) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return not isinstance(data, Iterable)
    if isinstance(data, Sequence):
        return len(data) == 0 or isinstance(data[0], Mapping)
    return len(rows := cast(Rows, data)) == 0 or columns_of(rows) is not None


def _holds_texts(data: Sequence[Any]) -> bool:
    return len(data) == 0 or not isinstance(data[0], Mapping)


class ListTexts:
    """Strings in a list or tuple."""

    columns: tuple[str, ...] = ()

    def __init__(self, name: str, data: Sequence[str]) -> None:
        self._name = name
        self._data = data if isinstance(data, list | tuple) else list(data)

    def __len__(self) -> int:
        return len(self._data)

    def at(self, rows: range | NDArray[np.int64]) -> Block:
        """Return some documents, in the order asked for."""
        if isinstance(rows, range):
            part = self._data[rows.start : rows.stop]
            return part if isinstance(part, list) else list(part)
        return list(map(self._data.__getitem__, rows.tolist()))

    def identity(self) -> str | None:
        """Return a digest of all strings, None where there are others than strings."""
        return fingerprint_of(self._data)


class ArrowTexts:
    """Strings in Arrow memory, which the core reads where they lie.

    Args:
        name: of the source.
        size: number of documents.
        read: returns the Arrow array of a range, or of some rows.
        content: whose fingerprint is the identity.
        columns: that the array is.
    """

    def __init__(
        self,
        name: str,
        size: int,
        read: Callable[[range | NDArray[np.int64]], Any],
        content: object | None,
        columns: Sequence[str] = (),
    ) -> None:
        self._name, self._size, self._read, self._content = name, size, read, content
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return self._size

    def at(self, rows: range | NDArray[np.int64]) -> Block:
        """Return some documents, in the order asked for."""
        return pack(self._read(rows), name=self._name, rows=rows)

    def identity(self) -> str | None:
        """Return the content identity of the column."""
        return None if self._content is None else fingerprint_of(self._content)


class RowTexts:
    """Documents put together from map-style rows."""

    def __init__(self, name: str, data: Rows, columns: Sequence[str]) -> None:
        self._name, self._data, self.columns = name, data, tuple(columns)

    def __len__(self) -> int:
        return len(self._data)

    def at(self, rows: range | NDArray[np.int64]) -> Block:
        """Return some documents, in the order asked for."""
        wanted = list(rows) if isinstance(rows, range) else rows.tolist()
        if arrow_kind(self._data) == "dataset":
            table = cast(Any, self._data).select_columns(list(self.columns)).with_format(None)[wanted]
            found = [list(values) for values in zip(*(table[column] for column in self.columns), strict=True)]
        else:
            found = [[self._value(row, column) for column in self.columns] for row in wanted]
        return [self._text(parts, row) for parts, row in zip(found, wanted, strict=True)]

    def identity(self) -> str | None:
        """Return the content identity of the rows, and which of their columns are read."""
        data = cast(Any, self._data)
        content = fingerprint_of(data.select_columns(list(self.columns)) if arrow_kind(data) == "dataset" else data)
        return None if content is None else canonical_json([content, *self.columns]).decode()

    def _value(self, row: int, column: str) -> object:
        content = self._data[row]
        if not isinstance(content, Mapping) or column not in content:
            raise SourceError(f"source {self._name!r}, row {row}: must have {column!r}, but got {content!r:.60}")
        return content[column]

    def _text(self, parts: list[object], row: int) -> str:
        found: list[str] = []
        for part in parts:
            for text in _strings_of(part):
                if not isinstance(text, str):
                    raise SourceError(f"source {self._name!r}, row {row}: must hold a string, but got {text!r:.60}")
                found.append(text)
        return "\n".join(found)


def _strings_of(part: object) -> Iterable[object]:
    """Return what the turns of a conversation say; anything else is one string, or will be complained about."""
    if isinstance(part, list) and all(isinstance(turn, Mapping) for turn in part):
        return [turn.get("content") for turn in part]
    return [part]


class SpooledTexts:
    """Strings of a stream, kept in a file: read once, then by number."""

    columns: tuple[str, ...] = ()

    def __init__(self, name: str, stream: Iterable[Any], folder: Path | None) -> None:
        if folder is None:
            raise SourceError(
                f"source {name!r}: documents must have a content that can be identified, as a list or dataset has, "
                "but got a stream; save it first, or leave the work folder out"
            )
        ends = [np.zeros(1, np.int64)]
        self._path = folder / f"stream-{id(self):x}.utf8"
        with self._path.open("xb") as file:
            for first, block in _blocks_of(stream):
                content = [_encoded(text, name, first + i) for i, text in enumerate(block)]
                file.write(b"".join(content))
                ends.append(ends[-1][-1] + np.cumsum([len(text) for text in content], dtype=np.int64))
        self._offsets = np.concatenate(ends)
        self._values = np.memmap(self._path, np.uint8, "r") if self._offsets[-1] else np.zeros(0, np.uint8)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def at(self, rows: range | NDArray[np.int64]) -> Block:
        """Return some documents, in the order asked for."""
        if isinstance(rows, range):
            offsets = self._offsets[rows.start : rows.stop + 1]
            return np.asarray(self._values[offsets[0] : offsets[-1]]), offsets - offsets[0]
        sizes = self._offsets[rows + 1] - self._offsets[rows]
        pieces = [self._values[self._offsets[row] : self._offsets[row + 1]] for row in rows.tolist()]
        values = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
        return values, np.concatenate([[0], np.cumsum(sizes)])

    def identity(self) -> str | None:
        """Return None: the stream is gone."""
        return None


def _blocks_of(stream: Iterable[Any]) -> Iterator[tuple[int, list[Any]]]:
    items, first = iter(stream), 0
    while block := list(islice(items, BLOCK)):
        yield first, block
        first += len(block)


def _encoded(text: object, name: str, row: int) -> bytes:
    if not isinstance(text, str):
        raise SourceError(f"source {name!r}, document {row}: must be a string, but got {text!r:.60}")
    return text.encode("utf-8", "surrogatepass")


def refuse_block(block: Block, *, name: str, rows: range | NDArray[np.int64]) -> None:
    """Raise SourceError for the first of a block of documents that is no string."""
    for row, text in zip(list(rows), block, strict=True):
        if not isinstance(text, str):
            raise SourceError(f"source {name!r}, document {int(row)}: must be a string, but got {text!r:.60}")


def pack(array: Any, *, name: str, rows: range | NDArray[np.int64]) -> Packed:
    """Return the memory of an Arrow array of strings.

    Raises:
        SourceError: it is of another type, or there is a null in it.
    """
    import pyarrow as pa

    if not _holds_strings(array.type):
        raise SourceError(f"source {name!r}: documents must be strings, but got Arrow values of type {array.type}")
    array = array.cast(pa.large_string())  # first, because a block may pass the 2 GB that a string array holds
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.large_string())
    if array.null_count:
        row = list(rows)[int(np.argmin(array.is_valid().to_numpy(zero_copy_only=False)))]
        raise SourceError(f"source {name!r}, document {int(row)}: must be a string, but got None")
    _, offsets, values = array.buffers()
    if len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(values, np.uint8) if values is not None else np.zeros(0, np.uint8), ends


def _holds_strings(kind: Any) -> bool:
    import pyarrow.types as of

    kind = kind.value_type if of.is_dictionary(kind) else kind
    return bool(of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind) or of.is_null(kind))


def _is_arrow_array(data: object) -> bool:
    return any(
        (base.__module__.partition(".")[0], base.__name__) in {("pyarrow", "Array"), ("pyarrow", "ChunkedArray")}
        for base in type(data).__mro__
    )


def _array_reader(array: Any) -> Callable[[range | NDArray[np.int64]], Any]:
    return lambda rows: array.slice(rows.start, len(rows)) if isinstance(rows, range) else array.take(rows)


def _of_arrow(data: object, name: str, column: str | None) -> Texts:
    table = cast(Any, data)
    columns = _columns(cast(Rows, data), name, column)
    if len(columns) > 1 or not _is_text(cast(Rows, data), columns[0]):
        if arrow_kind(data) == "table":
            raise SourceError(f"source {name!r}: a table must be given as one of its columns of texts")
        return RowTexts(name, cast(Rows, data), columns)
    if arrow_kind(data) == "table":
        return ArrowTexts(name, len(table), _array_reader(table.column(columns[0])), table.select(columns), columns)
    view = table.select_columns(columns)
    arrow = view.with_format("arrow")

    def read(rows: range | NDArray[np.int64]) -> Any:
        return arrow[rows.start : rows.stop].column(0) if isinstance(rows, range) else arrow[rows].column(0)

    return ArrowTexts(name, len(view), read, view, columns)


def _of_rows(data: Rows, name: str, column: str | None) -> Texts:
    if len(data) == 0:
        return ListTexts(name, [])
    if columns_of(data) is None:
        return ListTexts(name, [cast(str, data[row]) for row in range(len(data))])
    return RowTexts(name, data, _columns(data, name, column))


def _is_text(data: Rows, column: str) -> bool:
    return (columns_of(data) or {})[column][0] == "text"


def _columns(data: Rows, name: str, column: str | None) -> list[str]:
    known = columns_of(data) or {}
    if column is not None:
        check_column(column, known, where=f"source {name!r}", what="the column of documents")
        return [column]
    for parts in FORMS:
        if set(parts) <= known.keys():
            return list(parts)
    texts = [key for key, (kind, _) in known.items() if kind == "text"]
    if len(texts) != 1:
        raise SourceError(
            f"source {name!r}: documents must be in a column text, messages, or prompt and response, or the only "
            f"one of texts, but got {list(known)}; name the column"
        )
    return texts
