"""Checks that a training loop gets what the plan says, and names the tool that changed it where it does not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .course import Block, Deal, Place, fetch
from .dataset import META
from .errors import PlanError

if TYPE_CHECKING:
    from .plan import Plan

Row = tuple[int, int, int]  # source, row and cycle of a draw
Rows = tuple[list[int], list[int], list[int]]  # source, row and cycle of draws

FRAMES = 12  # callers among which a tool that deals again is found
SEARCHED = 1 << 19  # positions on either side of the expected one among which rows that came instead are looked for
LOOKED_UP = 64  # rows of a wrong batch looked for
LIGHTNING = ("lightning", "lightning_fabric", "pytorch_lightning")
ORDERLY = ("DataLoader", "StatefulDataLoader", "BatchSampler", "SequentialSampler")  # torch's own, which change nothing
CURES = {
    "accelerate": (
        "let cuvee.integrations.accelerate.loader_for make the loader, or give accelerator.prepare a MixtureSampler of "
        "world_size=1"
    ),
    **dict.fromkeys(
        LIGHTNING,
        "let cuvee.integrations.lightning.MixtureDataModule make the loader, or give it a MixtureSampler as "
        "batch_sampler= and use Trainer(use_distributed_sampler=False)",
    ),
    "transformers": "derive the trainer from cuvee.integrations.transformers.MixtureTrainerMixin",
}
PLAIN_CURE = (
    "nothing after the sampler may shuffle, deal, skip or drop rows; where that is meant: sampler.track(loader, "
    "verify=False)"
)


class DeliveryCheck:
    """Compares the rows that reach a rank's training loop, step by step, with an epoch of its plan.

    Padding takes no part. A weight update under way is followed. Once the epoch is over `finished` is True, and nothing
    more is checked.

    Args:
        plan: the plan of the epoch.
        deal: how the epoch is dealt to this rank's loop.
        start: where in the epoch the loop begins.
    """

    def __init__(self, plan: Plan, deal: Deal, start: Place) -> None:
        self.finished = False
        self._plan, self._deal, self._start = plan, deal, start
        self._ids = {name: source for source, name in enumerate(plan.names)}
        self._checked = 0  # steps
        self._version = plan.version
        self._begin(start)

    def step(self, source: Any, row: Any, cycle: Any, *, loader: object = None) -> None:
        """Check this rank's whole part of the next step; of several steps where rows are dealt one by one.

        Args:
            source: source ids, ints of shape (n,).
            row: rows of these sources, likewise.
            cycle: their cycles, likewise; -1 marks padding.
            loader: what the loop goes through, to name what lies around the sampler.

        Raises:
            PlanError: if these are not the rows that the plan has here.
        """
        if self.finished:
            return
        if self._version != self._plan.version:
            self._version = self._plan.version
            self._begin(self._place())
        got: Rows = _without_padding(_listed(source), _listed(row), _listed(cycle))
        want = self._take(self._deal.rows if self._deal.batched else len(got[0]))
        if not want[0]:
            self.finished = True  # what comes is of the next epoch
        elif got != want:
            raise PlanError(self._complaint(got, want, loader))
        self._checked += 1 if self._deal.batched else len(want[0])

    def batch(self, batch: object, *, loader: object = None) -> None:
        """Check a batch whose rows carry `__cuvee_meta__`: a mapping with it, collated or not, or a list of rows.

        A batch without it leaves nothing to go by: the check is finished.

        Raises:
            PlanError: as `step` does.
        """
        metadata = None if self.finished else metadata_of(batch)
        if metadata is None:
            self.finished = True
            return
        names, rows, cycles = metadata
        try:
            sources = list(map(self._ids.__getitem__, names))
        except KeyError:
            sources = [self._ids.get(name, -1) for name in names]
        self.step(sources, rows, cycles, loader=loader)

    def _begin(self, place: Place) -> None:
        """Expect the rows from `place` on, where the steps checked so far end."""
        self._block: Block | None = None  # the steps fetched last
        self._following = place
        self._rows: Rows = ([], [], [])  # of this rank in the blocks under way, padding left out
        self._next = 0  # the first of them that was not expected yet

    def _take(self, count: int) -> Rows:
        """Return the next `count` rows of this rank, fewer at the end of the epoch."""
        while len(self._rows[0]) - self._next < count:
            block = fetch(self._plan, self._deal, self._checked, self._following)
            if not block.items:
                break
            self._append(block)
        first, self._next = self._next, self._next + count
        source, row, cycle = self._rows
        return source[first : self._next], row[first : self._next], cycle[first : self._next]

    def _append(self, block: Block) -> None:
        keys = [key for item in block.items for key in item] if self._deal.batched else block.items
        columns = _core.unpack([key for key in keys if key >= 0])
        for rest, column in zip(self._rows, columns, strict=True):
            rest[:] = rest[self._next :] + _listed(column)
        self._next = 0
        self._block, self._following = block, block.after(len(block.items), self._deal)

    def _place(self) -> Place:
        """Return the place after the steps checked, or one close behind it if a block was fetched for the next."""
        if self._block is None:
            return self._following
        steps = self._checked - self._block.first
        return self._block.after(steps, self._deal) if steps > 0 else self._block.start

    def _complaint(self, got: Rows, want: Rows, loader: object) -> str:
        names = self._plan.names
        came, due = _transposed(got), _transposed(want)
        pairs = enumerate(zip(came, due, strict=False))
        place = next((place for place, pair in pairs if pair[0] != pair[1]), min(len(came), len(due)))
        kinds = foreign_kinds(loader)
        tools = f" (between sampler and loop: {', '.join(map(_titled, kinds))})" if kinds else ""
        story = "the rows of the batch come in another order" if sorted(came) == sorted(due) else self._story(came, due)
        return (
            f"step {self._checked} of rank {self._deal.rank} in epoch {self._plan.epoch} must have "
            f"{_shown(names, due[place:])} at place {place}, but got {_shown(names, came[place:])}: {story}{tools}; "
            f"{cure_of(kinds)}"
        )

    def _story(self, came: list[Row], due: list[Row]) -> str:
        """Return what seems to have happened to the rows."""
        numbers = numbers_of(self._plan, self._place(), came[:LOOKED_UP])
        if None in numbers:
            return f"{numbers.count(None)} of the rows looked for are nowhere near in the plan"
        places = [number - self._start.accepted for number in numbers if number is not None]
        return story_of(self._deal, self._checked, len(due), places)


def story_of(deal: Deal, step: int, rows: int, numbers: list[int]) -> str:
    """Return what happened to a rank's rows, judged by where in the order those stand that came.

    Args:
        deal: how the order is dealt.
        step: the step that was due.
        rows: rows that were due.
        numbers: places in the global order of those that came, from the first step on.
    """
    size = deal.step
    ranks = {number % size // deal.rows for number in numbers}
    along = [number // size * deal.rows + number % deal.rows for number in numbers]  # places in what their rank gets
    if len(ranks) > 1 or any(after - before != 1 for before, after in pairwise(along)):
        steps = {after - before for before, after in pairwise(numbers)}
        if len(steps) == 1 and min(steps) > 1:
            return f"they are one row in {min(steps)} of the order, dealt a second time"
        return "they come in a shuffled order"
    (rank,), first, due = ranks, along[0], step * deal.rows
    if rank != deal.rank:
        return f"they are rank {rank}'s, of step {first // deal.rows}"
    if first == due:
        return f"{len(numbers)} rows came where {rows} were due"
    if deal.world_size > 1 and first == due * deal.world_size + deal.rank * rows:
        return f"they are of step {first // deal.rows}, the steps having been dealt to the ranks a second time"
    what = "steps before it were skipped" if first > due else "steps are repeated"
    return f"they are of step {first // deal.rows}: {what}"


def numbers_of(plan: Plan, near: Place, rows: list[Row]) -> list[int | None]:
    """Return where among the epoch's accepted rows each of `rows` stands, looked for around `near`; None if nowhere."""
    first = max(near.position - SEARCHED, 0)
    plan = plan.from_start()
    draws = plan.draws(first, min(near.position + SEARCHED, len(plan)))
    kept = np.flatnonzero(plan.passes(draws))
    source, row, cycle = draws.source[kept], draws.row[kept], draws.cycle[kept]
    before = near.accepted - int(np.searchsorted(kept, near.position - first))
    found = [np.flatnonzero((row == drawn[1]) & (source == drawn[0]) & (cycle == drawn[2])) for drawn in rows]
    return [before + int(places[0]) if len(places) else None for places in found]


def refuse_resharding(world_size: int) -> None:
    """Raise if the sampler that asks is being read by a tool that deals what it yields to ranks, or shuffles it.

    Args:
        world_size: the number of ranks that the sampler deals to itself.

    Raises:
        PlanError: naming the tool.
    """
    frame = sys._getframe(1)  # noqa: SLF001  (nothing else says who reads a sampler)
    for _ in range(FRAMES):
        if frame.f_back is None:
            return
        frame = frame.f_back
        reader = frame.f_locals.get("self")
        tool, kind = _named(type(reader))
        if (ranks := _dealing_of(reader)[1]) > 1:
            _refuse_two_deals(kind, ranks, world_size)
        if tool in LIGHTNING and kind == "_DatasetSamplerWrapper":
            raise PlanError(
                f"sampler must be read in its order, but got {tool}'s DistributedSamplerWrapper around it, which "
                f"shuffles; {CURES[tool]}"
            )


def _dealing_of(owner: Any) -> tuple[int, int]:
    """Return (process, number of processes) for which an object of accelerate deals what it reads; (0, 1) if none."""
    if _named(type(owner)) == ("accelerate", "BatchSamplerShard"):
        return owner.process_index, owner.num_processes
    if _named(type(owner)) == ("accelerate", "DataLoaderDispatcher"):
        return owner.state.process_index, owner.state.num_processes
    return 0, 1


def dealt_by(loader: object, deal: Deal) -> Deal:
    """Return how rows are dealt to the loop: as the sampler does, or as accelerate deals a sampler of one rank.

    Raises:
        PlanError: if both do.
    """
    for owner in (loader, *samplers_below(loader)):
        rank, ranks = _dealing_of(owner)
        if ranks == 1:
            continue
        _refuse_two_deals(type(owner).__name__, ranks, deal.world_size)
        rows = deal.rows if deal.batched else int(owner.batch_sampler.batch_size)
        share = rows // ranks if owner.split_batches else rows
        # at the end rows are repeated, unmarked, to fill the batches: only full steps are the plan's
        return Deal(rank=rank, world_size=ranks, rows=share, drop_last=True, batched=True)
    return deal


def _refuse_two_deals(kind: str, ranks: int, world_size: int) -> None:
    if world_size > 1:
        raise PlanError(
            f"world_size must be 1 for a sampler whose batches accelerate's {kind} deals to {ranks} processes, but got "
            f"{world_size}: the rows would be dealt twice, and most never trained on; {CURES['accelerate']}"
        )


def samplers_below(loader: object) -> list[Any]:
    """Return the samplers that `loader` takes its batches from, outermost first, wrapped ones included."""
    found: list[object] = [loader]
    for outer in found:
        for name in ("batch_sampler", "sampler"):
            inner = getattr(outer, name, None)
            if inner is not None and not any(inner is known for known in found):
                found.append(inner)
    return found[1:]


def foreign_kinds(loader: object) -> list[type]:
    """Return the classes around a loader's sampler that are neither this package's nor torch's plain ones."""
    kinds = [type(sampler) for sampler in (*samplers_below(loader), loader)]
    plain = [kind for kind in kinds if _named(kind)[0] in ("torch", "torchdata") and kind.__name__ in ORDERLY]
    own = [kind for kind in kinds if _named(kind)[0] in ("cuvee", "builtins")]
    return list(dict.fromkeys(kind for kind in kinds if kind not in (*plain, *own)))


def cure_of(kinds: list[type]) -> str:
    """Return what to do about classes that change the order."""
    return next((CURES[tool] for tool, _ in map(_named, kinds) if tool in CURES), PLAIN_CURE)


def metadata_of(batch: object) -> tuple[list[str], list[int], list[int]] | None:
    """Return the source names, rows and cycles in a batch's `__cuvee_meta__`, None if it has none that can be read."""
    try:
        metadata = batch[META] if isinstance(batch, Mapping) else [row[META] for row in batch]  # type: ignore[attr-defined]
        if isinstance(metadata, Mapping):
            metadata = [metadata] if isinstance(metadata["source"], str) else metadata
        if isinstance(metadata, Mapping):
            names, rows, cycles = (_listed(metadata[name]) for name in ("source", "source_index", "cycle"))
        else:
            names = [row["source"] for row in metadata]
            rows = [row["source_index"] for row in metadata]
            cycles = [row["cycle"] for row in metadata]
    except (TypeError, KeyError, IndexError):
        return None
    return (names, rows, cycles) if 0 < len(names) == len(rows) == len(cycles) else None


def _without_padding(source: list[int], row: list[int], cycle: list[int]) -> Rows:
    if min(cycle, default=0) >= 0:
        return source, row, cycle
    kept = [place for place, number in enumerate(cycle) if number >= 0]
    return [source[place] for place in kept], [row[place] for place in kept], [cycle[place] for place in kept]


def _transposed(rows: Rows) -> list[Row]:
    return list(zip(*rows, strict=True))


def _listed(values: Any) -> list[Any]:
    listed: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    return listed


def _named(kind: type) -> tuple[str, str]:
    """Return the first part of a class's module, which names the tool, and its own name."""
    return kind.__module__.partition(".")[0], kind.__name__


def _titled(kind: type) -> str:
    return "{}'s {}".format(*_named(kind))


def _shown(names: tuple[str, ...], rows: list[Row]) -> str:
    for source, row, cycle in rows:
        name = names[source] if 0 <= source < len(names) else "another source"
        return f"row {row} of {name!r} (cycle {cycle})"
    return "no row"
