"""A mixture under Lightning: a data module that keeps its place, and a callback that keeps the books."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningDataModule  # noqa: TID253  (whoever imports this module trains with it)
from torch.utils.data import DataLoader  # noqa: TID253

from ..course import goes_on
from ..dataset import META, MixedDataset
from ..errors import PlanError
from ..ledger import Ledger
from ..run_log import RunLog
from ..sampler import MixtureSampler
from . import refuse_orders

if TYPE_CHECKING:
    from os import PathLike

    from lightning.pytorch import LightningModule, Trainer
    from numpy.typing import ArrayLike

    from ..mixture import Mixture
    from ..plan import Plan

HELD = 256  # batches whose counts stay where they were computed before they are added up


class MixtureDataModule(LightningDataModule):
    """The training data of a mixture, for any number of processes and with the Trainer's default flags.

    The order is dealt to the Trainer's processes here and is not Lightning's to deal again or to shuffle, whatever
    `use_distributed_sampler` says. Checkpoints hold the place in the run: one saved in the middle of an epoch goes on
    with the very next batch, in another number of processes too. In the first epoch every batch is compared with the
    plan.

    An epoch of the Trainer is as many batches as the plan's first epoch has. The next goes on where it stopped,
    whatever `limit_train_batches` or another length of the plan's next epoch make of it: no row is left out or comes
    twice. Where the sources are used up training stops.

    Args:
        mixture: its sources must hold data.
        batch_size: rows of a batch on each process.
        drop_last: whether a short last batch of an epoch of the plan is left out.
        metadata: whether rows carry `__cuvee_meta__`; without it nothing is compared and nothing can be counted.
        accept_changes: for a checkpoint to be loaded, as in `Plan.load_state_dict`.
        journal: likewise, the journal's file, where the run has one.
        options: of the DataLoader, as `num_workers`, `collate_fn`, `pin_memory`.

    Attributes:
        sampler: this process's `MixtureSampler`, once the Trainer has begun; `sampler.plan` is the plan to update.
    """

    sampler: MixtureSampler

    def __init__(
        self,
        mixture: Mixture,
        *,
        batch_size: int,
        drop_last: bool = False,
        metadata: bool = True,
        accept_changes: Iterable[str] = (),
        journal: str | PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        refuse_orders(options)
        self.mixture = mixture
        self.metadata: Any = None  # of the batch handed out last, on the CPU wherever the batch went
        self.counts = True  # whether this process counts: one of those that train on the same rows
        self.batches = 0  # of an epoch of the Trainer
        self._deal: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last}
        self._dataset = MixedDataset(mixture, metadata=metadata)
        self._loading: dict[str, Any] = {"accept_changes": tuple(accept_changes), "journal": journal}
        self._options = options
        MixtureSampler(mixture.plan(), **self._deal)  # says now what is wrong with its arguments

    def setup(self, stage: str) -> None:
        """Make this process's sampler: each fit begins with the first epoch, or where its checkpoint was saved."""
        if stage == "fit":
            trainer = self._trainer_in_charge()
            dealt = trainer.distributed_sampler_kwargs or {"num_replicas": 1, "rank": 0}
            ranks = dealt["num_replicas"]  # that train on different rows
            self.counts = trainer.global_rank % (trainer.world_size // ranks) == 0
            self.sampler = MixtureSampler(self.mixture.plan(), rank=dealt["rank"], world_size=ranks, **self._deal)
            self.batches = len(self.sampler)

    def train_dataloader(self) -> Batches:
        """Return the batches of this process, from where the run stands."""
        return Batches(self, DataLoader(self._dataset, batch_sampler=self.sampler, **self._options))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the run after the batches trained on, the same on every process."""
        return self.sampler.state_dict() if hasattr(self, "sampler") else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken.

        Raises:
            StateError: if it belongs to another mixture or other data.
        """
        if hasattr(self, "sampler"):
            self.sampler.load_state_dict(state_dict, **self._loading)

    def stop(self) -> None:
        """Let the Trainer end: the sources are used up."""
        self._trainer_in_charge().should_stop = True

    def _trainer_in_charge(self) -> Trainer:
        if self.trainer is None:
            raise PlanError(f"{type(self).__name__} must belong to a Trainer: trainer.fit(model, datamodule=data)")
        return self.trainer


class Batches:
    """The batches that Lightning trains on, one epoch of the plan after the other.

    It is no DataLoader, so Lightning leaves its order alone. It ends only where the sources are used up: Lightning
    takes `len` batches an epoch, and iterates anew for the next.
    """

    def __init__(self, data: MixtureDataModule, loader: DataLoader[Any]) -> None:
        self._data = data
        self._loader = loader

    def __len__(self) -> int:
        return self._data.batches

    def __iter__(self) -> Iterator[Any]:
        data, sampler = self._data, self._data.sampler
        sampler.keep_place()
        while True:
            came = False
            for batch in sampler.track(self._loader):
                came = True
                data.metadata = batch.get(META) if isinstance(batch, Mapping) else None
                yield batch
            if not came:
                raise PlanError(f"epoch {sampler.epoch} must have rows for a batch, but got none")
            if not goes_on(sampler.plan):
                data.stop()
                return

    def state_dict(self) -> dict[str, Any]:
        """Return nothing, the data module keeps the place; to Lightning this says that the loader can resume."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing, see `state_dict`."""


class LedgerCallback(Callback):
    """Counts what a Trainer trains on from a `MixtureDataModule`, keeps the counts in checkpoints, and tells of them.

    Args:
        tokens: returns the target tokens of each row of a batch, integers of shape (n,); None counts rows only.
        log_dir: folder for the events that `cuvee report` reads; None writes none.
        every_n_steps: optimizer steps between two events; default: the Trainer's `log_every_n_steps`.

    Attributes:
        ledger: what this process trained on; `totals()` is the sum over all.
    """

    ledger: Ledger

    def __init__(
        self,
        tokens: Callable[[Any], ArrayLike] | None = None,
        *,
        log_dir: str | PathLike[str] | None = None,
        every_n_steps: int | None = None,
    ) -> None:
        self._tokens = tokens
        self._log_dir = log_dir
        self._every = every_n_steps
        self._held: list[tuple[Any, Any]] = []  # metadata and tokens of batches not counted yet
        self._log: RunLog | None = None
        self._told: Plan | None = None  # the plan whose epoch the log was told of last
        self._step = 0  # of the last event of progress
        self._trained = 0  # optimizer steps before the batch under way

    def totals(self) -> Ledger:
        """Return the counts of all processes so far; every process must call."""
        self._count()
        if self._data.counts:
            self._data.sampler.account(self.ledger)
        return self.ledger.reduced()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:  # noqa: ARG002
        """Begin the books of a fit.

        Raises:
            PlanError: if the Trainer was not given a MixtureDataModule.
        """
        if stage != "fit":
            return
        data = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, MixtureDataModule):
            raise PlanError(f"datamodule must be a MixtureDataModule for {type(self).__name__}, but got {data!r:.60}")
        self._data, self._held = data, []
        self.ledger = Ledger(data.mixture.names)
        if self._log_dir is not None:
            self._log = RunLog(self._log_dir, rank=trainer.global_rank, names=self.ledger.names)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Begin the run's record, or go on with it."""
        self._step = self._trained = trainer.global_step
        if self._log is not None:
            resumed_from = None if trainer.ckpt_path is None else str(trainer.ckpt_path)
            sizes = {"world_size": self._data.sampler.world_size}
            self._log.start(step=self._step, resumed_from=resumed_from, **sizes)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,  # noqa: ARG002
        outputs: Any,
        batch: Any,
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Hold the batch to be counted, and tell the log now and then."""
        if self._data.counts:
            self._held.append((self._data.metadata, None if self._tokens is None else self._tokens(batch)))
        if len(self._held) == HELD:
            self._count()
        if self._log is not None:
            self._tell(self._log, trainer, outputs)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """End the run's record."""
        if self._log is not None:
            self._log.end(step=trainer.global_step, metrics={})

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of all processes; every process must call, as the Trainer does when it saves."""
        return self.totals().state_dict() if hasattr(self, "ledger") else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over counts; those of all processes go on in the first.

        Raises:
            StateError: if the state is not a ledger's.
        """
        if hasattr(self, "ledger"):
            ledger = Ledger.from_state(state_dict)
            first = self._data.counts and self._data.sampler.rank == 0
            self.ledger = ledger if first else Ledger(ledger.names)

    def _count(self) -> None:
        held, self._held = self._held, []
        for metadata, tokens in held:
            self.ledger.add_batch(metadata, tokens.cpu() if hasattr(tokens, "cpu") else tokens)

    def _tell(self, log: RunLog, trainer: Trainer, outputs: Any) -> None:
        """Tell of a plan whose first batch this was, of the run now and then, and of an epoch whose last it was."""
        sampler, step = self._data.sampler, trainer.global_step
        if self._told is not sampler.plan:
            self._told = sampler.plan
            log.plan(sampler.plan, step=self._trained)
        self._trained = step
        every = self._every or trainer.log_every_n_steps  # type: ignore[attr-defined]
        if step - self._step >= max(every, 1):
            self._step = step
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            position = sampler.state_dict()["position"]
            metrics = {} if loss is None else {"loss": float(loss)}
            log.progress(self.totals(), step=step, epoch=sampler.epoch, position=position, losses={}, metrics=metrics)
        if sampler.upcoming > sampler.epoch:
            log.epoch_end(self.totals(), step=step, plan=sampler.plan)
