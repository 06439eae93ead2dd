"""Frozen records read from JSON, whose every complaint is one sentence: the path, the rule, the value, the cure."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WrapValidator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from .. import checks

Location = tuple[int | str, ...]

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Record(BaseModel):
    """A JSON object of fixed fields: an unknown or missing one is refused by name before any value is read."""

    ADDED_IN_2: ClassVar[tuple[str, ...]] = ()  # fields that version 1 of the document does not have

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _names_its_fields(cls, data: object) -> object:
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            raise refuse(f"must be an object, but got {show(data)}")
        for name in data:
            if name not in cls.model_fields:
                raise refuse(f"unknown field {show(name)}{nearest(name, cls.model_fields) or cls._choices()}")
        for name, field in cls.model_fields.items():
            if field.is_required() and name not in data:
                raise refuse(f"required field {show(name)} is missing")
        return dict(data)

    @classmethod
    def _choices(cls) -> str:
        always = [name for name in cls.model_fields if name not in cls.ADDED_IN_2]
        later = f"; in version 2 also {', '.join(cls.ADDED_IN_2)}" if cls.ADDED_IN_2 else ""
        return f"; the valid fields are {', '.join(always)}{later}"


def refuse(text: str, *location: int | str) -> PydanticCustomError:
    """Return the error for a validator to raise; `location` is the path from the record that raises it."""
    return PydanticCustomError("refused", "{text}", {"text": text, "location": location})


def rule(text: str, *, choices: Collection[str] = (), cure: str = "") -> WrapValidator:
    """Annotate a type so that a value it refuses reads "must be `text`, but got VALUE; `cure`"."""

    def check(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            hint = nearest(value, choices) or _rewritten(value, text) or (cure and f"; {cure}")
            raise refuse(f"must be {text}, but got {show(value)}{hint}") from None

    return WrapValidator(check)


def items_of(text: str, *, least: int) -> BeforeValidator:
    """Annotate a tuple type: its value must be a list of `least` or more; `text` names the items, with that number."""

    def check(value: object) -> object:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise refuse(f"must be a list of {text}, but got {show(value)}")
        if len(value) < least:
            raise refuse(f"must be a list of {text}, but got {len(value)}")
        return value

    return BeforeValidator(check)


def mapping_of(text: str) -> BeforeValidator:
    """Annotate a dict type: its value must be an object of `text`."""

    def check(value: object) -> object:
        if not isinstance(value, Mapping):
            raise refuse(f"must be an object of {text}, but got {show(value)}")
        return dict(value)

    return BeforeValidator(check)


def show(value: object, *, most: int = 60) -> str:
    """Return `value` as it stands in JSON, on one printable line of at most `most` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        if not text.isprintable():
            text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = _show_other(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _show_other(value: object) -> str:
    if isinstance(value, int):  # too long for Python to print
        return f"an integer of {value.bit_length()} bits"
    try:
        return " ".join(repr(value).split())
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


def any_of(choices: Iterable[str]) -> str:
    """Return `"a", "b" or "c"`."""
    *most, last = [show(choice) for choice in choices]
    return f"{', '.join(most)} or {last}"


def nearest(word: object, choices: Iterable[str]) -> str:
    """Return `; did you mean "CHOICE"?` for the choice most like `word`, or nothing if none is like it."""
    return checks.nearest(word, choices, quoted=show)


def _rewritten(value: object, text: str) -> str:
    wants_integer = "integer" in text
    if isinstance(value, str) and NUMBER.fullmatch(value) and (wants_integer or "finite" in text):
        return "; write the number without quotes"
    if wants_integer and isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return f"; write {int(value)}"
    return ""


def path_text(location: Location) -> str:
    """Return a path into a document: `("stages", 1, "weights", "a b")` is `stages[1].weights["a b"]`."""
    text = ""
    for step in location:
        if isinstance(step, int) or not step.isidentifier():
            text += f"[{show(step)}]"
        else:
            text += f".{step}" if text else step
    return text


def complaint(error: ValidationError, document: object, place: Callable[[Location], str] = path_text) -> str:
    """Return the first thing wrong as one sentence.

    Args:
        error: what pydantic raised for `document`.
        document: the value that was validated.
        place: names a location; the default is the path into the document.
    """
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    where = place((*_walked(document, first["loc"]), *context.get("location", ())))
    text = context.get("text") or f"must be valid, but got {show(first['input'])}: {first['msg']}"
    return joined(where, text)


def joined(where: str, text: str) -> str:
    """Return `where must ...` or `where: ...`, whichever reads as a sentence."""
    if not where:
        return text
    return f"{where} {text}" if text.startswith("must ") else f"{where}: {text}"


def _walked(document: object, location: Location) -> Location:
    """Return the steps of `location` that exist in `document`: pydantic adds some, such as the tag of a union."""
    steps: list[int | str] = []
    for step in location:
        inside = _parts(document)
        if step in inside:
            document = inside[step]
            steps.append(step)
    return tuple(steps)


def _parts(document: object) -> Mapping[int | str, object]:
    if isinstance(document, Mapping):
        return document
    return dict(enumerate(document)) if isinstance(document, list | tuple) else {}
