"""The mix learns while the model trains: what the model is unsure of comes more often. Stops half-way and goes on."""

import tempfile
from pathlib import Path

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from cuvee import Mixture
from cuvee.odm import OnlineMixingDataset
from cuvee.train.model import tiny_model, tiny_tokenizer

DATA = Path(__file__).parent / "data"
FILES = {"facts": "facts.jsonl", "functions": "functions.jsonl", "reference": "reference.parquet"}
ROWS, EVERY, STEPS = 16, 20, 80  # rows of a step, steps from update to update, steps in all
tokenizer = tiny_tokenizer()


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    """Return a batch of the rows' first 48 tokens."""
    texts = [f"{row['prompt']}\n{row['response']}" for row in rows]
    return dict(tokenizer(texts, return_tensors="pt", truncation=True, max_length=48, padding="max_length"))


def online_mix() -> OnlineMixingDataset:
    """Return the mix; eight rows of each source are kept aside to measure on."""
    sources = Mixture.from_cli([f"{name}={DATA / file}:1" for name, file in FILES.items()]).sources
    parts = {source.name: source.data.train_test_split(test_size=8, shuffle=False) for source in sources}
    train, test = ({name: part[key] for name, part in parts.items()} for key in ("train", "test"))
    collators, folder = dict.fromkeys(FILES, collate), tempfile.mkdtemp()
    return OnlineMixingDataset(train, collators, test, collators, reward_type="entropy", eta=2.0, output_dir=folder)


def train(state: dict, until: int) -> dict:
    """Train up to step `until` and return all that it takes to go on."""
    model, dataset = tiny_model(), online_mix()
    loader, optimizer = StatefulDataLoader(dataset, batch_size=ROWS), torch.optim.AdamW(model.parameters(), lr=1e-3)
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    for name in parts.keys() & state:
        parts[name].load_state_dict(state[name])
    for step, batch in enumerate(loader, start=state.get("step", 0) + 1):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0:
            dataset.update_sampling_weights(model, accelerator=None, state=None)
            print(step, dict(zip(dataset.category_list, (f"{p:.3f}" for p in dataset.sampling_ratio), strict=True)))
        if step == until:
            break
    return {name: part.state_dict() for name, part in parts.items()} | {"step": step}


if __name__ == "__main__":
    whole, halves = train({}, STEPS), train(train({}, STEPS // 2), STEPS)
    assert whole["loader"] == halves["loader"], "the run that stopped half-way went another way"
    print("stopped half-way, and went on with the same rows and weights")
