"""Reads the YAML file of a run: one option a line, each value as it would stand on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import INSTALL_HF, CuveeError
from ..manifest.records import nearest, show

MOST_BYTES = 1 << 18
NULLS = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The value of one option in a file.

    Args:
        texts: its text, or those in its list.
        kind: "text", "a list", or what else it is in words.
        quoted: whether its text stood in quotes, and so is no number.
        place: file and line, to begin an error with.
    """

    texts: tuple[str, ...]
    kind: str
    quoted: bool
    place: str


class _Token(NamedTuple):
    """One piece of a YAML document: a text, or the beginning or end of what holds others."""

    kind: Literal["text", "a list", "a mapping", "end"]
    text: str
    line: int
    quoted: bool = False

    @property
    def is_null(self) -> bool:
        return self.kind == "text" and not self.quoted and self.text in NULLS

    @property
    def shown(self) -> str:
        return show(self.text) if self.kind == "text" else self.kind


def read_config(path: Path, options: Sequence[str]) -> dict[str, Entry]:
    """Return what a file gives to each option, by the option's name with "_"; options left empty are absent.

    Args:
        path: a YAML file: one mapping of options to texts, numbers, true and false, and lists of these.
        options: the names that there are, with "-" between words.

    Raises:
        CuveeError: the file cannot be read, is not such YAML, or has an option that there is not, or has one twice.
    """
    tokens = _tokens(path)
    first = next(tokens, None)
    if first is None or first.is_null:
        return {}  # nothing but comments
    if first.kind != "a mapping":
        raise CuveeError(f"{path} must map options to values, but got {first.shown}")
    found: dict[str, Entry | None] = {}
    while (key := next(tokens)).kind != "end":
        place = f"{path}, line {key.line}"
        option = _option(key, place, options)
        if option in found:
            raise CuveeError(f"{place}: each option must be given once, but got {show(option)} twice")
        found[option] = _entry(tokens, f"{place}: --{option}", place)
    next(tokens, None)  # read to the end: something may be wrong behind the mapping
    return {option.replace("-", "_"): entry for option, entry in found.items() if entry is not None}


def _option(key: _Token, place: str, options: Sequence[str]) -> str:
    """Return the option that a key of the file means, "_" and "-" being the same."""
    if key.kind != "text":
        raise CuveeError(f"{place}: the name of an option must be text, but got {key.shown}")
    option = key.text.replace("_", "-")
    if option in options:
        return option
    hint = nearest(option, options) or "; `cuvee train --help` lists them"
    raise CuveeError(f"{place}: unknown option {show(key.text)}{hint}")


def _entry(tokens: Iterator[_Token], option: str, place: str) -> Entry | None:
    """Return the value that begins with the next token, None if it is empty.

    What is nested any deeper is refused as soon as it begins: reading a great depth takes hours.
    """
    first = next(tokens)
    if first.is_null:
        return None
    if first.kind == "text":
        return Entry(texts=(first.text,), kind="text", quoted=first.quoted, place=place)
    texts: list[str] = []
    while (token := next(tokens)).kind != "end":
        if token.kind != "text":
            raise CuveeError(f"{option} must be a text or a list of texts, but got {first.kind} of {token.kind[2:]}s")
        texts.append(token.text)
    return Entry(texts=tuple(texts), kind=first.kind, quoted=False, place=place)


def _tokens(path: Path) -> Iterator[_Token]:
    """Yield the tokens of the file's one document; nothing is ever built of them, so nothing can explode."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise CuveeError(f"package {error.name!r} must be installed for --config, but got none; {INSTALL_HF}") from None
    documents = 0
    try:
        for event in yaml.parse(_text(path), Loader=yaml.SafeLoader):
            documents += isinstance(event, yaml.DocumentStartEvent)
            token = _token(event, yaml)
            place = f"{path}, line {event.start_mark.line + 1}"
            if documents > 1:
                raise CuveeError(f"{place}: a file must hold one document, but got another")
            if getattr(event, "anchor", None) is not None:
                raise CuveeError(f"{place}: values must be written out, but got the anchor {show(event.anchor)}")
            if getattr(event, "tag", None) is not None:
                raise CuveeError(f"{place}: values must have no tag, but got {show(event.tag)}")
            if token is not None:
                yield token
    except yaml.YAMLError as error:
        raise CuveeError(_fault(path, error)) from None


def _token(event: Any, yaml: Any) -> _Token | None:
    line = event.start_mark.line + 1
    if isinstance(event, yaml.ScalarEvent):
        return _Token("text", event.value, line, quoted=event.style is not None)
    if isinstance(event, yaml.SequenceStartEvent):
        return _Token("a list", "", line)
    if isinstance(event, yaml.MappingStartEvent):
        return _Token("a mapping", "", line)
    return _Token("end", "", line) if isinstance(event, yaml.CollectionEndEvent) else None


def _text(path: Path) -> str:
    shown = show(str(path), most=400)
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a device or pipe"
            raise CuveeError(f"--config must be a YAML file, but got {shown}, which is {kind}")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise CuveeError(f"--config must be at most {MOST_BYTES:,} bytes long, but got {shown}, which is longer")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise CuveeError(f"{path} must be UTF-8 text, but got byte 0x{byte:02x} at offset {error.start}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CuveeError(f"--config must be a YAML file that can be read, but got {shown}: {reason}") from None


def _fault(path: Path, error: Any) -> str:
    """Return where a file is no YAML, and why, in one line."""
    mark = getattr(error, "problem_mark", None)
    where = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "a fault"
    return f"{where} must be YAML, but got a fault: {' '.join(str(problem).split())}"
