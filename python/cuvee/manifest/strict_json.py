"""Reads a JSON file strictly: UTF-8, each key once, and faults named by line and column or by path."""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from ..errors import ManifestError
from .records import Location, path_text, show

_MOST_DIGITS = 1000


def read_json(path: Path) -> object:
    """Return the document in the file `path`.

    Raises:
        ManifestError: the file cannot be read, is not UTF-8, is not JSON, or has an object with a key twice.
    """
    text = _text(path)
    twice: list[tuple[dict[str, object], str]] = []

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                twice.append((found, key))
            found[key] = value
        return found

    try:
        document: object = json.loads(text, object_pairs_hook=unique, parse_int=_integer)
        if twice:
            # The object read last is the outermost one: it is the one still reachable from the root.
            owner, key = twice[-1]
            place = path_text(next(_paths_to(document, owner)))
            subject = f"{path}: {place}" if place else str(path)
            raise ManifestError(f"{subject} must have each key once, but got {show(key)} twice")
    except json.JSONDecodeError as error:
        raise ManifestError(f"{path} must be valid JSON, but got {_fault(error)}") from None
    except RecursionError:
        raise ManifestError(f"{path} must be a manifest, but got objects nested too deeply to read") from None
    except _TooLongError as error:
        raise ManifestError(f"{path}: every integer must have at most {_MOST_DIGITS} digits, but got {error}") from None
    return document


class _TooLongError(Exception):
    """An integer of more digits than any field could use (and than Python converts)."""


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _TooLongError(f"{digits[:20]}… ({len(digits)} digits)")
    return int(digits)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ManifestError(f"{path} must be UTF-8 text, but got byte 0x{byte:02x} at offset {error.start}") from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ManifestError(
            f"manifest must be a file that can be read, but got {show(str(path), most=400)}: {reason}{_neighbour(path)}"
        ) from None


def _neighbour(path: Path) -> str:
    try:
        names = [] if path.exists() else [other.name for other in path.parent.glob("*.json")]
    except (OSError, ValueError):
        names = []
    near = get_close_matches(path.name, names, n=1)
    return f"; did you mean {show(near[0])}?" if near else ""


def _fault(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].strip()
    got = show(rest.splitlines()[0]) if rest else "the end of the file"
    reason = error.msg[:1].lower() + error.msg[1:]
    return f"{got} at line {error.lineno}, column {error.colno} ({reason})"


def _paths_to(document: object, target: object, location: Location = ()) -> Iterator[Location]:
    if document is target:
        yield location
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from _paths_to(value, target, (*location, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from _paths_to(value, target, (*location, index))
