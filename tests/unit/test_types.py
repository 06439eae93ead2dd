"""What users write type-checks, as strictly as the package itself."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_user_code_type_checks() -> None:
    command = [sys.executable, "-m", "mypy", "tests/typed_use.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.startswith("Success"), done.stdout + done.stderr
