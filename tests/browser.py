"""Pages in a real browser, and what makes one whole and legible."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER) and "CI" not in os.environ, reason="needs chromium and chromedriver"
)

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
    plot.data.filter((trace) => trace.visible !== false).length]);
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
