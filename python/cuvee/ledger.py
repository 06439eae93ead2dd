"""What was scheduled, filtered and trained, per source, in rows and target tokens: exact integers, over all ranks."""

from __future__ import annotations

import json
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from . import _core
from .checks import as_choice, as_int, nearest
from .errors import StateError

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray
    from rich.table import Table

STATE_VERSION = 1
MOST = 2**63  # counts are below
COLUMNS = ("scheduled", "filtered", "trained", "tokens")


class Ledger:
    """Counts per source since the run began, int64 arrays of shape (K,).

    `scheduled` rows were drawn by the plan; of these `filtered` rows were over the length limit, `trained` rows reached
    the model with `tokens` target tokens, and the others are still `pending`. Each rank counts what it trains, rank 0
    alone what is scheduled and filtered (`MixtureSampler.account` does so); `reduced()` is the sum over ranks.

    Args:
        names: the sources' names, as `mixture.names`.

    Attributes:
        names: the same, sources that joined included.
        counts: int64 of shape (4, K): scheduled, filtered and trained rows, target tokens.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._ids = {name: source for source, name in enumerate(self.names)}
        if len(self._ids) != len(self.names):
            raise StateError(f"names must be unique, but got {list(self.names)}")
        self.counts = np.zeros((len(COLUMNS), len(self.names)), dtype=np.int64)

    @property
    def scheduled(self) -> NDArray[np.int64]:
        """Rows that the plan has drawn."""
        return self._column(0)

    @property
    def filtered(self) -> NDArray[np.int64]:
        """Rows of `scheduled` that were skipped, being over the length limit."""
        return self._column(1)

    @property
    def trained(self) -> NDArray[np.int64]:
        """Rows of `scheduled` that were trained on; padding is not counted."""
        return self._column(2)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Target tokens of the rows trained on."""
        return self._column(3)

    @property
    def pending(self) -> NDArray[np.int64]:
        """Rows scheduled, not filtered, and not trained on yet."""
        return self.scheduled - self.filtered - self.trained

    def add_sources(self, names: Iterable[str]) -> None:
        """Make room for sources that joined during the run."""
        joined = Ledger([*self.names, *names])
        joined.counts[:, : len(self.names)] = self.counts
        self.names, self._ids, self.counts = joined.names, joined._ids, joined.counts

    def add_scheduled(self, source: ArrayLike, *, passed: NDArray[np.bool_] | None = None) -> None:
        """Count rows drawn.

        Args:
            source: source ids, shape (n,).
            passed: False where the row was filtered, shape (n,); None if none was.
        """
        source = _as_ids(source, self.names)
        kept = np.ones(len(source), dtype=np.int64) if passed is None else _as_passed(passed, len(source))
        rows, passing = _core.tally(source, kept, k=len(self.names))
        self._add({0: rows, 1: rows - passing})

    def add_trained(self, source: ArrayLike, tokens: ArrayLike | None = None) -> None:
        """Count rows trained on by this rank, padding left out.

        Args:
            source: source ids, shape (n,).
            tokens: target tokens of each row, integers >= 0 of shape (n,); None counts rows only.

        Raises:
            StateError: if a value is out of range, or a source's tokens would reach 2**63; nothing is counted then.
        """
        source = _as_ids(source, self.names)
        values = np.zeros(len(source), dtype=np.int64) if tokens is None else _as_tokens(tokens, len(source))
        if float(values.max(initial=0)) * len(values) >= MOST / 2:  # the sums themselves may wrap
            _check_sums(source, values, self.names)
        rows, sums = _core.tally(source, values, k=len(self.names))
        self._add({2: rows, 3: sums})

    def add_batch(
        self, metadata: Mapping[str, Any] | Sequence[Mapping[str, Any]], tokens: ArrayLike | None = None
    ) -> None:
        """Count a batch trained on by this rank, from the rows' `__cuvee_meta__`; padding is left out.

        Args:
            metadata: one mapping per row, or their collated form: a mapping of sequences.
            tokens: target tokens of each row, shape (n,), padding included; None counts rows only.

        Raises:
            StateError: if this is no such metadata, or names other sources.
        """
        names, cycles = _read_metadata(metadata)
        source = np.array([self._id(name) for name in names], dtype=np.int32)
        real = cycles >= 0
        self.add_trained(source[real], None if tokens is None else _as_tokens(tokens, len(source))[real])

    def reduced(self, group: object = None) -> Self:
        """Return the sum of all ranks' ledgers over torch.distributed's `group`; a copy where there is no such run.

        Raises:
            StateError: if the ranks' ledgers name different sources.
        """
        torch = sys.modules.get("torch")  # a run that was never distributed has no need to import it
        if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return self.merged([])
        gathered: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(gathered, self.state_dict(), group=group)
        return type(self)(self.names).merged(type(self).from_state(state) for state in gathered)

    def merged(self, others: Iterable[Ledger]) -> Self:
        """Return the sum of this ledger and others of the same sources."""
        total = type(self)(self.names)
        total.counts += self.counts
        for other in others:
            if not isinstance(other, Ledger):
                raise StateError(f"ledgers to merge must be Ledgers, but got {other!r:.60}")
            if other.names != self.names:
                raise StateError(
                    f"ledgers must name the same sources, but got {list(self.names)} and {list(other.names)}"
                )
            for row, column in enumerate(COLUMNS):
                total.counts[row] = _total(total.counts[row], other.counts[row], column, self.names)
        return total

    def check(self) -> None:
        """Check that scheduled = filtered + trained + pending with nothing negative, on a ledger of all ranks.

        Raises:
            StateError: naming the first source with more rows filtered and trained than scheduled.
        """
        for name, pending, row in zip(self.names, self.pending.tolist(), self.counts.T.tolist(), strict=True):
            if pending < 0 or min(row) < 0:
                raise StateError(
                    f"source {name!r}: scheduled rows must be at least filtered + trained, but got "
                    f"{row[0]} < {row[1]} + {row[2]}; reduce over all ranks first, and call sampler.account"
                )

    def shares(self, column: str = "trained") -> NDArray[np.float64]:
        """Return each source's share of a column, float64 of shape (K,); all 0 while nothing was counted."""
        column = as_choice(column, "column", COLUMNS, StateError)
        counts = self._column(COLUMNS.index(column)).astype(np.float64)
        shares: NDArray[np.float64] = counts / max(counts.sum(), 1.0)
        return shares

    def event(self, stage: str = "dataset_mix_progress", **fields: Any) -> dict[str, Any]:
        """Return the totals so far as a JSON-ready event: counts and shares per source, and `fields`.

        `scheduled_share` is a source's share of the rows scheduled, `row_share` of those trained on, `token_share` of
        the target tokens.
        """
        scheduled, rows, tokens = (self.shares(column).tolist() for column in ("scheduled", "trained", "tokens"))
        sources = {
            name: {
                "scheduled_rows": counts[0],
                "filtered_rows": counts[1],
                "trained_rows": counts[2],
                "target_tokens": counts[3],
                "scheduled_share": scheduled[source],
                "row_share": rows[source],
                "token_share": tokens[source],
            }
            for source, (name, counts) in enumerate(zip(self.names, self.counts.T.tolist(), strict=True))
        }
        return {"stage": stage, **fields, "sources": sources}

    def write_event(self, path: str | PathLike[str], stage: str = "dataset_mix_progress", **fields: Any) -> None:
        """Append `event(stage, **fields)` to a file of JSON lines; NaN and infinity, which JSON lacks, become null.

        Raises:
            StateError: if a field is not made of JSON values.
        """
        line = json_text(self.event(stage, **fields))
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def table(self) -> Table:
        """Return the totals as a table for `rich.print`."""
        from rich.table import Table

        table = Table("source", *(f"{column} rows" for column in COLUMNS[:3]), "target tokens", "rows %", "tokens %")
        for column in table.columns[1:]:
            column.justify = "right"
        shares = zip(self.shares("trained").tolist(), self.shares("tokens").tolist(), strict=True)
        for name, counts, (rows, tokens) in zip(self.names, self.counts.T.tolist(), shares, strict=True):
            table.add_row(name, *(f"{count:,}" for count in counts), f"{rows:.2%}", f"{tokens:.2%}")
        return table

    def state_dict(self) -> dict[str, Any]:
        """Return names and counts as plain values."""
        counts = {column: self.counts[row].tolist() for row, column in enumerate(COLUMNS)}
        return {"version": STATE_VERSION, "names": list(self.names), **counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the counts of `state`; the sources must be the same, in the same order.

        Raises:
            StateError: if the state is not a ledger's, or names other sources.
        """
        loaded = self.from_state(state)
        if loaded.names != self.names:
            raise StateError(f"state's sources must be {list(self.names)}, but got {list(loaded.names)}")
        self.counts = loaded.counts

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the ledger that `state_dict` described.

        Raises:
            StateError: if the state is not a ledger's, or a count is no integer in [0, 2**63).
        """
        if not isinstance(state, Mapping):
            raise StateError(f"state must be from Ledger.state_dict, but got {state!r:.60}")
        missing = [name for name in ("version", "names", *COLUMNS) if name not in state]
        if missing:
            raise StateError(f"state must be from Ledger.state_dict, but got one without {missing}")
        if state["version"] != STATE_VERSION:
            raise StateError(f"state version must be {STATE_VERSION}, but got {state['version']!r}")
        names = state["names"]
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise StateError(f"state names must be a list of names, but got {names!r:.60}")
        ledger = cls(names)
        for row, column in enumerate(COLUMNS):
            counts = state[column]
            if not isinstance(counts, list | tuple) or len(counts) != len(names):
                raise StateError(f"state {column} must hold {len(names)} counts in a list, but got {counts!r:.60}")
            ledger.counts[row] = [as_int(count, f"state {column}", 0, MOST, StateError) for count in counts]
        return ledger

    def _add(self, sums: Mapping[int, NDArray[np.int64]]) -> None:
        """Add sums >= 0 to some columns, to all of them or, if one has no room for them, to none."""
        totals = {row: _total(self.counts[row], values, COLUMNS[row], self.names) for row, values in sums.items()}
        for row, total in totals.items():
            self.counts[row] = total

    def _column(self, row: int) -> NDArray[np.int64]:
        column: NDArray[np.int64] = self.counts[row]
        return column

    def _id(self, name: str) -> int:
        try:
            return self._ids[name]
        except KeyError:
            raise StateError(
                f"source must be one of {list(self.names)}, but got {name!r}{nearest(name, self.names)}"
            ) from None


def _total(counts: NDArray[np.int64], more: NDArray[np.int64], column: str, names: Sequence[str]) -> NDArray[np.int64]:
    total = counts + more
    if (total < 0).any():  # wrapped: both are at least 0
        raise StateError(f"source {names[int(total.argmin())]!r}: {column} must stay below 2**63, but got more")
    return total


def _as_ids(source: ArrayLike, names: Sequence[str]) -> NDArray[np.int32]:
    """Return `source` as int32 of shape (n,), nothing rounded."""
    array = np.asarray(source)
    integers = array.ndim == 1 and (array.size == 0 or array.dtype.kind in "iu")
    if not integers or (array.size and not 0 <= int(array.min()) <= int(array.max()) < len(names)):
        raise StateError(
            f"source must be ids of sources, integers in [0, {len(names)}) of shape (n,) that index ledger.names, but "
            f"got {reprlib.repr(source)}; add_batch takes names, in a batch's metadata"
        )
    return array.astype(np.int32)


def _as_passed(passed: ArrayLike, rows: int) -> NDArray[np.int64]:
    """Return `passed`, booleans of shape (rows,), as 0 and 1."""
    array = np.asarray(passed)
    if array.shape != (rows,) or (array.size and array.dtype != np.bool_):
        raise StateError(f"passed must be booleans of shape ({rows},), but got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


def _as_tokens(tokens: ArrayLike, rows: int) -> NDArray[np.int64]:
    """Return `tokens` as int64 of shape (rows,), nothing rounded."""
    array = np.asarray(tokens)
    if array.shape != (rows,) or (array.size and array.dtype.kind not in "iu"):
        raise StateError(f"tokens must be integers of shape ({rows},), but got {array.dtype} of shape {array.shape}")
    for bad in (int(array.min(initial=0)), int(array.max(initial=0))):
        if not 0 <= bad < MOST:
            raise StateError(f"tokens must be in [0, 2**63), but got {bad}")
    return array.astype(np.int64)


def _check_sums(source: NDArray[np.int32], tokens: NDArray[np.int64], names: Sequence[str]) -> None:
    """Raise if the tokens of one source add up to 2**63 or more."""
    sums = [0] * len(names)
    for index, count in zip(source.tolist(), tokens.tolist(), strict=True):
        sums[index] += count
        if sums[index] >= MOST:
            raise StateError(f"source {names[index]!r}: tokens must stay below 2**63, but got more")


def _read_metadata(metadata: object) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names and cycles in a batch's metadata, row by row or collated."""
    try:
        if isinstance(metadata, Mapping):
            names, values = list(metadata["source"]), metadata["cycle"]
        else:
            rows = list(metadata)  # type: ignore[call-overload]
            names, values = [row["source"] for row in rows], [row["cycle"] for row in rows]
        cycles = np.asarray(values, dtype=np.int64)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise StateError(
            f"metadata must be the rows' __cuvee_meta__ with source and cycle, but got {reprlib.repr(metadata)} "
            f"({type(error).__name__}: {error})"
        ) from error
    if cycles.shape != (len(names),):
        raise StateError(f"metadata must have a cycle for each source, but got {cycles.shape} for {len(names)} sources")
    return names, cycles


def json_text(event: Mapping[str, Any]) -> str:
    """Return an event as one line of JSON, in ASCII; NaN and infinity, which JSON lacks, become null.

    Raises:
        StateError: if a field is not made of JSON values.
    """
    try:
        text = json.dumps(event)
        if "NaN" in text or "Infinity" in text:
            text = json.dumps(json.loads(text, parse_constant=lambda _: None))
    except (TypeError, ValueError) as error:
        raise StateError(f"event fields must be JSON values, but got {error}") from error
    return text
