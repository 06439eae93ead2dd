"""Every example runs as a user would run it, without a warning, and says what it should."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TOOLS = {"make_data", "picture", "tiny_model"}  # makes the data; draws for the demo; what is trained

SAYS = {
    "online_mixing": "stopped half-way, and went on with the same rows and weights",
    "curriculum": "40,000 45,000                   90.00%   90.00%",
    "deduplicate": r"documents 0 and 2 are alike: 0\.75\n(.*\n)+10 of 11 rows .* in facts\n(.*\n)+3,817 rows are left",
    "dataloader": "functions: 2000 rows",
    "distributed_sampler": "together the ranks saw every position once",
    "replay": "11 updates; all 30,000 rows came as the replay says",
    "search_mixture": r"stopped, and called again\n(.*\n)+.*ready for cuvee train",
    "stateful_dataloader": "interrupted twice, and every row came in its place",
    "token_shares": r"weights of tokens: functions (60\.|59\.9)",
    "train_accelerate": "epoch 1: loss 2.*\nfunctions: 4000 rows",
    "train_lightning": "functions: 4000 rows",
    "train_trainer": r"step 20: loss 3.*\nstep 40: loss 3.* facts 3\..*\nfunctions: 320 rows",
    "train_trl": r"step 10: loss 4.*\nstep 20: loss 3.* facts 3\..*\nfunctions: 86 rows",
    "train_torchrun": "step 70: loss 2.*\nstep 125: loss 2.*'functions': 2000, 'reference': 1200, 'facts': 800",
}
CHATTY = {"train_lightning", "train_trainer", "train_trl"}  # these libraries write notes and advice to stderr
# torchdata 0.11 calls what torch deprecates; two workers are many for one CPU
WARNINGS = "error,ignore:'set_vital':UserWarning,ignore:This DataLoader will create:UserWarning"


def run(*arguments: str, chatty: bool = False) -> str:
    """Run Python and return what it printed; it may write to stderr only if it is `chatty`."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONWARNINGS": "ignore" if chatty else WARNINGS, "COLUMNS": "80", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or chatty
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SAYS, *TOOLS, "demo"}


@pytest.mark.parametrize("example", SAYS)
def test_example_runs(example: str) -> None:
    for package in ("torchdata", "accelerate", "lightning", "trl"):
        pytest.importorskip(package)
    assert re.search(SAYS[example], run(f"examples/{example}.py", chatty=example in CHATTY))


@pytest.mark.slow
@pytest.mark.parametrize("example", ["train_accelerate", "train_torchrun"])
def test_example_trains_in_two_processes(example: str) -> None:
    pytest.importorskip("accelerate")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "tests/leaving.py")
    assert re.search(SAYS[example], run(*launcher, f"examples/{example}.py", chatty=True))


@pytest.mark.parametrize("example", SAYS)
def test_example_is_short(example: str) -> None:
    assert len((EXAMPLES / f"{example}.py").read_text().splitlines()) < 60


def test_readme_shows_what_the_command_prints() -> None:
    command = "cuvee plan examples/data/mix.json"
    shown = (ROOT / "README.md").read_text().split(f"$ {command}\n")[1].split("```")[0]
    printed = run("-c", f"import sys; from cuvee.cli import main; sys.exit(main({command.split()[1:]}))")
    assert shown.split() == printed.split()


@pytest.mark.slow
def test_demo_ends_with_the_same_rows_a_picture_and_the_report_of_a_run() -> None:
    pytest.importorskip("matplotlib")
    picture, report = (ROOT / "demo-output" / name for name in ("shares.png", "run/report.html"))
    for made in (picture, report):
        made.unlink(missing_ok=True)
    printed = run("examples/demo.py")
    assert "4,000 rows: the same rows in the same order" in printed
    assert "went on at position 1,824" in printed
    assert "step 40/40" in printed
    assert max(map(len, printed.partition("A tiny model")[0].splitlines())) <= 80
    assert report.stat().st_size > 1_000_000
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    assert width == 2560
    assert height > 1000
