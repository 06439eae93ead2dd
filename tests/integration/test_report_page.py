"""The report in a real browser, as people open it: on a desk and in the hand, by day and by night."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from browser import Browser, check, needs_browser
from cuvee import Mixture, Source
from cuvee.report import write_report
from runs import finished_run, killed_run, mixture_of, resumed_run, staged_mixture

pytestmark = needs_browser
LONG = "a name that is far too long for any legend, and has <b>tags</b> & signs in it"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the reports of runs that differ in what makes a page hard to lay out."""
    root = tmp_path_factory.mktemp("runs")
    odd = Mixture([Source("<script>alert(1)</script>", rows=90, weight=0.7), Source(LONG, rows=50, weight=0.3)])
    finished_run(root / "odd", odd, steps=60)
    resumed_run(root / "resumed", mixture_of(5, samples_per_epoch=1500, max_length=250), steps=120)
    finished_run(root / "many", mixture_of(32, unit="tokens", samples_per_epoch=3000), steps=120)
    finished_run(root / "staged", staged_mixture(), steps=200)
    finished_run(root / "thousand", mixture_of(1000, samples_per_epoch=3000), steps=60, logging_steps=10)
    killed_run(root / "killed", mixture_of(3), steps=12)
    killed_run(root / "begun", mixture_of(3), steps=2)
    return {folder.name: write_report(folder) for folder in sorted(root.iterdir())}


RUNS = ("odd", "resumed", "many", "staged", "thousand", "killed", "begun")


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", RUNS)
def test_page_is_whole_and_legible(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    charts = name != "begun"
    browser.open(pages[name], width=width, scheme="light")
    check(browser, width=width, charts=charts)
    for changed in (width, 768) if width > 1000 else (width,):
        browser.look(width=changed, scheme="dark")
        browser.settle()
        check(browser, width=changed, charts=charts)
    assert browser.driver.get_log("browser") == []
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


def test_a_small_screen_has_every_number_beside_its_name(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["resumed"], width=400)
    labels = browser.run("""
      return [...document.querySelectorAll("#account tbody tr:first-child td")].map((cell) => [
        getComputedStyle(cell, "::before").content, getComputedStyle(cell).display, cell.textContent])
    """)
    assert [label for label, _, _ in labels][:4] == ['"scheduled"', '"filtered"', '"trained"', '"pending"']
    assert {display for _, display, _ in labels} == {"flex"}
    assert all(text for _, _, text in labels)


def test_charts_follow_the_colour_scheme_and_the_width(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["resumed"])
    look = """
      const plot = document.getElementById("plot-loss");
      const width = plot.querySelector(".main-svg").getBoundingClientRect().width;
      return [plot.data[0].line.color, plot.layout.font.color, width]
    """
    light = browser.run(look)
    browser.look(width=400, scheme="dark")
    browser.settle()
    dark = browser.run(look)
    assert light[:2] == ["#1b2230", "#1b2230"]
    assert dark[:2] == ["#e8ebf0", "#e8ebf0"]
    assert dark[2] < 400 < light[2]


def test_a_press_hides_a_source_in_every_chart(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["resumed"])
    shown = (
        "return [...document.querySelectorAll('.plot')].map((plot) => plot.data.filter((one) => one.visible).length)"
    )
    before = browser.run(shown)
    browser.run("document.querySelector('#loss .legend button').click()")
    browser.settle()
    pressed = browser.run("return [...document.querySelectorAll('[data-line=\"0\"]')].map((one) => one.ariaPressed)")
    assert pressed == ["false", "false"]
    after = browser.run(shown)
    assert [one - other for one, other in zip(before, after, strict=True)] == [2, 2, 1, 1, 0, 1, 0, 0, 0, 0]
    browser.run("document.querySelector('#over-time .legend button').click()")
    browser.settle()
    assert browser.run(shown) == before


def test_zooming_one_chart_zooms_all(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["resumed"])
    ranges = "return [...document.querySelectorAll('.plot')].map((plot) => plot.layout.xaxis.range.map(Math.round))"
    whole = browser.run(ranges)
    browser.driver.execute_async_script(
        "Plotly.relayout('plot-loss', {'xaxis.range[0]': 20, 'xaxis.range[1]': 60}).then(arguments[0])"
    )
    browser.settle()
    assert browser.run(ranges) == [[20, 60]] * len(whole)
    browser.run("document.getElementById('plot-loss').emit('plotly_doubleclick')")
    browser.settle()
    assert browser.run(ranges) == whole


def test_what_is_hidden_at_first_is_the_mass_of_small_sources(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["thousand"])
    hidden = browser.run("return [...document.querySelectorAll('[aria-pressed=false]')].map((one) => one.textContent)")
    assert hidden == ["985 others", "985 others"]


def test_the_page_has_an_outline_and_names_for_everything(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["resumed"])
    levels = browser.run("return [...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert browser.run("return [...document.querySelectorAll('table')].every((one) => one.caption?.textContent)")
    assert browser.run(
        "return [...document.querySelectorAll('.plot')].every((one) => one.ariaLabel && one.role === 'img')"
    )
    assert browser.run(
        "return [...document.querySelectorAll('figure')].every((one) => one.querySelector('details table'))"
    )
    identifiers = browser.run("return [...document.querySelectorAll('main [id]')].map((one) => one.id)")
    assert len(set(identifiers)) == len(identifiers)
