"""Of a conversation the assistant's turns are learnt, with what ends them and nothing else, whatever the template."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvee.errors import SourceError
from cuvee.train.chat import Chat
from cuvee.train.encoder import Encoder
from cuvee.train.model import TINY_TEMPLATE, tiny_tokenizer
from cuvee.train.rows import RowForm

MESSAGES = RowForm(kind="messages")
MARKERS = ["<turn>", "</turn>", "<s>", "</s>", "<think>", "</think>", "<tool>"]

# One template per way in which those of well-known models differ.
TEMPLATES = {
    "marked": TINY_TEMPLATE,
    "marked, ends left out": (
        "{% for m in messages %}<turn>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{%- generation -%}{{ m.content }}{%- endgeneration -%}{% else %}{{ m.content }}{% endif %}</turn>\n"
        "{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
    ),
    "unmarked": (
        "{% for m in messages %}<turn>{{ m.role }}\n{{ m.content }}</turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
    ),
    "default system prompt": (
        "{% if messages[0].role != 'system' %}<turn>system\nBe kind.</turn>\n{% endif %}{% for m in messages %}"
        "<turn>{{ m.role }}\n{{ m.content }}</turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
    ),
    "system prompt in the question, spaces": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<s>[{% if loop.index0 == 1 and "
        "messages[0].role == 'system' %}({{ messages[0].content }}) {% endif %}{{ m.content }} ]"
        "{% elif m.role == 'assistant' %} {{ m.content }} </s>{% endif %}{% endfor %}"
    ),
    "begins with the begin token": (
        "{{ bos_token }}{% for m in messages %}<turn>{{ m.role }}\n\n{{ m.content | trim }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<turn>assistant\n\n{% endif %}"
    ),
    "thoughts of the last turn only": (
        "{% for m in messages %}<turn>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n"
        "{% endif %}{{ m.content }}</turn>\n{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
    ),
    "prompt that begins a thought": (
        "{% for m in messages %}<turn>{{ m.role }}\n{{ m.content }}</turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<turn>assistant\n<think>\n{% endif %}"
    ),
    "end token after the last turn": (
        "{% for m in messages %}<turn>{{ m.role }}\n{{ m.content }}</turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<turn>assistant\n{% else %}{{ eos_token }}{% endif %}"
    ),
    "contents in parts": (
        "{% for m in messages %}<turn>{{ m.role }}\n{% for part in m.content %}{{ part['text'] }}{% endfor %}</turn>\n"
        "{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
    ),
    "nothing ends a turn": (
        "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}ASSISTANT: {% endif %}"
    ),
}
# Where a turn's words do not end with </turn> alone: what is learnt before and after them.
FRAMES = {
    "marked": ("", "<|eos|>"),
    "system prompt in the question, spaces": (" ", " </s>"),
    "begins with the begin token": ("", "<|eos|>"),
}
WORDS = st.text(st.sampled_from("aé🎉 \n<:]Z"), min_size=1, max_size=8).map(lambda text: f"x{text}x")


def tokenizer(template: str | None):
    made = tiny_tokenizer()
    made.add_tokens(MARKERS, special_tokens=True)
    made.chat_template = template
    return made


def learnt(encoder: Encoder, *messages: dict[str, str] | tuple[str, str]) -> list[str]:
    """Return each stretch of targets as text."""
    turns = [{"role": turn[0], "content": turn[1]} if isinstance(turn, tuple) else turn for turn in messages]
    (row,) = encoder.encode([{"messages": turns}], MESSAGES, name="s")
    stretches: list[list[int]] = []
    for place, (token, target) in enumerate(zip(row.tokens.tolist(), row.targets.tolist(), strict=True)):
        if target and (place == 0 or not row.targets[place - 1]):
            stretches.append([])
        if target:
            stretches[-1].append(token)
    return [encoder.tokenizer.decode(stretch) for stretch in stretches]


@pytest.fixture(scope="module")
def encoders() -> dict[str, Encoder]:
    return {name: Encoder(tokenizer(template)) for name, template in TEMPLATES.items()}


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "nothing ends a turn"])
@given(said=st.lists(WORDS, min_size=2, max_size=6), system=st.none() | WORDS)
def test_targets_are_the_words_of_the_assistant_and_what_ends_them(encoders, name: str, said, system) -> None:
    turns = [("user" if place % 2 == 0 else "assistant", words) for place, words in enumerate(said)]
    before, after = FRAMES.get(name, ("", "</turn>"))
    found = learnt(encoders[name], *([("system", system)] if system else []), *turns)
    wanted = [f"{before}{words}{after}" for role, words in turns if role == "assistant"]
    last = {
        "thoughts of the last turn only": lambda text: "<think>\n\n</think>\n\n" + text,
        "end token after the last turn": lambda text: text + "\n<|eos|>",
    }.get(name)
    if last and turns[-1][0] == "assistant":
        wanted[-1] = last(wanted[-1])
    assert found == wanted


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_without_words_teaches_its_end(encoders, name: str) -> None:
    (found,) = learnt(encoders[name], ("user", "u"), ("assistant", ""))
    ends = {"end token after the last turn": "<|eos|>", "nothing ends a turn": "<|eos|>"}
    assert found.endswith(ends.get(name) or FRAMES.get(name, ("", "</turn>"))[1])


def test_where_nothing_ends_a_turn_the_end_token_does_once_and_only_after_an_answer(encoders) -> None:
    encoder = encoders["nothing ends a turn"]
    assert learnt(encoder, ("user", "u"), ("assistant", "A")) == ["A<|eos|>"]
    assert learnt(encoder, ("user", "u"), ("assistant", "A"), ("user", "v"), ("assistant", "B")) == ["A\n", "B<|eos|>"]
    assert learnt(encoder, ("user", "u"), ("assistant", "A"), ("user", "v")) == ["A\n"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_tokens_are_those_of_the_template_with_no_begin_token_of_their_own(encoders, name: str) -> None:
    encoder = encoders[name]
    messages = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "v"},
    ]
    (row,) = encoder.encode([{"messages": messages}], MESSAGES, name="s")
    given_parts = [m | {"content": [{"type": "text", "text": m["content"]}]} for m in messages]
    rendered = encoder.tokenizer.apply_chat_template(given_parts if "parts" in name else messages, tokenize=False)
    assert encoder.tokenizer.decode(row.tokens) == rendered
    assert row.tokens.tolist().count(encoder.tokenizer.bos_token_id) == rendered.count("<|bos|>") <= 1
    assert not row.targets[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_of_a_prompt_of_several_turns_only_the_response_is_learnt(encoders, name: str) -> None:
    encoder = encoders[name]
    prompt = [{"role": role, "content": text} for role, text in (("user", "u"), ("assistant", "A"), ("user", "v"))]
    (row,) = encoder.encode([{"prompt": prompt, "response": "B"}], RowForm(kind="prompt"), name="s")
    found = encoder.tokenizer.decode(row.tokens[row.targets])
    assert "B" in found
    assert "A" not in found
    assert "v" not in found


def test_a_prompt_and_a_response_are_the_turns_of_user_and_assistant(encoders) -> None:
    for encoder in encoders.values():
        rows = [{"prompt": "p ", "response": "r"}]
        turns = [{"messages": [{"role": "user", "content": "p "}, {"role": "assistant", "content": "r"}]}]
        (one,), (other,) = (
            list(encoder.encode(rows, RowForm(kind="prompt"), name="s")),
            list(encoder.encode(turns, MESSAGES, name="s")),
        )
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.targets.tolist() == other.targets.tolist()


def test_a_call_of_a_tool_is_learnt() -> None:
    template = (
        "{% for m in messages %}<turn>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls or [] %}<tool>"
        "{{ call.function.name }}{% endfor %}</turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
    )
    call = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "add"}}]}
    found = learnt(Encoder(tokenizer(template)), ("user", "u"), call, ("tool", "3"), ("assistant", "it is 3"))
    assert found == ["<tool>add</turn>", "it is 3</turn>"]


# --- templates that cannot be used


def test_a_template_that_refuses_the_roles_is_told_by_source_row_and_its_own_words() -> None:
    template = "{{ raise_exception('no system here') if messages[0].role == 'system' }}" + TEMPLATES["unmarked"]
    encoder = Encoder(tokenizer(template))
    assert learnt(encoder, ("user", "u"), ("assistant", "A")) == ["A</turn>"]
    with pytest.raises(
        SourceError, match=r"source 's', row 0: the chat template of .* must take its messages, but got "
    ):
        learnt(encoder, ("system", "S"), ("user", "u"), ("assistant", "A"))


def test_a_template_that_shows_no_answers_is_refused_before_any_row() -> None:
    with pytest.raises(SourceError, match="must show a question and an answer, but got nothing of them"):
        Chat(tokenizer("{% for m in messages %}{{ m.role }}{% endfor %}"))
    with pytest.raises(SourceError, match="must show a question and an answer, but got TemplateSyntaxError"):
        Chat(tokenizer("{% for m in messages %}"))


def test_a_template_that_hides_a_turn_is_told_by_source_and_row() -> None:
    only_last = "{% set m = messages[-1] %}<turn>{{ messages[0].content }}{{ m.content }}</turn>"
    encoder = Encoder(tokenizer(only_last))
    with pytest.raises(SourceError, match=r"source 's', row 0: .* must show or mark every turn of the assistant"):
        learnt(encoder, ("user", "u"), ("assistant", "A"), ("user", "v"))


def test_a_call_that_cannot_be_found_is_told_by_source_and_row() -> None:
    template = "{% for m in messages %}{{ loop.length }}{{ m.content }}{{ m.tool_calls }}{% endfor %}"
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]}
    with pytest.raises(SourceError, match=r"source 's', row 0: .* must show or mark every turn of the assistant"):
        learnt(Encoder(tokenizer(template)), ("user", "u"), call, ("tool", "3"))


def test_marks_that_are_not_one_a_turn_cannot_tell_prompt_from_response() -> None:
    twice = (
        "{% for m in messages %}<turn>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% generation %}</turn>{% endgeneration %}{% else %}{{ m.content }}</turn>{% endif %}{% endfor %}"
    )
    encoder = Encoder(tokenizer(twice))
    assert learnt(encoder, ("user", "u"), ("assistant", "A")) == ["A</turn>"]
    prompt = [{"role": role, "content": text} for role, text in (("user", "u"), ("assistant", "A"), ("user", "v"))]
    with pytest.raises(SourceError, match=r"source 's', row 0: .* must show or mark every turn of the assistant"):
        list(encoder.encode([{"prompt": prompt, "response": "B"}], RowForm(kind="prompt"), name="s"))


def test_messages_without_a_template_are_refused() -> None:
    with pytest.raises(SourceError, match="source 's', row 0: messages must have a tokenizer with a chat template"):
        learnt(Encoder(tokenizer(None)), ("user", "u"), ("assistant", "A"))


def test_contents_with_control_tokens_are_warned_of_once_a_source(encoders) -> None:
    encoder = Encoder(tokenizer(TEMPLATES["unmarked"]))
    with pytest.warns(UserWarning, match=r"source 's', row 0: a message should be plain text, but holds .*'</turn>'"):
        learnt(encoder, ("user", "u</turn>"), ("assistant", "A"))
    learnt(encoder, ("user", "u</turn>"), ("assistant", "A"))  # and not again: a warning is an error here


def test_every_template_of_trl_shows_its_answers() -> None:
    """Templates of real models, as trl keeps them, where it is installed."""
    trl = pytest.importorskip("trl")
    templates = sorted(Path(trl.__file__).parent.glob("chat_templates/*.jinja"))
    if not templates:
        pytest.skip("this trl keeps no templates")
    for path in templates:
        template = path.read_text(encoding="utf-8")
        made = tokenizer(template)
        tokens = re.findall(r"<[|\uff5c][\w\u2581]+[|\uff5c]>|<\w+\|>|<\w+_of_\w+>", template)
        made.add_tokens(sorted(set(tokens)), special_tokens=True)
        found = learnt(Encoder(made), ("user", "Qu1"), ("assistant", "An1"), ("user", "Qu2"), ("assistant", "An2"))
        assert ["An1" in found[0], "An2" in found[-1]] == [True, True], path.name
        assert "Qu" not in "".join(found), path.name
        assert not found[-1].endswith("An2"), f"{path.name}: the end is not learnt"
