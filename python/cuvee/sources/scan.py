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
SCAN_RULES = 2  # to be counted up when files that were found good may be so no longer
_LONG_DIGITS = len(str(2**53))
_INTEGER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_NUMBER = re.compile(r"\s*([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)?\s*", re.ASCII)
_EXACT = 2**53  # integers up to here are exact as float64, which a column with fractions becomes


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
    is_list = "jsonl" not in file.name.lower() and _first_byte(file, source) == b"["
    with _reading(file, source) as stream:
        scan = _scan_json_list if is_list else _scan_json_lines
        return scan(stream, _Rows(file, source, columns))


def _first_byte(file: Path, source: str) -> bytes:
    """Return the first byte that is no white space."""
    with _reading(file, source) as stream:
        head = stream.read(4096).removeprefix(_BYTE_ORDER_MARK).lstrip()
        while not head and (block := stream.read(4096)):
            head = block.lstrip()
        return head[:1]


def scan_csv(file: Path, *, source: str, delimiter: str) -> Extent:
    """Check a CSV or TSV file: UTF-8, one header of distinct names, as many fields in every row as in the header.

    Raises:
        SourceError: names the file, the line and the source.
    """
    where = f"source {source!r}: {file}"
    header: list[str] = []
    wide: dict[int, tuple[str, int]] = {}  # column -> its first integer beyond 2**53, and its line
    rows = 0
    with _reading(file, source) as stream, _long_fields():
        for line, row in _csv_rows(stream, where, delimiter):
            if not header:
                header = row
                check_header(row, f"{where}, line {line}")
                continue
            _check_width(row, header, f"{where}, line {line}", delimiter)
            rows += 1
            if max(map(len, row)) >= _LONG_DIGITS:
                for column, field in enumerate(row):
                    if column not in wide and _is_wide(field):
                        wide[column] = (field, line)
        extent = Extent(rows, stream.tell())
    if wide:
        with _reading(file, source) as stream, _long_fields():
            _check_exact_columns(_csv_rows(stream, where, delimiter), wide, where)
    return extent


def _csv_rows(stream: io.BufferedReader, where: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the line where it begins: quoted fields may hold line breaks."""
    reader = csv.reader(_lines(stream, where), delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise SourceError(f"{where}, line {line}: must be a CSV row, but got {error}") from None


def _is_wide(field: str) -> bool:
    """Tell whether a field is an integer that float64 may not hold."""
    return len(field) >= _LONG_DIGITS and bool(_INTEGER.fullmatch(field)) and abs(int(field[:40])) > _EXACT


def _check_exact_columns(rows: Iterator[tuple[int, list[str]]], wide: dict[int, tuple[str, int]], where: str) -> None:
    """Raise if a column with integers beyond 2**53 would be read as float64, as empty fields and fractions make it."""
    _, header = next(rows)
    floats: dict[int, tuple[str, int]] = {}
    texts: set[int] = set()
    for line, row in rows:
        for column in wide:
            if not _INTEGER.fullmatch(row[column]):
                floats.setdefault(column, (row[column], line))
                if not _NUMBER.fullmatch(row[column]):
                    texts.add(column)
    for column in sorted(floats.keys() - texts):
        value, line = wide[column]
        other = f"{floats[column][0]!r} in line {floats[column][1]}"
        raise SourceError(
            f"{where}, line {line}: column {header[column]!r} must not have integers beyond 2**53 beside empty fields "
            f"or fractions, or they lose digits, but got {value.strip()} and {other}; fill them in, or use Parquet"
        )


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
        self._wide: dict[str, tuple[int, str]] = {}  # field -> its first integer beyond 2**53, and where
        self._fractions: dict[str, tuple[float, str]] = {}  # field -> its first number with a fraction, and where

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
            self._check_exact(field, value, place)

    def _check_exact(self, field: str, value: object, place: str) -> None:
        """Raise if an integer in a field, or in what the field holds, would lose digits as Arrow stores it."""
        if type(value) is int:
            self._check_integer(field, value, place)
        elif type(value) is float:
            if self._fractions.setdefault(field, (value, place))[1] == place and field in self._wide:
                self._check_integer(field, *self._wide[field])
        elif isinstance(value, list):
            integers = [item for item in value if type(item) is int]
            for item in (min(integers), max(integers)) if integers else ():
                self._check_integer(f"{field}[]", item, place)
            if len(integers) < len(value):
                for item in value:
                    self._check_exact(f"{field}[]", item, place)
        elif isinstance(value, dict):
            for name, item in value.items():
                self._check_exact(f"{field}.{name}", item, place)

    def _check_integer(self, field: str, value: int, place: str) -> None:
        if -_EXACT <= value <= _EXACT:
            return
        where = f"{self.where}, {place}: field {field!r}"
        if not -(2**63) <= value < 2**63:
            raise SourceError(f"{where} must hold integers of 64 bits, but got {value!s:.60}; write it as a string")
        self._wide.setdefault(field, (value, place))
        if field in self._fractions:
            fraction, other = self._fractions[field]
            raise SourceError(
                f"{where} must not have integers beyond 2**53 beside fractions, or they lose digits, but got {value}, "
                f"and {fraction} in {other}; write one of them as a string"
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
            raise SourceError(
                f"{rows.where}, {place}: must be one JSON object, but got {_excerpt(content)} ({_problem(error)})"
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
    except SourceError:
        raise
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{rows.where}: must be a JSON list of objects in UTF-8, but got {_problem(error)}") from None
    return rows.extent(len(content))


def _problem(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "values nested too deep to read" if isinstance(error, RecursionError) else str(error).partition(";")[0]


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


def check_header(names: Sequence[str], where: str) -> None:
    """Raise SourceError if column names are not unique, or one is reserved."""
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
