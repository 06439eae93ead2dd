"""Turns what a sampler hands out into rows: reads grouped by source, order kept, the reserved metadata added."""

from __future__ import annotations

import copy
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import _core
from .errors import PlanError, SourceError
from .plan import Draws

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import Dataset

    from .mixture import Mixture, Source
    from .plan import Plan

    MapStyle = Dataset[Any]
else:
    MapStyle = object  # what torch's Dataset is at run time, to anyone who reads rows: no need to import torch for it

META = "__cuvee_meta__"
PADDING = -1  # the cycle of a row that only fills up a short last batch
LOOKED_UP = 4_096  # positions of a view looked up together
DISORDERED = 4  # batches in a row that show a loader that shuffles; an epoch's padding and its end make at most two


class MixedDataset(MapStyle):
    """All rows of a mixture's sources, read by the integers that `MixtureSampler` yields.

    A row is a copy of the source's own dict with the field `__cuvee_meta__` added: {"source": the source's name,
    "source_index": the row's index in it, "cycle": how often the source was used up before}. Padding, which the
    sampler adds to make a short last batch equal on all ranks, has cycle -1. With `metadata=False` rows come as the
    source gives them, of any type, and padding cannot be told apart.

    Args:
        mixture: its sources must hold data.
        metadata: whether rows carry `__cuvee_meta__`; they must then be mappings.
        data: what to read in place of the sources' own data: all their rows end to end, in the order of the mixture.

    Raises:
        SourceError: if a source has no data, or `data` has another number of rows.
    """

    def __init__(self, mixture: Mixture, *, metadata: bool = True, data: Any = None) -> None:
        self.metadata = metadata
        self.names: tuple[str, ...] = ()
        self._data: list[Any] = []
        if data is None:
            self.add_sources(mixture.sources)
        else:
            self.names = mixture.names
            self._data = list(_parts(data, [source.rows for source in mixture.sources]))

    def add_sources(self, sources: Iterable[Source]) -> None:
        """Make sources readable that join during the run, in the order in which they join.

        Workers that are running do not see them: join before the loader starts, or start it anew.
        """
        for source in sources:
            if source.data is None:
                raise SourceError(f"source {source.name!r}: data must be given to read its rows, but got None")
            self._data = [*self._data, source.data]  # not in place: a view shares the list
            self.names += (source.name,)

    def __len__(self) -> NoReturn:
        raise TypeError(
            "MixedDataset has no order and so no length; give the loader a MixtureSampler (in Lightning with "
            "Trainer(use_distributed_sampler=False)), or use MixedDataset(mixture).in_order(plan)"
        )

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"MixedDataset({len(self.names)} sources, metadata={self.metadata})"

    def __getitem__(self, key: int) -> Any:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: list[int]) -> list[Any]:
        """Return the rows of the sampler's integers `keys`, in their order; every source is read once.

        Raises:
            SourceError: if a key is not the sampler's, or a row cannot carry the metadata.
        """
        try:
            sources, rows, cycles = _unpacked(keys)
        except (TypeError, ValueError) as error:
            raise SourceError(_complaint(keys)) from error
        return self.rows(sources, rows, cycles)

    def rows(self, sources: Sequence[int], rows: Sequence[int], cycles: Sequence[int]) -> list[Any]:
        """Return row rows[j] of source sources[j] for every j, with its metadata."""
        found: list[Any] = [None] * len(sources)
        places: defaultdict[int, list[int]] = defaultdict(list)
        for place, source in enumerate(sources):
            places[source].append(place)
        for source, where in places.items():
            for place, row in zip(where, self._read(source, [rows[place] for place in where]), strict=True):
                found[place] = row
        return self._annotated(found, sources, rows, cycles) if self.metadata else found

    def in_order(self, plan: Plan) -> InOrder:
        """Return the rows of `plan` as a map-style dataset: item i is the row at position i.

        Raises:
            PlanError: if the plan is one of other sources; those that joined it may be missing here.
        """
        dataset = copy.copy(self)
        dataset.add_sources(plan.sources[len(self.names) :])
        return InOrder(dataset, plan)

    def _read(self, source: int, rows: list[int]) -> Sequence[Any]:
        if source >= len(self._data):
            raise SourceError(
                f"source {source} must be one of {list(self.names)}; a source that joined needs add_sources"
            )
        data, where, reading = self._data[source], f"source {self.names[source]!r}", rows
        try:
            if hasattr(data, "__getitems__"):
                return _whole(data.__getitems__(rows), rows, where)
            found = []
            for row in rows:
                reading = [row]
                found.append(data[row])
            return found
        except StopIteration as error:  # to a loader it would be the end of the epoch
            raise SourceError(
                f"{where}: data must return its rows, but got StopIteration while reading {_shown(reading)}"
            ) from error
        except Exception as error:
            error.add_note(f"{where}: while reading {_shown(reading)}")
            raise

    def _annotated(
        self, found: list[Any], sources: Sequence[int], rows: Sequence[int], cycles: Sequence[int]
    ) -> list[Any]:
        annotated, names = [], self.names
        for row, source, index, cycle in zip(found, sources, rows, cycles, strict=True):
            if not (type(row) is dict or isinstance(row, Mapping)):  # the first is ten times as fast, and usual
                raise SourceError(
                    f"source {names[source]!r}: rows must be mappings to carry {META}, but got {type(row).__name__}; "
                    "pass metadata=False"
                )
            if META in row:
                raise SourceError(
                    f"source {names[source]!r}: rows must not have the field {META!r}, but row {index} has it; rename "
                    "it, or pass metadata=False"
                )
            annotated.append({**row, META: {"source": names[source], "source_index": index, "cycle": cycle}})
        return annotated


class InOrder(MapStyle):
    """Map-style view of a mixture in a plan's order: item i is the row at position i, filtered rows left out.

    So any loader that goes through a dataset in its own order (`shuffle=False`, `DistributedSampler(shuffle=False)`, a
    Trainer) gets the mix, and resumes as it always does. The view holds for the plan as it was when the view was made.
    A loader that shuffles would lose the order without a sign: it is stopped after a few batches. Single items,
    `view[i]`, are for anyone to read in any order, negative ones from the end as in a list.
    """

    def __init__(self, dataset: MixedDataset, plan: Plan) -> None:
        if plan.names != dataset.names:
            raise PlanError(f"plan's sources must be {list(dataset.names)}, but got {list(plan.names)}")
        self.dataset = dataset
        self._plan = plan
        self._version = plan.version
        self._before = None if plan.mixture.max_length is None else _passing_before_chunks(plan)
        self._size = len(plan) if self._before is None else int(self._before[-1])
        self._last: tuple[int, Draws] | None = None  # the chunk looked up last
        self._first = 0  # the first place of the batch read last
        self._disordered = 0  # the number of batches read last that no loader in order would read

    def __getstate__(self) -> dict[str, Any]:
        self._check_plan()
        return self.__dict__ | {"_last": None, "_first": 0, "_disordered": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._version = self._plan.version  # a copy of the plan counts its own updates

    def __len__(self) -> int:
        self._check_plan()
        return self._size

    def __repr__(self) -> str:
        return f"InOrder({self.dataset!r}, {self._size} rows of epoch {self._plan.epoch})"

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Any:
        if not hasattr(index, "__index__"):
            raise PlanError(f"index must be an integer, but got {index!r}; several places are view.__getitems__([...])")
        return self._read(self._places([index]))[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the rows at these places of the order; negative ones count from its end.

        Raises:
            IndexError: if one lies outside the order.
            PlanError: if the plan was updated after this view was made, or a loader shuffles the places.
        """
        places = self._places(indices)
        if len(places) == 0:
            return []
        self._check_order(places)
        return self._read(places)

    def _places(self, indices: Sequence[int]) -> NDArray[np.int64]:
        self._check_plan()
        for index in (min(indices), max(indices)) if len(indices) > 0 else ():
            if not -self._size <= index < self._size:
                raise IndexError(f"index must be in [{-self._size}, {self._size}), but got {index}")
        return np.fromiter(map(operator.index, indices), np.int64, len(indices)) % max(self._size, 1)

    def _read(self, places: NDArray[np.int64]) -> list[Any]:
        draws = self._draws(places)
        return self.dataset.rows(draws.source.tolist(), draws.row.tolist(), draws.cycle.tolist())

    def _draws(self, places: NDArray[np.int64]) -> Draws:
        """Return what is drawn at places of the order, each chunk of them looked up once."""
        chunks, offsets = self._chunks(places)
        if chunks.min() == chunks.max():
            return _selected(self._chunk(int(chunks[0])), offsets)
        source, row = np.empty(len(places), dtype=np.int32), np.empty(len(places), dtype=np.int64)
        cycle = np.empty(len(places), dtype=np.int32)
        for chunk in np.unique(chunks).tolist():
            here = chunks == chunk
            draws = _selected(self._chunk(chunk), offsets[here])
            source[here], row[here], cycle[here] = draws.source, draws.row, draws.cycle
        return Draws(source=source, row=row, cycle=cycle)

    def _chunks(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (chunk, offset in its passing draws) of every place."""
        if self._before is None:
            return places // LOOKED_UP, places % LOOKED_UP
        chunks = np.searchsorted(self._before, places, side="right") - 1
        return chunks, places - self._before[chunks]

    def _chunk(self, number: int) -> Draws:
        last = self._last
        if last is None or last[0] != number:
            self._last = last = (number, _passing_draws(self._plan, number))
        return last[1]

    def _check_order(self, places: NDArray[np.int64]) -> None:
        """Raise if these are the places of yet another batch that begins before the last one or is shuffled in itself.

        A loader in order steps back within a batch only where it pads, once for each time it goes through the rows.
        """
        previous, self._first = self._first, int(places[0])
        steps_back = np.count_nonzero(places[1:] < places[:-1])
        disordered = self._first < previous or steps_back > 1 + len(places) // self._size
        self._disordered = self._disordered + 1 if disordered else 0
        if self._disordered == DISORDERED:
            self._disordered = 0
            raise PlanError(
                "batches of a view in order must be read in its order, but a loader shuffles them: the last begins at "
                f"place {self._first}, the one before at {previous}; turn shuffling off (DataLoader: shuffle=False; "
                "transformers: TrainingArguments(train_sampling_strategy='sequential'); Lightning: "
                "DataLoader(sampler=DistributedSampler(view, shuffle=False)))"
            )

    def _check_plan(self) -> None:
        if self._plan.version != self._version:
            raise PlanError(
                "plan must stay as it was when in_order(plan) was called, but it was updated; make a new view"
            )


@dataclass(frozen=True, slots=True)
class Part(MapStyle):
    """A stretch of a map-style object's rows."""

    data: Any
    first: int

    def __getitem__(self, row: int) -> Any:
        return self.data[self.first + row]

    def __getitems__(self, rows: Sequence[int]) -> Any:
        return _many(self.data, [self.first + row for row in rows])


def _many(data: Any, rows: list[int]) -> Any:
    return data.__getitems__(rows) if hasattr(data, "__getitems__") else [data[row] for row in rows]


def _parts(data: Any, sizes: list[int]) -> Iterator[Part]:
    """Yield the part of `data` that each of several sources of these sizes has, end to end."""
    if len(data) != sum(sizes):
        raise SourceError(
            f"data must have {sum(sizes)} rows, those of all sources end to end, but got {len(data)}; a tool that "
            "packs, drops or adds rows has changed them"
        )
    first = 0
    for size in sizes:
        yield Part(data, first)
        first += size


def _whole(found: Any, rows: list[int], where: str) -> Sequence[Any]:
    """Return what `__getitems__` gave for `rows`, if it is as many rows."""
    if isinstance(found, Mapping) or not hasattr(found, "__len__") or len(found) != len(rows):
        count = f" of {len(found)}" if hasattr(found, "__len__") else ""
        raise SourceError(
            f"{where}: __getitems__ must return a list of {len(rows)} rows, but got {type(found).__name__}{count}"
        )
    rows_found: Sequence[Any] = found
    return rows_found


def _shown(rows: list[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    return "rows " + ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")


def _unpacked(keys: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return sources, rows and cycles of a sampler's integers; a negative one is the complement of a key: padding."""
    padded = min(keys, default=0) < 0
    source, row, cycle = _core.unpack([key if key >= 0 else ~key for key in keys] if padded else keys)
    cycles: list[int] = cycle.tolist()
    if padded:
        cycles = [PADDING if key < 0 else number for key, number in zip(keys, cycles, strict=True)]
    return source.tolist(), row.tolist(), cycles


def _complaint(keys: object) -> str:
    """Return what is wrong with keys that are not a list of a sampler's integers."""
    bad = _first_bad(keys) if isinstance(keys, list) else keys
    cure = "give the loader a MixtureSampler, or index MixedDataset(mixture).in_order(plan) by position"
    if isinstance(bad, list):
        cure = "a MixtureSampler with a batch_size goes into the loader as batch_sampler="
    elif not isinstance(keys, list):
        cure = "a MixtureSampler without a batch_size goes into the loader as sampler=, or give it a batch_size"
    return f"keys must be integers made by MixtureSampler, but got {bad!r:.60}; {cure}"


def _first_bad(keys: list[Any]) -> object:
    for key in keys:
        try:
            _unpacked([key])
        except (TypeError, ValueError):
            return key
    return keys


def _passing_draws(plan: Plan, chunk: int) -> Draws:
    """Return the draws of one chunk of positions that pass the length filter."""
    draws = plan.draws(chunk * LOOKED_UP, min((chunk + 1) * LOOKED_UP, len(plan)))
    if plan.mixture.max_length is None:
        return draws
    return _selected(draws, np.flatnonzero(plan.passes(draws)))


def _selected(draws: Draws, index: NDArray[np.int64]) -> Draws:
    return Draws(source=draws.source[index], row=draws.row[index], cycle=draws.cycle[index])


def _passing_before_chunks(plan: Plan) -> NDArray[np.int64]:
    """Return the number of passing rows before each chunk, and in all at the end."""
    chunks = -(-len(plan) // LOOKED_UP)
    counts = [len(_passing_draws(plan, chunk)) for chunk in range(chunks)]
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
