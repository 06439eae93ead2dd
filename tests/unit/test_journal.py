"""The journal of a study: a torn end is cut off, other lines are told by number, and no other file is touched."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cuvee.errors import CuveeError
from cuvee.search import Receipt, Space, search
from cuvee.search.journal import WholeLines
from cuvee.search.launch import Desk, run_search
from cuvee.search.plan import SearchPlan
from cuvee.search.storage import open_storage
from cuvee.search.study import Timing

NAMES = ("a", "b", "c")
ENTRY = {"op_code": 0, "worker_id": "w", "study_name": "s", "directions": [1]}


def bowl(weights: Mapping[str, float], _budget: float, seed: int) -> dict[str, float]:
    return {
        name: (share - best) ** 2 + 1e-3 * (seed % 7)
        for (name, share), best in zip(weights.items(), (0.5, 0.3, 0.2), strict=True)
    }


class StoppedError(Exception):
    """What a score raises in the middle of a search."""


def stopped(path: Path, runs: int) -> None:
    """Leave a study that was stopped after some runs."""
    made = []

    def score(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        if len(made) == runs:
            raise StoppedError
        made.append(weights)
        return bowl(weights, budget, seed)

    with pytest.raises(StoppedError):
        search(score, NAMES, budget=10, method="bandit", storage=path)


def told(receipt: Receipt) -> Receipt:
    """Return a receipt without what differs from time to time."""
    return replace(receipt, runs=tuple(replace(run, seconds=0.0, worker="") for run in receipt.runs))


def gone_on_with(path: Path) -> Receipt:
    plan = SearchPlan(score=bowl, space=Space(NAMES), budget=10, method="bandit")
    return told(run_search(plan, Desk(storage=str(path), study="search", timing=Timing(beat=0.1, grace=0.3))))


@pytest.fixture(scope="module")
def undisturbed() -> Receipt:
    return told(search(bowl, NAMES, budget=10, method="bandit"))


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("study") / "study.log"
    stopped(path, 4)
    return path.read_bytes()


@pytest.mark.parametrize("kept", [1, 9, 0.1, 0.37, 0.5, 0.77, -300, -17, -1])
def test_a_study_goes_on_wherever_its_journal_was_torn(
    tmp_path: Path, half: bytes, undisturbed: Receipt, kept: float
) -> None:
    end = int(kept * len(half)) if isinstance(kept, float) else kept % len(half)
    path = tmp_path / "study.log"
    path.write_bytes(half[:end])
    assert gone_on_with(path) == undisturbed


def test_zeros_that_a_crash_left_at_the_end_are_cut_off(tmp_path: Path, half: bytes, undisturbed: Receipt) -> None:
    path = tmp_path / "study.log"
    path.write_bytes(half + bytes(512))
    assert gone_on_with(path) == undisturbed


@pytest.mark.parametrize("garbage", [b"garbage\n", b"\0\0\n", b"[]\n", b"\n", b"5\n", b"\xff\xfe\n", b'{"op":1}\n'])
@pytest.mark.parametrize("place", [0, 5, None])
def test_lines_that_are_no_entries_are_told_by_number(
    tmp_path: Path, half: bytes, garbage: bytes, place: int | None
) -> None:
    lines = half.splitlines(keepends=True)
    place = len(lines) if place is None else place
    path = tmp_path / "study.log"
    path.write_bytes(b"".join([*lines[:place], garbage, *lines[place:]]))
    before = path.read_bytes()
    with pytest.raises(CuveeError, match=f"--storage must be .*: line {place + 1} is no entry of a journal"):
        search(bowl, NAMES, budget=10, method="bandit", storage=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", [b"notes that I keep", b"notes\nthat I keep", b"{}"])
def test_a_file_of_another_kind_is_left_as_it_is(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "notes.log"
    path.write_bytes(text)
    with pytest.raises(CuveeError, match="line 1 is no entry of a journal"):
        open_storage(str(path))
    assert path.read_bytes() == text


def test_entries_are_added_to_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    one, other = WholeLines(path), WholeLines(path)
    one.append_logs([ENTRY])
    with path.open("ab") as file:
        file.write(b'{"op_code":5, "half')  # another was killed here
    other.append_logs([ENTRY | {"study_name": "t"}, ENTRY])
    assert [log["study_name"] for log in one.read_logs(0)] == ["s", "t", "s"]
    assert [json.loads(line) for line in path.read_bytes().splitlines()] == list(other.read_logs(0))


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow beyond 6,000 bytes. (A fixture would still hold while pytest writes its dot.)"""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_told_and_leaves_whole_lines(tmp_path: Path) -> None:
    path, told = tmp_path / "study.log", r"storage must take what is stored, but got: .*File too large"
    with pytest.raises(CuveeError, match=told), full_disk():
        search(bowl, NAMES, budget=10, method="bandit", storage=path)
    assert path.read_bytes().endswith(b"\n")
    assert list(WholeLines(path).read_logs(0))


def test_a_lock_that_was_left_behind_leads_to_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    journal = WholeLines("below/study.log")
    with journal._held():  # a process that is killed now leaves it
        assert Path("below/study.log.lock").samefile("below/study.log")
