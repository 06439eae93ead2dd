"""What a setting of a run may be: read from text as people write it, or checked as the Python value it already is."""

from __future__ import annotations

import json
import math
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from ..checks import bound_text
from ..errors import CuveeError, ManifestError
from ..manifest.inline import split_source
from ..manifest.locations import resolve_path
from ..manifest.records import NUMBER, nearest, show


class Rule(ABC):
    """What values a setting takes. `parse` and `check` raise ValueError for others; `read` and `accepted` say why."""

    def accepted(self, value: object, name: str) -> Any:
        """Return a Python value as it is kept.

        Raises:
            CuveeError: "`name` must be RULE, but got VALUE".
        """
        try:
            return self.check(value)
        except ValueError:
            raise CuveeError(f"{name} must be {self.text}, but got {show(value)}{self.hint(value)}") from None

    def read(self, text: str, name: str) -> Any:
        """Return the value that a text stands for, raising as `accepted` does."""
        try:
            return self.parse(text)
        except ValueError:
            raise CuveeError(f"{name} must be {self.text}, but got {show(text)}{self.hint(text)}") from None

    @property
    @abstractmethod
    def text(self) -> str:
        """The rule in words: what stands after "must be"."""

    def parse(self, text: str) -> Any:
        """Return the value that a text, of an option or of a file, stands for."""
        return self.check(text)

    @abstractmethod
    def check(self, value: object) -> Any:
        """Return a value as it is kept."""

    def anchored(self, value: Any, folder: Path) -> Any:  # noqa: ARG002
        """Return a value as it means the same from any folder, relative paths in it having started at `folder`."""
        return value

    def takes_quoted(self, text: str) -> bool:  # noqa: ARG002
        """Tell whether a text that a file has in quotes can be meant; numbers and flags are no texts."""
        return True

    def hint(self, value: object) -> str:  # noqa: ARG002
        """Return a cure for a value that is refused, with "; " in front, or nothing."""
        return ""


@dataclass(frozen=True, slots=True)
class Whole(Rule):
    """An integer in [low, end), or one `word`."""

    low: int = 0
    end: int = 2**31
    word: str | None = None

    @property
    def text(self) -> str:
        """The range, with powers of two as powers."""
        alternative = f" or {self.word}" if self.word else ""
        return f"an integer in [{self.low}, {bound_text(self.end)}){alternative}"

    def parse(self, text: str) -> int | str:
        """Read decimal digits."""
        return text if text == self.word else self._in_range(int(text))

    def takes_quoted(self, text: str) -> bool:
        """Only the word."""
        return text == self.word

    def check(self, value: object) -> int | str:
        """Take any kind of integer but bool."""
        if isinstance(value, str) and value == self.word:
            return value
        if isinstance(value, bool):
            raise ValueError
        try:
            return self._in_range(operator.index(value))  # type: ignore[arg-type]
        except TypeError:
            raise ValueError from None

    def _in_range(self, number: int) -> int:
        if not self.low <= number < self.end:
            raise ValueError
        return number


@dataclass(frozen=True, slots=True)
class Number(Rule):
    """A finite number above 0, or from 0 on."""

    zero: bool = False

    @property
    def text(self) -> str:
        """The range in words."""
        return "finite and at least 0" if self.zero else "finite and above 0"

    def parse(self, text: str) -> float:
        """Read a decimal number, with or without an exponent: 1e-3 too, which YAML takes for text."""
        if not NUMBER.fullmatch(text):
            raise ValueError
        return self.check(float(text))

    def takes_quoted(self, text: str) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def check(self, value: object) -> float:
        """Take any kind of real number but bool."""
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not (math.isfinite(number) and (number > 0 or (self.zero and number == 0))):
            raise ValueError
        return number


@dataclass(frozen=True, slots=True)
class Choice(Rule):
    """One of some words."""

    choices: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words."""
        return _listed(self.choices)

    def check(self, value: object) -> str:
        """Take one of the words, spelt exactly."""
        if isinstance(value, str) and value in self.choices:
            return value
        raise ValueError

    def hint(self, value: object) -> str:
        """Name the word that is most like it."""
        return nearest(value, self.choices)


@dataclass(frozen=True, slots=True)
class Named(Choice):
    """One of some words, perhaps with options: NAME:OPTION=VALUE,OPTION=VALUE."""

    @property
    def text(self) -> str:
        """The words."""
        return f"{_listed(self.choices)}, with its options as NAME:OPTION=VALUE,OPTION=VALUE"

    def check(self, value: object) -> str:
        """Take one of the words and options of any name: whose they are checks them."""
        if isinstance(value, str) and with_options(value)[0] in self.choices:
            return value
        raise ValueError

    def hint(self, value: object) -> str:
        """Name the word that is most like the given one."""
        return nearest(value.partition(":")[0] if isinstance(value, str) else value, self.choices)


@dataclass(frozen=True, slots=True)
class Flag(Rule):
    """True or false."""

    @property
    def text(self) -> str:
        """The two words."""
        return "true or false"

    def parse(self, text: str) -> bool:
        """Read the words of YAML, old ones too."""
        word = text.lower()
        if word in ("true", "yes", "on"):
            return True
        if word in ("false", "no", "off"):
            return False
        raise ValueError

    def takes_quoted(self, text: str) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def check(self, value: object) -> bool:
        """Take a bool and nothing else."""
        if isinstance(value, bool):
            return value
        raise ValueError


@dataclass(frozen=True, slots=True)
class Text(Rule):
    """Text that names something: a folder, or what is known by a name elsewhere."""

    what: str
    words: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What it names."""
        return self.what

    def check(self, value: object) -> str:
        """Take any text but an empty one, and one with NUL, which no path can hold."""
        if isinstance(value, str) and value.strip() and "\0" not in value:
            return value
        raise ValueError

    def anchored(self, value: str, folder: Path) -> str:
        """Make it absolute where it is a path from `folder`; a word or a name on a hub stays as it is."""
        if value in self.words:
            return value
        place = os.path.join(folder, os.path.expanduser(value))  # noqa: PTH111, PTH118  (Path drops a leading ./)
        return os.path.normpath(place) if os.path.exists(place) else value  # noqa: PTH110  (Path's may fail)


@dataclass(frozen=True, slots=True)
class Data(Text):
    """The path of a dataset, or its Hub reference."""

    def anchored(self, value: str, folder: Path) -> str:
        """Make it absolute unless it is a Hub reference, or looks like one and nothing is there."""
        return resolve_path(value, folder)


@dataclass(frozen=True, slots=True)
class Loader(Text):
    """FILE.py or FILE.py:FUNCTION."""

    def anchored(self, value: str, folder: Path) -> str:
        """Make the file absolute."""
        file, function = (value, "") if value.endswith(".py") else value.rpartition(":")[::2]
        return f"{_absolute(file, folder)}:{function}" if function else str(_absolute(file, folder))


@dataclass(frozen=True, slots=True)
class Place(Rule):
    """A path of this machine."""

    what: str

    @property
    def text(self) -> str:
        """What lies there."""
        return self.what

    def parse(self, text: str) -> Path:
        """Read a path; an empty one is none."""
        return self.check(text)

    def check(self, value: object) -> Path:
        """Take text or a path object."""
        if isinstance(value, str | os.PathLike):
            text = os.fspath(value)
            if isinstance(text, str) and text.strip() and "\0" not in text:
                return Path(os.path.expanduser(text))  # noqa: PTH111  (Path's fails where there is no such user)
        raise ValueError

    def anchored(self, value: Path, folder: Path) -> Path:
        """Make it absolute."""
        return _absolute(value, folder)


@dataclass(frozen=True, slots=True)
class Sources(Rule):
    """A list of texts NAME=PATH:WEIGHT."""

    @property
    def text(self) -> str:
        """The form of the list."""
        return "a list of at least two NAME=PATH:WEIGHT"

    def parse(self, text: str) -> tuple[str, ...]:  # noqa: ARG002
        """Refuse a single text: one source is no mixture."""
        raise ValueError

    def check(self, value: object) -> tuple[str, ...]:
        """Take any sequence of texts; what they say is checked where they are split."""
        if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
            raise ValueError
        return tuple(value)

    def anchored(self, value: tuple[str, ...], folder: Path) -> tuple[str, ...]:
        """Make each path absolute that is local; what cannot be split stays as it is, to be complained of later."""
        return tuple(_anchored_source(text, folder) for text in value)


def with_options(text: str) -> tuple[str, dict[str, Any]]:
    """Return (name, options) of NAME or NAME:OPTION=VALUE,OPTION=VALUE; a value is a number, true, false, or a word.

    Raises:
        ValueError: if the text is not of that form.
    """
    name, colon, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in rest.split(",") if colon else ():
        option, equals, value = part.strip().partition("=")
        if not (option.isidentifier() and equals and value) or option in options:
            raise ValueError(text)
        options[option] = _value(value)
    if not name.isidentifier():
        raise ValueError(text)
    return name, options


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) else text


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


class Names(Rule):
    """A list of names of sources."""

    @property
    def text(self) -> str:
        """The form of the list."""
        return "a list of names of sources"

    def parse(self, text: str) -> tuple[str, ...]:
        """Take a text for a list of one."""
        return self.check([text])

    def check(self, value: object) -> tuple[str, ...]:
        """Take any sequence of texts; whether sources are called so is checked where they are known."""
        if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
            raise ValueError
        return tuple(value)


def _anchored_source(text: str, folder: Path) -> str:
    try:
        source = split_source(text)
    except ManifestError:
        return text
    weight = text.rpartition(":")[2]
    return f"{source.name}={resolve_path(source.path, folder)}:{weight}"


def _absolute(path: str | Path, folder: Path) -> Path:
    return Path(os.path.abspath(folder / os.path.expanduser(path)))  # noqa: PTH100, PTH111  (keeps links as they are)
