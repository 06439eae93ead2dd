"""The report of a search says what its receipt says, whatever domains are called; a learned manifest keeps the rest."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvee import manifest
from cuvee.errors import ManifestError, MixtureError, StateError
from cuvee.report.wording import MISSING
from cuvee.search import Proxy, SyntheticDomain, search
from cuvee.search.extrapolation import Extrapolation
from cuvee.search.figures import MOST_AXES, audit_picture, loss_picture, mixtures_picture, triangle_picture
from cuvee.search.law_figures import law_pictures
from cuvee.search.learned import LEAST_SHARE, learned, write_learned
from cuvee.search.page import mixtures_of, page_of, write_search_report
from cuvee.search.receipt import PARTS, RECOMMENDED, UNIFORM
from receipts import receipt_of

HOSTILE = ("<script>alert(1)</script>", "a & b </script>", "%{x} <b>bold</b>")


class Page(HTMLParser):
    """The elements of a page, its text, and its figures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.figures: dict[str, Any] = {}
        self._script = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self._script = dict(attrs).get("id") or "code"

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script == "figures":
            self.figures = json.loads(data)
        elif not self._script:
            self.text += data


def test_the_page_says_what_the_receipt_says(tmp_path: Path) -> None:
    receipt = receipt_of()
    path = write_search_report(receipt, tmp_path / "deep" / "report.html", title="mine", laws=law_pictures(receipt))
    page = Page(path.read_text())
    assert receipt.verdict in page.text
    assert "24" in page.text
    assert "11 / 12, 21 / 22, 31 / 32" in page.text
    for share, low, high in zip(receipt.weights, receipt.low, receipt.high, strict=True):
        assert f"{share:.2%}" in page.text
        assert f"{low:.2%} to {high:.2%}" in page.text
    assert set(page.figures) == {"runs", "audit", "mixtures", "triangle", "law", "shares"}
    assert "To know" not in page.text


def test_the_page_needs_nothing_beside_it() -> None:
    page = page_of(receipt_of(), "mine")
    assert not re.search(r'(?:src|href)="', re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    assert "default-src &#x27;none&#x27;" in page


def test_what_keeps_an_answer_from_being_believed_stands_on_top() -> None:
    page = Page(page_of(replace(receipt_of(gain=-0.1), remarks=("The share of 'a' is at its upper bound.",)), "mine"))
    assert page.text.index("To know") < page.text.index("Recommended mixture")
    assert "not better than uniform beyond noise" in page.text
    assert "at its upper bound" in page.text


def test_names_are_shown_as_they_are() -> None:
    receipt = receipt_of(HOSTILE)
    page = Page(page_of(receipt, HOSTILE[0], law_pictures(receipt)))
    assert page.tags.count("script") == 3
    for name in HOSTILE:
        assert name in page.text
    assert "&lt;script&gt;" in json.dumps(page.figures)


def test_a_search_under_way_has_a_page() -> None:
    receipt = receipt_of()
    page = Page(page_of(replace(receipt, runs=receipt.runs[:1], low=(), high=()), "mine"))
    assert "under way" in page.text
    assert "audit" not in page.figures
    empty = Page(page_of(replace(receipt, runs=()), "mine"))
    assert "not compared" in empty.text


def test_the_laws_of_many_domains_are_one_of_what_was_minimised(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuvee.search.surrogates import TransferLaw

    fitted, fit = [], TransferLaw.fit
    monkeypatch.setattr(
        TransferLaw, "fit", lambda law, w, losses: fitted.append(losses.shape[1]) or fit(law, w, losses)
    )
    names = tuple(f"domain {number}" for number in range(40))
    law, shares = law_pictures(receipt_of(names, runs=12))
    assert set(fitted) == {1}
    assert np.isfinite([float(row[1]) for row in law.rows]).all()
    assert len(shares.rows) == 16


def test_losses_that_are_no_numbers_leave_a_page(tmp_path: Path) -> None:
    receipt = receipt_of()
    broken = [replace(run, losses=(math.nan, *run.losses[1:])) if run.number % 5 == 1 else run for run in receipt.runs]
    page = Page(page_of(replace(receipt, runs=tuple(broken)), "mine"))
    assert None in page.figures["runs"]["data"][0]["y"]


def test_runs_that_diverged_are_drawn_apart_and_no_law_is_fitted_to_them() -> None:
    receipt = receipt_of()
    bad = [replace(run, measured=(math.nan,) * 3, curve=((math.nan,) * 3,) * len(PARTS), diverged=True)
           if run.number % 5 == 1 and run.kind == "search" else run for run in receipt.runs]  # fmt: skip
    runs = [replace(run, measured=run.measured or run.losses) for run in bad]
    extrapolation = Extrapolation(steps=100, target_steps=1600)
    laws = law_pictures(replace(receipt, runs=tuple(runs)), extrapolation)
    page = Page(page_of(replace(receipt, runs=tuple(bad)), "mine", laws))
    drawn = {trace["name"]: trace["x"] for trace in page.figures["runs"]["data"]}
    assert drawn["diverged, at the worst loss of the others"] == [1, 6, 11, 16, 21]
    assert not {1, 6, 11, 16, 21} & {*drawn["whole run"], *drawn["part of a run"]}
    assert page.text.count("diverged") > 5
    assert [row[0] for picture in laws if picture.key == "law" for row in picture.rows][:3] == ["0", "2", "3"]
    assert "nan" not in page.text


@pytest.mark.parametrize("count", [2, 3, 4, MOST_AXES + 20])
def test_pictures_are_right_for_any_number_of_domains(count: int) -> None:
    receipt = receipt_of(tuple(f"d{number}" for number in range(count)))
    picture = mixtures_picture(receipt, mixtures_of(receipt))
    shown = min(count, MOST_AXES)
    assert {len(trace["x"]) for trace in picture.figure["data"]} == {shown}
    assert len(picture.figure["data"]) == receipt.search_runs + 2
    assert (triangle_picture(receipt) is not None) == (count == 3)
    assert all(len(row) == len(picture.headings) for row in picture.rows)


def test_losses_over_runs_tell_whole_runs_from_parts() -> None:
    whole, parts, lowest = loss_picture(receipt_of()).figure["data"]
    assert (len(whole["x"]), len(parts["x"])) == (20, 4)
    assert lowest["y"] == sorted(lowest["y"], reverse=True)


def test_the_audit_is_drawn_with_its_interval() -> None:
    receipt = receipt_of()
    picture = audit_picture(receipt)
    assert picture is not None
    points, mean = picture.figure["data"]
    assert points["y"] == pytest.approx(receipt.comparisons[0].differences)
    low, high = receipt.comparisons[0].interval
    assert mean["error_y"]["array"][0] - mean["error_y"]["arrayminus"][0] == pytest.approx(
        high + low - 2 * mean["y"][0]
    )


def test_one_pair_of_the_audit_says_nothing_of_noise() -> None:
    receipt = receipt_of()
    first = next(run for run in receipt.runs if run.kind == "audit")
    seeds = (first.training_seed, first.evaluation_seed)
    runs = [run for run in receipt.runs if run.kind != "audit" or (run.training_seed, run.evaluation_seed) == seeds]
    picture = audit_picture(replace(receipt, runs=tuple(runs)))
    assert picture is not None
    assert [row[-2:] for row in picture.rows] == [(MISSING, MISSING)] * len(picture.rows)
    assert "nan" not in str(picture.rows)


def test_a_law_predicts_runs_that_it_was_not_fitted_to() -> None:
    law, shares = law_pictures(receipt_of(runs=40))
    correlation = float(re.search(r"Rank correlation (\S+),", law.note)[1])
    assert correlation > 0.9
    assert len(law.rows) == 34  # whole runs
    assert [row[0] for row in shares.rows] == ["math", "code", "web"]
    assert law_pictures(receipt_of(runs=6)) == []


def test_extrapolation_goes_on_along_the_curves_of_runs() -> None:
    receipt = receipt_of(runs=30)
    extrapolation = Extrapolation(steps=100, target_steps=1600)
    moved = extrapolation(receipt.runs)
    assert [run.measured for run in moved] == [run.losses for run in receipt.runs]
    assert extrapolation([run for run in receipt.runs if run.kind == "search"]) == moved[:30]  # audits change nothing
    fall = 0.4 * (1 - 16**-0.5)  # that the curves are made with, by steps from 100 to 1600
    for run in moved:
        if run.fidelity == 1:
            assert np.subtract(run.measured, run.losses) == pytest.approx(fall, abs=0.03)
    law = law_pictures(replace(receipt, runs=tuple(moved)), extrapolation)[-1]
    assert law.key == "steps"
    assert [row[0] for row in law.rows] == [RECOMMENDED, UNIFORM]


def test_a_search_compares_by_losses_at_the_target() -> None:
    domains = [SyntheticDomain("a", 8, 2), SyntheticDomain("b", 8, 3, 0.2)]
    receipt = search(Proxy(domains, 16), ["a", "b"], budget=8, method="bandit", round_size=6, target_steps=48)
    assert receipt.target_steps == 48
    assert all(len(run.curve) == len(PARTS) and run.measured for run in receipt.runs)
    assert (
        receipt.remarks[0]
        == "Losses are extrapolated from 16 to 48 steps by a law of steps, for one size of the model."
    )
    with pytest.raises(MixtureError, match="target_steps must be an integer in \\[16, "):
        search(Proxy(domains, 16), ["a", "b"], budget=8, method="bandit", target_steps=11)
    with pytest.raises(MixtureError, match="target_steps must come with a score that has steps"):
        search(lambda weights, budget, seed: dict(weights), ["a", "b"], budget=8, target_steps=11)


def test_a_report_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="report must be written to a file, but got"):
        write_search_report(receipt_of(), tmp_path)


def document(**more: Any) -> manifest.Manifest:
    sources = [{"name": name, "path": f"{name}.jsonl", "weight": 1} for name in "ab"]
    return manifest.parse({"version": 1, "seed": 7, "exhaustion": "stop", "sources": sources} | more)


def test_a_learned_manifest_keeps_all_but_weights_and_version() -> None:
    before = document(shuffle_within_sources=False)
    after = learned(before, {"a": 0.75, "b": 0.25}, unit="tokens")
    assert [source.weight for source in after.sources] == [0.75, 0.25]
    assert (after.version, after.unit, after.seed, after.exhaustion) == (2, "tokens", 7, "stop")
    assert after.shuffle_within_sources is False


def test_a_learned_manifest_replaces_a_policy_and_has_no_empty_source() -> None:
    sources = [{"name": name, "path": f"{name}.jsonl"} for name in "ab"]
    before = document(version=2, weights={"policy": "proportional"}, sources=sources, window=8)
    after = learned(before, {"a": 1.0, "b": 0.0})
    assert after.weights is None
    assert after.window == 8
    assert [source.weight for source in after.sources] == [1.0, LEAST_SHARE]


def test_a_learned_manifest_finds_its_data_from_another_folder(tmp_path: Path) -> None:
    path = write_learned(document(), {"a": 0.5, "b": 0.5}, tmp_path / "deep" / "mix.json")
    again = manifest.load(path)
    assert manifest.source_path(again, again.sources[0]) == manifest.source_path(document(), document().sources[0])


def test_stages_and_missing_weights_are_refused() -> None:
    staged = document(version=2, stages=[{"at": 5, "weights": {"a": 1, "b": 1}}])
    with pytest.raises(ManifestError, match="--write must have a manifest without stages"):
        learned(staged, {"a": 0.5, "b": 0.5})
    with pytest.raises(ManifestError, match="weights must name every source, but got none for 'b'"):
        learned(document(), {"a": 1.0})
