"""What users asked of trainers: the mix arrives as planned, or an error says what to change."""
# ruff: noqa: TID253

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from cuvee import MixedDataset, Mixture, MixtureSampler, PlanError, Source
from loading import SIZES, WEIGHTS, reassembled

transformers = pytest.importorskip("transformers")

TESTS = Path(__file__).parents[1]
BATCH = 8
ROWS = 800
SPAN = 10_000  # keys of source k lie in [k * SPAN, (k + 1) * SPAN)


@dataclass(frozen=True)
class Keys:
    """A source whose rows are {"key": an integer that names source and row}."""

    source: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"key": self.source * SPAN + index}


def mixture() -> Mixture:
    sources = [Source(name, Keys(k, size), WEIGHTS[name]) for k, (name, size) in enumerate(SIZES.items())]
    return Mixture(sources, samples_per_epoch=ROWS)


def order(*epochs: int) -> list[int]:
    """Return the keys of these epochs as the plan has them."""
    return [draw.source * SPAN + draw.row for epoch in epochs for draw in mixture().plan(epoch)]


def flat(batches):
    return [key for batch in batches for key in batch]


def view():
    mix = mixture()
    return MixedDataset(mix).in_order(mix.plan())


class Model(torch.nn.Module):
    """One weight, and the keys it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.seen: list[int] = []

    def forward(self, key: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen += key.tolist()
        return {"loss": self.weight.sum() * 0.5}


# --- transformers


class MixtureTrainer(transformers.Trainer):
    """The trainer of docs/dataloader.md: its loader takes the order from a sampler, epoch after epoch."""

    def get_train_dataloader(self) -> DataLoader:
        mix = mixture()
        sampler = MixtureSampler(mix.plan(), batch_size=self.args.train_batch_size)
        loader = DataLoader(
            MixedDataset(mix, metadata=False), batch_sampler=sampler, collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
        )  # fmt: skip
        return self.accelerator.prepare(loader)


def train(folder, kind=transformers.Trainer, *, resume=None, dataset=None, **settings):
    """Return the keys that a new trainer trains on, in their order."""
    settings = {"num_train_epochs": 1, "save_strategy": "no", "disable_tqdm": True, "report_to": "none"} | settings
    arguments = transformers.TrainingArguments(output_dir=str(folder), use_cpu=True, **settings)
    model = Model()
    trainer = kind(model=model, args=arguments, train_dataset=dataset)
    trainer.train(resume_from_checkpoint=resume)
    return model.seen


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_trainer_that_shuffles_the_view_is_stopped(tmp_path, batch) -> None:
    with pytest.raises(PlanError, match=r"train_sampling_strategy='sequential'"):
        train(tmp_path, dataset=view(), per_device_train_batch_size=batch)


def test_trainer_in_sequence_delivers_the_plan(tmp_path) -> None:
    assert train(tmp_path, dataset=view(), train_sampling_strategy="sequential") == order(0)


def test_trainer_resumes_within_the_view(tmp_path) -> None:
    settings = {"train_sampling_strategy": "sequential", "save_strategy": "steps", "save_steps": 37}
    assert train(tmp_path, dataset=view(), max_steps=37, **settings) == order(0)[: 37 * BATCH]
    rest = train(tmp_path, dataset=view(), resume=str(tmp_path / "checkpoint-37"), **settings)
    assert rest == order(0)[37 * BATCH :]


@pytest.mark.parametrize("at", [37, 100, 137])
def test_trainer_with_a_sampler_resumes_in_any_epoch(tmp_path, at) -> None:
    settings = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": at}
    whole = train(tmp_path, MixtureTrainer, dataset=view(), **settings)
    assert whole == order(0, 1)
    rest = train(tmp_path, MixtureTrainer, dataset=view(), resume=str(tmp_path / f"checkpoint-{at}"), **settings)
    assert rest == whole[at * BATCH :]


# --- the view under other loaders


@pytest.mark.parametrize("batch", [1, 3, 16])
@pytest.mark.parametrize("world_size", [1, 3, 7])
def test_view_takes_padding_and_new_epochs_for_what_they_are(batch, world_size) -> None:
    mix = mixture()
    dataset = MixedDataset(mix).in_order(mix.plan())
    for rank in range(world_size):
        sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=False)
        loader = DataLoader(dataset, batch_size=batch, sampler=sampler)
        assert {len(list(loader)) for _ in range(3)} == {len(loader)}


@pytest.mark.parametrize("rows", [2, 3, 5, 20])
def test_view_of_few_rows_may_be_padded_over_and_over(rows) -> None:
    prepare = pytest.importorskip("accelerate.data_loader").prepare_data_loader
    mix = Mixture([Source("few", Keys(0, rows))])
    dataset = MixedDataset(mix).in_order(mix.plan())
    for rank in range(4):
        plain = DataLoader(dataset, batch_size=16)
        loader = prepare(plain, num_processes=4, process_index=rank, put_on_device=False)
        assert [len(batch["key"]) for _ in range(5) for batch in loader] == [16] * 5


def test_anyone_may_read_single_rows_in_any_order() -> None:
    dataset, expected = view(), order(0)
    assert [dataset[place]["key"] for place in range(ROWS - 1, -1, -1)] == expected[::-1]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_that_shuffles_the_view_is_stopped(workers) -> None:
    options = {"num_workers": workers, "multiprocessing_context": "spawn"} if workers else {}
    loader = DataLoader(view(), batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(1), **options)
    with pytest.raises(PlanError, match="shuffle=False"):
        list(loader)


# --- lightning

LIGHTNING = """
    import json, os, sys, warnings
    warnings.simplefilter("ignore")  # Lightning's advice, on workers and the like
    from pathlib import Path
    import lightning.pytorch as pl
    import torch
    from torch.utils.data import DataLoader, DistributedSampler
    from cuvee import MixedDataset, MixtureSampler
    from test_users_trainers import BATCH, Model, mixture, view

    world_size, folder = int(sys.argv[1]), Path(sys.argv[2])

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()
        def training_step(self, batch, index):
            return self.model(batch["key"])["loss"]
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(make_loader, epochs=1, **flags):
        module = Module()
        trainer = pl.Trainer(accelerator="cpu", devices=world_size, max_epochs=epochs, logger=False,
                             enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **flags)
        try:
            trainer.fit(module, make_loader(trainer))
        except (TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return [module.model.seen[i : i + BATCH] for i in range(0, len(module.model.seen), BATCH)]

    def plain(trainer):
        return DataLoader(view(), batch_size=BATCH)

    def dealt(trainer):
        rows = view()
        sampler = DistributedSampler(rows, trainer.world_size, trainer.global_rank, shuffle=False)
        return DataLoader(rows, batch_size=BATCH, sampler=sampler)

    def sampled(trainer):
        mix = mixture()
        sampler = MixtureSampler(
            mix.plan(), rank=trainer.global_rank, world_size=trainer.world_size, batch_size=BATCH)
        return DataLoader(MixedDataset(mix), batch_sampler=sampler)

    def single(trainer):
        mix = mixture()
        return DataLoader(MixedDataset(mix), batch_size=BATCH, sampler=MixtureSampler(mix.plan()))

    seen = {
        "dealt": fit(dealt),
        "single": fit(single),
        "sampled": fit(sampled, epochs=2, use_distributed_sampler=False),
        "sampled by default": fit(sampled),
        "plain": fit(plain),
    }
    (folder / f"{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(seen))
"""


def lightning_ranks(folder, world_size):
    """Return what each rank saw of each way to pass the mix; Lightning starts the processes itself."""
    pytest.importorskip("lightning")
    script = folder / "script.py"
    script.write_text(textwrap.dedent(LIGHTNING))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = subprocess.run(
        [sys.executable, str(script), str(world_size), str(folder)],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(TESTS), *sys.path]),
            "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world_size)]


@pytest.mark.slow
def test_lightning_in_one_process_delivers_the_plan(tmp_path) -> None:
    (seen,) = lightning_ranks(tmp_path, 1)
    assert flat(seen.pop("sampled")) == order(0) + order(1)
    for way, batches in seen.items():
        assert flat(batches) == order(0), way


@pytest.mark.slow
def test_lightning_in_two_processes_delivers_the_plan_or_says_what_to_change(tmp_path) -> None:
    ranks = lightning_ranks(tmp_path, 2)
    assert reassembled(rank["sampled"] for rank in ranks) == order(0) + order(1)
    dealt = [flat(rank["dealt"]) for rank in ranks]
    assert [key for pair in zip(*dealt, strict=True) for key in pair] == order(0)
    for rank in ranks:
        assert "use_distributed_sampler=False" in rank["sampled by default"]
        assert "lightning's DistributedSamplerWrapper around it, which shuffles" in rank["single"]
        assert "DistributedSampler(view, shuffle=False)" in rank["plain"]
