"""How many tokens each row has: from a column, or counted once with a tokenizer and kept in the cache folder."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from .._core import xxh3_128
from ..cache import cache_folder, write_atomically
from ..errors import SourceError
from .fingerprint import arrow_kind, fingerprint_of
from .schemas import Rows, check_column, columns_of

if TYPE_CHECKING:
    from datasets import Dataset

_FORMAT = 1  # of the cached files; up when the same inputs would count otherwise
_BLOCK = 1024  # rows read and counted at a time
_LONG = 20_000  # rows from which on progress is shown
_LONGEST = 2**31 - 1
_TEXT_COLUMNS = (("prompt", "response"), ("text",))
_TOKEN_COLUMNS = ("tokens", "input_ids", "n_tokens")

Counter = Callable[[list[Any]], Iterable[int]]


def lengths_of(
    data: Rows,
    *,
    column: str | None = None,
    tokenizer: Callable[..., Any] | None = None,
    name: str = "data",
    fingerprint: str | None = None,
    tokenizer_id: str | None = None,
) -> NDArray[np.int32]:
    """Return the number of tokens of every row.

    Without a tokenizer, `column` holds the lengths themselves or lists of tokens; the default is `tokens`, `input_ids`
    or `n_tokens`. With one, `column` holds texts; the default is `prompt` plus `response`, or `text`, and the texts of
    a row are counted one by one, without special tokens. Counts are kept in the cache folder under the data's
    fingerprint and the tokenizer's identity, so that each is made once.

    Args:
        data: map-style rows.
        column: the column to read.
        tokenizer: a function text -> ids, or a tokenizer of transformers or tokenizers.
        name: the source's name, for errors.
        fingerprint: content identity of `data`; computed if not given.
        tokenizer_id: what identifies the tokenizer in the cache. Known by itself for tokenizers of transformers and
            tokenizers; without it, counts by any other function are not kept.

    Returns:
        int32[n], in tokens.

    Raises:
        SourceError: no such column, or a value that is no length, no list or no text; names source and row.
    """
    columns = _columns(data, column, name, with_tokenizer=tokenizer is not None)
    if tokenizer is None:
        return _count(data, columns, _sizes, name)
    identity = tokenizer_id or _identity(tokenizer)
    if identity is None:
        return _count(data, columns, _text_counter(tokenizer), name)
    content = fingerprint or fingerprint_of(data)
    if content is None:
        return _count(data, columns, _text_counter(tokenizer), name)
    key = xxh3_128(json.dumps([_FORMAT, content, columns, identity]).encode())
    path = cache_folder() / "lengths" / f"{key}.npy"
    kept = _read(path, len(data))
    if kept is not None:
        return kept
    lengths = _count(data, columns, _text_counter(tokenizer), name)
    _keep(path, lengths)
    return lengths


def _columns(data: Rows, column: str | None, name: str, *, with_tokenizer: bool) -> tuple[str, ...]:
    known = columns_of(data)
    where = f"source {name!r}"
    if known is None:
        if len(data) == 0:
            return ()
        raise SourceError(
            f"{where}: rows must be dicts to have lengths, but got {type(data[0]).__name__}; give lengths"
        )
    if column is not None:
        check_column(column, known, where=where, what="the length column (--length-column)")
        return (column,)
    choices = _TEXT_COLUMNS if with_tokenizer else tuple((choice,) for choice in _TOKEN_COLUMNS)
    for choice in choices:
        if set(choice) <= known.keys():
            return choice
    wanted = " or ".join(" and ".join(map(repr, choice)) for choice in choices)
    raise SourceError(
        f"{where}: lengths need the columns {wanted}, but got {sorted(known)}; name one with "
        "length_column or --length-column"
    )


def _count(data: Rows, columns: Sequence[str], counter: Counter, name: str) -> NDArray[np.int32]:
    from rich.console import Console
    from rich.progress import Progress

    lengths = np.zeros(len(data), np.int64)
    with Progress(console=Console(stderr=True), transient=True, disable=len(data) < _LONG) as progress:
        task = progress.add_task(f"lengths of {name}", total=len(data))
        for start, values in _blocks(data, columns):
            for column in columns:
                lengths[start : start + len(values[column])] += _counted(counter, values[column], column, start, name)
            progress.advance(task, _BLOCK)
    longest = lengths.max(initial=0)
    if longest > _LONGEST:
        raise SourceError(
            f"source {name!r}, row {lengths.argmax()}: a length must be at most {_LONGEST}, but got {longest}"
        )
    return lengths.astype(np.int32)


def _blocks(data: Rows, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    if not columns:
        return
    view = (
        cast("Dataset", data).select_columns(list(columns)).with_format(None) if arrow_kind(data) == "dataset" else None
    )
    for start in range(0, len(data), _BLOCK):
        stop = min(start + _BLOCK, len(data))
        if view is not None:
            yield start, view[start:stop]
        else:
            rows = [cast(Mapping[str, Any], data[row]) for row in range(start, stop)]
            yield start, {column: [row.get(column) for row in rows] for column in columns}


def _counted(counter: Counter, values: list[Any], column: str, start: int, name: str) -> NDArray[np.int64]:
    try:
        return np.fromiter(counter(values), np.int64, len(values))
    except Exception as error:
        row = next((row for row, value in enumerate(values) if _fails(counter, value)), 0)
        raise SourceError(
            f"source {name!r}, row {start + row}: column {column!r} must give a length, but got "
            f"{values[row]!r:.60} ({type(error).__name__}: {error})"
        ) from error


def _fails(counter: Counter, value: object) -> bool:
    try:
        list(counter([value]))
    except Exception:
        return True
    return False


def _sizes(values: list[Any]) -> Iterator[int]:
    for value in values:
        if isinstance(value, bool | str | bytes | Mapping):
            raise TypeError(f"no length and no list of tokens: {type(value).__name__}")
        size = int(value) if isinstance(value, int | np.integer) else len(value)
        if size < 0:
            raise ValueError("a length is at least 0")
        yield size


def _text_counter(tokenizer: Callable[..., Any]) -> Counter:
    """Return what counts the ids of many texts; transformers and tokenizers take them all at once."""
    if hasattr(tokenizer, "encode_batch"):
        return lambda texts: [len(one) for one in tokenizer.encode_batch(_texts(texts), add_special_tokens=False)]
    if _is_transformers(tokenizer):
        options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
        return lambda texts: [len(ids) for ids in tokenizer(_texts(texts), **options)["input_ids"]]
    return lambda texts: (len(tokenizer(text)) for text in _texts(texts))


def _texts(values: list[Any]) -> list[str]:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"no text: {type(value).__name__}")
    return values


def _is_transformers(tokenizer: object) -> bool:
    return any(base.__name__ == "PreTrainedTokenizerBase" for base in type(tokenizer).__mro__)


def _identity(tokenizer: Callable[..., Any]) -> str | None:
    """Return a digest of all that decides a tokenizer's output, None where it cannot be known."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str") and hasattr(backend, "encode_batch"):
        return str(xxh3_128(backend.to_str().encode()))
    return None


def _read(path: Path, rows: int) -> NDArray[np.int32] | None:
    try:
        lengths = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return lengths if lengths.dtype == np.int32 and lengths.shape == (rows,) else None


def _keep(path: Path, lengths: NDArray[np.int32]) -> None:
    content = io.BytesIO()
    np.save(content, lengths, allow_pickle=False)
    try:
        write_atomically(path, content.getvalue())
    except OSError as error:
        warnings.warn(f"lengths could not be kept in {path.parent} and will be counted again: {error}", stacklevel=3)
