"""The forms of rows that training reads: told by a source's columns, the values of each row checked and taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import SourceError
from ..sources.files import reason
from ..sources.fingerprint import arrow_kind
from ..sources.schemas import Rows, columns_of

Kind = Literal["tokens", "messages", "prompt", "text"]
Message = dict[str, Any]

# Where a source has the columns of several forms, the first of them counts: what says most about the target.
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "tokens": ("tokens", "prompt_mask"),
    "messages": ("messages",),
    "prompt": ("prompt", "response"),
    "text": ("text",),
}
IMAGE_COLUMNS = ("images", "image")
SAMPLED = 16  # rows whose values are looked at before anything is loaded
MOST_TOKEN = 2**31

# Columns that other tools read, and how such rows become one of the forms.
_FOREIGN = {
    "conversations": "turn each of the conversations into {'messages': [{'role': ..., 'content': ...}, ...]}",
    "completion": "rename 'completion' to 'response'",
    "chosen": "keep one of the two answers as 'response'",
    "instruction": "join what comes before the answer to 'prompt', and name the answer 'response'",
    "question": "name the question 'prompt' and the answer 'response'",
    "input_ids": "rename 'input_ids' to 'tokens', and add 'prompt_mask' with 1 for each token of the prompt",
    "content": "rename 'content' to 'text'",
}
_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowForm:
    """How the rows of one source are to be read.

    Args:
        kind: which form.
        images: the column that holds a row's images, if there is one.
    """

    kind: Kind
    images: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are turned into tokens."""
        return COLUMNS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """Tokens as given, int32[n], and which of them are targets, bool[n]."""

    tokens: NDArray[np.int32]
    targets: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRow:
    """A conversation; the turns of the assistant from `first` on are the target."""

    messages: list[Message]
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """A text and what is to follow it."""

    prompt: str
    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """A text that is all target."""

    text: str


Row = TokenRow | ChatRow | PromptRow | TextRow


def form_of(name: str, data: Rows) -> RowForm:
    """Return the form of a source's rows, by its columns (of a dataset: its schema; else: the first row).

    Raises:
        SourceError: the columns match no form; names the source, its columns and the forms.
    """
    known = columns_of(data)
    if known is None:
        kind = type(data[0]).__name__ if len(data) else "no row"
        raise SourceError(f"source {name!r}: rows must be dicts to train on, but got {kind}; {_CURE}")
    images = next((column for column in IMAGE_COLUMNS if column in known), None)
    for kind, columns in COLUMNS.items():
        if set(columns) <= known.keys():
            return RowForm(kind=kind, images=images)
    hint = next((f": {hint}" for column, hint in _FOREIGN.items() if column in known), "")
    raise SourceError(
        f"source {name!r}: columns must be {_FORMS}, each with images or image if need be, but got {list(known)}; "
        f"{_CURE}{hint}"
    )


def check_rows(name: str, data: Rows) -> RowForm:
    """Return the form of a source's rows, after a look at the values of some: first, last and others between.

    Raises:
        SourceError: naming the source, and the row where it is one of those looked at.
    """
    form = form_of(name, data)
    indices = sorted(set(np.linspace(0, len(data) - 1, SAMPLED).astype(np.int64).tolist())) if len(data) else []
    for index in indices:
        row = read_rows(data, [index], (*form.columns, *filter(None, [form.images])), name=name)[0]
        where = f"source {name!r}, row {index}"
        parse(row, form, where=where)
        images_of(row, form, where=where)
    return form


def check_sources(sources: Mapping[str, Rows]) -> dict[str, RowForm]:
    """Return the form of every source's rows.

    Raises:
        SourceError: one line for each source that cannot be trained on.
    """
    forms: dict[str, RowForm] = {}
    problems: list[str] = []
    for name, data in sources.items():
        try:
            forms[name] = check_rows(name, data)
        except SourceError as error:
            problems.append(str(error))
    if problems:
        raise SourceError("\n".join(problems))
    return forms


def read_rows(data: Rows, indices: Sequence[int], columns: Sequence[str], *, name: str) -> list[Mapping[str, Any]]:
    """Return some rows; of a dataset only these columns, in plain Python values, so that no image is decoded in vain.

    Raises:
        SourceError: a row cannot be read, or is no mapping.
    """
    try:
        if arrow_kind(data) == "dataset":
            view = cast(Any, data).select_columns(list(columns)).with_format(None)
            table = view[indices]
            return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
        found: list[Any] = [data[index] for index in indices]
    except Exception as error:
        shown = f"row {indices[0]}" if len(indices) == 1 else f"rows {indices[0]} to {indices[-1]}"
        raise SourceError(f"source {name!r}, {shown}: must be readable, but got {reason(error)}") from error
    for index, row in zip(indices, found, strict=True):
        if not isinstance(row, Mapping):
            raise SourceError(f"source {name!r}, row {index}: must be a dict, but got {type(row).__name__}")
    return found


def parse(row: Mapping[str, Any], form: RowForm, *, where: str) -> Row:
    """Return the checked content of a row.

    Args:
        row: the row as the source gives it.
        form: that of its source.
        where: source and row, to begin an error with.

    Raises:
        SourceError: a value is missing or of another type than its form asks for.
    """
    first, *rest = (_value(row, column, where) for column in form.columns)
    if form.kind == "tokens":
        return _token_row(first, rest[0], where)
    if form.kind == "text":
        return TextRow(text=_text(first, "text", where))
    if form.kind == "messages":
        return _chat_row(_messages(first, "messages", where), 0, "messages", where)
    return _prompt_row(first, rest[0], where)


def images_of(row: Mapping[str, Any], form: RowForm, *, where: str) -> list[Any]:
    """Return the images of a row as the source gives them: PIL images, paths, bytes or {"bytes", "path"}.

    Raises:
        SourceError: a value is none of these.
    """
    value = row.get(form.images) if form.images else None
    images = list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
    for image in images:
        if not (isinstance(image, str | bytes | Mapping) or hasattr(image, "__fspath__") or hasattr(image, "convert")):
            raise SourceError(
                f"{where}: {form.images} must hold PIL images, paths or bytes, but got {type(image).__name__}"
            )
    return images


def texts_of(row: ChatRow) -> Iterator[str]:
    """Yield all that is said in a conversation, images aside."""
    for message in row.messages:
        content = message["content"]
        if isinstance(content, str):
            yield content
        else:
            yield from (part["text"] for part in content if part["type"] == "text")


_FORMS = ", or ".join(" and ".join(columns) for columns in reversed(COLUMNS.values()))
_CURE = "turn the rows into one of these forms with a loader function (--dataset-loader-fn FILE.py)"


def _value(row: Mapping[str, Any], column: str, where: str) -> Any:
    if column not in row:
        raise SourceError(f"{where}: must have the field {column!r} as other rows do, but got {list(row)}")
    return row[column]


def _text(value: object, column: str, where: str) -> str:
    if not isinstance(value, str):
        raise SourceError(f"{where}: {column} must be text, but got {_shown(value)}")
    return value


def _prompt_row(prompt: object, response: object, where: str) -> PromptRow | ChatRow:
    if isinstance(prompt, str) and isinstance(response, str):
        return PromptRow(prompt=prompt, response=response)
    before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else _messages(prompt, "prompt", where)
    if isinstance(response, str):
        after = [{"role": "assistant", "content": response}]
    else:
        after = _messages(response, "response", where)
    return _chat_row([*before, *after], len(before), "response", where)


def _chat_row(messages: list[Message], first: int, column: str, where: str) -> ChatRow:
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant" and index >= first]
    if not turns:
        roles = [message["role"] for message in messages]
        raise SourceError(f"{where}: {column} must have a turn of the assistant to learn, but got the roles {roles}")
    if turns[0] == 0:
        raise SourceError(f"{where}: messages must begin with a system or user turn, but got the assistant's")
    return ChatRow(messages=messages, first=first)


def _messages(value: object, column: str, where: str) -> list[Message]:
    if not isinstance(value, list | tuple) or not all(isinstance(message, Mapping) for message in value):
        kinds = "a list" if column == "messages" else "text or a list"
        raise SourceError(f"{where}: {column} must be {kinds} of {{role, content}}, but got {_shown(value)}")
    return [_message(message, f"{where}: message {index} of {column}") for index, message in enumerate(value)]


def _message(message: Mapping[str, Any], where: str) -> Message:
    """Return a message without the nulls that Arrow fills in where another row has a field."""
    kept = {str(key): value for key, value in message.items() if value is not None}
    if kept.get("role") not in _ROLES:
        raise SourceError(f"{where} must have a role of {list(_ROLES)}, but got {_shown(message.get('role'))}")
    content = kept.setdefault("content", "" if "tool_calls" in kept else None)
    if isinstance(content, list | tuple):
        kept["content"] = [_part(part, where) for part in content]
    elif not isinstance(content, str):
        raise SourceError(f"{where} must have text as its content, but got {_shown(content)}")
    return kept


def _part(part: object, where: str) -> Message:
    if isinstance(part, Mapping):
        kept = {str(key): value for key, value in part.items() if value is not None}
        if kept.get("type") == "image" or (kept.get("type") == "text" and isinstance(kept.get("text"), str)):
            return kept
    raise SourceError(
        f"{where} must have parts like {{'type': 'text', 'text': ...}} or {{'type': 'image'}}, but got {_shown(part)}"
    )


def _token_row(tokens: object, prompt_mask: object, where: str) -> TokenRow:
    ids = _integers(tokens, "tokens", where, end=MOST_TOKEN)
    mask = _integers(prompt_mask, "prompt_mask", where, end=2)
    if len(ids) != len(mask):
        raise SourceError(f"{where}: prompt_mask must be as long as tokens, {len(ids)}, but got {len(mask)}")
    if mask[1:].all():
        raise SourceError(
            f"{where}: prompt_mask must be 0 for a token to learn, from the second on, but got {len(mask)} tokens "
            "and none; drop the row with a loader function"
        )
    return TokenRow(tokens=ids.astype(np.int32), targets=mask == 0)


def _integers(value: object, column: str, where: str, *, end: int) -> NDArray[np.int64]:
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        array = np.empty((0, 0), dtype=object)
    kinds = "iub" if end == 2 else "iu"
    if array.ndim != 1 or (array.dtype.kind not in kinds and array.size) or not isinstance(value, _LISTS):
        raise SourceError(f"{where}: {column} must be a list of integers, but got {_shown(value)}")
    if array.size and (int(array.min()) < 0 or int(array.max()) >= end):
        rule = "0 or 1" if end == 2 else "in [0, 2**31)"
        raise SourceError(f"{where}: {column} must be {rule}, but got values from {array.min()} to {array.max()}")
    return array.astype(np.int64)


_LISTS = (list, tuple, np.ndarray)


def _shown(value: object) -> str:
    return f"{type(value).__name__}: {value!r:.60}"


def row_blocks(
    data: Rows, columns: Sequence[str], *, size: int, name: str
) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
    """Yield (number of the first row, rows) in blocks of `size` rows, each row read once."""
    for start in range(0, len(data), size):
        yield start, read_rows(data, range(start, min(start + size, len(data))), columns, name=name)
