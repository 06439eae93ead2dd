"""One reading of a text file from end to end, to report its first bad line, by number, before anything is loaded."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from ..errors import SourceError
from .schemas import RESERVED_FIELD, check_column

if TYPE_CHECKING:
    from typing_extensions import Buffer

LONG_FILE = 64 << 20  # bytes from which on progress is shown
_EXCERPT = 60  # characters of a bad line that an error shows
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Extent(NamedTuple):
    """How much a text file holds: rows, and bytes after decompression."""

    rows: int
    size: int


def scan_json(file: Path, *, source: str, columns: Sequence[str] = ()) -> Extent:
    """Check a JSON file: a list of objects, or an object a line (JSON Lines), in gzip or zstd or plain.

    Args:
        file: what to read.
        source: name of the source, for errors.
        columns: fields that every row must have.

    Raises:
        SourceError: names the file, the line and the source. See `_Rows` for what is checked of each row.
    """
    with _reading(file, source) as stream:
        head = stream.peek(4096).removeprefix(_BYTE_ORDER_MARK).lstrip()
        is_list = head.startswith(b"[") and "jsonl" not in file.name.lower()
        scan = _scan_json_list if is_list else _scan_json_lines
        return scan(stream, _Rows(file, source, columns))


def scan_csv(file: Path, *, source: str, delimiter: str) -> Extent:
    """Check a CSV or TSV file: UTF-8, one header of distinct names, as many fields in every row as in the header.

    Raises:
        SourceError: names the file, the line and the source.
    """
    where = f"source {source!r}: {file}"
    with _reading(file, source) as stream, _long_fields():
        reader = csv.reader(_lines(stream, where), delimiter=delimiter, strict=True)
        header: list[str] = []
        rows, line = 0, 1  # where the row begins: quoted fields may hold line breaks
        try:
            for row in reader:
                if not header:
                    header = row
                    _check_header(row, f"{where}, line {line}")
                elif row:
                    _check_width(row, header, f"{where}, line {line}", delimiter)
                    rows += 1
                line = reader.line_num + 1
        except csv.Error as error:
            raise SourceError(f"{where}, line {line}: must be a CSV row, but got {error}") from None
        return Extent(rows, stream.tell())


def refuse_json_row(file: Path, *, source: str) -> None:
    """Find out why a file of good JSON lines has no Arrow types: duplicate names, numbers too big, nested kinds mixed.

    Raises:
        SourceError: names the file, the line and the source. Returns if nothing is found.
    """
    import pyarrow as pa
    import pyarrow.json

    with _reading(file, source) as stream:
        lines = [line for line in enumerate(stream, 1) if line[1].strip()]
    content = b"".join(line for _, line in lines)
    if content.removeprefix(_BYTE_ORDER_MARK).startswith(b"["):  # a list: its rows are not its lines
        return
    try:
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(content) + 1)
        pyarrow.json.read_json(io.BytesIO(content), read_options=options)
    except (pa.ArrowInvalid, OverflowError) as error:
        if found := re.search(r"(?:JSON parse error: )?(.*) in row (\d+)", str(error)):
            number, line = lines[int(found[2])]
            raise SourceError(
                f"source {source!r}: {file}, line {number}: a row must fit Arrow's types, but got "
                f"{_excerpt(line.decode())} ({found[1].rstrip('.')})"
            ) from None


class _Rows:
    """Checks one JSON row after the other: an object, without the reserved field, one kind of value per field."""

    def __init__(self, file: Path, source: str, columns: Sequence[str]) -> None:
        self.where = f"source {source!r}: {file}"
        self.count = 0
        self._fields = 0
        self._columns = columns
        self._kinds: dict[str, tuple[str, str]] = {}

    def extent(self, size: int) -> Extent:
        """Return the file's extent once all rows are checked."""
        if self.count and not self._fields:
            raise SourceError(f"{self.where}: rows must have fields, but got {{}} in all {self.count}")
        return Extent(self.count, size)

    def check(self, row: object, place: str) -> None:
        self.count += 1
        if not isinstance(row, dict):
            raise SourceError(f"{self.where}, {place}: a row must be a JSON object, but got {_shown(row)}")
        if RESERVED_FIELD in row:
            raise SourceError(
                f"{self.where}, {place}: a row must not have the reserved field {RESERVED_FIELD!r}, but got "
                f"{_shown(row[RESERVED_FIELD])}; rename or drop it"
            )
        for column in self._columns:
            if column not in row:
                check_column(column, row, where=f"{self.where}, {place}")
        self._fields += len(row)
        for field, value in row.items():
            kind = _JSON_KINDS[type(value)]
            if kind and self._kinds.setdefault(field, (kind, place))[0] != kind:
                other, first = self._kinds[field]
                raise SourceError(
                    f"{self.where}, {place}: field {field!r} must be {other} as in {first}, but got {kind}: "
                    f"{_shown(value)}"
                )


_JSON_KINDS: dict[type, str] = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "",
}


def _scan_json_lines(stream: io.BufferedReader, rows: _Rows) -> Extent:
    for number, text in enumerate(_lines(stream, rows.where), 1):
        content = text.strip()
        if not content:
            continue
        place = f"line {number}"
        try:
            row = json.loads(content)
        except (ValueError, RecursionError) as error:
            problem = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise SourceError(
                f"{rows.where}, {place}: must be one JSON object, but got {_excerpt(content)} ({problem})"
            ) from None
        rows.check(row, place)
    return rows.extent(stream.tell())


def _scan_json_list(stream: io.BufferedReader, rows: _Rows) -> Extent:
    content = stream.read()
    try:
        for number, row in enumerate(json.loads(content.decode("utf-8-sig")), 1):
            rows.check(row, f"row {number}")
    except json.JSONDecodeError as error:
        raise SourceError(
            f"{rows.where}, line {error.lineno}: must be a JSON list of objects, but got {error.msg} at column "
            f"{error.colno}"
        ) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{rows.where}: must be a JSON list of objects in UTF-8, but got {error}") from None
    return rows.extent(len(content))


def _lines(stream: io.BufferedReader, where: str) -> Iterator[str]:
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise SourceError(f"{where}, line {number}: must be UTF-8, but got {error}") from None
        yield text.removeprefix("\ufeff") if number == 1 else text


def _check_width(row: Sequence[str], header: Sequence[str], where: str, delimiter: str) -> None:
    if len(row) != len(header):
        raise SourceError(
            f"{where}: a row must have {len(header)} fields like the header, but got {len(row)}: "
            f"{_excerpt(delimiter.join(row))}"
        )


def _check_header(names: Sequence[str], where: str) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SourceError(f"{where}: names in a header must be unique, but got {twice[0]!r} twice")
    if RESERVED_FIELD in names:
        raise SourceError(f"{where}: a row must not have the reserved field {RESERVED_FIELD!r}; rename or drop it")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."


def _excerpt(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _EXCERPT else text[:_EXCERPT] + "...")


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@contextlib.contextmanager
def _reading(file: Path, source: str) -> Iterator[io.BufferedReader]:
    """Open a file for one reading, decompressed, with progress where it is long; say where compression breaks."""
    with contextlib.ExitStack() as stack:
        raw: BinaryIO = stack.enter_context(file.open("rb"))
        if file.stat().st_size >= LONG_FILE:
            from rich.console import Console
            from rich.progress import Progress

            progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
            raw = progress.wrap_file(raw, total=file.stat().st_size, description=f"checking {file.name}")
        try:
            yield _decompressed(raw, file)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise SourceError(f"source {source!r}: {file}: must be a whole gzip file, but got: {error}") from None
        except _ZstdError as error:
            raise SourceError(f"source {source!r}: {file}: must be a whole zstd file, but got: {error}") from None


def _decompressed(raw: BinaryIO, file: Path) -> io.BufferedReader:
    if file.suffix.lower() == ".gz":
        return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw, mode="rb")), 1 << 20)
    if file.suffix.lower() == ".zst":
        return io.BufferedReader(_ZstdReader(raw), 1 << 20)
    return raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, raw), 1 << 20)


class _ZstdError(Exception):
    pass


class _ZstdReader(io.RawIOBase):
    """Zstandard frames as a raw stream that fails, unlike the package's own, where the last frame is cut short."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._package: Any = zstandard
        self._raw = raw
        self._decoder: Any = None
        self._ready = b""
        self._given = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._given

    def readinto(self, buffer: Buffer, /) -> int:
        target = memoryview(buffer)
        while not self._ready:
            block = self._raw.read(1 << 18)
            if not block:
                if self._decoder is not None:
                    raise _ZstdError("the file ends inside a frame")
                return 0
            self._ready = self._decode(block)
        count = min(len(target), len(self._ready))
        target[:count], self._ready = self._ready[:count], self._ready[count:]
        self._given += count
        return count

    def _decode(self, block: bytes) -> bytes:
        content = []
        while block:
            if self._decoder is None:
                self._decoder = self._package.ZstdDecompressor().decompressobj()
            try:
                content.append(self._decoder.decompress(block))
            except self._package.ZstdError as error:
                raise _ZstdError(str(error)) from None
            block = self._decoder.unused_data
            if self._decoder.eof:
                self._decoder = None
        return b"".join(content)
