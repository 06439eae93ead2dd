"""`cuvee search` as people use it: it writes a mixture to train with, goes on after any end, and shares its work."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cuvee import manifest
from cuvee.cli import main
from cuvee.cli.search_view import _cells, _goal
from cuvee.search.passes import Passes
from cuvee.search.plan import SearchPlan
from cuvee.search.receipt import Receipt
from cuvee.search.space import Space
from cuvee.search.storage import open_storage
from searches import MIX, ROWS, SCORE, arguments, bare, begun, receipt_in, start, wait_for, write_folder

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "search.md"
HEADINGS = r"(domain)  +(recommended)  +(90% interval)  +(uniform)  +(proportional)"
POSTGRES = next((str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")), None) or (
    str(Path(shutil.which("initdb") or "").parent) if shutil.which("initdb") else None
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with sources, a manifest and scores, and work in it."""
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path)
    return tmp_path


def test_a_search_writes_a_manifest_that_keeps_all_but_the_weights(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments("--write", "out/mix.learned.json")) == 0
    receipt = receipt_in(folder)
    learned = json.loads((folder / "out" / "mix.learned.json").read_text())
    shares = [source.pop("weight") for source in learned["sources"]]
    assert shares == pytest.approx([max(weight, 1e-6) for weight in receipt.weights], abs=1e-6)
    before = json.loads(json.dumps(MIX))
    for source in before["sources"]:
        del source["weight"]
        source["path"] = f"../{source['path']}"
    assert learned == before | {"version": 2}
    assert main(["plan", "out/mix.learned.json"]) == 0
    printed = capsys.readouterr().out
    for says in ("recommended", "proportional", receipt.verdict.split(":")[0], "run/receipt.json", "run/report.html"):
        assert says in printed


def test_the_answer_lies_within_bounds_and_is_audited_under_other_seeds(folder: Path) -> None:
    bounds = ["--upper", "a=0.4", "--lower", "c=0.2", "--fix", "b=0.35"]
    assert main(arguments(*bounds)) == 0
    receipt = receipt_in(folder)
    assert receipt.weights[0] <= 0.4 + 1e-9
    assert receipt.weights[1] == pytest.approx(0.35)
    assert receipt.weights[2] >= 0.2 - 1e-9
    assert len(receipt.audit_seeds) == 2
    assert not set(receipt.audit_seeds) & set(receipt.selection_seeds)
    assert receipt.spent <= 24


def test_repetition_bounds_shares_by_rows(folder: Path) -> None:
    assert main(arguments("--max-repetition", "2", "--target-rows", "150")) == 0
    shares = dict(zip("abc", receipt_in(folder).weights, strict=True))
    assert all(share <= 2 * ROWS[name] / 150 + 1e-9 for name, share in shares.items())


def test_a_repeated_call_trains_nothing_and_says_the_same(folder: Path) -> None:
    assert main(arguments()) == 0
    first, runs = receipt_in(folder), begun(folder)
    assert main(arguments()) == 0
    assert receipt_in(folder) == first
    assert begun(folder) == runs


def test_the_proxy_trains_on_the_sources_themselves(folder: Path) -> None:
    given = ["search", "--manifest", "mix.json", "--proxy", "tiny", "--budget", "6", "--method", "bandit"]
    given += ["--output-dir", "run"]
    assert main([*given, "--proxy-steps", "3", "--target", "a=2", "--target", "b=1", "--write", "learned.json"]) == 0
    receipt = receipt_in(folder)
    assert receipt.targets == ("a", "b", "c")
    assert receipt.target_weights == pytest.approx((2 / 3, 1 / 3, 0))
    assert all(3 < loss < 8 for run in receipt.runs for loss in run.losses)
    assert manifest.load("learned.json").unit == "tokens"


def test_the_page_shows_what_the_command_prints(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = "cuvee search examples/data/mix.json --budget 24 --proxy-steps 60 --write mix.learned.json"
    shown = PAGE.read_text().split(f"{line}\n```\n\n```text\n")[1].split("```")[0]
    (folder / "examples").symlink_to(ROOT / "examples")
    assert main([*line.replace("24", "6").replace("60", "2").split()[1:], "--method", "bandit"]) == 0
    printed = capsys.readouterr().out
    assert "\n\n\n" not in shown + printed
    assert re.search(r"^auto: \d+ runs of the search, \d+ of the audit, 3 domains$", shown, re.MULTILINE)
    assert re.findall(HEADINGS, shown) == re.findall(HEADINGS, printed) != []
    always, at_times = ["verdict", "goal", "spent", "receipt", "report", "manifest"], ("worse", "note", "noise")
    for answer in (printed, shown):
        assert [label for label in labels_of(answer) if label not in at_times] == always


def labels_of(answer: str) -> list[str]:
    """Return what stands before the sentences and files of an answer, below its table."""
    return re.findall(r"^([a-z]+)  +\S", answer[answer.index("\nverdict") :], re.MULTILINE)


def test_the_page_has_its_commands_in_fences_and_names_the_extras() -> None:
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^ +.*\bcuvee .*$", text, re.MULTILINE) == []
    assert "pip install '.[search,postgresql]'" in text  # where the storages are listed
    assert "`pip install '.[online]'`" in (ROOT / "docs/online.md").read_text()


def test_report_tells_the_folder_of_a_search(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments()) == 0
    capsys.readouterr()
    assert main(["report", "run"]) == 2
    assert "must be of a training, but got 'run' of a search; its page is run/report.html" in capsys.readouterr().err


def test_workers_share_a_search_and_answer_as_one_does(folder: Path) -> None:
    assert main(arguments()) == 0
    alone = receipt_in(folder)
    shutil.rmtree(folder / "run")
    (folder / "begun").unlink()
    assert main(arguments("--workers", "2", score="meeting.py:score")) == 0
    together = receipt_in(folder)
    assert bare(together) == bare(alone)
    assert together.weights == alone.weights
    assert len({run.worker for run in together.runs}) == 2  # as none makes a run before they met
    assert max(begun(folder).values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_killed_worker_loses_at_most_its_run(folder: Path, kind: str) -> None:
    storage = {"sqlite": "sqlite:///shared.db", "journal": "journal:shared.log"}[kind]
    killed_one_of_three(folder, storage)


def killed_one_of_three(folder: Path, storage: str) -> None:
    """Search in three processes that share a storage and nothing else, kill one at a run, and check the rest."""
    workers = [start("--storage", storage, "--output-dir", f"run-{number}", "--round", "6") for number in range(3)]
    wait_for(lambda: (folder / "begun").exists() and sum(begun(folder).values()) >= 7, "no runs were begun")
    workers[0].send_signal(signal.SIGKILL)
    ends = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0, 0], ends
    receipts = [Receipt.from_document(json.loads((folder / f"run-{n}" / "receipt.json").read_text())) for n in (1, 2)]
    assert receipts[0] == receipts[1]
    began = sum(begun(folder).values())
    assert began - len(receipts[0].runs) in (0, 1)  # what the killed one was at, if anything
    shutil.rmtree(folder / "run", ignore_errors=True)
    assert main(arguments("--round", "6")) == 0
    assert bare(receipt_in(folder)) == bare(receipts[0])


@pytest.mark.slow
def test_a_killed_search_goes_on_when_it_is_called_again(folder: Path) -> None:
    worker = start()
    wait_for(lambda: (folder / "begun").exists() and sum(begun(folder).values()) >= 3, "no runs were begun")
    worker.kill()
    worker.communicate()
    before = sum(begun(folder).values())
    assert main(arguments(score="slow.py")) == 0
    receipt = receipt_in(folder)
    assert sum(begun(folder).values()) - len(receipt.runs) in (0, 1)
    assert len({run.worker for run in receipt.runs}) == 2
    assert sum(run.worker == receipt.runs[0].worker for run in receipt.runs) in (before - 1, before)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_ends_a_search_that_can_go_on(folder: Path, workers: str) -> None:
    search = start("--workers", workers)
    wait_for(lambda: (folder / "begun").exists() and sum(begun(folder).values()) >= 4, "no runs were begun")
    search.send_signal(signal.SIGINT)
    _, said = search.communicate(timeout=60)
    assert search.returncode == 130
    *_, last = said.splitlines()  # before it a line for each round
    stopped = re.fullmatch(
        r"stopped after (\d+) of 24 runs, lowest loss 2\.\d{4}; the search is kept in run/study.db, and the same "
        r"command goes on",
        last,
    )
    assert stopped, said
    assert all(line.startswith("Searching: ") for line in said.splitlines()[:-1])
    study = open_storage("sqlite:///run/study.db")
    states = Counter(trial.state.name for trial in study.get_all_trials(study.get_all_studies()[0]._study_id))
    assert states["RUNNING"] == 0
    assert states["COMPLETE"] == int(stopped[1]) >= 1
    assert main(arguments(score="slow.py")) == 0
    assert max(begun(folder).values()) <= 1 + int(workers)
    assert receipt_in(folder).audit_runs > 0


def test_an_interrupt_before_any_run_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "rows.py").write_text("def rows(data, name):\n    raise KeyboardInterrupt\n")
    secret = ["--storage", "postgresql://me:secret@nowhere/studies", "--dataset-loader-fn", "rows.py"]
    assert main(arguments(*secret)) == 130
    stopped = "stopped before any new run; the search is kept in postgresql://me:***@nowhere/studies, and the same "
    assert capsys.readouterr().err.startswith(f"{stopped}command goes on\n")


def test_the_answer_fits_the_terminal_with_all_of_every_name(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "64")
    name = "organisation/a_dataset_with_a_long_name:train[:50%]"
    sources = [*MIX["sources"], {"name": name, "path": "b.jsonl", "weight": 1}]
    (folder / "mix.json").write_text(json.dumps(MIX | {"sources": sources}))
    (folder / "quick.py").write_text(f"PAUSE = 0\n{SCORE}".replace("BEST[name]", "BEST.get(name, 0.2)"))
    assert main(arguments()) == 0
    printed = capsys.readouterr().out
    rule = next(line for line in printed.splitlines() if line.startswith("─"))
    assert len(rule) <= 64
    assert "…" not in printed
    assert len(re.findall(r"\S% \.\. \S+%  +\S+%  +\S+%$", printed, re.MULTILINE)) == 4
    assert name in "".join(line.split("  ")[0].strip() for line in printed.splitlines())
    assert re.search(HEADINGS, printed)


@pytest.mark.parametrize("width", [24, 40, 56])
def test_a_narrow_terminal_has_all_of_every_name_and_number(
    width: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(arguments()) == 0
    wide = capsys.readouterr().out.split("verdict")[0]
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(arguments()) == 0
    narrow = capsys.readouterr().out.split("verdict")[0]
    rows = re.findall(r"^([abc]) +(\S+%) +(\S+%) \.\. (\S+%) +(\S+%) +(\S+%)$", wide, re.MULTILINE)
    assert [row[0] for row in rows] == ["a", "b", "c"]
    said = " ".join(narrow.split())
    for name, share, low, high, uniform, proportional in rows:
        facts = f"recommended {share}, 90% interval {low} .. {high}, uniform {uniform}, proportional {proportional}"
        assert f" {name} {facts}" in said
    assert "…" not in narrow
    assert max(map(len, narrow.split("domains")[1].splitlines())) <= width


def described(names: Sequence[str], weights: Sequence[float], **more: Any) -> Receipt:
    even = (1 / len(names),) * len(names)
    return Receipt(
        method="auto", names=tuple(names), targets=tuple(names), target_weights=tuple(weights), weights=even, runs=(),
        **more,
    )  # fmt: skip


def test_the_goal_says_whose_weights_are_which_and_is_short() -> None:
    many = [f"d{place}" for place in range(60)]
    goals = [
        _goal(described(["a", "b"], [0.5, 0.5])),
        _goal(described(["a", "b", "c"], [0.25, 0.75, 0.0])),
        _goal(described(many, [1 / 60] * 60)),
        _goal(described(many, [place / 1770 for place in range(60)])),
    ]
    assert goals[:3] == [
        "the mean of the losses of a, b, each counting the same",
        "the mean of the losses with weights: b 75.00%, a 25.00%",
        "the mean of all 60 losses, each counting the same",
    ]
    assert goals[3].startswith("the mean of the losses with weights: d59 3.33%, d58 3.28%, ")
    assert goals[3].endswith(", d53 2.99%, 52 more with less")


def test_dust_is_no_share_and_passes_without_end_are_short() -> None:
    plan = SearchPlan(
        score=lambda weights, _budget, _seed: weights, space=Space(["a", "b"]), budget=8,
        passes=Passes(rows=(1e-12, 50.0), run_rows=7.6e3),
    )  # fmt: skip
    headings, rows = _cells(described(["a", "b"], [0.5, 0.5], low=(9.8e-13, 0.2), high=(0.3285, 2e-5)), plan)
    assert [row[2] for row in rows] == ["0.00% .. 32.85%", "20.00% .. 2.0e-03%"]
    assert headings[-1] == "passes"
    assert [row[-1] for row in rows] == ["3.80e+15", "76.00"]


def test_rungs_run_mixtures_in_part_first_and_belong_to_the_study(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "quick.py").write_text(f"PAUSE = 0\n{SCORE}".replace("2 + ", "3 - budget ** 0.5 + "))
    auto = ["--method", "auto", "--round", "8"]
    assert main(arguments(*auto, "--rungs", "0.25,0.5", budget=16)) == 0
    receipt = receipt_in(folder)
    made = Counter(run.fidelity for run in receipt.runs if run.kind == "search")
    assert set(made) == {0.25, 0.5, 1.0}
    assert made[0.25] > made[0.5]
    assert 16 - 2 < receipt.spent <= 16
    capsys.readouterr()
    assert main(arguments(*auto, budget=16)) == 2
    assert "such as --rungs, of study 'mix' must be {\"rungs\":[0.25,0.5]}, as it was" in capsys.readouterr().err
    runs = begun(folder)
    assert main(arguments(*auto, "--rungs", "0.25", "--rungs", "0.5", budget=16)) == 0
    assert begun(folder) == runs


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a PostgreSQL server of our own and return the address of a database of it."""
    if POSTGRES is None:
        pytest.skip("needs a PostgreSQL server to be installed")
    home = tmp_path_factory.mktemp("postgres")
    for parent in (home, *home.parents[:2]):
        parent.chmod(0o755)
    as_user: dict[str, object] = {}
    if os.getuid() == 0:  # which a server refuses to run as
        as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        shutil.chown(home, "nobody", "nogroup")
    port = str(20_000 + os.getpid() % 20_000)

    def run(*command: str) -> None:
        log = (home / "log").open("a")
        with log:
            subprocess.run([f"{POSTGRES}/{command[0]}", *command[1:]], check=True, stdout=log, stderr=log, cwd=home,
                           timeout=60, **as_user)  # fmt: skip

    run("initdb", "-D", "data", "-A", "trust", "-U", "cuvee", "--no-sync")
    run("pg_ctl", "-D", "data", "-l", "server.log", "-w", "-o", f"-p {port} -k {home} -h 127.0.0.1 -F", "start")
    try:
        yield f"postgresql://cuvee@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-D", "data", "-m", "fast", "-t", "30", "stop")


@pytest.mark.slow
def test_machines_share_a_search_through_postgresql(folder: Path, postgres: str) -> None:
    killed_one_of_three(folder, postgres)
