"""A mixture under Hugging Face Accelerate: dealt once, saved and loaded with the accelerator's own checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from accelerate.data_loader import prepare_data_loader  # noqa: TID253  (whoever imports this module trains with it)
from accelerate.utils import send_to_device  # noqa: TID253
from torch.utils.data import DataLoader  # noqa: TID253

from ..dataset import META, MixedDataset
from ..errors import StateError
from ..ledger import Ledger
from ..mixture import Mixture
from ..plan import Plan
from ..sampler import MixtureSampler
from . import refuse_orders

if TYPE_CHECKING:
    from os import PathLike

    from accelerate import Accelerator
    from numpy.typing import ArrayLike

STATE_VERSION = 1


class MixtureLoader:
    """Batches of a mixture for one process of an accelerator; `loader_for` makes it.

    Iterating goes through the epoch under way from where the run stands, then through the next. After a `break`, or
    from a checkpoint that was loaded, it goes on with the very next batch. Batches are on the accelerator's device,
    only `__cuvee_meta__` stays on the CPU. In the first epoch every batch is compared with the plan.

    `accelerator.prepare` leaves it as it is.

    Attributes:
        sampler: this process's `MixtureSampler`; `sampler.plan` is the plan to update.
        ledger: what this process trained on, as `count` was told.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        sampler: MixtureSampler,
        loader: DataLoader[Any],
        *,
        counts: bool,
        accept_changes: Iterable[str],
        journal: str | PathLike[str] | None,
    ) -> None:
        self.sampler = sampler
        self.ledger = Ledger(sampler.plan.names)
        self._accelerator = accelerator
        self._counts = counts
        self._loading: dict[str, Any] = {"accept_changes": tuple(accept_changes), "journal": journal}
        # one process as far as it knows: it deals nothing, but tells the accelerator when a loop ends
        self._loader = prepare_data_loader(loader, num_processes=1, process_index=0, put_on_device=False)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next iteration goes through: `for epoch in range(loader.epoch, epochs)`."""
        return self.sampler.upcoming

    def __len__(self) -> int:
        """Return the number of batches of the iteration under way; without one, of the next."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        self.sampler.keep_place()
        self._loader.set_epoch(self.sampler.upcoming)
        for batch in self.sampler.track(self._loader):
            yield self._moved(batch)

    def count(self, batch: Mapping[str, Any], tokens: ArrayLike | None = None) -> None:
        """Count a batch as trained on; padding is left out.

        Args:
            batch: as this loader gave it.
            tokens: target tokens of each row, integers of shape (n,); None counts rows only.
        """
        if self._counts:
            self.ledger.add_batch(batch[META], tokens)

    def totals(self) -> Ledger:
        """Return the counts of all processes so far; every process must call."""
        if self._counts:
            self.sampler.account(self.ledger)
        return self.ledger.reduced()

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the run and the counts of all processes; every process must call (`save_state` does)."""
        return {"version": STATE_VERSION, "sampler": self.sampler.state_dict(), "ledger": self.totals().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken, with any number of processes and any batch size.

        Raises:
            StateError: if the state is not a MixtureLoader's, or belongs to another mixture or other data.
        """
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION or "sampler" not in state:
            raise StateError(f"state must be from MixtureLoader.state_dict, but got {state!r:.60}")
        ledger = Ledger.from_state(state["ledger"])
        self.sampler.load_state_dict(state["sampler"], **self._loading)
        main = self._accelerator.process_index == 0
        self.ledger = ledger if main else Ledger(ledger.names)  # the counts of all go on in one process

    def _moved(self, batch: Any) -> Any:
        if not self._accelerator.device_placement:
            return batch
        if not isinstance(batch, Mapping) or META not in batch:
            return send_to_device(batch, self._accelerator.device)
        rest = {name: value for name, value in batch.items() if name != META}
        return {**send_to_device(rest, self._accelerator.device), META: batch[META]}


def loader_for(
    accelerator: Accelerator,
    mixture: Mixture | Plan,
    *,
    batch_size: int,
    drop_last: bool = False,
    metadata: bool = True,
    accept_changes: Iterable[str] = (),
    journal: str | PathLike[str] | None = None,
    **options: Any,
) -> MixtureLoader:
    """Return a loader of this process's batches, and register it for the accelerator's checkpoints.

    `accelerator.save_state` then saves the place in the run with the counts, and `load_state` goes on there, in the
    middle of an epoch and with another number of processes too. Processes that share a model (tensor or context
    parallelism) get the same batches.

    Args:
        accelerator: the run's.
        mixture: its sources must hold data; or the plan to begin with.
        batch_size: rows of a batch on each process.
        drop_last: whether a short last batch is left out.
        metadata: whether rows carry `__cuvee_meta__`; without it nothing is compared and nothing can be counted.
        accept_changes: for a checkpoint to be loaded, as in `Plan.load_state_dict`.
        journal: likewise, the journal's file, where the run has one.
        options: of the DataLoader, as `num_workers`, `collate_fn`, `pin_memory`.

    Raises:
        PlanError: naming the argument that is out of its range.
    """
    refuse_orders(options)
    plan = mixture.plan() if isinstance(mixture, Mixture) else mixture
    alike = _processes_alike(accelerator)
    rank, place = divmod(accelerator.process_index, alike)
    sampler = MixtureSampler(
        plan, rank=rank, world_size=accelerator.num_processes // alike, batch_size=batch_size, drop_last=drop_last
    )
    loader = DataLoader(MixedDataset(plan.mixture, metadata=metadata), batch_sampler=sampler, **options)
    made = MixtureLoader(
        accelerator, sampler, loader, counts=place == 0, accept_changes=accept_changes, journal=journal
    )
    accelerator.register_for_checkpointing(made)
    return made


def _processes_alike(accelerator: Accelerator) -> int:
    """Return how many neighbouring processes train on the same rows."""
    config = getattr(accelerator, "parallelism_config", None)
    return int((getattr(config, "tp_size", 1) or 1) * (getattr(config, "cp_size", 1) or 1))
