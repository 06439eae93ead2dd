"""Forms of rows are told by columns; what is in a row is checked, and every complaint names source and row."""
# ruff: noqa: TID253

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee.errors import SourceError
from cuvee.train.rows import (
    ChatRow,
    PromptRow,
    RowForm,
    TextRow,
    TokenRow,
    check_rows,
    check_sources,
    form_of,
    images_of,
    parse,
    read_rows,
    row_blocks,
)

USER = {"role": "user", "content": "u"}
ASSISTANT = {"role": "assistant", "content": "a"}
FORMS: dict[str, dict[str, Any]] = {
    "messages": {"messages": [USER, ASSISTANT]},
    "prompt": {"prompt": "p", "response": "r"},
    "tokens": {"tokens": [5, 6], "prompt_mask": [1, 0]},
    "text": {"text": "t"},
}


def parsed(row: dict[str, Any], **options: Any):
    return parse(row, form_of("s", [row]), where="source 's', row 0", **options)


@pytest.mark.parametrize("wrap", [list, datasets.Dataset.from_list])
@pytest.mark.parametrize("kind", FORMS)
def test_a_form_is_told_by_the_columns(kind: str, wrap) -> None:
    assert check_rows("s", wrap([FORMS[kind], FORMS[kind]])) == RowForm(kind=kind)


def test_the_form_that_says_most_about_the_target_counts() -> None:
    everything = FORMS["text"] | FORMS["prompt"] | FORMS["messages"] | FORMS["tokens"] | {"id": 7}
    assert form_of("s", [everything]).kind == "tokens"
    assert form_of("s", [FORMS["prompt"] | FORMS["messages"]]).kind == "messages"
    assert form_of("s", [FORMS["text"] | FORMS["prompt"]]).kind == "prompt"


@pytest.mark.parametrize(("column", "value"), [("images", ["a.png", b"png"]), ("image", "a.png")])
def test_images_go_with_any_form(column: str, value: object) -> None:
    for kind, row in FORMS.items():
        assert check_rows("s", [row | {column: value}]) == RowForm(kind=kind, images=column)
    row = {column: value}
    assert images_of(row, RowForm(kind="text", images=column), where="") == (
        value if isinstance(value, list) else [value]
    )
    assert images_of({column: None}, RowForm(kind="text", images=column), where="") == []


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ({"conversations": [{"from": "human", "value": "hi"}]}, r"turn each of the conversations into \{'messages'"),
        ({"prompt": "p", "completion": "c"}, "rename 'completion' to 'response'"),
        ({"instruction": "i", "input": "", "output": "o"}, "join what comes before the answer to 'prompt'"),
        ({"prompt": "p", "chosen": "c", "rejected": "r"}, "keep one of the two answers"),
        ({"input_ids": [1, 2]}, "rename 'input_ids' to 'tokens', and add 'prompt_mask'"),
    ],
)
def test_rows_of_other_tools_are_refused_with_the_way_to_change_them(row: dict, hint: str) -> None:
    with pytest.raises(SourceError, match=rf"source 's': columns must be .*text.*--dataset-loader-fn.*{hint}"):
        form_of("s", [row])


def test_columns_of_no_form_are_told_with_source_columns_and_forms() -> None:
    with pytest.raises(SourceError) as caught:
        form_of("maths", datasets.Dataset.from_dict({"problem": ["1"], "solution": ["2"]}))
    assert str(caught.value) == (
        "source 'maths': columns must be text, or prompt and response, or messages, or tokens and prompt_mask, each "
        "with images or image if need be, but got ['problem', 'solution']; turn the rows into one of these forms with "
        "a loader function (--dataset-loader-fn FILE.py)"
    )


def test_rows_that_are_no_dicts_are_refused() -> None:
    with pytest.raises(SourceError, match="source 's': rows must be dicts to train on, but got tuple"):
        form_of("s", [("p", "r")])


def test_all_sources_are_checked_before_the_first_complaint() -> None:
    with pytest.raises(SourceError) as caught:
        check_sources({"a": [FORMS["text"]], "b": [{"x": 1}], "c": [{"text": 5}]})
    first, second = str(caught.value).splitlines()
    assert first.startswith("source 'b': columns must be")
    assert second == "source 'c', row 0: text must be text, but got int: 5"
    assert check_sources({"a": [FORMS["text"]]}) == {"a": RowForm(kind="text")}


@pytest.mark.parametrize("bad", [0, 500, 999])
def test_a_look_at_some_rows_sees_first_last_and_some_between(bad: int) -> None:
    rows: list[dict[str, Any]] = [{"text": "t"}] * 1000
    rows[bad] = {"text": None}
    if bad == 500:
        rows = [row for row in rows if row["text"]] + [rows[bad]] * 200
    with pytest.raises(SourceError, match=r"source 's', row \d+: text must be text, but got NoneType"):
        check_rows("s", rows)


def test_an_empty_dataset_has_a_form_by_its_schema() -> None:
    assert check_rows("s", datasets.Dataset.from_dict({"text": []})) == RowForm(kind="text")


# --- contents


def test_prompt_and_response_come_as_they_are() -> None:
    assert parsed({"prompt": " p\n", "response": ""}) == PromptRow(prompt=" p\n", response="")
    assert parsed({"text": ""}) == TextRow(text="")


def test_a_prompt_may_be_a_conversation_and_a_response_too() -> None:
    system = {"role": "system", "content": "s"}
    chat = ChatRow(messages=[system, USER, ASSISTANT], first=2)
    assert parsed({"prompt": [system, USER], "response": "a"}) == chat
    assert parsed({"prompt": [system, USER], "response": [ASSISTANT]}) == chat
    assert parsed({"prompt": "u", "response": [ASSISTANT]}) == ChatRow(messages=[USER, ASSISTANT], first=1)
    earlier = ChatRow(messages=[USER, ASSISTANT, USER, ASSISTANT], first=3)
    assert parsed({"prompt": [USER, ASSISTANT, USER], "response": "a"}) == earlier


def test_nulls_that_arrow_fills_in_are_dropped() -> None:
    rows = datasets.Dataset.from_list(
        [
            {"messages": [{"role": "user", "content": "u", "name": "n"}, ASSISTANT]},
            {"messages": [USER, ASSISTANT]},
        ]
    )
    read = read_rows(rows, [0, 1], ["messages"], name="s")
    assert parsed(read[0]).messages == [{"role": "user", "content": "u", "name": "n"}, ASSISTANT]
    assert parsed(read[1]).messages == [USER, ASSISTANT]


def test_a_call_of_a_tool_needs_no_words() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    assert parsed({"messages": [USER, call]}).messages[1] == call | {"content": ""}


def test_contents_may_be_parts_of_text_and_images() -> None:
    parts = [{"type": "image", "text": None}, {"type": "text", "text": "what is it?"}]
    row = parsed({"messages": [{"role": "user", "content": parts}, ASSISTANT]})
    assert row.messages[0]["content"] == [{"type": "image"}, {"type": "text", "text": "what is it?"}]


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans()), min_size=2, max_size=30), st.sampled_from("ltn"))
def test_tokens_keep_their_values_and_the_mask_is_turned_into_targets(pairs, wrap: str) -> None:
    ids, mask = [token for token, _ in pairs], [int(prompt) for _, prompt in pairs]
    as_given = {"l": list, "t": tuple, "n": np.array}[wrap]
    row = {"tokens": as_given(ids), "prompt_mask": as_given(mask)}
    if all(mask[1:]):
        with pytest.raises(SourceError, match="prompt_mask must be 0 for a token to learn"):
            parsed(row)
        return
    found = parsed(row)
    assert isinstance(found, TokenRow)
    assert found.tokens.tolist() == ids
    assert found.tokens.dtype == np.int32
    assert found.targets.tolist() == [not prompt for prompt in mask]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": 3}, "text must be text, but got int: 3"),
        ({"prompt": "p", "response": None}, "response must be text or a list of {role, content}, but got NoneType"),
        ({"prompt": 1, "response": "r"}, "prompt must be text or a list of {role, content}, but got int: 1"),
        ({"messages": "hi"}, "messages must be a list of {role, content}, but got str: 'hi'"),
        ({"messages": []}, r"messages must have a turn of the assistant to learn, but got the roles \[\]"),
        ({"messages": [USER]}, r"must have a turn of the assistant to learn, but got the roles \['user'\]"),
        ({"prompt": [USER, ASSISTANT], "response": [USER]}, "response must have a turn of the assistant to learn"),
        ({"messages": [ASSISTANT]}, "messages must begin with a system or user turn"),
        ({"messages": [{"role": "human", "content": "u"}]}, "message 0 of messages must have a role of .*'human'"),
        ({"messages": [{"content": "u"}]}, "message 0 of messages must have a role of .*but got NoneType"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "message 1 of messages must have text"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "must have parts like"),
        ({"tokens": [1, 2], "prompt_mask": [1]}, "prompt_mask must be as long as tokens, 2, but got 1"),
        ({"tokens": [1, 2.5], "prompt_mask": [1, 0]}, "tokens must be a list of integers"),
        ({"tokens": [[1], [2]], "prompt_mask": [1, 0]}, "tokens must be a list of integers"),
        ({"tokens": [[1], [2, 3]], "prompt_mask": [1, 0]}, "tokens must be a list of integers"),
        ({"tokens": [True, False], "prompt_mask": [1, 0]}, "tokens must be a list of integers"),
        ({"tokens": "12", "prompt_mask": [1, 0]}, "tokens must be a list of integers, but got str"),
        ({"tokens": [1, -1], "prompt_mask": [1, 0]}, r"tokens must be in \[0, 2\*\*31\), but got values from -1 to 1"),
        ({"tokens": [1, 2**31], "prompt_mask": [1, 0]}, "tokens must be in .*to 2147483648"),
        ({"tokens": [1, 2], "prompt_mask": [1, 2]}, "prompt_mask must be 0 or 1, but got values from 1 to 2"),
        ({"tokens": [], "prompt_mask": []}, "prompt_mask must be 0 for a token to learn"),
    ],
)
def test_what_a_row_must_not_hold_is_told_by_source_row_and_value(row: dict, message: str) -> None:
    with pytest.raises(SourceError, match=f"^source 's', row 0: .*{message}"):
        parsed(row)


def test_an_image_of_an_odd_type_is_refused() -> None:
    with pytest.raises(SourceError, match="row 0: images must hold PIL images, paths or bytes, but got int"):
        check_rows("s", [{"text": "t", "images": [3]}])


# --- reading


def test_rows_are_read_in_blocks_once_each_and_in_order() -> None:
    rows = datasets.Dataset.from_dict({"text": [str(i) for i in range(10)], "other": range(10)})
    for data in (rows, list(rows), rows.with_format("numpy")):
        blocks = list(row_blocks(data, ["text"], size=4, name="s"))
        assert [start for start, _ in blocks] == [0, 4, 8]
        assert [row["text"] for _, block in blocks for row in block] == [str(i) for i in range(10)]
    assert list(row_blocks([], ["text"], size=4, name="s")) == []


def test_images_of_a_dataset_are_not_decoded_where_only_text_is_read() -> None:
    rows = datasets.Dataset.from_dict({"text": ["t"], "image": ["missing.png"]}).cast_column("image", datasets.Image())
    assert read_rows(rows, [0], ["text"], name="s") == [{"text": "t"}]
    with pytest.raises(SourceError, match=r"source 's', row 0: must be readable, but got FileNotFoundError"):
        check_rows("s", rows)


def test_a_row_that_cannot_be_read_is_named() -> None:
    class Broken(list):
        def __getitem__(self, index):
            raise OSError("disk gone")

    with pytest.raises(SourceError, match="source 's', rows 2 to 3: must be readable, but got OSError: disk gone"):
        read_rows(Broken(range(5)), [2, 3], ["text"], name="s")
    with pytest.raises(SourceError, match="source 's', row 1: must be a dict, but got str"):
        read_rows([{"text": "t"}, "t"], [0, 1], ["text"], name="s")
    with pytest.raises(SourceError, match="row 1: must have the field 'text' as other rows do, but got"):
        check_rows("s", [{"text": "t"}, {"txt": "t"}])
