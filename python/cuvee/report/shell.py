"""What every page is made of: a document that needs nothing beside it, cards with charts, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from ..errors import StateError
from .markup import Content, Html, element, json_script

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def document(title: str, body: Html, figures: Mapping[str, Any], foot: str) -> str:
    """Return a page as an HTML document.

    Args:
        title: of the window.
        body: all that stands in it but the foot.
        figures: what Plotly draws, by key; none at all leave the drawing library out.
        foot: last line.

    Raises:
        StateError: if what draws the charts is not installed.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(resource("report.css"))),
    )
    main = element("main", body, element("footer", foot))
    scripts = _scripts(figures) if figures else ()
    return "<!DOCTYPE html>\n" + element("html", head, element("body", main, *scripts), lang="en") + "\n"


def _scripts(figures: Mapping[str, Any]) -> Sequence[Html]:
    return (
        json_script(figures, "figures"),
        element("script", Html(_plotly())),
        element("script", Html(resource("report.js"))),
    )


def _plotly() -> str:
    """Return the JavaScript that draws the charts."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        raise StateError(
            "package 'plotly' must be installed to write reports, but got none; install the extra report: "
            "pip install '.[report]' in a checkout of Cuvée"
        ) from None
    return str(get_plotlyjs())


def resource(name: str) -> str:
    """Return the text of a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def tiles(facts: Sequence[tuple[str, str]]) -> Html:
    """Return (what, how much) as large numbers."""
    made = (element("div", element("dt", what), element("dd", amount), class_="tile") for what, amount in facts)
    return element("dl", *made, class_="tiles")


def card(key: str, title: str, note: str, numbers: Html) -> Html:
    """Return the place of a chart, with its words above and its numbers below.

    Args:
        key: of its figure.
        title: heading.
        note: a sentence below it.
        numbers: what opens to show them.
    """
    return element(
        "figure",
        element("figcaption", element("h3", title), element("p", note) if note else None),
        element(
            "div",
            class_="plot",
            id=f"plot-{key}",
            data_figure=key,
            role="img",
            aria_label=f"{title}, as a chart; the numbers are below it",
        ),
        numbers,
        class_="card",
    )


def table(
    headings: Sequence[str], rows: Sequence[Html], *, caption: str, class_: str, foot: Html | None = None
) -> Html:
    """Return a table with a caption for those who cannot see it."""
    heads = (element("th", heading, scope="col") for heading in headings)
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
        element("tfoot", foot) if foot is not None else None,
        class_=class_,
    )


def row(label: str, cells: Mapping[str, Content], *, swatch: Html | None = None) -> Html:
    """Return a row; cells carry their headings for screens too narrow for columns."""
    name = element("th", swatch, element("span", label, class_="name", title=label), scope="row")
    return element("tr", name, *(element("td", cell, data_label=heading) for heading, cell in cells.items()))


def bar(share: float, colour: str, tick: float | None) -> Html:
    """Return a share as a bar, with a mark at another share; none where it is None or not finite."""
    width = f"{100 * share:.2f}" if np.isfinite(share) else "0"
    fill = element("span", class_="fill", style=f"width:{width}%;background:var(--{colour})")
    mark = None
    if tick is not None and np.isfinite(tick):
        mark = element("span", class_="tick", style=f"left:{100 * tick:.2f}%")
    return element("span", fill, mark, class_="bar", aria_hidden="true")


def folded(summary: str, content: Html, label: str) -> Html:
    """Return content that opens at a press, in a region that scrolls by itself."""
    region = element("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)
    return element("details", element("summary", summary), region)
