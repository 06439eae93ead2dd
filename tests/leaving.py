"""How a rank that a test starts ends: at once, since threads of torch now and then abort an orderly end."""
# ruff: noqa: TID253

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist


def leave() -> NoReturn:
    """Leave the process group, and end this process."""
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":  # leaving.py SCRIPT: run a script as a rank, and leave
    script = sys.argv[1]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")
    leave()
