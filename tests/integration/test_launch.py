"""Processes started by `launch`: what a user sees of them when they work, fail, or are ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import launched  # noqa: E402
import split_training  # noqa: E402
from cuvee.errors import CuveeError, SourceError  # noqa: E402
from cuvee.train.launch import launch  # noqa: E402
from cuvee.train.model import load_model  # noqa: E402

TESTS = Path(__file__).parents[1]
WAITING = """
import sys
sys.path.insert(0, {tests!r})
import launched
from pathlib import Path
from cuvee.train.launch import launch
launch(launched.wait, Path({folder!r}), world_size=2)
"""


def test_all_ranks_meet_and_rank_0_is_heard(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    launch(launched.meet, tmp_path, world_size=2)

    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [rank["info"] for rank in told] == [[0, 2, 0, 2], [1, 2, 1, 2]]
    assert [rank["total"] for rank in told] == [3, 3]
    assert all(rank["session"] and rank["threads"] >= 1 for rank in told)
    assert (tmp_path / "turns").read_text() == "0\n1\n"
    assert capfd.readouterr() == ("stdout of rank 0\n", "stderr of rank 0\n")
    assert {number: signal.getsignal(number) for number in handlers} == handlers


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_error_is_raised_alone_as_it_was(rank: int, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SourceError) as caught:
        launch(launched.refuse, rank, world_size=2)
    assert str(caught.value) == "source 'a' must be readable, but got a torn file"
    assert f"raised by rank {rank}:" in caught.value.__notes__[0]
    assert "launched.py" in caught.value.__notes__[0]
    assert capfd.readouterr() == ("", "")


def test_an_error_of_all_ranks_is_raised_once() -> None:
    with pytest.raises(SourceError, match=r"^source 'a' must be readable, but rank [01] got a torn file") as caught:
        launch(launched.refuse_everywhere, None, world_size=2)
    assert len(caught.value.__notes__) == 1


def test_a_killed_rank_is_named_though_the_others_fail_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CuveeError, match=r"^rank 1 must run to its end, but got killed by signal SIGKILL; if memory"):
        launch(launched.be_killed, 1, world_size=2)
    assert capfd.readouterr() == ("", "")


def test_a_rank_that_leaves_is_quoted() -> None:
    with pytest.raises(CuveeError, match=r"^rank 1 must .* but got exit code 3; its last line was 'no more of this'$"):
        launch(launched.leave_early, 1, world_size=2)


def test_an_error_that_cannot_travel_keeps_its_text_and_place() -> None:
    with pytest.raises(RuntimeError) as caught:
        launch(launched.fail_oddly, None, world_size=1)
    assert str(caught.value) == "UnpicklableError: one and two"
    assert "in fail_oddly" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("number", "code", "closed"),
    [
        (signal.SIGINT, -signal.SIGINT, True),
        (signal.SIGTERM, 128 + signal.SIGTERM, True),
        (signal.SIGKILL, -signal.SIGKILL, False),
    ],
)
def test_a_signal_to_the_parent_ends_all_ranks(tmp_path: Path, number: int, code: int, closed: bool) -> None:
    script = WAITING.format(tests=str(TESTS), folder=str(tmp_path))
    parent = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert within(60, lambda: len(list(tmp_path.glob("*.pid"))) == 2), "the ranks never came up"

    parent.send_signal(number)
    _, stderr = parent.communicate(timeout=60)

    assert parent.returncode == code
    ranks = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
    assert within(20, lambda: not any(alive(rank) for rank in ranks)), "a rank outlived its parent"
    assert [path.name for path in sorted(tmp_path.glob("*.closed"))] == (["0.closed", "1.closed"] if closed else [])
    assert "launched.py" not in stderr  # an interrupt of the parent alone, no trace of a rank


@dataclass(frozen=True)
class Trained:
    """What a short training left: its folder, and [loss, gradient norm] of each step."""

    folder: Path
    steps: list[list[float]]


def trained(folder: Path, *, world_size: int, tp_size: int, resume: Path | None = None) -> Trained:
    """Train in a launch of its own, to the end or on from a checkpoint."""
    folder.mkdir()
    task = {"folder": folder, "tp_size": tp_size, "resume": resume}
    launch(split_training.train, task, world_size=world_size)
    return Trained(folder=folder, steps=json.loads((folder / "losses.json").read_text()))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("whole") / "run", world_size=1, tp_size=1)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("split") / "run", world_size=2, tp_size=2)


@pytest.mark.slow
def test_a_split_model_trains_as_a_whole_one_and_is_saved_whole(whole: Trained, split: Trained) -> None:
    assert len(whole.steps) == split_training.STEPS
    assert split.steps == close(whole.steps)
    assert_same_weights(split.folder, whole.folder)


@pytest.mark.slow
def test_a_split_model_beside_another_trains_as_a_whole_one(tmp_path: Path, whole: Trained) -> None:
    both = trained(tmp_path / "run", world_size=4, tp_size=2)
    assert both.steps == close(whole.steps)
    assert_same_weights(both.folder, whole.folder)


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "tp_size"), [(2, 2), (1, 1)])
def test_a_split_run_goes_on_split_or_whole(tmp_path: Path, split: Trained, world_size: int, tp_size: int) -> None:
    half = split_training.STEPS // 2
    resumed = trained(
        tmp_path / "run", world_size=world_size, tp_size=tp_size, resume=split.folder / f"checkpoint-{half}"
    )
    assert resumed.steps == close(split.steps)  # the log of the first half comes with the checkpoint
    assert_same_weights(resumed.folder, split.folder)


def close(steps: list[list[float]]) -> object:
    """Return what equals the losses and gradient norms of `steps`, up to what the order of sums changes."""
    return [pytest.approx(step, rel=1e-3) for step in steps]


def assert_same_weights(folder: Path, other: Path) -> None:
    """Check that two runs ended with the same weights, up to what the order of sums changes."""
    last = f"checkpoint-{split_training.STEPS}"
    one, two = (dict(load_model(str(run / last), "local").named_parameters()) for run in (folder, other))
    assert one.keys() == two.keys()
    for name, weight in one.items():
        assert torch.allclose(weight, two[name], atol=2e-3), name


def within(seconds: float, condition: object) -> bool:
    """Return whether `condition()` came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


def alive(process: int) -> bool:
    """Return whether a process runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False
