"""A run folder is read as it holds, and its report says what the run did, whatever its sources are called."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee import CuveeError, Mixture, Source, StateError, report
from cuvee.cli import main
from cuvee.report import write_report
from cuvee.report.figures import deviation_chart, loss_charts, metric_charts, share_charts
from cuvee.report.groups import MOST_SHOWN, Groups, groups_of
from cuvee.report.history import MOST_POINTS, read_run
from cuvee.report.markup import Html, element, json_script
from cuvee.report.owed import owed_by
from cuvee.report.page import page_of
from cuvee.report.story import warnings
from cuvee.report.tables import account_of
from cuvee.report.wording import duration, moment, percent, plural, short, signed
from runs import SECONDS_PER_STEP, finished_run, killed_run, mixture_of, resumed_run, staged_mixture

HOSTILE = ("<script>alert(1)</script>", "@ink", "a & b </script>", "%{x} <b>bold</b>", "'\"><img src=x>")


class Page(HTMLParser):
    """The elements of a page, the text of its tables, and of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self._cell = False
        self._script = ""
        self.figures: dict[str, Any] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self._script = dict(attrs).get("id") or "code"
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False
        if tag == "script":
            self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script == "figures":
            self.figures = json.loads(data)
        elif not self._script:
            self.text.append(data)
            if self._cell:
                self.rows[-1][-1] += data


def read(folder: Path) -> Page:
    return Page(write_report(folder).read_text())


def events_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def write_events(folder: Path, events: list[dict[str, Any]]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def warned(folder: Path) -> list[str]:
    run = read_run(folder)
    owed, groups = owed_by(run), groups_of(run)
    return [warning.text for warning in warnings(run, owed, account_of(run, owed, groups))]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return resumed_run(
        tmp_path_factory.mktemp("resumed"), mixture_of(4, samples_per_epoch=1500, max_length=200), steps=90
    )


def test_what_a_resumed_session_repeats_is_counted_once(resumed: Path) -> None:
    repeated = [event["step"] for event in events_of(resumed) if event["stage"] == "dataset_mix_progress"]
    run = read_run(resumed)
    assert len(repeated) > len(set(repeated))
    assert run.points.step.tolist() == sorted(set(run.points.step.tolist()))
    assert (np.diff(run.points.counts, axis=1) >= 0).all()
    last = [event for event in events_of(resumed) if "sources" in event][-1]["sources"]
    assert run.points.counts[2, -1].tolist() == [last[name]["trained_rows"] for name in run.names]


def test_sessions_know_where_they_began_and_how_they_ended(resumed: Path) -> None:
    first, second = read_run(resumed).sessions
    assert (first.step, first.resumed_from, first.ended) == (0, None, False)
    assert (second.step, second.resumed_from, second.ended, second.reached_max_steps) == (
        45,
        "checkpoint-45",
        True,
        True,
    )
    assert second.last_time - second.time == pytest.approx(45 * SECONDS_PER_STEP)
    text = " ".join(read(resumed).text)
    assert "Resumed from checkpoint-45 at step 45, ended at step 90, its limit" in text
    assert "finished at its step limit" in text


def test_weights_that_learn_are_shown_with_their_scores_and_owed_as_they_were(tmp_path: Path) -> None:
    mixture = mixture_of(4, samples_per_epoch=1500, max_length=None)
    finished_run(tmp_path, mixture, steps=90, learning=True)
    told = [event["sources"] for event in events_of(tmp_path) if event["stage"] == "dataset_mix_progress"]
    run = read_run(tmp_path)
    assert run.learns
    logged = np.isfinite(run.points.weights).all(axis=1)  # the end of an epoch tells of counts alone
    assert run.points.weights[logged].tolist() == [
        [source["weight"] for source in sources.values()] for sources in told
    ]
    assert np.isnan(run.points.scores[0]).all()
    assert np.isfinite(run.points.scores[logged][-1]).all()
    page = read(tmp_path)
    assert "Weights that learn" in page.text
    for key, values in (("weights", run.points.weights), ("scores", run.points.scores)):
        lines = page.figures[key]["data"]
        assert [line["name"] for line in lines] == list(run.names)
        assert lines[2]["y"][int(logged.nonzero()[0][-1])] == pytest.approx(values[logged][-1, 2], rel=1e-6)
    owed = owed_by(run)
    assert owed is not None
    assert (owed.exact, owed.bound) == (False, None)
    assert np.abs(owed.deviation).max() < 60  # weights move between logged points; those of the start are hundreds off
    start = np.asarray(mixture.weights) * owed.given.sum(axis=1)[-1]
    assert np.abs(owed.given[-1] - start).max() > 100
    assert not any("promises" in text for text in warned(tmp_path))


def test_many_weights_that_learn_are_grouped(tmp_path: Path) -> None:
    run = read_run(finished_run(tmp_path, mixture_of(MOST_SHOWN + 9), steps=60, learning=True))
    figures = read(tmp_path).figures
    assert len(figures["weights"]["data"]) == MOST_SHOWN
    assert len(figures["scores"]["data"]) == MOST_SHOWN - 1
    assert sum(line["y"][-1] for line in figures["weights"]["data"]) == pytest.approx(run.points.weights[-1].sum())


def test_a_run_that_does_not_learn_has_no_such_section(resumed: Path) -> None:
    assert not read_run(resumed).learns
    assert "weights" not in read(resumed).figures


def test_a_run_that_was_killed_has_a_report(tmp_path: Path) -> None:
    page = read(killed_run(tmp_path, mixture_of(3), steps=12))
    assert "under way or interrupted" in page.text
    assert "10 of 200" in page.text
    assert page.figures["trained"]["data"][0]["x"] == [5, 10]


def test_a_run_that_has_logged_nothing_has_a_report_without_charts(tmp_path: Path) -> None:
    page = read(killed_run(tmp_path, mixture_of(3), steps=2))
    assert "No step has been logged yet." in page.text
    assert (page.figures, page.tags.count("script")) == ({}, 0)


@pytest.mark.parametrize(
    ("mixture", "steps"),
    [
        (mixture_of(5, samples_per_epoch=900), 120),
        (mixture_of(3, samples_per_epoch="all_seen"), 120),
        (mixture_of(4, exhaustion="renormalize"), 200),
        (mixture_of(3, exhaustion="stop", seed=2), 150),
        (staged_mixture(), 260),
        (mixture_of(4, max_length=100, samples_per_epoch=2000), 100),
    ],
    ids=["cycle", "all seen", "renormalize", "stop", "stages", "filtered"],
)
def test_what_is_owed_is_the_plans_own_account(tmp_path: Path, mixture: Mixture, steps: int) -> None:
    run = read_run(finished_run(tmp_path, mixture, steps=steps))
    owed = owed_by(run)
    assert owed is not None
    assert owed.exact
    assert owed.bound is not None
    assert owed.amounts.sum(axis=1) == pytest.approx(owed.given.sum(axis=1), abs=3)
    within = np.array([mixture.plan(epoch).work(position) - mixture.plan(epoch).work(0) for epoch, position in
                       zip(run.points.epoch.tolist(), run.points.position.tolist(), strict=True)])  # fmt: skip
    first = run.points.epoch == 0
    assert owed.amounts[first] == pytest.approx(within[first])
    assert np.abs(owed.deviation).max() <= owed.bound * (1 + int(run.points.epoch.max()))
    assert warned(tmp_path) == [text for text in warned(tmp_path) if text.startswith("Plan of epoch")]


def test_tokens_are_owed_by_weight(tmp_path: Path) -> None:
    mixture = mixture_of(3, unit="tokens", samples_per_epoch=3000)
    run = read_run(finished_run(tmp_path, mixture, steps=150))
    owed = owed_by(run)
    assert owed is not None
    assert owed.unit == "tokens"
    totals = run.points.counts[3].sum(axis=1)
    assert owed.amounts == pytest.approx(totals[:, np.newaxis] * mixture.weights)
    page = read(tmp_path)
    assert [len(page.figures[key]["data"]) for key in ("scheduled", "trained", "tokens")] == [3, 3, 6]


def test_a_run_without_plans_or_their_files_has_a_report(resumed: Path, tmp_path: Path) -> None:
    write_events(tmp_path, events_of(resumed))  # the plan files are not there
    owed = owed_by(read_run(tmp_path))
    assert owed is not None
    assert owed.bound is None
    assert np.abs(owed.deviation).max() < 20
    write_events(tmp_path, [event for event in events_of(resumed) if event["stage"] != "dataset_mix_plan"])
    assert owed_by(read_run(tmp_path)) is None
    page = read(tmp_path)
    assert "No plan was logged to compare with." in " ".join(page.text)
    assert "deviation" not in page.figures


def test_names_are_shown_as_they_are_and_do_nothing(tmp_path: Path) -> None:
    mixture = Mixture([Source(name, rows=200, weight=1.0) for name in HOSTILE])
    folder = finished_run(tmp_path / "<i>run & more", mixture, steps=40)
    page = read(folder)
    assert page.tags.count("script") == 3
    assert page.tags.count("title") == 1
    assert {"img", "b" * 2, "i"}.isdisjoint(page.tags)
    assert "<i>run & more" in page.text
    for name in HOSTILE:
        assert page.text.count(name) >= 4  # in both legends and both tables
    assert page.figures["losses"]["data"][0]["name"] == "&lt;script&gt;alert(1)&lt;/script&gt;"


@given(text=st.text())
def test_text_survives_markup(text: str) -> None:
    clean = re.sub(r"[\0\r]", "", text)  # which no HTML can carry
    page = Page(element("p", clean, title=clean))
    assert "".join(page.text) == clean
    assert page.tags == ["p"]
    script = Page(json_script({"name": text, "</script>": [text]}, "figures"))
    assert script.figures == {"name": text, "</script>": [text]}


def test_elements_leave_out_what_is_absent() -> None:
    made = element("input", None, "a<", Html("<b>"), hidden=True, disabled=False, id=None, data_line=3, class_="x")
    assert made == '<input hidden data-line="3" class="x">a&lt;<b></input>'


@given(sources=st.integers(1, 60), seed=st.integers(0, 99))
def test_groups_lose_nothing(sources: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 1000, size=(4, 7, sources))
    lines = min(sources, MOST_SHOWN)
    of = np.minimum(np.arange(sources), lines - 1)
    groups = Groups(labels=tuple(map(str, range(lines))), of=of, others=max(0, sources - lines + 1) * (sources > lines))
    sums = groups.summed(values)
    assert sums.shape == (4, 7, lines)
    assert sums.sum(axis=-1) == pytest.approx(values.sum(axis=-1))
    looks = {(groups.colour(line), groups.dotted(line)) for line in range(lines)}
    assert len(looks) == lines


def test_a_thousand_sources_are_the_largest_and_the_others(tmp_path: Path) -> None:
    mixture = mixture_of(1000, samples_per_epoch=4000)
    run = read_run(finished_run(tmp_path, mixture, steps=60, logging_steps=20))
    groups = groups_of(run)
    assert (len(groups), groups.others, groups.labels[-1]) == (MOST_SHOWN, 985, "985 others")
    shown = [mixture.weights[mixture.names.index(name)] for name in groups.labels[:-1]]
    assert shown == sorted(mixture.weights.tolist(), reverse=True)[:15]
    page = read(tmp_path)
    assert len(page.figures["trained"]["data"]) == 2 * MOST_SHOWN
    assert {row[0] for row in page.rows} >= set(mixture.names)  # each has its row in the account


def test_the_account_adds_up(resumed: Path) -> None:
    page = read(resumed)
    heading = next(row for row in page.rows if row[:4] == ["source", "scheduled", "filtered", "trained"])
    start = page.rows.index(heading) + 1
    rows = [[int(cell.replace(",", "")) for cell in row[1:6]] for row in page.rows[start : start + 5]]
    *sources, total = rows
    assert page.rows[start + 4][0] == "total"
    assert np.array(sources).sum(axis=0).tolist() == total
    for scheduled, filtered, trained, pending, _ in rows:
        assert scheduled == filtered + trained + pending
    assert total[1] > 0
    assert f"{total[0]:,} rows scheduled = {total[1]:,} filtered + {total[2]:,} trained on" in " ".join(page.text)


def test_numbers_of_a_chart_stand_in_its_table(resumed: Path) -> None:
    run = read_run(resumed)
    page = read(resumed)
    line = page.figures["trained"]["data"][0]
    rows = page.rows[next(place for place, row in enumerate(page.rows) if row == ["step", *run.names]) + 1 :]
    trained = run.points.counts[0].astype(float)
    expected = [percent(share) for share in (trained[-1] / trained[-1].sum()).tolist()]
    assert rows[len(line["x"]) - 1] == ["90", *expected]


def test_long_runs_are_thinned_to_their_ends_and_means(tmp_path: Path) -> None:
    finished_run(tmp_path, mixture_of(2, samples_per_epoch=40_000), steps=1200, rows_per_step=8, logging_steps=1)
    logged = [event for event in events_of(tmp_path) if event["stage"] == "dataset_mix_progress"]
    points = read_run(tmp_path).points
    assert (points.every, len(points)) == (3, 400)
    assert len(points) <= MOST_POINTS
    assert points.step.tolist() == list(range(3, 1201, 3))
    first = [event["metrics"]["loss"] for event in logged[:3]]
    assert points.metrics["loss"][0] == pytest.approx(sum(first) / 3)
    assert points.counts[2, -1].tolist() == [counts["trained_rows"] for counts in logged[-1]["sources"].values()]


def test_figures_are_what_plotly_takes(resumed: Path) -> None:
    from plotly.graph_objects import Figure

    run = read_run(resumed)
    owed, groups = owed_by(run), groups_of(run)
    assert owed is not None
    shares = share_charts(run, groups, owed)
    charts = [*shares, deviation_chart(run, groups, owed), *loss_charts(run, groups), *metric_charts(run)]
    assert len({chart.key for chart in charts}) == len(charts) == 10
    for chart in charts:
        figure = Figure(json.loads(re.sub(r'"@\w+"', '"#123456"', json.dumps(chart.figure))))
        assert len(figure.data) == len(chart.figure["data"])


def test_losses_of_several_sources_are_weighed_by_tokens(resumed: Path) -> None:
    run = read_run(resumed)
    together = Groups(labels=("all",), of=np.zeros(4, dtype=np.int64), others=4)
    tokens = run.points.counts[3, 0]
    assert together.losses(run)[0, 0] == pytest.approx(np.average(run.points.losses[0], weights=tokens))


def test_what_looks_wrong_is_told(resumed: Path, tmp_path: Path) -> None:
    for file in resumed.glob("dataset_mix_plan.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    events = events_of(resumed)
    last = next(event for event in reversed(events) if event["stage"] == "dataset_mix_progress")
    last["metrics"]["loss"] = None
    name = next(iter(last["sources"]))
    events[-2]["sources"][name]["trained_rows"] += 5000  # the counts told last
    write_events(tmp_path, events)
    told = warned(tmp_path)
    assert told[0] == "The loss was not a finite number 1 time, first at step 90."
    assert told[1].startswith(f"The account does not balance: at step 90 source {name!r} has more rows filtered")
    assert any(text.startswith(f"Source {name!r} was asked for ") for text in told)


def test_a_source_that_left_its_plan_is_told(resumed: Path, tmp_path: Path) -> None:
    for file in resumed.glob("dataset_mix_plan.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    events = events_of(resumed)
    for event in events:
        for place, counts in enumerate(
            event.get("sources", {}).values() if event["stage"] != "dataset_mix_plan" else []
        ):
            counts["scheduled_rows"] += (100, -100, 0, 0)[place] if event["step"] == 45 else 0
    write_events(tmp_path, events)
    assert any("rows off what it was owed at step 45; the plan promises" in text for text in warned(tmp_path))


def test_warnings_of_one_kind_are_folded(tmp_path: Path) -> None:
    mixture = Mixture([Source(f"source {place}", rows=2, weight=1.0) for place in range(12)], samples_per_epoch=400)
    run = read_run(finished_run(tmp_path, mixture, steps=20))
    found = warnings(run, None, None)
    assert [len(warning.more) for warning in found] == [11]
    assert "11 more of this kind" in read(tmp_path).text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "run folder must hold metrics.jsonl"),
        ("", "run folder must hold a run's events"),
        ("{}\n", "line 1 must be an event with a stage"),
        ("nonsense\n", "line 1 must be an event in JSON"),
        ('{"stage": "run_start", "step": 0, "version": 1, "resumed_from": null, "time": 1.0}\n', "names in run_start"),
    ],
    ids=["none", "empty", "no event", "no JSON", "no names"],
)
def test_a_folder_without_a_run_is_refused_in_one_sentence(
    tmp_path: Path, content: str | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(StateError, match=re.escape(told)):
        write_report(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert told in captured.err
    assert not (tmp_path / "report.html").exists()


VALUES = st.sampled_from([None, True, -1, 3, 2**70, 1e308, "x", "", [], {}, [1], {"a": 1}])


@given(data=st.data())
def test_a_damaged_field_is_drawn_or_told_but_never_a_crash(
    resumed: Path, tmp_path_factory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    for file in resumed.glob("dataset_mix_plan.*"):
        (folder / file.name).write_bytes(file.read_bytes())
    events = events_of(resumed)
    event = events[data.draw(st.sampled_from([0, 1, 2, 3, len(events) - 3, len(events) - 2, len(events) - 1]))]
    place: Any = event
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(VALUES)
        break
    write_events(folder, events)
    try:
        told = page_of(read_run(folder))
    except CuveeError as error:
        told = str(error)
    assert told.endswith("</html>\n") or " must " in told


def test_the_command_says_where_the_report_is(
    resumed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "deep" / "page.html"
    assert main(["report", str(resumed), "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"Written to {target}\n"
    assert target.read_bytes() == write_report(resumed).read_bytes()


def test_a_report_replaces_nothing_of_the_run(resumed: Path, tmp_path: Path) -> None:
    plan = next(resumed.glob("dataset_mix_plan.*"))
    for file in (resumed / "metrics.jsonl", plan):
        before = file.read_bytes()
        with pytest.raises(StateError, match="output must not replace a file of the run"):
            write_report(resumed, file)
        assert file.read_bytes() == before
    with pytest.raises(StateError, match="report must be written to a file"):
        write_report(resumed, tmp_path)


def test_without_plotly_the_cure_is_named(resumed: Path, fresh_python) -> None:
    printed = fresh_python(
        "import sys\n"
        "sys.modules['plotly'] = None\n"
        "from cuvee.report import write_report\n"
        f"try: write_report({str(resumed)!r})\n"
        "except ValueError as error: print(error)\n"
    )
    assert printed.startswith("package 'plotly' must be installed to write reports, but got none; install the extra")


def test_only_the_function_is_public() -> None:
    assert report.__all__ == ["write_report"]


def test_numbers_are_written_for_people() -> None:
    assert [short(value) for value in (0, 0.00123, 12.345678, 45678.2, 1.2e-5, float("nan"), -0.5)] == [
        "0", "0.00123", "12.35", "45,678", "1.20e-05", "\N{EN DASH}", "-0.5",
    ]  # fmt: skip
    assert [percent(0.5), percent(0), percent(0.000012)] == ["50.00%", "0.00%", "1.2e-03%"]
    assert [signed(1.25), signed(-1.26), signed(0.01), signed(-2000, 0)] == [
        "+1.2", "\N{MINUS SIGN}1.3", "0.0", "\N{MINUS SIGN}2,000",
    ]  # fmt: skip
    assert [duration(42), duration(200), duration(18_725), duration(187_200), duration(-1)] == [
        "42 s", "3 min 20 s", "5 h 12 min", "2 d 4 h", "0 s",
    ]  # fmt: skip
    assert [plural(1, "row"), plural(2000, "row")] == ["1 row", "2,000 rows"]
    assert [moment(0), moment(1e300)] == ["1970-01-01 00:00 UTC", "\N{EN DASH}"]


# Severe colour blindness in linear RGB (Machado, Oliveira and Fernandes 2009).
SEEN = {
    "all cones": np.eye(3),
    "no long": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "no medium": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "no short": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
TO_LMS = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
TO_LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


def palettes() -> dict[str, dict[str, np.ndarray]]:
    """Return the style sheet's colours for light and dark, in linear RGB."""
    sheet = Path(report.__file__).with_name("report.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    return {
        scheme: {name: linear(digits) for name, digits in re.findall(r"--([\w-]+): #(\w{6})", block)}
        for scheme, block in (("light", light), ("dark", dark))
    }


def linear(digits: str) -> np.ndarray:
    values = np.array([int(digits[place : place + 2], 16) for place in (0, 2, 4)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    dark, light = sorted(float(colour @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_stand_out_and_apart_for_all_eyes(scheme: str) -> None:
    colours = palettes()[scheme]
    lines = [colours[f"s{line}"] for line in range(8)]
    for line in [*lines, colours["others"]]:
        assert contrast(line, colours["card"]) >= 3
    for matrix in SEEN.values():
        seen = [100 * TO_LAB @ np.cbrt(TO_LMS @ np.clip(matrix @ line, 0, 1)) for line in lines]
        assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) >= 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme: str) -> None:
    colours = palettes()[scheme]
    for text in ("ink", "muted", "good", "open", "accent"):
        for ground in ("bg", "card"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["ink"], colours["warn-bg"]) >= 4.5
