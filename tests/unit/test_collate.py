"""A batch is padded on the right; padding and prompts are not learnt, and the loss is that of the targets alone."""
# ruff: noqa: TID253

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuvee.errors import SourceError
from cuvee.train.collate import SFTCollator
from cuvee.train.encoder import Encoder
from cuvee.train.model import tiny_model, tiny_tokenizer
from cuvee.train.rows import RowForm


def row(ids: list[int], targets: list[bool]) -> dict[str, Any]:
    return {"input_ids": np.array(ids, np.int32), "targets": np.array(targets)}


def test_rows_are_padded_on_the_right_to_a_multiple() -> None:
    batch = SFTCollator(9, pad_to_multiple_of=4)([row([1, 2, 3], [False, True, True]), row([4], [False])])
    assert {key: value.dtype for key, value in batch.items()} == dict.fromkeys(
        ("input_ids", "attention_mask", "labels"), torch.int64
    )
    assert batch["input_ids"].tolist() == [[1, 2, 3, 9], [4, 9, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 2, 3, -100], [-100, -100, -100, -100]]


ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 200), st.booleans()), min_size=1, max_size=40), min_size=1, max_size=6
)


@given(rows=ROWS, multiple=st.integers(1, 16))
def test_every_token_and_target_stands_where_it_was(rows, multiple: int) -> None:
    given_rows = [row([token for token, _ in one], [target for _, target in one]) for one in rows]
    batch = SFTCollator(0, pad_to_multiple_of=multiple)(given_rows)
    length = batch["input_ids"].shape[1]
    longest = max(map(len, rows))
    assert longest <= length < longest + multiple
    assert length % multiple == 0
    for place, one in enumerate(rows):
        size = len(one)
        assert batch["attention_mask"][place].tolist() == [1] * size + [0] * (length - size)
        assert batch["input_ids"][place].tolist() == [token for token, _ in one] + [0] * (length - size)
        wanted = [token if target else -100 for token, target in one]
        assert batch["labels"][place].tolist() == wanted + [-100] * (length - size)


def test_an_end_token_that_also_pads_is_learnt_where_it_ends() -> None:
    batch = SFTCollator(2)([row([1, 5, 2], [False, True, True])])
    assert batch["labels"][0, :3].tolist() == [-100, 5, 2]
    assert batch["labels"][0, 3:].eq(-100).all()


def test_the_loss_is_that_of_each_row_by_itself() -> None:
    """Neither padding nor the other rows of a batch change what a row teaches."""
    encoder = Encoder(tiny_tokenizer())
    rows = [{"prompt": "one", "response": "a"}, {"prompt": "a longer question", "response": "and a longer answer"}]
    encoded = [row(found.tokens, found.targets) for found in encoder.encode(rows, RowForm(kind="prompt"), name="s")]
    model = tiny_model().eval()
    collate = SFTCollator(0)
    with torch.no_grad():
        alone = [float(model(**SFTCollator(0, pad_to_multiple_of=1)([one])).loss) for one in encoded]
        together = float(model(**collate(encoded)).loss)
    targets = [int(one["targets"].sum()) for one in encoded]
    assert together == pytest.approx(float(np.average(alone, weights=targets)), rel=1e-5)


@pytest.mark.parametrize("value", [-1, 2.0, None, True])
def test_a_padding_token_is_an_integer(value: object) -> None:
    with pytest.raises(SourceError, match="pad_token_id must be an integer in"):
        SFTCollator(value)  # type: ignore[arg-type]


def test_images_without_a_processor_are_refused() -> None:
    with pytest.raises(SourceError, match="rows must have no images where the collator has no processor, but got 1"):
        SFTCollator(0)([row([1], [False]) | {"images": ["image"]}])
