"""The inline form of a source, `NAME=PATH:WEIGHT`."""

from typing import NamedTuple

from ..errors import ManifestError
from .records import NUMBER, show

_NOT_FINITE = {"nan", "inf", "infinity"}


class InlineSource(NamedTuple):
    """The three parts of `NAME=PATH:WEIGHT`; the weight is a number, its range not yet checked."""

    name: str
    path: str
    weight: float


def split_source(text: str) -> InlineSource:
    r"""Split `text` at its first `=` and its last `:`.

    A path may therefore hold both: `web=C:\data\web.jsonl:0.5`, `web=https://host/a?b=c:0.5`,
    `web=repo/name:config:split:0.5`.

    Raises:
        ManifestError: there is no `=`, no `:` after it, or no number after that.
    """
    if not isinstance(text, str):
        raise ManifestError(f"source must be NAME=PATH:WEIGHT, but got {show(text)}")
    name, equals, rest = text.partition("=")
    path, colon, weight = rest.rpartition(":")
    quoted = show(text, most=400)
    if not equals:
        raise ManifestError(f'source must be NAME=PATH:WEIGHT, but got {quoted}, which has no "="')
    if not colon:
        raise ManifestError(f"source must be NAME=PATH:WEIGHT, but got {quoted}, which has no weight at its end")
    if not (NUMBER.fullmatch(weight) or weight.lower().lstrip("+-") in _NOT_FINITE):
        got = f'{show(weight)}; it is what follows the last ":"'
        raise ManifestError(f"source {quoted}: weight must be a number, but got {got}")
    return InlineSource(name, path, float(weight))
