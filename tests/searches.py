"""A folder to search in with `cuvee search`, whose scores take no time, and what a search leaves there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from cuvee.search.receipt import Receipt
from cuvee.search.study import Evaluate, Study

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
MEETING = """
import os

SCORED = score

def score(weights, budget, seed):
    Path("met").mkdir(exist_ok=True)
    Path(f"met/{os.getpid()}").touch()
    until = time.monotonic() + 120
    while len(list(Path("met").iterdir())) < 2:  # nobody makes a run before the other came to one
        assert time.monotonic() < until, "the other worker never came"
        time.sleep(0.01)
    return SCORED(weights, budget, seed)
"""
DIVERGING = """
SCORED = score

def score(weights, budget, seed):
    losses = SCORED(weights, budget, seed)
    return losses | {"b": float("nan")} if weights["a"] > LIMIT else losses
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


def write_folder(folder: Path) -> None:
    """Write sources, a manifest and scores."""
    for name, rows in ROWS.items():
        lines = (json.dumps({"text": f"{name} is row {row} of {name}, and says so twice"}) for row in range(rows))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "mix.json").write_text(json.dumps(MIX))
    (folder / "quick.py").write_text(f"PAUSE = 0\n{SCORE}")
    (folder / "slow.py").write_text(f"PAUSE = 0.4\n{SCORE}")
    (folder / "meeting.py").write_text(f"PAUSE = 0\n{SCORE}{MEETING}")
    (folder / "diverging.py").write_text(f"PAUSE, LIMIT = 0, 0.5\n{SCORE}{DIVERGING}")
    (folder / "slow_diverging.py").write_text(f"PAUSE, LIMIT = 0.4, 0.5\n{SCORE}{DIVERGING}")
    (folder / "always.py").write_text(f"PAUSE, LIMIT = 0, -1\n{SCORE}{DIVERGING}")
    (folder / "failing.py").write_text(FAILING)


def arguments(*more: str, score: str = "quick.py", budget: int = 24) -> list[str]:
    """Return the arguments of a search with a method that needs nothing else."""
    given = ["search", "mix.json", "--score", score, "--budget", str(budget), "--output-dir", "run"]
    return [*given, "--method", "bandit", *more]


def work_in_threads(studies: Sequence[Study], evaluate: Evaluate) -> None:
    """Let several workers work on a study at once, until it is finished."""
    workers = [threading.Thread(target=study.work, args=(evaluate,)) for study in studies]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


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
