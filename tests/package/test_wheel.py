"""The wheel holds the package, the compiled core, its types and licence, and works without the checkout."""

import importlib.util
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel; the objects of the last `make setup` are used again."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("cuvee-*.whl")
    return path


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for path in (ROOT / "python").rglob("*") if path.suffix in (".py", ".pyi", ".css", ".js")]
    sources = {path.relative_to(ROOT / "python").as_posix() for path in files}
    core, cuda = (f"cuvee/{name}{sysconfig.get_config_var('EXT_SUFFIX')}" for name in ("_core", "_cuda"))
    kernels = {cuda} if importlib.util.find_spec("cuvee._cuda") else set()  # where there is a CUDA compiler
    assert names == sources | {core, "cuvee/py.typed"} | kernels


def test_wheel_states_its_terms(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" in name]
        metadata = {name.rsplit("/")[-1]: archive.read(name).decode() for name in names}
    assert "License-Expression: Apache-2.0" in metadata["METADATA"]
    assert metadata["LICENSE"] == (ROOT / "LICENSE").read_text()
    assert "cuvee = cuvee.cli:main" in metadata["entry_points.txt"]


def test_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {sysconfig.get_path("purelib")!r}]
import cuvee, cuvee._core
print(cuvee._core.__file__)
"""
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
