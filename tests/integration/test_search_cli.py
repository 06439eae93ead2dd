"""`cuvee search` as people use it: it writes a mixture to train with, goes on after any end, and shares its work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cuvee import manifest
from cuvee.cli import main
from cuvee.search.receipt import Receipt
from cuvee.search.storage import open_storage

SCORE = """
import time
from pathlib import Path

BEST = {"a": 0.6, "b": 0.3, "c": 0.1}

def score(weights, budget, seed):
    with Path("begun").open("a") as file:
        file.write(f"{sorted(weights.items())} {seed}\\n")
    time.sleep(PAUSE)
    return {name: 2 + (share - BEST[name]) ** 2 + seed % 97 / 1e4 for name, share in weights.items()}
"""
FAILING = "def score(weights, budget, seed):\n    raise ZeroDivisionError('no card')\n"
MIX = {
    "version": 1,
    "seed": 42,
    "exhaustion": "cycle",
    "samples_per_epoch": 100,
    "sources": [{"name": name, "path": f"{name}.jsonl", "weight": 1} for name in "abc"],
}
ROWS = {"a": 50, "b": 30, "c": 20}
POSTGRES = next((str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")), None) or (
    str(Path(shutil.which("initdb") or "").parent) if shutil.which("initdb") else None
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with sources, a manifest and scores, and work in it."""
    monkeypatch.chdir(tmp_path)
    for name, rows in ROWS.items():
        lines = (json.dumps({"text": f"{name} is row {row} of {name}, and says so twice"}) for row in range(rows))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "mix.json").write_text(json.dumps(MIX))
    (tmp_path / "quick.py").write_text(f"PAUSE = 0\n{SCORE}")
    (tmp_path / "slow.py").write_text(f"PAUSE = 0.4\n{SCORE}")
    (tmp_path / "failing.py").write_text(FAILING)
    return tmp_path


def arguments(*more: str, score: str = "quick.py", budget: int = 24) -> list[str]:
    """Return the arguments of a search with a method that needs nothing else."""
    given = ["search", "--manifest", "mix.json", "--score", score, "--budget", str(budget), "--output-dir", "run"]
    return [*given, "--method", "bandit", *more]


def receipt_in(folder: Path) -> Receipt:
    return Receipt.from_document(json.loads((folder / "run" / "receipt.json").read_text()))


def begun(folder: Path) -> Counter[str]:
    """Return how often each run was begun."""
    return Counter((folder / "begun").read_text().splitlines())


def bare(receipt: Receipt) -> list[tuple]:
    return [(run.kind, run.number, run.weights, run.losses, run.training_seed) for run in receipt.runs]


def start(*more: str, score: str = "slow.py", budget: int = 24) -> subprocess.Popen[str]:
    """Start a search in a process of its own."""
    code = f"import sys; from cuvee.cli import main; sys.exit(main({arguments(*more, score=score, budget=budget)!r}))"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


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
    given = ["search", "--manifest", "mix.json", "--budget", "6", "--method", "bandit", "--output-dir", "run"]
    assert main([*given, "--proxy-steps", "3", "--target", "a=2", "--target", "b=1", "--write", "learned.json"]) == 0
    receipt = receipt_in(folder)
    assert receipt.targets == ("a", "b", "c")
    assert receipt.target_weights == pytest.approx((2 / 3, 1 / 3, 0))
    assert all(3 < loss < 8 for run in receipt.runs for loss in run.losses)
    assert manifest.load("learned.json").unit == "tokens"


def test_workers_share_a_search_and_answer_as_one_does(folder: Path) -> None:
    assert main(arguments()) == 0
    alone = receipt_in(folder)
    shutil.rmtree(folder / "run")
    (folder / "begun").unlink()
    assert main(arguments("--workers", "2")) == 0
    together = receipt_in(folder)
    assert bare(together) == bare(alone)
    assert together.weights == alone.weights
    assert len({run.worker for run in together.runs}) == 2
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
    wait_for(lambda: (folder / "begun").exists() and sum(begun(folder).values()) >= 2, "no runs were begun")
    search.send_signal(signal.SIGINT)
    _, said = search.communicate(timeout=60)
    assert search.returncode == 130
    assert "Traceback" not in said
    study = open_storage("sqlite:///run/study.db")
    states = Counter(trial.state.name for trial in study.get_all_trials(study.get_all_studies()[0]._study_id))
    assert states["RUNNING"] == 0
    assert main(arguments(score="slow.py")) == 0
    assert max(begun(folder).values()) <= 1 + int(workers)
    assert receipt_in(folder).audit_runs > 0


BAD = [
    (["--budget", "1"], "--budget must be an integer in"),
    (["--budget", "many"], '--budget must be an integer in 2..999999, but got "many"'),
    (["--method", "bandits"], "method must be one of"),
    (["--manifest", "none.json"], "none.json"),
    (["--proxy", "huge"], "--proxy must be one of ['tiny'], but got 'huge'"),
    (["--lower", "a"], "--lower must be NAME=X, with a number of at least 0, but got 'a'"),
    (["--lower", "a=x"], "--lower must be NAME=X, with a number of at least 0, but got 'a=x'"),
    (["--lower", "d=0.1"], "lower must be of domains ['a', 'b', 'c'], but got 'd'"),
    (["--lower", "a=0.6", "--lower", "b=0.6"], "lower bounds must sum to at most 1, but got 1.2"),
    (["--fix", "a=0.1", "--fix", "a=0.2"], "--fix must be given once for each name, but got 'a' twice"),
    (["--max-repetition", "4"], "--max-repetition must come with --target-rows, but got 4.0 alone"),
    (["--max-repetition", "0"], '--max-repetition must be finite and above 0, but got "0"'),
    (["--max-repetition", "1", "--target-rows", "101"], "upper bounds must sum to at least 1, but got 0.99"),
    (["--score", "none.py"], "--score must be FILE.py:function, a function of a Python file, but got 'none.py'"),
    (["--score", "quick.py:nothing"], "it defines: score"),
    (["--score", "failing.py"], "failing.py, line 2: score 'score' must return losses by name, but got ZeroDivisionE"),
    (["--storage", "redis://host"], "--storage must be sqlite:///FILE.db, FILE.db, journal:FILE, FILE.log, or"),
    (["--write", "mix.json"], "--write must be another file than those that are read, but got 'mix.json'"),
    (["--write", "a.jsonl"], "--write must be another file than those that are read, but got 'a.jsonl'"),
    (["--output-dir", "mix.json"], "--output-dir must be a folder, but got 'mix.json'"),
    (["--workers", "0"], '--workers must be an integer in 1..1024, but got "0"'),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), BAD, ids=[" ".join(given) for given, _ in BAD])
def test_mistakes_are_told_in_a_sentence(
    given: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(*given)) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_stages_would_undo_what_was_learnt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = [{"at": 50, "weights": {"a": 1, "b": 1, "c": 1}}]
    (folder / "mix.json").write_text(json.dumps(MIX | {"version": 2, "stages": stages}))
    assert main(arguments("--write", "learned.json")) == 2
    assert "--write must have a manifest without stages" in capsys.readouterr().err
    assert not (folder / "begun").exists()


def test_other_data_are_another_study(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments()) == 0
    (folder / "a.jsonl").write_text('{"text": "other"}\n' * 50)
    assert main(arguments()) == 2
    assert "fingerprints of the sources of study 'mix' must be" in capsys.readouterr().err


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
