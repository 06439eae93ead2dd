"""Tokens and targets of every form of row, for tokenizers of each habit; nothing is tokenised twice."""
# ruff: noqa: TID253

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st

from cuvee.errors import SourceError
from cuvee.train import encoder as encoder_module
from cuvee.train.encoder import Encoded, Encoder
from cuvee.train.model import tiny_tokenizer
from cuvee.train.rows import RowForm

PROMPT, TEXT, TOKENS = RowForm(kind="prompt"), RowForm(kind="text"), RowForm(kind="tokens")
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda text: "<|" not in text)


def plain():
    """Return the tiny tokenizer without a chat template."""
    made = tiny_tokenizer()
    made.chat_template = None
    return made


def merging(*, space_first: bool, template: str | None = None):
    """Return a tokenizer that joins letters to words, with or without a space put before each text."""
    words = ["hello", "world", "yes", "\n", "a", "b", ":"]
    spaced = [f"▁{word}" for word in words]
    symbols = ["<unk>", "<s>", "</s>", *words, *spaced, "▁", *sorted(set("".join(words)))]
    vocabulary = [(symbol, -1.0 - place / 1000) for place, symbol in enumerate(dict.fromkeys(symbols))]
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, unk_id=0))
    scheme = "always" if space_first else "never"
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    made.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template
    )


def one(encoder: Encoder, row: dict[str, Any], form: RowForm = PROMPT) -> Encoded:
    (found,) = encoder.encode([row], form, name="s")
    return found


def split(encoder: Encoder, row: Encoded) -> tuple[str, str]:
    """Return what is not learnt, and what is, as text."""
    assert len(row.tokens) == len(row.targets)
    return encoder.tokenizer.decode(row.tokens[~row.targets]), encoder.tokenizer.decode(row.tokens[row.targets])


# --- prompt and response without a template


@given(prompt=ANY_TEXT, response=ANY_TEXT)
def test_targets_decode_to_the_response_and_the_end(prompt: str, response: str) -> None:
    encoder = Encoder(plain())
    found = split(encoder, one(encoder, {"prompt": prompt, "response": response}))
    assert found == (f"<|bos|>{prompt}", f"{response}<|eos|>")


@given(text=ANY_TEXT)
def test_all_of_a_text_is_learnt_but_the_first_token(text: str) -> None:
    encoder = Encoder(plain())
    assert split(encoder, one(encoder, {"text": text}, TEXT)) == ("<|bos|>", f"{text}<|eos|>")


def test_begin_and_end_tokens_that_are_there_are_not_doubled() -> None:
    encoder = Encoder(plain())
    assert split(encoder, one(encoder, {"prompt": "<|bos|>p", "response": "r<|eos|>"})) == ("<|bos|>p", "r<|eos|>")
    assert split(encoder, one(encoder, {"text": "<|bos|>t<|eos|>"}, TEXT)) == ("<|bos|>", "t<|eos|>")


def test_an_end_token_in_the_prompt_does_not_end_the_response() -> None:
    encoder = Encoder(plain())
    assert split(encoder, one(encoder, {"prompt": "p<|eos|>", "response": ""})) == ("<|bos|>p<|eos|>", "<|eos|>")


def test_a_tokenizer_that_puts_no_begin_token_gets_none() -> None:
    made = plain()
    made.backend_tokenizer.post_processor = tokenizers.processors.ByteLevel()
    encoder = Encoder(made)
    assert split(encoder, one(encoder, {"prompt": "p", "response": "r"})) == ("p", "r<|eos|>")
    row = one(encoder, {"prompt": "", "response": "rs"})
    assert split(encoder, row) == ("r", "s<|eos|>")  # nothing predicts the first token of a row


def test_a_tokenizer_that_puts_an_end_token_itself_puts_none_after_the_prompt() -> None:
    made = plain()
    made.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|bos|> $A <|eos|>", special_tokens=[("<|bos|>", 1), ("<|eos|>", 2)]
    )
    encoder = Encoder(made)
    assert split(encoder, one(encoder, {"prompt": "p", "response": "r"})) == ("<|bos|>p", "r<|eos|>")


def test_no_token_spans_the_border_between_prompt_and_response() -> None:
    encoder = Encoder(merging(space_first=False))
    row = one(encoder, {"prompt": "hello", "response": "yes"})
    names = encoder.tokenizer.convert_ids_to_tokens(row.tokens.tolist())
    assert names == ["<s>", "hello", "yes", "</s>"]
    assert row.targets.tolist() == [False, False, True, True]
    row = one(encoder, {"prompt": "a: ", "response": "yes"})
    assert encoder.tokenizer.decode(row.tokens[row.targets]) == "yes</s>"  # the space stays in the prompt


def test_a_tokenizer_that_puts_a_space_first_puts_none_before_the_response() -> None:
    encoder = Encoder(merging(space_first=True))
    row = one(encoder, {"prompt": "hello", "response": " world"})
    assert encoder.tokenizer.convert_ids_to_tokens(row.tokens.tolist()) == ["<s>", "▁hello", "▁world", "</s>"]
    assert row.targets.tolist() == [False, False, True, True]
    row = one(encoder, {"prompt": "a:", "response": "yes"})
    assert encoder.tokenizer.decode(row.tokens, skip_special_tokens=True) == "a:yes"
    assert encoder.tokenizer.decode(row.tokens[row.targets]) == "yes</s>"


def test_a_token_over_the_border_is_learnt_where_texts_cannot_be_cut() -> None:
    encoder = Encoder(merging(space_first=True))
    row = one(encoder, {"prompt": "hello wor", "response": "ld"})
    names = encoder.tokenizer.convert_ids_to_tokens(row.tokens.tolist())
    assert names == ["<s>", "▁hello", "▁world", "</s>"]
    assert row.targets.tolist() == [False, False, True, True]


# --- tokens as given


def test_tokens_stay_as_they_are_and_the_first_is_no_target() -> None:
    row = one(Encoder(plain()), {"tokens": [9, 8, 7, 6], "prompt_mask": [0, 1, 0, 0]}, TOKENS)
    assert row.tokens.tolist() == [9, 8, 7, 6]
    assert row.targets.tolist() == [False, False, True, True]


def test_tokens_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(SourceError, match=r"source 's', row 0: tokens must be below 263, .* but got 50256; were they"):
        one(Encoder(plain()), {"tokens": [1, 50256], "prompt_mask": [1, 0]}, TOKENS)


# --- many rows


class Counting:
    """A tokenizer that remembers every text it was given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.texts: list[str] = []

    def __call__(self, text: str | list[str], **options: Any) -> Any:
        self.texts += [text] if isinstance(text, str) else text
        return self._tokenizer(text, **options)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@pytest.mark.parametrize("template", [True, False])
def test_nothing_is_tokenised_twice(template: bool) -> None:
    counting = Counting(tiny_tokenizer() if template else plain())
    encoder = Encoder(counting)
    counting.texts.clear()
    rows = [{"prompt": f"p{i}", "response": f"r{i}"} for i in range(100)]
    assert len(list(encoder.encode(rows, PROMPT, name="s"))) == 100
    assert len(counting.texts) == (100 if template else 200)
    said = "".join(counting.texts)
    assert all(said.count(f"p{i}<" if template else f"p{i}") >= 1 for i in range(100))
    assert sum(map(len, counting.texts)) == sum(map(len, set(counting.texts)))


def test_the_tokenizer_is_given_a_bounded_amount_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "MOST_CHARACTERS", 50)
    rows = [{"text": "x" * size} for size in (10, 30, 20, 200, 1, 1, 49, 0)]
    encoder = Encoder(plain())
    calls: list[int] = []
    tokenise = encoder.tokenizer.__call__
    encoder.tokenizer = lambda texts, **options: calls.append(sum(map(len, texts))) or tokenise(texts, **options)
    found = list(encoder.encode(rows, TEXT, name="s"))
    assert [len(row.tokens) - 2 for row in found] == [10, 30, 20, 200, 1, 1, 49, 0]
    assert calls == [40, 20, 200, 2, 49]


def test_text_that_no_tokenizer_takes_is_told_by_its_row() -> None:
    rows = [{"text": "fine"}, {"text": "\ud800"}, {"text": "fine"}]
    with pytest.raises(SourceError, match="source 's', row 8: must be text for the tokenizer, but got"):
        list(Encoder(plain()).encode(rows, TEXT, name="s", start=7))


# --- identity


def test_identity_depends_on_all_that_decides_the_tokens() -> None:
    def changed(change: str) -> Any:
        made = tiny_tokenizer()
        if change == "template":
            made.chat_template += " "
        if change == "token":
            made.add_tokens(["<new>"], special_tokens=True)
        if change == "eos":
            made.eos_token = "<|user|>"
        if change == "bos":
            made.backend_tokenizer.post_processor = tokenizers.processors.ByteLevel()
        return Encoder(made).identity(PROMPT)

    kinds = ["none", "template", "token", "eos", "bos"]
    assert len({changed(kind) for kind in kinds}) == len(kinds)
    assert changed("none") == changed("none")


def test_identity_does_not_depend_on_what_the_tokenizer_was_used_for() -> None:
    made = tiny_tokenizer()
    before = Encoder(made).identity(PROMPT)
    made(["a", "bb"], padding=True, truncation=True, max_length=4)
    assert Encoder(made).identity(PROMPT) == before


def test_given_tokens_do_not_depend_on_template_or_merges() -> None:
    assert Encoder(tiny_tokenizer()).identity(TOKENS) == Encoder(plain()).identity(TOKENS)
