"""`cuvee search` goes on: over runs that diverge, with other options as long as it has no run, with a larger budget."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from cuvee.cli import main
from searches import SCORE, arguments, bare, begun, receipt_in, start, wait_for, write_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with sources, a manifest and scores, and work in it."""
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path)
    return tmp_path


def test_other_options_are_taken_until_a_run_was_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("--seed", "5", score="failing.py:score")) == 2
    assert main(arguments()) == 0
    capsys.readouterr()
    assert {run.training_seed for run in receipt_in(folder).of_kind("search")} == {0}
    runs = begun(folder)
    assert main(arguments("--seed", "5")) == 2
    assert "--seed of study 'mix' must be 0, as it was begun with, but got 5" in capsys.readouterr().err
    assert begun(folder) == runs


def test_a_larger_budget_goes_on_and_a_smaller_one_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(budget=16)) == 0
    first = receipt_in(folder)
    assert main(arguments("--write", "learned.json", budget=40)) == 0
    second, said = receipt_in(folder), capsys.readouterr()
    assert max(begun(folder).values()) == 1
    assert sum(begun(folder).values()) == len(second.runs) == second.spent <= 40
    assert bare(second)[: first.search_runs] == bare(first)[: first.search_runs]
    assert f"note      {first.audit_runs} runs are of the audit at a budget of 16: they are paid for" in said.out
    assert f"of 40 runs, lowest loss {min(map(second.loss, second.of_kind('search'))):.4f}\n" in said.err
    assert (folder / "run" / "report.html").exists()
    assert main(arguments(budget=24)) == 2
    refused = (
        "--budget of study 'mix' must be 40, as it was raised to, or more, but got 24; give so much and begin again"
    )
    assert refused in " ".join(capsys.readouterr().err.split())
    assert main(arguments(budget=41)) == 2
    assert "--budget must leave a run for the search beside" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite:///shared.db", "journal:shared.log"])
def test_a_budget_that_is_raised_after_a_kill_and_killed_again_answers_as_one_that_was_not(
    folder: Path, kind: str
) -> None:
    assert main(arguments(budget=16)) == 0
    assert main(arguments(score="quick.py", budget=24)) == 0
    whole = receipt_in(folder)
    shutil.rmtree(folder / "run")
    (folder / "begun").unlink()
    (folder / "quick.py").write_text(f"PAUSE = 0.3\n{SCORE}")
    for budget, runs in ((16, 5), (24, 16)):
        worker = start("--storage", kind, score="quick.py", budget=budget)
        wait_for(lambda runs=runs: (folder / "begun").exists() and sum(begun(folder).values()) >= runs, "no runs")
        worker.kill()
        worker.communicate()
    assert main(arguments("--storage", kind, "--workers", "2", budget=24)) == 0
    assert bare(receipt_in(folder)) == bare(whole)
    assert sum(begun(folder).values()) - len(whole.runs) in (0, 1, 2)


def test_runs_that_diverge_are_told_and_end_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("--write", "learned.json", score="diverging.py:score")) == 0
    receipt, printed = receipt_in(folder), capsys.readouterr()
    bad = sum(run.diverged for run in receipt.of_kind("search"))
    assert 0 < bad < receipt.search_runs
    assert f"note      {bad} of {receipt.search_runs} runs of the search diverged: a loss was not finite" in printed.out
    assert re.search(
        rf"^Auditing: 21 of 24 runs, lowest loss 2\.\d{{4}}, {receipt.diverged} diverged$", printed.err, re.MULTILINE
    )
    assert not re.search(r"\b(nan|inf)\b", printed.out + printed.err)
    text = (folder / "run" / "receipt.json").read_text()
    own = [run["measured"] for run in json.loads(text, parse_constant=pytest.fail)["runs"] if run["diverged"]]
    assert [losses[1] for losses in own] == [None] * receipt.diverged
    assert "runs of the search diverged" in (folder / "run" / "report.html").read_text()
    before = begun(folder)
    assert main(arguments(score="diverging.py:score")) == 0
    assert begun(folder) == before
    assert receipt_in(folder).to_json() == text


def test_a_first_round_that_diverged_names_the_loss_and_the_cure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(score="always.py:score")) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "losses must be finite in one run of the first round at least, but got 3 that diverged" in said
    assert "'b': nan" in said
    assert "give the search another --study, or another --output-dir" in said
    assert "the same command goes on" not in said
    assert sum(begun(folder).values()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite:///shared.db", "journal:shared.log"])
def test_a_killed_search_of_diverging_runs_answers_as_one_that_was_not(folder: Path, kind: str) -> None:
    assert main(arguments(score="slow_diverging.py:score")) == 0
    whole = receipt_in(folder)
    shutil.rmtree(folder / "run")
    (folder / "begun").unlink()
    worker = start("--storage", kind, score="slow_diverging.py:score")
    wait_for(lambda: (folder / "begun").exists() and sum(begun(folder).values()) >= 7, "no runs were begun")
    worker.kill()
    worker.communicate()
    assert main(arguments("--storage", kind, score="slow_diverging.py:score")) == 0
    assert whole.diverged > 0
    assert bare(receipt_in(folder)) == bare(whole)
    assert sum(begun(folder).values()) - len(whole.runs) in (0, 1)
