"""The report in a real browser, as people open it: on a desk and in the hand, by day and by night."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cuvee import Mixture, Source
from cuvee.report import write_report
from runs import finished_run, killed_run, mixture_of, resumed_run, staged_mixture

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER) and "CI" not in os.environ, reason="needs chromium and chromedriver"
)
LONG = "a name that is far too long for any legend, and has <b>tags</b> & signs in it"

# Text smaller than 12 px, in the page or in a chart.
TINY = """
  const nodes = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), tiny = [];
  while (nodes.nextNode()) {
    const parent = nodes.currentNode.parentElement;
    const size = parseFloat(getComputedStyle(parent).fontSize), seen = parent.getClientRects().length > 0;
    if (nodes.currentNode.textContent.trim() && seen && size < 12) tiny.push([parent.tagName, size]);
  }
  return tiny;
"""
# Elements that reach beyond the window, those in a region of its own scrolling aside.
BEYOND = """
  const width = arguments[0]; // innerWidth grows with what is too wide on a phone
  return [...document.querySelectorAll("main *")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width && box.right > width + 0.5 && !one.closest(".scroll, .plot, caption, thead");
  }).map((one) => `${one.tagName}.${one.getAttribute("class")}`);
"""
# Labels of axes that lie over one another.
OVERLAPS = """
  const cross = (a, b) => a.left < b.right - 1 && b.left < a.right - 1;
  const overlap = (a, b) => cross(a, b) && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const found = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const labels = [...plot.querySelectorAll(".xtick text, .ytick text, .xtitle")];
    const boxes = labels.map((one) => one.getBoundingClientRect());
    boxes.forEach((box, i) => boxes.slice(i + 1).forEach((other) => overlap(box, other) && found.push(plot.id)));
  }
  return found;
"""
DRAWN = """
  return [...document.querySelectorAll(".plot")].map((plot) => [
    plot.dataset.figure,
    plot.querySelectorAll(".main-svg").length,
    plot.querySelectorAll(".scatterlayer .trace").length,
    plot.data.filter((trace) => trace.visible).length]);
"""


FITS = """
  return [...document.querySelectorAll(".plot")].every((plot) => {
    const drawn = plot.querySelector(".main-svg");
    return drawn && Math.abs(drawn.getBoundingClientRect().width - plot.clientWidth) <= 1;
  });
"""


class Browser:
    """Headless Chromium with a window of any size and either colour scheme."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.binary_location = str(CHROMIUM)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))

    def open(self, page: Path, *, width: int = 1280, scheme: str = "light") -> None:
        """Open a page and wait until it is drawn; console and network logs begin here."""
        self.look(width=width, scheme=scheme)
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(page.as_uri())
        self.settle()

    def look(self, *, width: int = 1280, scheme: str = "light") -> None:
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def settle(self) -> None:
        """Wait until each chart is as wide as its place, and two frames more."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 30, poll_frequency=0.05).until(lambda driver: driver.execute_script(FITS))
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def requests(self) -> list[str]:
        """Return the addresses asked for since the page was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]


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


def check(browser: Browser, *, width: int, charts: bool) -> None:
    """Check that all is drawn, fits, and can be read."""
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(BEYOND, width) == []
    assert browser.run(TINY) == []
    assert browser.run(OVERLAPS) == []
    drawn = browser.run(DRAWN)
    assert bool(drawn) == charts
    for key, surfaces, lines, visible in drawn:
        assert (surfaces, lines) == (3, visible), key
        assert lines > 0, key


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
