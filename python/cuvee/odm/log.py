"""The metrics of an online mix: one JSON object a line in `odm.jsonl`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import CuveeError

FILE = "odm.jsonl"


class OdmLog:
    """Writes the metrics, on rank 0 alone: all ranks have the same.

    Args:
        folder: where the file lies; made if missing.
        rank: this process's rank, or the one in the environment if torch's processes have none yet.
    """

    def __init__(self, folder: str | os.PathLike[str], *, rank: int) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise CuveeError(f"output_dir must be a folder's path, but got {folder!r:.60}")
        self.rank = rank
        self.file = Path(folder) / FILE
        self.last: dict[str, Any] = {}
        if rank == 0:
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise CuveeError(
                    f"output_dir must be a folder that can be written, but got {folder!r}: {reason}"
                ) from None

    def write(self, **metrics: Any) -> None:
        """Append one line, whole or not at all to any reader; metrics not given are as in the line before."""
        self.last = {**self.last, **metrics, "rank": self.rank}
        if self.rank == 0:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.last) + "\n")


def rank_in_environment() -> int:
    """Return the rank that a launcher gave this process, 0 without one."""
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() else 0
