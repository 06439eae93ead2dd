"""Runs a function in several processes of this machine, one per rank, and knows which rank this process is."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from cuvee.checks import as_int
from cuvee.errors import CuveeError

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

Task = TypeVar("Task")

MOST_RANKS = 2**20
GRACE = 5.0  # seconds that a rank has to end after it was told to
CHILD = "import sys; from cuvee.train.launch import run_rank; run_rank(*sys.argv[1:])"
TASK = "task.pickle"
SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
OWN_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # those that the agent handles
INTERRUPTED = 128 + signal.SIGINT
STOPPED = (INTERRUPTED, -signal.SIGTERM, -signal.SIGINT)  # exit codes of ranks that were told to stop
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """This process's place among those of a run; rank 0 of 1 where nothing launched several."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process prints and writes for the others."""
        return self.rank == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a rank left behind when it failed: the error itself, and where it came from as text."""

    rank: int
    time: float
    error: Exception
    trace: str


def rank_info(environment: Mapping[str, str] = os.environ) -> RankInfo:
    """Return this process's rank, from what torchrun and the launcher of this module set.

    Raises:
        CuveeError: if RANK or WORLD_SIZE is set without the other, or one of them is out of its range.
    """
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return RankInfo()
    world_size = _from(environment, "WORLD_SIZE", low=1, end=MOST_RANKS)
    rank = _from(environment, "RANK", low=0, end=world_size)
    local_world_size = _from(environment, "LOCAL_WORLD_SIZE", low=1, end=world_size + 1, default=str(world_size))
    local_rank = _from(environment, "LOCAL_RANK", low=0, end=local_world_size, default=str(rank % local_world_size))
    return RankInfo(rank=rank, world_size=world_size, local_rank=local_rank, local_world_size=local_world_size)


def ranks_to_launch(world_size: int | None, environment: Mapping[str, str] = os.environ) -> int:
    """Return how many processes `launch` must start; 1 means that this process is all, or one of torchrun's.

    Args:
        world_size: what the user asked for in all; None takes what there is.
        environment: where a launcher says so.

    Raises:
        CuveeError: if a launcher started another number of processes than the user asked for.
    """
    wanted = 1 if world_size is None else as_int(world_size, "--world-size", 1, MOST_RANKS, CuveeError)
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return wanted
    running = rank_info(environment).world_size
    if world_size is not None and wanted != running:
        raise CuveeError(
            f"--world-size must be {running}, the WORLD_SIZE of the launcher that started this process, but got "
            f"{wanted}; leave --world-size out under torchrun"
        )
    return 1


def launch(function: Callable[[Task], object], task: Task, *, world_size: int) -> None:
    """Call `function(task)` in `world_size` new processes of this machine and wait until all have ended.

    Rank 0 prints as if it were this process; what the others print is kept back. If a rank fails, the others are ended
    and the first error is raised here as the very same error. Signals to this process end all ranks, and so does its
    death.

    Args:
        function: a function at the top of a module that can be imported.
        task: what it is called with; it must be picklable.
        world_size: number of processes.

    Raises:
        CuveeError: if a rank was killed, or ended without saying why.
        KeyboardInterrupt: after an interrupt ended all ranks.
        SystemExit: after another signal did, with 128 + its number.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    with tempfile.TemporaryDirectory(prefix="cuvee-launch-") as name, _kept_signals(), _quiet_agent():
        folder = Path(name)
        (folder / TASK).write_bytes(pickle.dumps((sys.path, pickle.dumps((function, task)))))
        start = elastic_launch(_config(folder, world_size), sys.executable)
        try:
            start("-P", "-c", CHILD, name, str(os.getpid()))
        except ChildFailedError as failed:
            codes = {rank: failure.exitcode for rank, failure in failed.failures.items()}
            raise first_error(folder, codes) from None
        except SignalException as ended:
            if ended.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + ended.sigval) from None


def first_error(folder: Path, codes: Mapping[int, int]) -> Exception:
    """Return the error that made a launch fail, among those of ranks that only lost a peer.

    Args:
        folder: where the ranks left their failures and their last words.
        codes: exit code by rank of those that did not end well, negative for signals.
    """
    failures = sorted(_failures(folder), key=lambda failure: failure.time)
    recorded = {failure.rank for failure in failures}
    silent = [rank for rank, code in codes.items() if rank not in recorded and code not in STOPPED]
    own = [failure for failure in failures if not _lost_peer(failure.error)] or ([] if silent else failures)
    if own:
        own[0].error.add_note(f"raised by rank {own[0].rank}:\n{own[0].trace}")
        return own[0].error
    # losing a peer can abort a rank, and one that waits for a peer may have to be killed
    rank = min(silent or codes, key=lambda one: (codes[one] == -signal.SIGKILL, codes[one] == -signal.SIGABRT, one))
    return CuveeError(f"rank {rank} must run to its end, but got {_ending(codes[rank])}{_last_words(folder, rank)}")


def init_process_group(*, use_cpu: bool) -> None:
    """Join the processes of this run: gloo on CPUs, nccl too on GPUs. Nothing happens where there is one, or twice.

    Accelerate and transformers take the group as it is; see `training_arguments_for`.
    """
    import torch

    info = rank_info()
    if info.world_size == 1 or torch.distributed.is_initialized():
        return
    if use_cpu:
        torch.distributed.init_process_group("gloo")
    else:
        device = torch.device("cuda", info.local_rank)
        torch.cuda.set_device(device)
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl", device_id=device)


@contextmanager
def first_here() -> Iterator[None]:
    """Run a block in the first process of each machine, and only then, all together, in the others of it.

    However long it takes: no timeout of the process group applies.
    """
    import datetime as dt

    import torch

    info = rank_info()
    if info.world_size == 1:
        yield
        return
    waiting = torch.distributed.new_group(backend="gloo", timeout=dt.timedelta(days=365))
    if info.local_rank == 0:
        yield
    torch.distributed.barrier(waiting)
    if info.local_rank != 0:
        yield
    torch.distributed.destroy_process_group(waiting)


def run_rank(folder: str, parent: str) -> NoReturn:
    """Do the task of a launch in this process, which is one of its ranks, and end it.

    Once Python's exit functions are done the process ends at once: threads of libraries that still run would now and
    then abort a rank in its orderly end, after it has done all its work.

    Args:
        folder: the launch's folder, with the task.
        parent: process id of the launcher, whose death ends this process.
    """
    code = [1]
    atexit.register(lambda: _end_at_once(code[0]))  # registered first, called last
    try:
        code[0] = _do_task(folder, parent)
    except SystemExit as leaving:  # the task's own
        code[0] = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        raise
    sys.exit(code[0])


def _do_task(folder: str, parent: str) -> int:
    """Do the task, and return the exit code."""
    _die_with(int(parent))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that displays and files are closed
    _end_soon_after(signal.SIGTERM)
    info = rank_info()
    if not info.is_main:
        _keep_back(Path(folder) / f"stderr-{info.rank}")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _cpus() // info.local_world_size)))  # before torch is imported
    try:
        sys.path[:], work = pickle.loads((Path(folder) / TASK).read_bytes())  # noqa: S301  (written by `launch`)
        function, task = pickle.loads(work)  # noqa: S301  (only now that its module can be found)
        function(task)
        _leave_process_group()
    except KeyboardInterrupt:
        return _end(INTERRUPTED)
    except Exception as error:  # the launcher raises it again
        try:
            _leave(Path(folder), info.rank, error)
        except KeyboardInterrupt:  # another rank's error came first, and ends all
            return _end(INTERRUPTED)
        return _end(1)
    return 0


def _end_soon_after(number: int) -> None:
    """End this process a little after a signal even where C++ waits for other ranks, so that no handler is called."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while os.read(reading, 1) != bytes([number]):
            pass
        time.sleep(GRACE)
        _end_at_once(INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()


def _from(environment: Mapping[str, str], name: str, *, low: int, end: int, default: str | None = None) -> int:
    text = environment.get(name, default)
    if text is None:
        raise CuveeError(f"{name} must be set where RANK or WORLD_SIZE is, but got none; start with torchrun")
    return as_int(int(text) if text.isascii() and text.isdigit() else text, name, low, end, CuveeError)


def _config(folder: Path, world_size: int) -> LaunchConfig:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=world_size,
        run_id=folder.name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),  # each rank sees to its own output
    )


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Give signals back to whoever handled them before the agent did."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in OWN_SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """Keep the agent from reporting, in its own way, what `launch` says in one sentence."""
    logger = logging.getLogger("torch.distributed.elastic")
    handler, propagated = logging.NullHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)


def _die_with(parent: int) -> None:
    """Have the system kill this process when its parent dies, even if that is killed itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGKILL)


def _keep_back(words: Path) -> None:
    """Let this process, and whatever it starts, write to nobody, and its errors into a file."""
    for path, stream in ((Path(os.devnull), 1), (words, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), stream)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _leave_process_group() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _end(code: int) -> int:
    """Return the exit code of a rank that failed, or end at once where threads of torch may wait for ranks now gone."""
    return code if "torch" not in sys.modules else _end_at_once(code)


def _end_at_once(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or nobody reads it any more
            stream.flush()
    os._exit(code)


def _leave(folder: Path, rank: int, error: Exception) -> None:
    """Write down why this rank failed, for the launcher."""
    trace = traceback.format_exc()
    failure = Failure(rank=rank, time=time.time(), error=error, trace=trace)
    try:
        record = pickle.dumps(failure)
        pickle.loads(record)  # noqa: S301  (some errors can be written but not made again)
    except Exception:  # whatever its class does wrong
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        record = pickle.dumps(Failure(rank=rank, time=failure.time, error=plain, trace=trace))
    part = folder / f"failure-{rank}.part"
    part.write_bytes(record)
    part.rename(part.with_suffix(".pickle"))


def _failures(folder: Path) -> Iterator[Failure]:
    for path in folder.glob("failure-*.pickle"):
        yield cast("Failure", pickle.loads(path.read_bytes()))  # noqa: S301  (written by `_leave`)


def _lost_peer(error: Exception) -> bool:
    """Tell whether a rank failed only because another one had ended."""
    torch: Any = sys.modules["torch"]
    return isinstance(error, torch.distributed.DistError) or any(sign in str(error) for sign in LOST_PEER)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    cure = "; if memory ran out, lower --mini-bs or --max-length" if code == -signal.SIGKILL else ""
    return f"killed by signal {name}{cure}"


def _last_words(folder: Path, rank: int) -> str:
    """Return the last line that a rank above 0 wrote to stderr; rank 0 wrote where the user saw it."""
    path = folder / f"stderr-{rank}"
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return f"; its last line was {lines[-1]!r:.400}" if lines else ""
