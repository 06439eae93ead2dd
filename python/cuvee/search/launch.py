"""Runs a search: in this process, or in several that share its study."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import as_int
from ..errors import CuveeError, MixtureError
from .evidence import receipt_of
from .plan import SearchPlan
from .receipt import Receipt
from .score import Score
from .space import Space
from .study import Study, Timing
from .trials import Slot

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

Watch = Callable[[Sequence[Slot]], None]
GUARD = "if __name__ == '__main__':"  # without which a worker that imports its script would search itself
LOOK_SECONDS = 0.5  # between two looks of the parent at what its workers did
LEAVE_SECONDS = 30.0  # that a worker has to end its run in an orderly way


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where a search is worked on.

    Args:
        storage: address of the storage, see `cuvee.search.storage`.
        study: name of the study in it.
        timing: how patient workers are with one another.
    """

    storage: str
    study: str
    timing: Timing | None = None


def search(
    score: Score,
    space: Space | Sequence[str],
    budget: int,
    *,
    method: str = "auto",
    seed: int = 0,
    workers: int = 1,
    storage: str | os.PathLike[str] | None = None,
    study: str = "search",
    watch: Watch | None = None,
    **settings: Any,
) -> Receipt:
    """Return the receipt of a search for the mixture with the lowest loss.

    Args:
        score: trains on a mixture and returns its losses; a `Proxy`, or a function of your own.
        space: the mixtures to choose from, or the names of the domains.
        budget: whole runs that may be spent, the audit included. A study that had less goes on, to a new audit.
        method: a name of `METHODS`.
        seed: training seed of all runs of the search.
        workers: processes; more than one are started anew, so that `score` must be picklable. More may join from other
            machines, by the same call with the same storage.
        storage: where the study is kept, so that it can be gone on with. None is a file that is deleted at the end.
        study: its name there.
        watch: called with the runs, now and then.
        settings: the others of `SearchPlan`.

    Raises:
        CuveeError: something given is wrong, a run failed, or no worker is left. What was done is kept in the storage.

    Example:
        >>> def score(weights, budget, seed):
        ...     return {name: (share - 0.5) ** 2 for name, share in weights.items()}
        >>> search(score, ["math", "code"], budget=8, seed=1).spent <= 8
        True
    """
    space = space if isinstance(space, Space) else Space(space)
    plan = SearchPlan(score=score, space=space, budget=budget, method=method, seed=seed, **settings)
    if storage is not None:
        storage = os.fspath(storage) if isinstance(storage, os.PathLike) else storage
        return run_search(plan, Desk(storage=storage, study=study), workers=workers, watch=watch)
    with tempfile.TemporaryDirectory(prefix="cuvee-search-") as folder:
        return run_search(plan, Desk(storage=f"journal:{folder}/study.log", study=study), workers=workers, watch=watch)


def run_search(plan: SearchPlan, desk: Desk, *, workers: int = 1, watch: Watch | None = None) -> Receipt:
    """Work on a search until it is finished, and return its receipt; see `search`."""
    _check_workers(plan, workers)
    plan = plan.at(desk.storage, desk.study)
    return receipt_of(plan, make_runs(plan, desk, workers=workers, watch=watch))


def make_runs(plan: SearchPlan, desk: Desk, *, workers: int = 1, watch: Watch | None = None) -> Sequence[Slot]:
    """Work on a search until it is finished, and return all its runs.

    Args:
        plan: as it is `at` the desk.
        desk: where it is worked on.
        workers: processes.
        watch: called with the runs, now and then.
    """
    _check_workers(plan, workers)
    study = plan.open(desk.storage, desk.study, desk.timing)
    if workers == 1:
        study.work(plan.evaluate, watch=watch)
    elif not study.finished:
        _work_together(study, plan, desk, workers, watch)
    return study.slots()


def _check_workers(plan: SearchPlan, workers: int) -> None:
    """Raise unless a plan can be worked on by so many processes, before anything is begun."""
    if as_int(workers, "workers", 1, 1025, MixtureError) > 1:
        _check_can_be_sent(plan)


def _check_can_be_sent(plan: SearchPlan) -> None:
    """Raise unless processes that are started can be given the plan.

    Raises:
        MixtureError: the score is a lambda, a function within another, or one of a session without a file.
    """
    cure = "define it in a module or script, or give workers=1"
    try:
        pickle.dumps(plan)
    except Exception as error:  # whatever an object of the user's raises
        reason = f"{type(error).__name__}: {error}"
        raise MixtureError(f"score must be picklable for several workers, but got {reason}; {cure}") from None
    main = sys.modules["__main__"]
    lives_in = getattr(plan.score, "__module__", None) or type(plan.score).__module__
    path = getattr(main, "__file__", None)
    if lives_in == "__main__" and getattr(main, "__spec__", None) is None and not (path and Path(path).is_file()):
        raise MixtureError(
            f"score must be of a file that workers can import, but got {plan.score!r:.100} of an interactive session; "
            f"{cure}"
        )


def _work_together(study: Study, plan: SearchPlan, desk: Desk, workers: int, watch: Watch | None) -> None:
    """Start workers and wait until the search is finished, here or by the workers of others."""
    context = multiprocessing.get_context("spawn")
    started: list[tuple[SpawnProcess, Connection]] = []
    try:
        with _threads_each(workers):
            for number in range(workers):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(plan, desk, theirs), name=f"search worker {number}")
                process.start()
                theirs.close()
                started.append((process, ours))
        while any(process.is_alive() for process, _ in started):
            if watch is not None:
                watch(study.slots())
            time.sleep(LOOK_SECONDS)
    except BaseException:
        _end([process for process, _ in started])
        raise
    if watch is not None:
        watch(study.slots())
    if not study.finished:
        raise CuveeError(_why(started))


def _why(started: Sequence[tuple[SpawnProcess, Connection]]) -> str:
    """Return what the workers that ended early had to say."""
    said = []
    for process, connection in started:
        try:
            said.append(str(connection.recv()) if connection.poll() else _left_with(process.exitcode))
        except EOFError:
            said.append(_left_with(process.exitcode))
    reasons = "; ".join(dict.fromkeys(said))
    return f"a worker must live until the search is finished, but got none left: {reasons}; what was done is kept"


def _left_with(code: int | None) -> str:
    """Return what is known of a worker that said nothing."""
    if code == 1:  # an error before it was a worker
        return f"exit code 1, see above; a script must search below {GUARD}"
    return f"exit code {code}"


def _end(processes: Sequence[SpawnProcess]) -> None:
    """End workers, which give their runs back; one that does not in time is killed."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + LEAVE_SECONDS
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _work(plan: SearchPlan, desk: Desk, connection: Connection) -> None:
    """Be a worker: what a started process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent hears it too, and ends us in order
    signal.signal(signal.SIGTERM, _leave)
    parent = os.getppid()

    def watch(_: Sequence[Slot]) -> None:
        if os.getppid() != parent:
            raise SystemExit(1)

    try:
        plan.open(desk.storage, desk.study, desk.timing).work(plan.evaluate, watch=watch)
    except Exception as error:
        connection.send(str(error) if isinstance(error, CuveeError) else f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None


def _leave(_signal: int, _frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


@contextmanager
def _threads_each(workers: int) -> Iterator[None]:
    """Give processes started meanwhile their part of the machine's threads, unless the user has said how many."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]
