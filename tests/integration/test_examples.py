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
TOOLS = {"make_data", "picture"}  # makes the data; draws for the demo

SAYS = {
    "curriculum": "40,000 45,000                   90.00%   90.00%",
    "dataloader": "functions: 2000 rows",
    "distributed_sampler": "together the ranks saw every position once",
    "replay": "11 updates; all 30,000 rows came as the replay says",
    "stateful_dataloader": "interrupted twice, and every row came in its place",
    "token_shares": r"weights of tokens: functions (60\.|59\.9)",
}
# torchdata 0.11 calls what torch deprecates; two workers are many for one CPU
WARNINGS = "error,ignore:'set_vital':UserWarning,ignore:This DataLoader will create:UserWarning"


def run(*arguments: str) -> str:
    """Run Python and return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONWARNINGS": WARNINGS, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SAYS, *TOOLS, "demo"}


@pytest.mark.parametrize("example", SAYS)
def test_example_runs(example: str) -> None:
    pytest.importorskip("torchdata")
    assert re.search(SAYS[example], run(f"examples/{example}.py"))


@pytest.mark.parametrize("example", SAYS)
def test_example_is_short(example: str) -> None:
    assert len((EXAMPLES / f"{example}.py").read_text().splitlines()) < 60


def test_readme_shows_what_the_command_prints() -> None:
    command = "cuvee plan examples/data/mix.json"
    shown = (ROOT / "README.md").read_text().split(f"$ {command}\n")[1].split("```")[0]
    printed = run("-c", f"import sys; from cuvee.cli import main; sys.exit(main({command.split()[1:]}))")
    assert shown.split() == printed.split()


@pytest.mark.slow
def test_demo_ends_with_the_same_rows_and_a_picture() -> None:
    pytest.importorskip("matplotlib")
    picture = ROOT / "demo-output" / "shares.png"
    picture.unlink(missing_ok=True)
    printed = run("examples/demo.py")
    assert "4,000 rows: the same rows in the same order" in printed
    assert "went on at position 1,824" in printed
    assert max(map(len, printed.splitlines())) <= 80
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    assert width == 2560
    assert height > 1000
