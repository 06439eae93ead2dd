"""Accelerate, Lightning and StatefulDataLoader: the mix arrives as planned, stops and goes on, and adds up."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from itertools import islice
from pathlib import Path

import pytest

from cuvee import MixedDataset, MixtureSampler
from loading import mixture, reassembled

TESTS = Path(__file__).parents[1]
BATCH = 8
ROWS = 400


def order(*epochs: int) -> list[list[object]]:
    """Return [source, row] at every position of these epochs."""
    mix = mixture(samples_per_epoch=ROWS)
    return [[draw.name, draw.row] for epoch in epochs for draw in mix.plan(epoch)]


def launched(folder, script, ranks=1, *arguments, torchrun=True):
    """Run a script in so many processes, and return what each of them wrote as JSON."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(script))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", f"--master_port={port}"] if torchrun else []
    done = subprocess.run(
        [sys.executable, *launcher, str(path), str(folder), *arguments],
        capture_output=True, text=True, timeout=180, check=False,
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1", "MASTER_PORT": port,
            "PYTHONWARNINGS": "ignore",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


COMMON = """
    import json, os, sys
    from pathlib import Path
    from cuvee import *
    from leaving import leave
    from loading import Rows, mixture

    folder, rank, world_size = Path(sys.argv[1]), int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    mix = mixture(samples_per_epoch=400)

    def rows_of(batch):
        meta = batch["__cuvee_meta__"]
        return [
            [name, row] for name, row, cycle in
            zip(meta["source"], meta["source_index"].tolist(), meta["cycle"].tolist()) if cycle >= 0
        ]

    def say(**values):
        (folder / f"{rank}.json").write_text(json.dumps(values))
"""

# --- accelerate

ACCELERATE = (
    COMMON
    + """
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader
    from cuvee.integrations.accelerate import loader_for

    until = int(sys.argv[2])
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    batch_size = 16 // world_size
    model = torch.nn.Linear(1, 1)
    loader = loader_for(accelerator, mix, batch_size=batch_size)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), loader)
    if (folder / "state").exists():
        accelerator.load_state(folder / "state")
    start = loader.epoch
    seen, number, epochs, synced = [], 0, [], 0

    def train():
        global number, synced
        for epoch in range(start, 3):
            epochs.append(loader.epoch)
            for batch in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(model(batch["row"].float()[:, None]).sum() * 1e-9)
                    optimizer.step()
                    optimizer.zero_grad()
                synced += accelerator.sync_gradients
                assert batch["row"].device.type == accelerator.device.type
                loader.count(batch, [2] * len(batch["row"]))
                seen.append(rows_of(batch))
                number += 1
                if number == until:
                    accelerator.save_state(folder / "state")
                    return

    train()
    total = loader.totals()
    say(seen=seen, epochs=epochs, synced=synced, length=len(loader), trained=total.trained.tolist(),
        scheduled=total.scheduled.tolist(), tokens=total.tokens.tolist())
    accelerator.end_training()
    leave()
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(("until", "ranks"), [(25, 2), (33, 1)])
def test_accelerate_stops_and_goes_on_where_it_was(tmp_path, until, ranks) -> None:
    pytest.importorskip("accelerate")
    first = launched(tmp_path, ACCELERATE, 2, str(until))
    second = launched(tmp_path, ACCELERATE, ranks, "0")
    parts = [reassembled(rank["seen"] for rank in part) for part in (first, second)]
    assert parts[0] == order(0, 1, 2)[: until * 16]
    assert parts[0] + parts[1] == order(0, 1, 2)
    assert second[0]["epochs"] == list(range(until // 25, 3))
    expected = [sum(row[0] == name for row in order(0, 1, 2)) for name in "abcd"]
    for rank in second:
        assert rank["trained"] == rank["scheduled"] == expected
        assert rank["tokens"] == [2 * rows for rows in expected]
    # a step after every second batch, and after the last of each epoch
    assert first[0]["synced"] == until // 25 * 13 + until % 25 // 2


PREPARED = (
    COMMON
    + """
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)
    told = {}

    def prepared(name, sampler, **options):
        loader = accelerator.prepare(DataLoader(MixedDataset(mix), batch_sampler=sampler, **options))
        seen = []
        try:
            for number, batch in enumerate(sampler.track(loader), start=1):
                seen.append(rows_of(batch))
                if number == 10:
                    told[name + " position"] = sampler.state_dict()["position"]
        except ValueError as error:
            seen = f"{type(error).__name__}: {error}"
        told[name] = seen

    prepared("twice", MixtureSampler(mix.plan(), rank=rank, world_size=2, batch_size=8))
    prepared("once", MixtureSampler(mix.plan(), batch_size=8))
    loader = accelerator.prepare(
        DataLoader(MixedDataset(mix), batch_sampler=MixtureSampler(mix.plan(), rank=rank, world_size=2, batch_size=8)))
    try:
        next(iter(loader))
    except ValueError as error:
        told["untracked"] = f"{type(error).__name__}: {error}"
    say(**told)
    accelerator.end_training()
    leave()
"""
)


@pytest.mark.slow
def test_accelerate_prepare_deals_once_or_says_so(tmp_path) -> None:
    pytest.importorskip("accelerate")
    ranks = launched(tmp_path, PREPARED, 2)
    for rank in ranks:
        for way in ("twice", "untracked"):
            assert re.match(r"PlanError: world_size must be 1 .* accelerate's BatchSamplerShard", rank[way])
            assert "cuvee.integrations.accelerate.loader_for" in rank[way]
        assert rank["once position"] == 160
    assert reassembled(rank["once"] for rank in ranks) == order(0)


def test_loader_for_refuses_another_order_and_other_states() -> None:
    accelerate = pytest.importorskip("accelerate")
    from cuvee import PlanError, StateError
    from cuvee.integrations.accelerate import loader_for

    accelerator = accelerate.Accelerator(cpu=True)
    for name in ("shuffle", "sampler", "batch_sampler"):
        with pytest.raises(PlanError, match=f"leave the order to the plan, but got {name}=True"):
            loader_for(accelerator, mixture(), batch_size=4, **{name: True})
    loader = loader_for(accelerator, mixture(samples_per_epoch=40).plan(), batch_size=4)
    for state in ({}, None, {"version": 2}):
        with pytest.raises(StateError, match=r"MixtureLoader\.state_dict"):
            loader.load_state_dict(state)
    assert len(loader) == len(list(loader)) == 10
    assert loader.epoch == 1
    bare = loader_for(accelerator, mixture(samples_per_epoch=40), batch_size=4, metadata=False, collate_fn=list)
    assert [len(batch) for batch in bare] == [4] * 10


# --- lightning

LIGHTNING = (
    COMMON
    + """
    import lightning.pytorch as pl
    import torch
    from cuvee.integrations.lightning import LedgerCallback, MixtureDataModule
    from cuvee.run_log import read_events

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen = []
        def training_step(self, batch, index):
            self.seen.append(rows_of(batch))
            return self.layer(batch["row"].float()[:, None]).sum() * 1e-9
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Stop(pl.Callback):
        def __init__(self, save, stop, file):
            self.save, self.stop, self.file = save, stop, file
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == self.save:
                trainer.save_checkpoint(self.file)
            if trainer.global_step == self.stop:
                raise RuntimeError("stopped")

    def fit(*callbacks, ckpt=None, data=None, log=None, epochs=2, every=10, **flags):
        module, books = Module(), LedgerCallback(lambda batch: torch.full((len(batch["row"]),), 2), log_dir=log)
        data = data or MixtureDataModule(mix, batch_size=16 // world_size, num_workers=0)
        trainer = pl.Trainer(
            accelerator="cpu", devices=world_size, max_epochs=epochs, logger=False, enable_progress_bar=False,
            enable_checkpointing=False, enable_model_summary=False, callbacks=[books, *callbacks],
            log_every_n_steps=every, **flags)
        try:
            trainer.fit(module, datamodule=data, ckpt_path=ckpt)
        except (RuntimeError, ValueError) as error:
            return module.seen, f"{type(error).__name__}: {error}", None
        total = books.totals()
        return module.seen, "", [total.scheduled.tolist(), total.trained.tolist(), total.tokens.tolist()]

    told = {}
    for at in (9, 25, 31):
        file, log = str(folder / f"{at}.ckpt"), folder / f"log-{at}"
        first = fit(Stop(at, at + 2, file), log=log)
        second = fit(ckpt=file, log=log)
        told[f"at {at}"] = [first, second]
        told[f"log {at}"] = [[event["stage"], event["step"]] for event in read_events(log)] if rank == 0 else []
    told["limited"] = fit(epochs=3, limit_train_batches=7)
    told["flag"] = fit(use_distributed_sampler=False, epochs=1)
    told["reloaded"] = fit(reload_dataloaders_every_n_epochs=1)
    capped = mixture(sizes={"a": 32, "b": 32, "c": 32, "d": 32}, exhaustion="renormalize")
    told["fresh"] = fit(data=MixtureDataModule(capped, batch_size=16 // world_size), epochs=2)

    few = Mixture([Source(name, Rows(name, 32), max_epochs=1) for name in "ab"], samples_per_epoch=48)
    told["used up"] = fit(data=MixtureDataModule(few, batch_size=16 // world_size), epochs=9)

    class Sampled(pl.LightningDataModule):
        def train_dataloader(self):
            return torch.utils.data.DataLoader(MixedDataset(mix), sampler=MixtureSampler(mix.plan()), batch_size=8)

    def single():
        trainer = pl.Trainer(accelerator="cpu", devices=world_size, max_epochs=1, logger=False,
            enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False)
        try:
            trainer.fit(Module(), datamodule=Sampled())
        except ValueError as error:
            return f"{type(error).__name__}: {error}"

    told["sampler="] = single()
    say(**told)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_lightning_delivers_the_plan_with_default_flags_and_goes_on_after_a_stop(tmp_path, world_size) -> None:
    pytest.importorskip("lightning")
    ranks = launched(tmp_path, LIGHTNING, world_size)

    def together(way, *parts):
        rows = []
        for part in parts or (None,):
            shown = [rank[way] if part is None else rank[way][part] for rank in ranks]
            rows.append(reassembled(seen for seen, _, _ in shown))
        return rows

    counts = [sum(row[0] == name for row in order(0, 1)) for name in "abcd"]
    for at in (9, 25, 31):
        first, second = together(f"at {at}", 0, 1)
        assert ranks[0][f"at {at}"][0][1] == "RuntimeError: stopped"
        assert first == order(0, 1)[: (at + 2) * 16]
        assert second == order(0, 1)[at * 16 :]
        assert ranks[0][f"at {at}"][1][2] == [counts, counts, [2 * rows for rows in counts]]
        events = ranks[0][f"log {at}"]
        assert ["run_start", at] in events
        assert events[-1] == ["run_end", 50]
        assert [step for stage, step in events if stage == "dataset_mix_epoch_end"] == [25, 50]
    assert together("limited") == [order(0)[: 21 * 16]]
    assert together("flag") == [order(0)]
    assert together("reloaded") == [order(0, 1)]
    (fresh,) = together("fresh")
    assert len(fresh) == 256
    assert len({tuple(row) for row in fresh}) == 128
    (used_up,) = together("used up")
    assert len(used_up) == len({tuple(row) for row in used_up}) == 64
    if world_size == 2:
        assert "PlanError: sampler must be read in its order, but got lightning's" in ranks[0]["sampler="]


# --- torchdata


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning", "ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader_is_compared_with_the_plan_wherever_it_goes_on(workers) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    mix = mixture(samples_per_epoch=ROWS)
    seen, state = [], None
    for batches in (7, 20, 50):
        sampler = MixtureSampler(mix.plan(), batch_size=BATCH)
        loader = stateful(MixedDataset(mix), batch_sampler=sampler, num_workers=workers)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        for batch in islice(sampler.track(loader), batches):
            meta = batch["__cuvee_meta__"]
            seen += map(list, zip(meta["source"], meta["source_index"].tolist(), strict=True))
        state = json.dumps(loader.state_dict())
    assert seen == order(0)
