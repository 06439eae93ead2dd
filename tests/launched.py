"""What the processes of a launch do in tests: functions at the top of a module, as `launch` needs them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from cuvee.errors import SourceError
from cuvee.train.launch import first_here, init_process_group, rank_info


def meet(folder: Path) -> None:
    """Sum the ranks, take turns, print, and leave what each rank knew."""
    init_process_group(use_cpu=True)
    info = rank_info()
    with first_here(), (folder / "turns").open("a") as turns:
        turns.write(f"{info.rank}\n")
    total = _summed(info.rank + 1)
    (folder / f"{info.rank}.json").write_text(
        json.dumps(
            {
                "info": [info.rank, info.world_size, info.local_rank, info.local_world_size],
                "total": total,
                "session": os.getsid(0) == os.getpid(),
                "threads": int(os.environ["OMP_NUM_THREADS"]),
            }
        )
    )
    print(f"stdout of rank {info.rank}")
    print(f"stderr of rank {info.rank}", file=sys.stderr)


def refuse(rank: int) -> None:
    """One rank raises what a user can cause, the others wait for it in a sum, and fail only then."""
    init_process_group(use_cpu=True)
    if rank_info().rank == rank:
        raise SourceError("source 'a' must be readable, but got a torn file")
    _summed(0)


def refuse_everywhere(_: None) -> None:
    raise SourceError(f"source 'a' must be readable, but rank {rank_info().rank} got a torn file")


def be_killed(rank: int) -> None:
    init_process_group(use_cpu=True)
    if rank_info().rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    _summed(0)


def leave_early(rank: int) -> None:
    if rank_info().rank == rank:
        print("no more of this", file=sys.stderr)
        sys.exit(3)
    time.sleep(60)


class UnpicklableError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def fail_oddly(_: None) -> None:
    raise UnpicklableError("one", "two")


def wait(folder: Path) -> None:
    """Say that this rank is there, and wait to be ended; clean up when that happens."""
    rank = rank_info().rank
    try:
        (folder / f"{rank}.part").write_text(str(os.getpid()))
        (folder / f"{rank}.part").rename(folder / f"{rank}.pid")
        time.sleep(60)
    finally:
        (folder / f"{rank}.closed").touch()


def _summed(value: int) -> int:
    import torch

    total = torch.tensor([value])
    torch.distributed.all_reduce(total)
    return int(total.item())
