"""scripts/gpu_check.sh: a dry run on the CPU, and what it says where it cannot run or something is wrong."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "gpu_check.sh"


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def judged(folder: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "scripts/check_run.py", "run", folder)


@pytest.fixture(scope="module")
def dry(tmp_path_factory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Return what a dry run said, and the folder of its run."""
    folder = tmp_path_factory.mktemp("gpu") / "run"
    return run(SCRIPT, "--cpu", "--python", sys.executable, "--output-dir", folder), folder


@pytest.mark.slow
def test_a_dry_run_does_all_but_the_gpu(dry) -> None:
    done, folder = dry
    assert done.returncode == 0, done.stderr
    for said in ("nothing was built", "all is well on CPU"):
        assert said in done.stdout
    assert "csrc/cuda has no sources" not in done.stdout
    tests = re.search(r"^(\d+) CUDA tests, (\d+) skipped$", done.stdout, re.MULTILINE)
    assert tests is not None
    assert tests[1] == tests[2] != "0"
    told = r"^loss: ([\d.]+) over the first 12 of 24 steps, ([\d.]+) over the last 12$"
    loss = re.search(told, done.stdout, re.MULTILINE)
    assert loss is not None
    assert 5.6 > float(loss[1]) > float(loss[2]) > 2
    assert re.search(r"^functions +50\.00% asked, +50\.00% of rows", done.stdout, re.MULTILINE)
    assert (folder / "model" / "model.safetensors").exists()
    assert "no GPU is used: the CPU's kernels are checked" in done.stdout
    kernels = json.loads((folder / "kernels.json").read_text())
    assert kernels["right"]
    assert {row["kernel"] for row in kernels["rows"]} == {"logits", "tally", "bandit"}
    for row in kernels["rows"]:
        assert row["error"] < 3e-5
        assert row["ours"] > 0
        assert row["eager"] > 0
        assert f"{row['kernel']:7} {row['case']}" in done.stdout


def spoil(folder: Path, where: Path, stage: str, change) -> Path:
    """Write a run's events elsewhere, the last of `stage` changed, and return the folder."""
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    change(next(event for event in reversed(events) if event["stage"] == stage))
    (where / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return where


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda event: event["metrics"].update(loss=None), "step 24: loss must be finite"),
        (lambda event: event["metrics"].update(loss=1e3), "the loss must fall"),
        (lambda event: event["sources"]["functions"].update(loss=None), "loss of source 'functions' must be finite"),
        (lambda event: event["sources"]["facts"].update(scheduled_rows=60), r"'facts': rows must be 20\.00% of"),
    ],
    ids=["nan", "rising", "nan in a source", "shares"],
)
def test_a_run_that_went_wrong_is_told(dry, tmp_path, change, complaint) -> None:
    _, folder = dry
    done = judged(spoil(folder, tmp_path, "dataset_mix_progress", change))
    assert done.returncode == 1
    assert re.search(complaint, done.stderr)


def test_a_run_that_did_not_end_is_told(dry, tmp_path) -> None:
    _, folder = dry
    done = judged(spoil(folder, tmp_path, "run_end", lambda event: event.update(stage="cut_off")))
    assert done.returncode == 1
    assert "the run must have ended, but got 'cut_off'" in done.stderr


def test_a_kernel_that_is_wrong_is_told_and_fails(monkeypatch, capsys) -> None:
    spec = importlib.util.spec_from_file_location("check_kernels", ROOT / "scripts" / "check_kernels.py")
    check = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "check_kernels", check)
    spec.loader.exec_module(check)
    row = check.Row(kernel="logits", case="V=7 fp32", same_bits=True, error=1e-7, ours=1e-6, eager=3e-6, of_copy=0.5)
    missed = dataclasses.replace(row, goal="80% of a copy", met=False)
    wrong = [
        dataclasses.replace(row, same_bits=False),
        dataclasses.replace(row, error=1e-3),
        dataclasses.replace(row, error=float("nan")),
    ]
    for rows, options, code in (
        ([row], [], 0),
        ([missed], [], 0),
        ([missed], ["--enforce-goals"], 1),
        *(([row, each], [], 1) for each in wrong),
    ):
        monkeypatch.setattr(check, "checked", lambda *_, rows=rows: rows)
        assert check.main(["--cpu", *options]) == code
        said = capsys.readouterr()
        assert ("must be the CPU's and float64's" in said.err) == any(each in wrong for each in rows)
        assert ("80% of a copy: MISSED" in said.out) == (missed in rows)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--no-build"], "there must be an NVIDIA GPU that PyTorch of .* can use, but there is none"),
        (["--gpu"], "option must be one of --help, but got --gpu"),
        (["--output-dir"], "--output-dir must have a value"),
    ],
)
def test_where_it_cannot_run_it_says_why(arguments, complaint) -> None:
    done = run(SCRIPT, "--python", sys.executable, *arguments, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(f"gpu_check: {complaint}.*\n", done.stderr)


def test_a_python_without_the_packages_is_told(tmp_path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    done = run(SCRIPT, "--cpu", "--python", python)
    assert done.returncode == 2
    assert "must have the packages accelerate datasets" in done.stderr
