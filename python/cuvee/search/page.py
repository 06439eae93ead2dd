"""The report of a search as one HTML page that needs nothing beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from ..cache import write_atomically
from ..errors import StateError
from ..report.markup import Content, Html, element, joined
from ..report.shell import bar, card, document, folded, row, table, tiles
from ..report.wording import MISSING, duration, number, percent, plural
from .figures import Picture, audit_picture, loss_picture, mixtures_picture, triangle_picture
from .receipt import F64, LEVEL, PROPORTIONAL, RECOMMENDED, SURE, UNIFORM, Receipt, sureness, without_nan

MOST_ROWS = 500  # of a table of numbers


def write_search_report(
    receipt: Receipt, output: str | PathLike[str], *, title: str = "search", laws: Sequence[Picture] = ()
) -> Path:
    """Write the report of a search, one that is under way included.

    Args:
        receipt: of the search.
        output: the HTML file to write.
        title: heading.
        laws: fits of laws to draw, if there are any.

    Returns:
        The file's path.

    Raises:
        StateError: the file cannot be written, or what draws charts is not installed.
    """
    path = Path(output)
    try:
        write_atomically(path, page_of(receipt, title, laws).encode("utf-8", "backslashreplace"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateError(f"report must be written to a file, but got {os.fspath(path)!r}: {reason}") from None
    return path


def page_of(receipt: Receipt, title: str, laws: Sequence[Picture] = ()) -> str:
    """Return the report of a search as an HTML document."""
    others = mixtures_of(receipt)
    drawn = [
        loss_picture(receipt),
        audit_picture(receipt),
        mixtures_picture(receipt, others),
        triangle_picture(receipt),
    ]
    pictures = {picture.key: picture for picture in (*drawn, *laws) if picture is not None}
    body = joined(
        _head(receipt, title),
        _warnings(receipt),
        _mixture_section(receipt, others),
        _audit_section(receipt, pictures),
        _search_section(pictures),
        _laws_section(laws),
        _record_section(receipt),
    )
    figures = without_nan({key: picture.figure for key, picture in pictures.items()})
    return document(f"{title} - mixture search", body, figures, "Written by cuvee search.")


def mixtures_of(receipt: Receipt) -> dict[str, F64]:
    """Return the mixtures that the audit compared the answer with, by name, shape (K,) each."""
    found = {}
    for name in (UNIFORM, PROPORTIONAL):
        for run in receipt.of_kind("audit", name):
            found[name] = np.array(run.weights)
    return found


def _head(receipt: Receipt, title: str) -> Html:
    done = receipt.audit_runs > 0
    status = element("span", "finished" if done else "under way", class_=f"status {'done' if done else 'open'}")
    facts = f"method {receipt.method} · {plural(len(receipt.names), 'domain')}"
    return element(
        "header",
        element("p", "Mixture search", class_="eyebrow"),
        element("h1", title),
        element("p", status, " ", facts, class_="subtitle"),
        tiles(_headline(receipt)),
    )


def _headline(receipt: Receipt) -> list[tuple[str, str]]:
    facts = [
        ("runs of the search", number(receipt.search_runs)),
        ("runs of the audit", number(receipt.audit_runs)),
        ("whole runs spent", f"{receipt.spent:,.4g}"),
        ("time of all runs", duration(receipt.seconds)),
    ]
    if math.isfinite(receipt.audit_loss):
        facts.append(("loss under fresh seeds", f"{receipt.audit_loss:.4f}"))
    for one in receipt.comparisons:
        facts.append((f"gain over {one.other}", f"{one.gain:+.4f}"))
        if math.isfinite(one.confidence):
            facts.append((f"better than {one.other}", sureness(one.confidence)))
    return facts


def _warnings(receipt: Receipt) -> Html:
    """Return what keeps the answer from being taken at its word."""
    texts = [f"The recommended mixture is {one.sentence()}." for one in receipt.comparisons if not one.better]
    texts += receipt.remarks
    if not texts:
        return Html("")
    items = (element("li", text) for text in texts)
    return element("section", element("h2", "To know"), element("ul", *items), class_="warnings", id="warnings")


def _mixture_section(receipt: Receipt, others: Mapping[str, F64]) -> Html:
    headings = ["domain", "recommended", f"{LEVEL:.0%} interval", *others]
    uniform = others.get(UNIFORM)
    rows = []
    for place, name in enumerate(receipt.names):
        share = receipt.weights[place]
        mark = None if uniform is None else float(uniform[place])
        cells: dict[str, Content] = {
            headings[1]: joined(bar(share, "s0", mark), element("b", percent(share))),
            headings[2]: f"{percent(receipt.low[place])} to {percent(receipt.high[place])}" if receipt.low else MISSING,
        }
        cells |= {other: percent(float(weights[place])) for other, weights in others.items()}
        rows.append(row(name, cells))
    note = "The mark in a bar is the uniform share. " if uniform is not None else ""
    return element(
        "section",
        element("h2", "Recommended mixture"),
        element("p", receipt.verdict, class_="lead"),
        table(headings, rows, caption="Recommended mixture", class_="cards glance"),
        element(
            "p",
            f"{note}The interval shows how far a share moves when the method is asked again of halves of the runs.",
            class_="note",
        ),
        id="mixture",
    )


def _audit_section(receipt: Receipt, pictures: Mapping[str, Picture]) -> Html:
    noise = receipt.noise
    said = (
        f"From seed to seed the loss of a run scatters by {noise.run:.4f} nats, the difference of two runs under one "
        f"seed by {noise.difference:.4f}."
        if math.isfinite(noise.difference)
        else "One seed tells nothing of noise: give the audit more seeds, or the search a larger budget."
    )
    return element(
        "section",
        element("h2", "Is it better?"),
        element(
            "p",
            f"{said} A mixture counts as better from a confidence of {SURE:.0%} on, by a paired t test over seeds that "
            "the search never saw.",
            class_="lead",
        ),
        _grid([pictures["audit"]]) if "audit" in pictures else None,
        _target_table(receipt),
        id="audit",
    )


def _target_table(receipt: Receipt) -> Html | None:
    """Return the losses of the audit by target, None if there was no audit."""
    if not receipt.audit_runs:
        return None
    gains = {f"gain over {one.other}": one.by_target for one in receipt.comparisons}
    headings = ["target", "weight", RECOMMENDED, *gains]
    rows = [
        row(
            name,
            {
                "weight": percent(receipt.target_weights[place]),
                RECOMMENDED: f"{loss:.4f}",
                **{heading: f"{values[place]:+.4f}" for heading, values in gains.items()},
            },
        )
        for place, (name, loss) in enumerate(receipt.audit_per_domain)
    ]
    return table(headings, rows, caption="Losses under fresh seeds, in nats", class_="cards")


def _search_section(pictures: Mapping[str, Picture]) -> Html:
    first = [pictures[key] for key in ("runs", "triangle") if key in pictures]
    return element("section", element("h2", "Search"), _grid(first), _grid([pictures["mixtures"]]), id="search")


def _laws_section(laws: Sequence[Picture]) -> Html:
    if not laws:
        return Html("")
    return element("section", element("h2", "Laws"), _grid(laws), id="laws")


def _record_section(receipt: Receipt) -> Html:
    facts = {
        "method": receipt.method,
        "minimised": _objective(receipt),
        "expected": _expected(receipt),
        "search seeds": _seeds(receipt.selection_seeds),
        "audit seeds": _seeds(receipt.audit_seeds),
        "workers": number(len({run.worker for run in receipt.runs})),
        "fingerprint": receipt.fingerprint or MISSING,
    }
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in facts.items())
    return element("section", element("h2", "Record"), element("dl", *pairs, class_="facts"), id="record")


def _objective(receipt: Receipt) -> str:
    if len(set(receipt.target_weights)) == 1:
        return "the mean of all losses" if len(receipt.targets) > 1 else f"the loss of {receipt.targets[0]}"
    weighted = zip(receipt.targets, receipt.target_weights, strict=True)
    return " + ".join(f"{weight:.3g} {name}" for name, weight in weighted if weight)


def _expected(receipt: Receipt) -> str:
    if not math.isfinite(receipt.predicted):
        return MISSING
    spread = f" ± {receipt.predicted_sd:.4f}" if math.isfinite(receipt.predicted_sd) else ""
    return f"{receipt.predicted:.4f}{spread} nats under the seeds of the search"


def _seeds(seeds: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{training} / {evaluation}" for training, evaluation in seeds) or MISSING


def _grid(pictures: Sequence[Picture]) -> Html:
    cards = (card(picture.key, picture.title, picture.note, _numbers(picture)) for picture in pictures)
    columns = "two" if len(pictures) > 1 else "one"
    return element("div", *cards, class_=f"grid {columns}", style="margin-bottom:1rem")


def _numbers(picture: Picture) -> Html:
    """Return the numbers of a chart, those of the first `MOST_ROWS` rows."""
    return folded("Numbers", table(picture.headings, list(_rows(picture)), caption=picture.title, class_="numbers"),
                  f"{picture.title}, numbers")  # fmt: skip


def _rows(picture: Picture) -> Iterator[Html]:
    for label, *cells in picture.rows[:MOST_ROWS]:
        yield element("tr", element("th", label, scope="row"), *(element("td", cell) for cell in cells))
