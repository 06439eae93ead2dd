"""The report of a search in a real browser: whole and legible at any width, by day and by night, whatever names say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from browser import Browser, check, needs_browser
from cuvee.search.extrapolation import Extrapolation
from cuvee.search.law_figures import law_pictures
from cuvee.search.page import write_search_report
from cuvee.search.receipt import Receipt
from receipts import receipt_of

pytestmark = needs_browser
HOSTILE = (
    '</script><img src=x onerror="window.broken = 1">',
    "<b>bold</b> & %{x} <svg onload='window.broken = 2'>",
    "a name that is far too long for any legend or axis " * 4,
)
TARGET_STEPS = 20_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.driver.quit()


def extrapolated(receipt: Receipt) -> tuple[Receipt, Extrapolation]:
    """Return a receipt whose losses were carried on to more steps."""
    law = Extrapolation(steps=400, target_steps=TARGET_STEPS)
    return replace(receipt, runs=tuple(law(receipt.runs)), target_steps=TARGET_STEPS), law


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the reports of searches that differ in what makes a page hard to lay out."""
    root = tmp_path_factory.mktemp("searches")
    hostile = receipt_of(HOSTILE)
    hostile = replace(hostile, remarks=(*HOSTILE, "x" * 500), method=HOSTILE[0], fingerprint="f" * 300)
    far, law = extrapolated(receipt_of(("math", "code")))
    begun = replace(receipt_of(runs=3), runs=receipt_of(runs=3).runs[:3], low=(), high=())
    many = receipt_of(tuple(f"domain {number}" for number in range(120)))
    receipts = {"hostile": hostile, "far": far, "begun": begun, "many": many}
    laws = {name: law_pictures(receipt, law if name == "far" else None) for name, receipt in receipts.items()}
    titles = {"hostile": HOSTILE[0]}
    return {
        name: write_search_report(receipt, root / f"{name}.html", title=titles.get(name, name), laws=laws[name])
        for name, receipt in receipts.items()
    }


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", ["hostile", "far", "begun", "many"])
def test_page_is_whole_and_legible(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    browser.open(pages[name], width=width, scheme="light")
    check(browser, width=width, charts=True)
    browser.look(width=width, scheme="dark")
    browser.settle()
    check(browser, width=width, charts=True)
    assert browser.driver.get_log("browser") == []
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


def test_names_are_text_wherever_they_stand(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.run("return window.broken ?? null") is None
    assert browser.run("return document.querySelectorAll('img, [onerror], [onload]').length") == 0
    assert browser.run("return document.querySelectorAll('body > script').length") == 3
    assert browser.run("return document.title").startswith(HOSTILE[0])
    assert browser.run("return document.querySelector('h1').textContent") == HOSTILE[0]
    rows = browser.run(
        "return [...document.querySelectorAll('#mixture tbody th')].map((one) => one.textContent.trim())"
    )
    assert [row.strip() for row in rows] == [name.strip() for name in HOSTILE]


def test_charts_follow_the_colour_scheme(browser: Browser, pages: dict[str, Path]) -> None:
    look = "return [...document.querySelectorAll('.plot')].map((plot) => plot.layout.font.color)"
    browser.open(pages["far"])
    light = browser.run(look)
    browser.look(scheme="dark")
    browser.settle()
    dark = browser.run(look)
    assert set(light) == {"#1b2230"}
    assert set(dark) == {"#e8ebf0"}
    assert len(light) == len(dark) == 6  # runs, audit, mixtures, and three of laws


def test_every_chart_and_table_has_a_name(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["far"])
    assert browser.run("return [...document.querySelectorAll('table')].every((one) => one.caption?.textContent)")
    assert browser.run(
        "return [...document.querySelectorAll('.plot')].every((one) => one.ariaLabel && one.role === 'img')"
    )
    identifiers = browser.run("return [...document.querySelectorAll('main [id]')].map((one) => one.id)")
    assert len(set(identifiers)) == len(identifiers)


def test_numbers_that_are_none_leave_a_page_that_is_drawn(browser: Browser, tmp_path: Path) -> None:
    receipt = receipt_of()
    broken = [replace(run, losses=(np.nan, *run.losses[1:])) if run.number % 5 == 1 else run for run in receipt.runs]
    page = write_search_report(replace(receipt, runs=tuple(broken)), tmp_path / "page.html")
    browser.open(page, width=400)
    assert browser.driver.get_log("browser") == []
    assert browser.run("return document.querySelectorAll('.plot .main-svg').length") > 0
    assert "NaN" not in browser.run("return document.getElementById('figures').textContent")
