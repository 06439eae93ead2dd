"""HTML as values: every text is escaped unless it was made here."""

from __future__ import annotations

import html
import json
from typing import Any

VOID = frozenset({"meta", "br", "hr", "path"})  # elements that have no end tag, or need none in SVG


class Html(str):
    """Text that is HTML already; any other string is a text to be escaped."""

    __slots__ = ()


Content = Html | str | None


def escaped(content: Content) -> Html:
    """Return what stands for `content` in HTML; nothing for None."""
    if isinstance(content, Html):
        return content
    return Html("" if content is None else html.escape(content))


def joined(*contents: Content) -> Html:
    """Return contents one after the other."""
    return Html("".join(map(escaped, contents)))


def element(tag: str, *children: Content, **attributes: str | int | float | bool | None) -> Html:
    """Return an element.

    Args:
        tag: its name.
        children: what stands in it.
        attributes: by name, `_` for `-`, a trailing `_` dropped; None and False leave one out, True writes its name
            alone.
    """
    written = ""
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        written += f" {name.rstrip('_').replace('_', '-')}"
        if value is not True:
            written += f'="{html.escape(str(value))}"'
    if tag in VOID:
        return Html(f"<{tag}{written}/>")
    return Html(f"<{tag}{written}>{joined(*children)}</{tag}>")


def json_script(value: Any, identifier: str) -> Html:
    """Return a script element that holds a JSON value; no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Html(f'<script type="application/json" id="{identifier}">{text}</script>')
