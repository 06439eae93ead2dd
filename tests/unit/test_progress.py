"""What a run shows while it trains is right at every width, and plain where there is no terminal."""

from __future__ import annotations

import io
import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from cuvee import Ledger
from cuvee.train.progress import MOST_SHOWN, REDRAW_SECONDS, MixProgress, SourceView, duration

METRICS = {"loss": 2.25, "learning_rate": 1e-3, "rows_per_second": 1234.4, "unknown": 1.0, "grad_norm": None}


def names_of(count: int) -> list[str]:
    return [f"source {number}" for number in range(count)]


def ledger_of(names, rows: int = 1000) -> Ledger:
    """Return a ledger of `rows` rows dealt in turn, every tenth filtered, five tokens in each."""
    ledger, source = Ledger(names), np.arange(rows) % len(names)
    passed = np.arange(rows) // len(names) % 10 > 0
    ledger.add_scheduled(source, passed=passed)
    ledger.add_trained(source[passed], np.full(passed.sum(), 5))
    return ledger


def evenly(names) -> dict[str, float]:
    return {name: 1 / len(names) for name in names}


def console_of(width: int = 120, *, terminal: bool) -> Console:
    return Console(
        file=io.StringIO(), record=True, width=width, height=40, force_terminal=terminal, markup=False,
        highlight=False, emoji=False,
    )  # fmt: skip


def progress_of(names, console, **changes) -> MixProgress:
    settings = {"rows": dict.fromkeys(names, 100), "total_steps": 1000, "console": console}
    return MixProgress(evenly(names), **settings | changes)


def shown(progress: MixProgress, console: Console) -> list[str]:
    """Return the lines that the progress's terminal shows."""
    console.export_text()
    console.print(progress.render())
    return console.export_text().splitlines()


def updated(names, width: int = 120, **changes) -> list[str]:
    console = console_of(width, terminal=True)
    progress = progress_of(names, console, **changes)
    progress.update(ledger_of(names), step=120, losses={names[0]: 1.5}, metrics=METRICS)
    return shown(progress, console)


# --- on a terminal


def test_bar_numbers_and_sources_are_shown() -> None:
    lines = updated(names_of(4))
    assert lines[0].startswith("━")
    assert lines[0].rstrip().endswith("step 120/1,000")
    assert lines[1].strip() == "loss 2.2500 | lr 1.00e-03 | 1,234 rows/s"
    titles = ["source", "asked", "rows", "%", "loss", "tokens", "%", "rows", "passes", "filtered", "scheduled"]
    assert lines[2].split() == titles
    assert lines[3].split() == ["source", "0", "25.00%", "25.00%", "1.5000", "25.00%", "225", "2.50", "25", "25.00%"]
    assert lines[6].split()[4] == "-"  # no loss yet
    assert lines[7].strip() == "largest deviation +0.00 points of rows: source 0 | 100 filtered"


def test_before_the_first_numbers_there_is_the_bar_alone() -> None:
    console = console_of(terminal=True)
    assert len(shown(progress_of(names_of(4), console), console)) == 1


def test_shares_of_tokens_come_first_where_they_are_what_was_asked_for() -> None:
    assert updated(names_of(2), unit="tokens")[2].split()[:4] == ["source", "asked", "tokens", "%"]
    assert updated(names_of(2), unit="tokens")[-1].strip().startswith("largest deviation +0.00 points of tokens")


def test_a_source_keeps_its_last_loss_and_may_be_asked_for_anew() -> None:
    names, console = names_of(2), console_of(terminal=True)
    progress = progress_of(names, console)
    progress.update(ledger_of(names), step=1, losses={names[0]: 1.5, names[1]: 2.5}, metrics={})
    progress.update(
        ledger_of(names), step=2, losses={names[0]: None, names[1]: 2.0}, metrics={}, requested={names[0]: 0.9}
    )
    rows = [line.split() for line in shown(progress, console)[2:4]]
    assert [row[4] for row in rows] == ["1.5000", "2.0000"]
    assert [row[2] for row in rows] == ["90.00%", "0.00%"]


def test_deviation_is_from_what_was_asked_for_when_rows_came() -> None:
    names, console = names_of(2), console_of(terminal=True)
    progress, ledger = progress_of(names, console), Ledger(names)
    for step, (rows, asked) in enumerate([([50, 50], 0.9), ([90, 10], 0.2), ([20, 80], 0.2)]):
        ledger.add_scheduled(np.repeat([0, 1], rows))
        ledger.add_trained(np.repeat([0, 1], rows))
        requested = {names[0]: asked, names[1]: 1 - asked}
        progress.update(ledger, step=step, losses={}, metrics={}, requested=requested)
    lines = shown(progress, console)
    assert [line.split()[2:4] for line in lines[-3:-1]] == [["20.00%", "53.33%"], ["80.00%", "46.67%"]]
    assert lines[-1].strip().startswith("largest deviation +0.00 points of rows")


def test_numbers_shown_are_those_of_the_update() -> None:
    names, console = names_of(2), console_of(terminal=True)
    progress, ledger = progress_of(names, console), ledger_of(names)
    progress.update(ledger, step=1, losses={}, metrics={})
    before = shown(progress, console)
    ledger.add_trained([0] * 50)
    assert shown(progress, console) == before


def test_of_many_sources_the_largest_are_shown_and_the_others_summed() -> None:
    names, console = names_of(32), console_of(terminal=True)
    weights = {name: 1 + number % 16 for number, name in enumerate(names)}
    requested = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    progress = MixProgress(requested, rows=dict.fromkeys(names, 10), total_steps=10, console=console)
    progress.update(ledger_of(names, 3200), step=1, losses={}, metrics={})
    lines = shown(progress, console)
    assert [line.split()[1] for line in lines[2:14]] == [
        str(number) for number in (10, 11, 12, 13, 14, 15, 26, 27, 28, 29, 30, 31)
    ]
    rest = sum(share for name, share in requested.items() if int(name.split()[1]) % 16 < 10)
    assert lines[14].split() == ["and", "20", "more", f"{rest:.2%}", "62.50%", "62.50%", "1,800", "200", "62.50%"]
    assert "largest deviation +2.76 points of rows: source 0" in lines[15]


@given(
    names=st.lists(
        st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=60) | st.just("[red]x[/red]"),
        min_size=1,
        max_size=20,
        unique=True,
    ),
    width=st.integers(30, 200),
)
def test_nothing_is_wider_than_the_terminal(names, width) -> None:
    console = console_of(width, terminal=True)
    progress = progress_of(names, console)
    progress.update(ledger_of(names), step=120, losses={}, metrics=METRICS)
    lines = shown(progress, console)
    assert max(map(cell_len, lines)) <= width
    assert sum("%" in line and "points" not in line for line in lines) >= min(len(names), MOST_SHOWN)


@pytest.mark.parametrize(("width", "titles"), [(40, 3), (60, 6), (80, 8), (120, 8)])
def test_a_narrow_terminal_gets_the_most_important_columns(width, titles) -> None:
    lines = updated(names_of(4), width)
    head = next(line for line in lines if line.startswith("source "))
    assert len(re.findall("asked|rows %|loss|tokens %|rows(?! %)|passes|filtered|scheduled", head)) == titles


def test_a_terminal_is_redrawn_seldom_and_in_the_end() -> None:
    console = console_of(terminal=True)
    with progress_of(names_of(2), console) as progress:
        began, size = time.monotonic(), console.file.tell()
        for step in range(1, 1001):
            progress.advance(step)
        redrawn = console.file.getvalue()[size:].count("/1,000")
        assert redrawn <= 1 + (time.monotonic() - began) / REDRAW_SECONDS
        progress.note("checkpoint-10 [saved]")
    text = console.file.getvalue()
    assert "checkpoint-10 [saved]" in text
    assert "step 1,000/1,000" in text[text.index("checkpoint-10") :]
    assert text.endswith("\x1b[?25h")  # the cursor is back


def test_an_error_in_training_gets_through_and_leaves_the_terminal_usable() -> None:
    console = console_of(terminal=True)
    with pytest.raises(KeyError), progress_of(names_of(2), console):
        raise KeyError
    assert console.file.getvalue().endswith("\x1b[?25h")


def test_colours_can_be_switched_off(monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = console_of(terminal=True)
    with progress_of(names_of(2), console) as progress:
        progress.update(ledger_of(names_of(2)), step=500, losses={}, metrics=METRICS)
    codes = {code for group in re.findall(r"\x1b\[([\d;]*)m", console.file.getvalue()) for code in group.split(";")}
    assert codes <= {"0", "1", "2"}  # bold and dim are no colours


# --- elsewhere


def test_without_a_terminal_each_update_is_one_plain_line() -> None:
    console, names = console_of(40, terminal=False), names_of(3)
    with progress_of(names, console) as progress:
        for step in range(1, 6):
            progress.advance(step)
        assert console.file.getvalue() == ""
        progress.update(ledger_of(names, 900), step=10, losses={}, metrics=METRICS)
        progress.note("[saved] checkpoint-10")
    assert console.file.getvalue() == (
        "step 10/1,000 | loss 2.2500 | lr 1.00e-03 | 1,234 rows/s | "
        "largest deviation +0.00 points of rows: source 0 | 90 filtered\n"
        "[saved] checkpoint-10\n"
    )


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_forced_colours_make_no_terminal(monkeypatch, capsys, variable) -> None:
    monkeypatch.setenv(variable, "1")
    with MixProgress({"a": 1.0}, rows={"a": 5}, total_steps=None) as progress:
        progress.update(ledger_of(["a"]), step=3, losses={}, metrics={})
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "step 3 | 100 filtered\n")  # of one source nothing can deviate


def test_nothing_trained_has_no_deviation() -> None:
    view = SourceView(Ledger(["a"]), {"a": 1.0}, {"a": 3}, {}, unit="rows")
    assert view.deviation_text() == "nothing trained yet"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (18_420, "5 h 07 min"), (183_600, "2 d 03 h"),
    ],
)  # fmt: skip
def test_times_are_readable(seconds, text) -> None:
    assert duration(seconds) == text
