"""Online mixing inside StatefulDataLoader, Accelerate in one process and two, and a Trainer of transformers."""
# ruff: noqa: TID253

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from datasets import Dataset

import tiny
from cuvee.errors import CuveeError, StateError
from cuvee.odm import OnlineMixingDataset, OnlineSettings, Reward

torchdata = pytest.importorskip("torchdata.stateful_dataloader")

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")  # torchdata 0.11 calls what torch deprecates
ROWS = 12
SIZES = {"alpha": 20, "beta": 30, "gamma": 50}


class State:
    """A loop's log, as a Trainer keeps it."""

    def __init__(self) -> None:
        self.log_history: list[dict[str, Any]] = []


def categories() -> dict[str, Dataset]:
    found = {}
    for first, (name, size) in enumerate(SIZES.items()):
        ids = [[first, row % 60, *((row * 7 + place) % 60 for place in range(4))] for row in range(size)]
        found[name] = Dataset.from_dict({"input_ids": ids}).with_format("torch")
    return found


def online(folder: Path, **settings: Any) -> OnlineMixingDataset:
    options = {"sampling_interval": ROWS, "reward_type": Reward.TRAIN_LOSS, "output_dir": folder, **settings}
    return OnlineMixingDataset(categories(), {}, {}, {}, **options)


def loss_of(batch: dict[str, torch.Tensor]) -> float:
    return float(batch["input_ids"].float().mean()) / 20


def loop(dataset: OnlineMixingDataset, loader: Any, state: State, steps: int, *, update: bool = True) -> list[Any]:
    found = []
    for batch in loader:
        found.append(batch["input_ids"].tolist())
        state.log_history.append({"loss": loss_of(batch), "step": len(state.log_history)})
        if update:
            dataset.update_sampling_weights(None, None, state)
        if len(found) == steps:
            break
    return found


def test_stateful_loader_goes_on_exactly_twice(tmp_path: Path) -> None:
    dataset, state = online(tmp_path / "whole"), State()
    whole = loop(dataset, torchdata.StatefulDataLoader(dataset, batch_size=ROWS), state, 30)
    assert len({tuple(map(tuple, batch)) for batch in whole}) > 20

    saved, found, again = None, [], State()
    for stop in (7, 3, 20):
        parts = online(tmp_path / "parts")
        loader = torchdata.StatefulDataLoader(parts, batch_size=ROWS)
        if saved:
            loader.load_state_dict(json.loads(json.dumps(saved)))
        found += loop(parts, loader, again, stop)
        saved = loader.state_dict()
    assert found == whole
    assert parts.state_dict() == dataset.state_dict()


@pytest.mark.parametrize("stateful", [True, False])
def test_accelerate_goes_on_exactly(tmp_path: Path, stateful: bool) -> None:
    from accelerate import Accelerator, DataLoaderConfiguration

    def prepared() -> tuple[Any, OnlineMixingDataset, Any]:
        dataset = online(tmp_path)
        accelerator = Accelerator(
            cpu=True,
            dataloader_config=DataLoaderConfiguration(dispatch_batches=False, use_stateful_dataloader=stateful),
        )
        if not stateful:
            accelerator.register_for_checkpointing(dataset)
        kind = torchdata.StatefulDataLoader if stateful else torch.utils.data.DataLoader
        return accelerator, dataset, accelerator.prepare(kind(dataset, batch_size=ROWS))

    accelerator, dataset, loader = prepared()
    state, found = State(), []
    for batch in loader:
        found.append(batch["input_ids"].tolist())
        state.log_history.append({"loss": loss_of(batch), "step": len(state.log_history)})
        dataset.update_sampling_weights(None, accelerator, state)
        category = batch["input_ids"][0, 0].item()
        assert dataset.log["rewards"][category] == pytest.approx(loss_of(batch))  # not of the batch fetched ahead
        if len(found) == 8:
            accelerator.save_state(str(tmp_path / "state"))
            kept = list(state.log_history)
        if len(found) == 20:
            break
    expected = dataset.state_dict()
    assert expected["position"] == 20 * ROWS  # without the batch fetched ahead
    accelerator, again, loader = prepared()
    accelerator.load_state(str(tmp_path / "state"))
    state.log_history = kept
    assert loop(again, loader, state, 12) == found[8:]
    assert again.state_dict() == expected


SCRIPT = """
import sys
import torch
import torch.distributed as dist
from pathlib import Path
from accelerate import Accelerator, DataLoaderConfiguration
from torchdata.stateful_dataloader import StatefulDataLoader

sys.path[:0] = [{tests!r}, {here!r}]
import tiny
from leaving import leave
from test_odm import ROWS, State, categories
from cuvee.odm import OnlineMixingDataset

folder, dispatch, stateful = Path(sys.argv[1]), "dispatch" in sys.argv[2], "stateful" in sys.argv[2]

def run(state, resume, steps):
    dataset = OnlineMixingDataset(categories(), {{}}, categories(), {{}}, sampling_interval=ROWS, output_dir=folder,
                                  reward_type=sys.argv[3], eval_batch_size=8)
    config = DataLoaderConfiguration(
        split_batches=True, dispatch_batches=dispatch, use_stateful_dataloader=stateful
    )
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    if not stateful:
        accelerator.register_for_checkpointing(dataset)
    loader = (StatefulDataLoader if stateful else torch.utils.data.DataLoader)(dataset, batch_size=ROWS)
    model = tiny.model(attention_dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if resume:
        accelerator.load_state(str(folder / "state"))
    seen = []
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(accelerator.gather(batch["input_ids"]).tolist())
        state.log_history.append({{"loss": accelerator.gather(loss).mean().item(), "step": len(state.log_history)}})
        dataset.update_sampling_weights(model, accelerator, state)
        if len(seen) == 4 and not resume:
            accelerator.save_state(str(folder / "state"))
            run.kept = list(state.log_history)
        if len(seen) == steps:
            break
    return seen, dataset

whole, first = run(State(), False, 9)
state = State()
state.log_history = run.kept
rest, second = run(state, True, 5)
assert rest == whole[4:], (rest, whole[4:])
assert first.bandit.state_dict() == second.bandit.state_dict()
plans = [None] * 2
dist.all_gather_object(plans, (first.choices.plan.plan_hash, first.sampling_ratio, first.produced))
assert plans[0] == plans[1]
(folder / f"rank-{{dist.get_rank()}}").write_text(str(first.log["count"]))
dist.barrier()
leave()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loading", "reward"), [("dispatch", "train_loss"), ("shards", "entropy"), ("stateful dispatch", "train_loss")]
)
def test_two_processes_decide_alike_and_go_on(tmp_path: Path, loading: str, reward: str) -> None:
    pytest.importorskip("accelerate")
    here = Path(__file__).parent
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(tests=str(here.parent), here=str(here)))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    done = subprocess.run(
        [sys.executable, *launcher, str(script), str(tmp_path), loading, reward],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts = [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)]
    assert counts[0] == counts[1]
    if reward == "entropy":
        assert counts[0] == "[20.0, 30.0, 50.0]"  # each evaluation row counts once, whatever the number of ranks
    assert {json.loads(line)["rank"] for line in (tmp_path / "odm.jsonl").read_text().splitlines()} == {0}


def trainer(folder: Path, dataset: OnlineMixingDataset, settings: OnlineSettings, **arguments: Any) -> Any:
    from cuvee.odm.callback import OnlineMixingCallback

    given = tiny.arguments(
        folder,
        per_device_train_batch_size=ROWS,
        max_steps=12,
        save_steps=4,
        save_strategy="steps",
        ignore_data_skip=True,
        **arguments,
    )
    return transformers.Trainer(
        model=tiny.model(attention_dropout=0.0),
        args=given,
        train_dataset=dataset,
        callbacks=[OnlineMixingCallback(dataset, settings)],
    )


@pytest.mark.parametrize("reward", ["train_loss", "entropy"])
def test_trainer_updates_and_goes_on_exactly(tmp_path: Path, reward: str) -> None:
    def mixed(folder: str) -> OnlineMixingDataset:
        evaluation = categories() if reward == "entropy" else {}
        options = {"sampling_interval": ROWS, "reward_type": reward, "output_dir": tmp_path / folder}
        return OnlineMixingDataset(categories(), {}, evaluation, {}, **options)

    settings = OnlineSettings(update_interval=2, resume_from_checkpoint=True)
    whole, run = mixed("a"), tmp_path / "run"
    trainer(run, whole, settings).train()
    updates = [json.loads(line) for line in (tmp_path / "a" / "odm.jsonl").read_text().splitlines()]
    assert sum(line["action"] == "update" for line in updates) == 6
    assert len({tuple(line["current_sampling_ratio"]) for line in updates}) > 3

    again = mixed("b")
    trainer(run, again, settings).train(resume_from_checkpoint=str(run / "checkpoint-8"))
    first, second = (each.state_dict() for each in (whole, again))
    for state in (first, second):
        state.pop("seen")  # the Trainer counts its epochs anew
    assert second == first

    fresh = mixed("c")
    with pytest.raises(CuveeError, match="resume_from_checkpoint must be true"):
        trainer(run, fresh, OnlineSettings()).train(resume_from_checkpoint=str(run / "checkpoint-8"))
    (run / "checkpoint-8" / "odm_state.json").unlink()
    with pytest.raises(StateError, match="must have the state of an online mix"):
        trainer(run, fresh, settings).train(resume_from_checkpoint=str(run / "checkpoint-8"))


def test_trainer_that_would_skip_rows_is_stopped(tmp_path: Path) -> None:
    dataset, settings = online(tmp_path), OnlineSettings(resume_from_checkpoint=True)
    trainer(tmp_path / "run", dataset, settings).train()
    again = trainer(tmp_path / "run", dataset, settings)
    again.args.ignore_data_skip = False
    with pytest.raises(CuveeError, match="ignore_data_skip must be True"):
        again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-4"))


def test_stateful_loader_in_shards_is_refused(tmp_path: Path) -> None:
    from accelerate.data_loader import DataLoaderShard, IterableDatasetShard

    dataset, state = online(tmp_path), State()
    shard = IterableDatasetShard(dataset, batch_size=4, num_processes=3, process_index=0)
    loader = DataLoaderShard(shard, batch_size=4, use_stateful_dataloader=True)
    with pytest.raises(CuveeError, match="dispatch_batches must be True"):
        loop(dataset, loader, state, 1)
