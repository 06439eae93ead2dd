"""What every test shares: a reproducible hypothesis, caches that stay out of the user's home, a fresh interpreter."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

# Set before any test module imports datasets or transformers: both read their variables once.
_caches = tempfile.TemporaryDirectory(prefix="cuvee-tests-")
os.environ["HF_HOME"] = _caches.name
os.environ["CUVEE_CACHE"] = f"{_caches.name}/cuvee"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "agg"

# The same examples in every run: a red test is red for everyone. `HYPOTHESIS_PROFILE=search` looks for new ones.
settings.register_profile(
    "default", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_unconfigure() -> None:
    _caches.cleanup()


@pytest.fixture
def fresh_python() -> Callable[[str], str]:
    """Return a function that runs code in a new interpreter, warnings being errors, and returns what it printed."""

    def run(code: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
