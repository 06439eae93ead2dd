"""Rows are encoded once, kept under their content, read from a memory map, and measured as the length filter needs."""
# ruff: noqa: TID253

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuvee import MixedDataset, Mixture, MixtureSampler, Source
from cuvee.errors import SourceError
from cuvee.sources import fingerprint_of, open_source
from cuvee.train import encoding
from cuvee.train.collate import SFTCollator
from cuvee.train.encoder import Encoder
from cuvee.train.encoding import EncodedRows, Limits, encode, encoded_or_none
from cuvee.train.model import tiny_tokenizer

ROWS = [{"prompt": f"question {i}", "response": "answer " * (i % 5)} for i in range(600)]
TEXTS = [{"text": "t" * size} for size in (0, 1, 7)]


class Watched(Encoder):
    """An encoder that counts the rows it encoded."""

    def __init__(self, tokenizer: Any = None) -> None:
        super().__init__(tokenizer or tiny_tokenizer())
        self.rows = 0

    def encode(self, rows, form, **options):
        self.rows += len(rows)
        return super().encode(rows, form, **options)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "encoded"


def encoded(rows: Any, encoder: Encoder | None = None, fingerprint: str | None = "f") -> EncodedRows:
    return encode({"s": rows}, encoder=encoder or Watched(), fingerprints={"s": fingerprint})["s"]


def contents(rows: EncodedRows) -> list[tuple[list[int], list[bool]]]:
    return [(row["input_ids"].tolist(), row["targets"].tolist()) for row in rows.__getitems__(range(len(rows)))]


# --- what comes out


def test_rows_come_back_as_they_were_encoded() -> None:
    rows = encoded(ROWS)
    fresh = list(Encoder(tiny_tokenizer()).encode(ROWS, encoding.form_of("s", ROWS), name="s"))
    assert len(rows) == len(ROWS)
    assert contents(rows) == [(row.tokens.tolist(), row.targets.tolist()) for row in fresh]
    row = rows[5]
    assert (row["input_ids"].dtype, row["targets"].dtype) == (np.int32, np.bool_)
    assert sorted(row) == ["input_ids", "targets"]


@pytest.mark.parametrize("wrap", [datasets.Dataset.from_list, list])
def test_datasets_and_lists_give_the_same(wrap) -> None:
    assert contents(encoded(wrap(ROWS), fingerprint=None)) == contents(encoded(ROWS, fingerprint=None))


def test_rows_are_read_by_number_in_any_order() -> None:
    rows = encoded(ROWS)
    found = rows.__getitems__([599, 0, 599])
    assert [row["input_ids"].tolist() for row in found] == [contents(rows)[i][0] for i in (599, 0, 599)]
    found[0]["input_ids"][:] = 0  # a copy: the memory map stays as it is
    assert rows[599]["input_ids"].any()
    for outside in (-1, 600):
        with pytest.raises(IndexError, match=rf"rows must be in \[0, 600\), but got \[{outside}\]"):
            rows[outside]


def test_a_source_without_rows_is_encoded_too() -> None:
    empty = encoded(datasets.Dataset.from_dict({"text": []}))
    assert len(empty) == 0
    assert empty.lengths(Limits(total=3))[0].shape == (0,)
    assert (
        encoded_or_none({"s": datasets.Dataset.from_dict({"text": []})}, encoder=Watched(), fingerprints={"s": "f"})
        is not None
    )


def test_forms_may_differ_between_sources() -> None:
    sources = {"p": ROWS[:3], "t": TEXTS, "k": [{"tokens": [5, 6], "prompt_mask": [1, 0]}]}
    found = encode(sources, encoder=Watched(), fingerprints=dict.fromkeys(sources, None))
    assert list(found) == ["p", "t", "k"]
    assert found["t"].target_tokens.tolist() == [1, 2, 8]
    assert contents(found["k"]) == [([5, 6], [False, True])]


def test_a_bad_row_is_told_by_source_and_row_and_leaves_nothing_behind(cache: Path) -> None:
    rows = [*ROWS, {"prompt": "p", "response": None}]
    with pytest.raises(SourceError, match="source 's', row 600: response must be text or a list"):
        encoded(rows)
    assert list(cache.iterdir()) == []


# --- the cache


def test_what_was_encoded_is_found_again(cache: Path) -> None:
    encoder = Watched()
    first = encoded(ROWS, encoder)
    assert encoder.rows == 600
    again = encoded(ROWS, encoder)
    assert encoder.rows == 600
    assert contents(again) == contents(first)
    assert len(list(cache.iterdir())) == 1


def test_a_file_that_is_moved_is_not_encoded_again(tmp_path: Path) -> None:
    encoder = Watched()
    for name in ("a.jsonl", "b.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(map(json.dumps, ROWS)))
        rows = open_source(path, name=name)
        encode({name: rows}, encoder=encoder, fingerprints={name: fingerprint_of(path)})
        path.unlink()
    assert encoder.rows == 600


@pytest.mark.parametrize("change", ["content", "tokenizer", "template", "form"])
def test_what_decides_the_tokens_decides_where_they_are_kept(change: str, cache: Path) -> None:
    encoded(ROWS)
    tokenizer = tiny_tokenizer()
    if change == "tokenizer":
        tokenizer.add_tokens(["question"])
    if change == "template":
        tokenizer.chat_template = None
    encoder = Watched(tokenizer)
    rows = [{"text": row["prompt"]} for row in ROWS] if change == "form" else ROWS
    encoded(rows, encoder, fingerprint="g" if change == "content" else "f")
    assert encoder.rows == 600
    assert len(list(cache.iterdir())) == 2


def spoil(folder: Path, how: str) -> None:
    if how == "emptied":
        for file in folder.iterdir():
            file.unlink()
    elif how == "file in its place":
        shutil.rmtree(folder)
        folder.write_text("")
    elif how == "torn":
        file = folder / "tokens.npy"
        file.write_bytes(file.read_bytes()[:-8])
    elif how == "of other types":
        np.save(folder / "tokens.npy", np.load(folder / "tokens.npy").astype(np.int64))
    else:
        np.save(folder / "offsets.npy", np.load(folder / "offsets.npy")[:-1])


@pytest.mark.parametrize("how", ["emptied", "file in its place", "torn", "of other types", "of other rows"])
def test_a_spoilt_cache_is_made_anew(cache: Path, how: str) -> None:
    whole = contents(encoded(ROWS))
    (folder,) = cache.iterdir()
    spoil(folder, how)
    encoder = Watched()
    assert encoded_or_none({"s": ROWS}, encoder=encoder, fingerprints={"s": "f"}) is None
    assert contents(encoded(ROWS, encoder)) == whole
    assert encoder.rows == 600
    assert list(cache.iterdir()) == [folder]


def test_two_processes_that_encode_the_same_both_go_on(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Watched):
        def encode(self, rows, form, **options):
            if self.rows == 0:
                self.rows = 1
                encoded(ROWS)  # another process is done first
            return super().encode(rows, form, **options)

    rows = encoded(ROWS, Slow())
    assert contents(rows) == contents(encoded(ROWS))
    assert len(list(cache.iterdir())) == 1


def test_what_a_killed_process_left_is_removed_a_day_later(cache: Path) -> None:
    encoded(ROWS)
    (folder,) = cache.iterdir()
    shutil.rmtree(folder)
    for name, age in (("old", 90_000), ("young", 60)):
        left = cache / f".{folder.name}.{name}"
        left.mkdir()
        (left / "tokens.npy").write_bytes(b"part")
        then = time.time() - age
        os.utime(left / "tokens.npy", (then, then))
    encoded(ROWS)
    assert sorted(cache.iterdir()) == sorted([folder, cache / f".{folder.name}.young"])


def test_other_ranks_find_what_the_first_one_encoded() -> None:
    sources, fingerprints = {"p": ROWS, "t": TEXTS}, {"p": "1", "t": "2"}
    encoder = Watched()
    assert encoded_or_none(sources, encoder=encoder, fingerprints=fingerprints) is None
    first = encode(sources, encoder=encoder, fingerprints=fingerprints)
    others = encoded_or_none(sources, encoder=encoder, fingerprints=fingerprints)
    assert others is not None
    assert encoder.rows == 603
    assert [contents(rows) for rows in others.values()] == [contents(rows) for rows in first.values()]


def test_rows_without_an_identity_are_kept_while_they_are_used(cache: Path) -> None:
    rows = encoded(ROWS, fingerprint=None)
    folder = rows.folder
    assert not cache.exists()
    assert folder.is_dir()
    copy = pickle.loads(pickle.dumps(rows))
    del copy  # a worker's copy takes nothing away
    assert len(contents(rows)) == 600
    del rows
    assert not folder.exists()


def test_a_cache_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="tokens cannot be kept and will be made again in the next run"):
        assert len(encoded(ROWS)) == 600


def test_a_disk_that_is_full_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SourceError, match=r"source 's': its tokens must have room in .*No space left.*CUVEE_CACHE"):
        encoded(ROWS)
    assert list(cache.iterdir()) == []


# --- lengths


def test_prompts_and_targets_are_counted_as_the_loss_does() -> None:
    rows = encoded([{"tokens": [9, 9, 9, 9], "prompt_mask": mask} for mask in ([1, 1, 0, 0], [0, 0, 1, 0])])
    assert rows.target_tokens.tolist() == [2, 2]  # the first token is predicted by nothing
    assert rows.prompt_tokens.tolist() == [2, 2]
    assert (rows.target_tokens.dtype, rows.prompt_tokens.dtype) == (np.int32, np.int32)


LIMIT = st.none() | st.integers(1, 20)


@given(
    rows=st.lists(st.tuples(st.integers(1, 15), st.integers(1, 15)), min_size=1, max_size=20),
    total=LIMIT,
    prompt=LIMIT,
    response=LIMIT,
)
def test_rows_over_any_limit_are_over_the_limit_of_the_mixture(rows, total, prompt, response) -> None:
    given_rows = [{"tokens": [7] * (p + t), "prompt_mask": [1] * p + [0] * t} for p, t in rows]
    lengths, limit = encoded(given_rows, fingerprint=None).lengths(
        Limits(total=total, prompt=prompt, response=response)
    )
    assert lengths.dtype == np.int32
    if (total, prompt, response) == (None, None, None):
        assert limit is None
        assert lengths.tolist() == [t for _, t in rows]
        return
    assert limit is not None
    Mixture([Source("s", rows=len(rows), lengths=lengths)], max_length=limit)
    for (p, t), length in zip(rows, lengths.tolist(), strict=True):
        fits = p + t <= (total or 99) and p <= (prompt or 99) and t <= (response or 99)
        assert length == (t if fits else limit + 1)
        assert (length <= limit) == fits


# --- as a source


def test_a_mixture_delivers_encoded_rows_with_their_metadata() -> None:
    sources = {"p": ROWS, "t": TEXTS}
    found = encode(sources, encoder=Watched(), fingerprints={"p": "1", "t": None})
    mixture = Mixture([Source(name, rows) for name, rows in found.items()], seed=3)
    keys = next(iter(MixtureSampler(mixture.plan(), batch_size=8)))
    for row in MixedDataset(mixture).__getitems__(keys):
        meta = row["__cuvee_meta__"]
        assert row["input_ids"].tolist() == contents(found[meta["source"]])[meta["source_index"]][0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_the_same_memory_map(method: str) -> None:
    mixture = Mixture([Source("p", encoded(ROWS, fingerprint=None)), Source("t", encoded(TEXTS))])
    plan = mixture.plan()

    def batches(**options: Any) -> list[list[list[int]]]:
        loader = torch.utils.data.DataLoader(
            MixedDataset(mixture, metadata=False),
            batch_sampler=MixtureSampler(plan, batch_size=64),
            collate_fn=SFTCollator(0),
            **options,
        )
        return [batch["labels"].tolist() for batch in loader]

    assert batches(num_workers=1, multiprocessing_context=method) == batches()


def test_encoding_holds_a_block_in_memory_not_the_corpus(fresh_python) -> None:
    code = """
import resource
import datasets, numpy
from cuvee.train.encoder import Encoder
from cuvee.train.encoding import encode
from cuvee.train.model import tiny_tokenizer
encoder = Encoder(tiny_tokenizer())
class Rows:
    def __init__(self, size): self.size = size
    def __len__(self): return self.size
    def __getitem__(self, i): return {"tokens": numpy.full(20_000, 9), "prompt_mask": numpy.zeros(20_000, bool)}
encode({"s": Rows(600)}, encoder=encoder, fingerprints={"s": None})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = encode({"s": Rows(6000)}, encoder=encoder, fingerprints={"s": None})["s"]
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, int(rows.target_tokens.sum()))
"""
    grown, tokens = map(int, fresh_python(code).split())
    assert tokens == 6000 * 19_999
    assert grown < 100  # MB, where the tokens take 600
