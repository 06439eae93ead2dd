"""What columns a source has, of what kinds, and whether the sources of a mixture can share a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..checks import nearest
from ..errors import SourceError
from .fingerprint import arrow_kind

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

RESERVED_FIELD = "__cuvee_meta__"
Kind = str | tuple[str, Any]  # a word; or ("list", Kind), ("map", Kind), ("struct", {field: Kind})


class Rows(Protocol):
    """What every source is: rows by number, and how many there are."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> object: ...


def check_schemas(sources: Mapping[str, Rows]) -> None:
    """Check that rows of all sources can stand in one batch.

    A column that two sources share must be of one kind in both: text, binary, bool, number, date or time, list or
    struct (their parts likewise). Widths do not matter, an integer may stand beside a float, a column of nulls beside
    anything. A source may have columns that another lacks, but each must share one with the first.

    Args:
        sources: name to data. Sources without rows, or whose rows are not dicts, are left out.

    Raises:
        SourceError: a source has the reserved column, or two disagree; names both, the column and both types.
    """
    seen: dict[str, tuple[str, Kind, str]] = {}  # column -> where it was first seen, its kind and its type
    first: tuple[str, set[str]] | None = None
    for name, data in sources.items():
        columns = columns_of(data)
        if columns is None:
            continue
        check_reserved(columns, where=f"source {name!r}")
        if first is None:
            first = (name, set(columns))
        elif not first[1] & set(columns):
            raise SourceError(
                f"sources {first[0]!r} and {name!r}: must share a column, but got {sorted(first[1])} and "
                f"{sorted(columns)}; give both the same columns with a loader function"
            )
        for column, (kind, shown) in columns.items():
            other = seen.setdefault(column, (name, kind, shown))
            if not _agree(other[1], kind):
                raise SourceError(
                    f"sources {other[0]!r} and {name!r}: column {column!r} must have the same type in both, but got "
                    f"{other[2]} in {other[0]!r} and {shown} in {name!r}; cast one with a loader function, or choose "
                    f"other columns"
                )
            if _says_nothing(other[1]):
                seen[column] = (name, kind, shown)


def check_reserved(columns: Iterable[str], *, where: str) -> None:
    """Raise SourceError if `__cuvee_meta__`, the field that Cuvée adds to every row, is among the columns."""
    if RESERVED_FIELD in columns:
        raise SourceError(f"{where}: a row must not have the reserved field {RESERVED_FIELD!r}; rename or drop it")


def check_column(column: str, columns: Iterable[str], *, where: str, what: str = "a column") -> None:
    """Raise SourceError, naming the nearest column there is, if `column` is not among `columns`."""
    known = list(columns)
    if column not in known:
        raise SourceError(f"{where}: {what} must be one of {known}, but got {column!r}{nearest(column, known)}")


def columns_of(data: Rows) -> dict[str, tuple[Kind, str]] | None:
    """Return each column's kind and its type in words.

    Args:
        data: any source. Of a dataset the schema is read, of any other object its first row.

    Returns:
        Column name to (kind, type as shown to people), or None where there is no row or rows are not dicts.
    """
    if arrow_kind(data) is not None:
        schema = cast("Dataset", data).data.schema if arrow_kind(data) == "dataset" else cast("pa.Table", data).schema
        return {field.name: (_kind_of_type(field.type), str(field.type)) for field in schema}
    if len(data) == 0 or not isinstance(row := data[0], Mapping):
        return None
    return {str(key): (_kind_of_value(value), type(value).__name__) for key, value in row.items()}


def _kind_of_type(arrow_type: pa.DataType) -> Kind:
    import pyarrow as pa

    if isinstance(arrow_type, pa.BaseExtensionType):
        return "unknown"
    if hasattr(arrow_type, "value_type"):  # lists of any layout, dictionaries
        value = _kind_of_type(arrow_type.value_type)
        return value if pa.types.is_dictionary(arrow_type) else ("list", value)
    if pa.types.is_struct(arrow_type):
        return ("struct", {field.name: _kind_of_type(field.type) for field in arrow_type})
    if pa.types.is_map(arrow_type):
        return ("map", _kind_of_type(arrow_type.item_type))
    name = str(arrow_type)
    for kind, starts in _STARTS.items():
        if name.startswith(starts):
            return kind
    return "unknown"


_STARTS = {
    "number": ("int", "uint", "float", "double", "halffloat", "decimal"),
    "text": ("string", "large_string"),
    "binary": ("binary", "large_binary", "fixed_size_binary"),
    "bool": ("bool",),
    "date": ("date", "timestamp"),
    "time": ("time", "duration"),
    "null": ("null",),
}


def _kind_of_value(value: object) -> Kind:
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return ("list", next((kind for item in value if (kind := _kind_of_value(item)) != "null"), "null"))
    if isinstance(value, Mapping):
        return ("struct", {str(key): _kind_of_value(item) for key, item in value.items()})
    for types, kind in _PYTHON_KINDS:
        if isinstance(value, types):
            return kind
    return "unknown"


_PYTHON_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "bool"),
    ((int, float), "number"),
    (str, "text"),
    ((bytes, bytearray), "binary"),
)


def _agree(one: Kind, other: Kind) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0]:
        if one[0] == "struct":
            return all(_agree(one[1][field], other[1][field]) for field in one[1].keys() & other[1].keys())
        return _agree(one[1], other[1])
    return one == other or _says_nothing(one) or _says_nothing(other)


def _says_nothing(kind: Kind) -> bool:
    return kind in ("null", "unknown")
