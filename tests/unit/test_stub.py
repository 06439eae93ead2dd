"""The hand-written stub says exactly what the compiled core offers."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_stub_matches_the_built_module() -> None:
    options = ["--mypy-config-file", "pyproject.toml", "--allowlist", "tests/stubtest.txt"]
    command = [sys.executable, "-m", "mypy.stubtest", "cuvee._core", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
