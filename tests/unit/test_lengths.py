"""Lengths of rows: read from a column, or counted once with a tokenizer."""

from pathlib import Path

import numpy as np
import pytest

from cuvee.errors import SourceError
from cuvee.sources.lengths import lengths_of

datasets = pytest.importorskip("datasets")

ROWS = [{"prompt": "a b", "response": "c"}, {"prompt": "", "response": "d e f"}, {"prompt": "g", "response": ""}]


class Words:
    """Splits at spaces and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> list[str]:
        self.calls += 1
        return text.split()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lengths"


@pytest.mark.parametrize("wrap", [list, datasets.Dataset.from_list])
def test_prompt_and_response_are_counted_together(wrap) -> None:
    lengths = lengths_of(wrap(ROWS), tokenizer=Words())
    assert lengths.dtype == np.int32
    assert lengths.tolist() == [3, 3, 1]


def test_a_named_column_is_counted_alone() -> None:
    assert lengths_of(ROWS, column="prompt", tokenizer=str.split).tolist() == [2, 0, 1]
    assert lengths_of([{"text": "a b c"}], tokenizer=str.split).tolist() == [3]


def test_a_column_holds_lengths_or_lists_of_tokens() -> None:
    rows = datasets.Dataset.from_dict({"tokens": [[1, 2], [], [3]], "n": [7, 0, 9]})
    assert lengths_of(rows).tolist() == [2, 0, 1]
    assert lengths_of(rows, column="n").tolist() == [7, 0, 9]
    assert lengths_of([{"n_tokens": 5, "text": "a"}]).tolist() == [5]
    assert lengths_of(rows.select([2, 0]).with_format("numpy"), column="n").tolist() == [9, 7]


def test_more_rows_than_a_block_are_all_counted() -> None:
    rows = datasets.Dataset.from_dict({"n": np.arange(5000)})
    assert np.array_equal(lengths_of(rows, column="n"), np.arange(5000))


def test_no_rows_have_no_lengths() -> None:
    assert lengths_of([], column="n").shape == (0,)


def test_counts_are_kept_under_content_and_tokenizer(cache: Path) -> None:
    words = Words()
    first = lengths_of(datasets.Dataset.from_list(ROWS), tokenizer=words, tokenizer_id="words")
    calls = words.calls
    again = lengths_of(datasets.Dataset.from_list(ROWS), tokenizer=words, tokenizer_id="words")
    assert words.calls == calls == 6
    assert np.array_equal(first, again)
    assert len(list(cache.iterdir())) == 1
    for change in ({"column": "prompt"}, {"tokenizer_id": "others"}, {"fingerprint": "0" * 32}):
        before = words.calls
        lengths_of(datasets.Dataset.from_list(ROWS), **{"tokenizer": words, "tokenizer_id": "words"} | change)
        assert words.calls > before, change


def test_counts_of_changed_rows_are_made_anew() -> None:
    words = Words()
    lengths_of(ROWS, tokenizer=words, tokenizer_id="words")
    assert lengths_of([*ROWS, ROWS[0]], tokenizer=words, tokenizer_id="words").tolist() == [3, 3, 1, 3]


def test_counts_by_an_unknown_function_are_not_kept(cache: Path) -> None:
    lengths_of(ROWS, tokenizer=Words())
    assert not cache.exists()


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01\x00v"])
def test_a_spoilt_cache_file_is_counted_over(cache: Path, content: bytes) -> None:
    lengths_of(ROWS, tokenizer=Words(), tokenizer_id="words")
    (file,) = cache.iterdir()
    file.write_bytes(content)
    assert lengths_of(ROWS, tokenizer=Words(), tokenizer_id="words").tolist() == [3, 3, 1]
    assert np.load(file).tolist() == [3, 3, 1]


def test_a_cache_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="will be counted again"):
        assert lengths_of(ROWS, tokenizer=Words(), tokenizer_id="words").tolist() == [3, 3, 1]


def test_tokenizers_of_the_libraries_are_known_by_content(cache: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")

    def tokenizer(*words: str):
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "?"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        return made

    one = tokenizer("?", "a", "b")
    assert lengths_of(ROWS, tokenizer=one).tolist() == [3, 3, 1]
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=one, unk_token="?")
    assert lengths_of(ROWS, tokenizer=wrapped).tolist() == [3, 3, 1]
    kept = len(list(cache.iterdir()))
    assert lengths_of(ROWS, tokenizer=tokenizer("?", "a", "b")).tolist() == [3, 3, 1]
    assert len(list(cache.iterdir())) == kept
    lengths_of(ROWS, tokenizer=tokenizer("?", "a", "z"))
    assert len(list(cache.iterdir())) == kept + 1


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {"column": "promt"}, r"source 's': the length column .* must be one of .* did you mean 'prompt'\?"),
        (ROWS, {}, r"lengths need the columns 'tokens' or 'input_ids' or 'n_tokens', but got \['prompt', 'response'\]"),
        ([{"n": 1}], {"tokenizer": str.split}, "need the columns 'prompt' and 'response' or 'text'"),
        ([{"n": 1}, {"n": -1}], {"column": "n"}, "source 's', row 1: column 'n' must give a length, but got -1"),
        ([{"n": 1}, {"n": None}], {"column": "n"}, "row 1: column 'n' must give a length, but got None"),
        ([{"n": 1}, {}], {"column": "n"}, "row 1: column 'n' must give a length, but got None"),
        ([{"n": 1}, {"n": "three"}], {"column": "n"}, "row 1: column 'n' must give a length, but got 'three'"),
        ([{"n": 1.5}], {"column": "n"}, "row 0: column 'n' must give a length, but got 1.5"),
        ([{"n": 2**31}], {"column": "n"}, "row 0: a length must be at most 2147483647, but got 2147483648"),
        (
            [{"text": "a"}, {"text": None}],
            {"tokenizer": str.split},
            "row 1: column 'text' must give a length, but got None",
        ),
        ([{"text": "a"}], {"tokenizer": lambda text: 1 / 0}, "row 0: .*ZeroDivisionError"),
        ([("a", 1)], {"column": "a"}, "rows must be dicts to have lengths, but got tuple"),
    ],
)
def test_what_gives_no_length_is_told_by_source_row_and_value(rows: list, options: dict, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        lengths_of(rows, name="s", **options)
