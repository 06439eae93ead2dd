"""A mixture in TRL's SFTTrainer: rows prepared by TRL, in the plan's order, counted and measured by source."""
# ruff: noqa: TID253

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import datasets
import pytest
import torch

import tiny
from cuvee import Mixture, PlanError, Source, SourceError
from cuvee.run_log import read_events
from cuvee.train.model import tiny_tokenizer

pytest.importorskip("trl")

from trl import SFTConfig, SFTTrainer

from cuvee.integrations.transformers import DRAWS, MixtureTrainerMixin
from cuvee.integrations.trl import MixtureSFTTrainer, concatenated

TESTS = Path(__file__).parents[1]
TOKENIZER = tiny_tokenizer()
TEXT = datasets.Dataset.from_list([{"text": "a"}])
SIZES, WEIGHTS = (30, 20), (0.7, 0.3)


def question(source, row):
    return f"{source}:{row}?"


def answer(source, row):
    return chr(97 + source) * (1 + row % 5)


def turns(source, row):
    """Return a row of two turns of each side, both answers to be learnt."""
    asked = {"role": "user", "content": question(source, row)}
    return [asked, {"role": "assistant", "content": answer(source, row)}] * 2


FORMS = {
    "completion": lambda source, row: {"prompt": question(source, row), "completion": answer(source, row)},
    "text": lambda source, row: {"text": question(source, row) + answer(source, row)},
    "messages": lambda source, row: {"messages": turns(source, row)},
    "tokens": lambda source, row: dict(zip(("input_ids", "labels"), tokens_of("completion", source, row), strict=True)),
}
SETTINGS = {"messages": {"assistant_only_loss": True}}


def tokens_of(form, source, row):
    """Return the tokens of a row and their labels, worked out here, byte by byte."""
    bos, eos = TOKENIZER.bos_token_id, TOKENIZER.eos_token_id
    user, assistant = TOKENIZER.convert_tokens_to_ids(["<|user|>", "<|assistant|>"])
    asked = TOKENIZER.encode(question(source, row), add_special_tokens=False)
    told = [*TOKENIZER.encode(answer(source, row), add_special_tokens=False), eos]
    if form == "text":
        return [bos, *asked, *told], [bos, *asked, *told]
    if form == "messages":
        head = [user, *asked, eos, assistant]
        masked = [tiny.MASKED] * len(head)
        return [bos, *(head + told) * 2], [tiny.MASKED, *(masked + told) * 2]
    return [bos, *asked, *told], [tiny.MASKED] * (1 + len(asked)) + told


def mixture(form="completion", **settings):
    sources = [
        Source(f"s{k}", datasets.Dataset.from_list([FORMS[form](k, row) for row in range(size)]), weight)
        for k, (size, weight) in enumerate(zip(SIZES, WEIGHTS, strict=True))
    ]
    return Mixture(sources, **{"samples_per_epoch": 50, **settings})


class Recording(MixtureSFTTrainer):
    """Keeps what it trained on: per optimizer step (source, row, cycle) of each row that is no padding."""

    form = "completion"

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[list[tuple[int, ...]]] = []

    def training_step(self, model, inputs, *args, **kwargs):
        if len(self.seen) == self.state.global_step:
            self.seen.append([])
        for draw, ids, labels in zip(*(inputs[name].tolist() for name in (DRAWS, "input_ids", "labels")), strict=True):
            if draw[2] >= 0:
                tokens, targets = tokens_of(self.form, *draw[:2])
                assert ids[: len(tokens)] == tokens
                assert labels == targets + [tiny.MASKED] * (len(labels) - len(targets))
                self.seen[-1].append(tuple(draw))
            else:
                assert set(labels) == {tiny.MASKED}
        return super().training_step(model, inputs, *args, **kwargs)


def arguments(folder, **settings):
    defaults = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 1,
        "save_strategy": "no",
        "logging_steps": 5,
        "learning_rate": 1e-2,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
    }
    return SFTConfig(str(folder), **{**defaults, **settings})


def trainer_of(folder, *, mix=None, kind=Recording, model=None, train_dataset=None, **settings):
    return kind(
        model=model or tiny.model(vocab_size=264),
        args=arguments(folder, **settings),
        processing_class=tiny_tokenizer(),
        mixture=mix or mixture(),
        train_dataset=train_dataset,
        mix_log_dir=folder,
    )


def trained(folder, *, resume=None, done=0, **settings):
    """Return a trainer that has trained; `done` steps of it before it was resumed."""
    trainer = trainer_of(folder, **settings)
    if hasattr(trainer, "seen"):
        trainer.seen += [[] for _ in range(done)]
    trainer.train(resume)
    return trainer


def ordered(rows, epochs=1):
    """Return the run's optimizer steps as the plans have them."""
    plans = [mixture().plan(epoch) for epoch in range(epochs)]
    orders = [[(draw.source, draw.row, draw.cycle) for draw in plan] for plan in plans]
    return [order[first : first + rows] for order in orders for first in range(0, len(order), rows)]


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_trained_in_order_and_their_targets_counted_and_measured(tmp_path, form) -> None:
    """With a learning rate of 0 and no dropout the model stays: its losses can be worked out from the data."""
    kind = type("OfForm", (Recording,), {"form": form})
    model = tiny.model(vocab_size=264, attention_dropout=0.0)
    trainer = trained(
        tmp_path, mix=mixture(form), kind=kind, model=model, learning_rate=0.0, logging_steps=13,
        **SETTINGS.get(form, {}),
    )  # fmt: skip
    assert trainer.seen == ordered(4)
    event = next(event for event in read_events(tmp_path) if event["stage"] == "dataset_mix_progress")
    model.eval()
    for source, name in enumerate(trainer.mixture.names):
        total, tokens, rows = 0.0, 0, [row for step in trainer.seen for s, row, _ in step if s == source]
        for row in rows:
            ids, labels = (torch.tensor(part) for part in tokens_of(form, source, row))
            with torch.no_grad():
                logits = model(ids[None]).logits[0, :-1].double()
            total += torch.nn.functional.cross_entropy(logits, labels[1:], reduction="sum").item()
            tokens += int((labels[1:] != tiny.MASKED).sum())
        assert event["sources"][name]["trained_rows"] == len(rows)
        assert trainer.mix.ledger.tokens[source] == event["sources"][name]["target_tokens"] == tokens
        assert event["sources"][name]["loss"] == pytest.approx(total / tokens, rel=1e-5)
    trainer.mix.ledger.check()


def test_plain_trainer_over_the_same_order_learns_the_same(tmp_path) -> None:
    rows = [FORMS["completion"](source, row) for source, row, _ in ordered(50)[0]]
    plain = SFTTrainer(
        model=tiny.model(vocab_size=264, attention_dropout=0.0),
        args=arguments(tmp_path / "plain", train_sampling_strategy="sequential"),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tiny_tokenizer(),
    )
    plain.train()
    ours = trained(tmp_path / "ours", model=tiny.model(vocab_size=264, attention_dropout=0.0))
    assert torch.equal(tiny.weights(ours.model), tiny.weights(plain.model))
    assert not torch.equal(tiny.weights(ours.model), tiny.weights(tiny.model(vocab_size=264)))


@pytest.mark.parametrize("at", [3, 17])
def test_resumed_run_ends_with_the_very_same_weights(tmp_path, at) -> None:
    settings = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": at, "gradient_accumulation_steps": 2}
    settings |= {"per_device_train_batch_size": 2}
    whole = trained(tmp_path, **settings)
    assert whole.seen == ordered(4, 2)
    rest = trained(tmp_path, resume=str(tmp_path / f"checkpoint-{at}"), done=at, **settings)
    assert rest.seen[at:] == whole.seen[at:]
    assert torch.equal(tiny.weights(rest.model), tiny.weights(whole.model))
    assert rest.mix.ledger.counts.tolist() == whole.mix.ledger.counts.tolist()


class Own(MixtureTrainerMixin, SFTTrainer):
    """What users write themselves."""


def test_mixin_before_the_trainer_is_enough(tmp_path) -> None:
    own = trained(tmp_path / "own", kind=Own, train_dataset=concatenated(mixture()))
    ready = trained(tmp_path / "ready")
    assert torch.equal(tiny.weights(own.model), tiny.weights(ready.model))
    assert own.mix.ledger.counts.tolist() == ready.mix.ledger.counts.tolist()


def test_only_what_the_collator_takes_is_read(tmp_path) -> None:
    assert trainer_of(tmp_path).mix_rows().column_names == ["input_ids", "labels"]
    kept = trainer_of(tmp_path, remove_unused_columns=False).mix_rows()
    assert kept.column_names == ["prompt", "completion", "input_ids", "labels"]


def test_concatenated_is_all_rows_end_to_end() -> None:
    rows = concatenated(mixture(), columns=["completion"])
    assert rows["completion"][:] == [answer(k, row) for k, size in enumerate(SIZES) for row in range(size)]
    assert rows.column_names == ["completion"]


# --- what cannot be trained on is said before any row is prepared


@pytest.mark.parametrize("kind", [Recording, Own])
@pytest.mark.parametrize("name", ["packing", "padding_free", "shuffle_dataset"])
def test_arguments_that_rearrange_rows_are_errors(tmp_path, kind, name) -> None:
    with pytest.raises(PlanError, match=f"{name} must be False to train on a mixture, but got True"):
        trainer_of(tmp_path, kind=kind, train_dataset=concatenated(mixture()), **{name: True})


def test_rows_dropped_by_the_preparation_are_an_error(tmp_path) -> None:
    with pytest.raises(SourceError, match=r"must keep its 50 rows, but got \d+ .* set max_length=None"):
        trainer_of(tmp_path, max_length=6)
    with pytest.raises(SourceError, match="data must have 50 rows"):
        trainer_of(tmp_path, kind=Own, max_length=6, train_dataset=concatenated(mixture()))


@pytest.mark.parametrize(
    ("train_dataset", "text"),
    [
        (concatenated(mixture()).select(range(49)), "data must have 50 rows, those of all sources .*, but got 49"),
        (concatenated(mixture()).to_iterable_dataset(), "train_dataset must be a datasets.Dataset, but got Iterable"),
        ([FORMS["text"](0, 0)], "train_dataset must be a datasets.Dataset, but got list"),
    ],
    ids=["fewer", "iterable", "list"],
)
def test_other_rows_than_the_sources_are_an_error(tmp_path, train_dataset, text) -> None:
    with pytest.raises(SourceError, match=text):
        trainer_of(tmp_path, train_dataset=train_dataset)


LARGE = TEXT.cast_column("text", datasets.Value("large_string"))


@pytest.mark.parametrize(
    ("other", "columns", "text"),
    [
        ([{"text": "a"}], None, "source 's1': data must be a datasets.Dataset .*, but got list"),
        ([{"text": "a"}], ["text"], "source 's1': data must be a datasets.Dataset .*, but got list"),
        (LARGE, None, "'s1': columns must be those of source 's0', but got 'text' with .*large_string.* in place of"),
        (TEXT.add_column("n", [1]), None, "'s1': columns must be .* but got 'n' with .*int64.* in place of no such"),
        (TEXT, ["texts"], r"'s0': columns must be some of \['text'\], but got \['texts'\]"),
    ],
    ids=["list", "list of columns", "type", "column", "unknown"],
)
def test_sources_that_cannot_be_put_end_to_end_are_an_error(other, columns, text) -> None:
    with pytest.raises(SourceError, match=text):
        concatenated(Mixture([Source("s0", TEXT), Source("s1", other)], samples_per_epoch=2), columns)


def test_source_without_rows_is_left_out() -> None:
    sources = [Source("s0", TEXT), Source("s1", LARGE.add_column("n", [1]).select([]))]
    assert concatenated(Mixture(sources, samples_per_epoch=1, allow_empty=True))["text"][:] == ["a"]


RANK = """
    import json, sys
    from pathlib import Path
    import torch
    import tiny
    from leaving import leave
    from integration.test_trl import trained

    folder = Path(sys.argv[1])
    model = tiny.model(vocab_size=264, attention_dropout=0.0)
    trainer = trained(folder, model=model, ddp_backend="gloo", **json.loads(sys.argv[2]))
    told = {"seen": trainer.seen, "total": trainer.mix.ledger.reduced().counts.tolist(),
            "logged": trainer.state.log_history, "weights": tiny.weights(trainer.model).tolist()}
    (folder / f"rank-{torch.distributed.get_rank()}.json").write_text(json.dumps(told))
    leave()
"""


@pytest.mark.slow
def test_two_ranks_take_the_same_steps_and_count_and_measure_alike(tmp_path) -> None:
    """The last step of 2 rows on 2 ranks of 2 micro-batches has padding."""
    settings = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(RANK))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script),
         str(tmp_path), json.dumps(settings)],
        capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    model = tiny.model(vocab_size=264, attention_dropout=0.0)
    alone = trained(tmp_path / "alone", model=model, **settings | {"per_device_train_batch_size": 4})
    parts = zip(told[0]["seen"], told[1]["seen"], strict=True)
    assert [[tuple(draw) for draw in first + second] for first, second in parts] == alone.seen == ordered(8)
    assert told[0]["total"] == told[1]["total"] == alone.mix.ledger.counts.tolist()
    assert told[0]["weights"] == told[1]["weights"]
    torch.testing.assert_close(tiny.weights(alone.model), torch.tensor(told[0]["weights"]), rtol=1e-3, atol=1e-4)
    names = ("loss", "mix/loss/s0", "mix/loss/s1", "mix/token_share/s0")
    for ours, theirs in zip(alone.state.log_history[:-1], told[0]["logged"][:-1], strict=True):
        assert [theirs[name] for name in names] == pytest.approx([ours[name] for name in names], rel=1e-4)
