"""A tokenizer's chat template: conversations as text, and which stretches of it are to be learnt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..errors import SourceError
from ..sources.files import reason

if TYPE_CHECKING:
    from .rows import ChatRow, Message

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_ANSWER = "cuvee answer"
_QUESTION = "cuvee question"


@dataclass(frozen=True, slots=True)
class Piece:
    """A text that becomes tokens by itself.

    Args:
        text: all of it.
        spans: (start, end) of what is to be learnt, in characters, in order.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def is_mixed(self) -> bool:
        """Whether some of it is to be learnt, and some not."""
        return bool(self.spans) and self.spans != ((0, len(self.text)),)


@dataclass(frozen=True, slots=True)
class Script:
    """A row as text.

    Args:
        pieces: what becomes tokens, in order.
        bos: whether a begin token is put before it, unless it is there.
        eos: whether an end token is put after it, as a target, unless it is there.
    """

    pieces: tuple[Piece, ...]
    bos: bool
    eos: bool


class Chat:
    """A chat template, and what has to be known about it to find the turns of the assistant.

    Where the template marks them with `{% generation %}` its marks count. Else a turn is what stands between the text
    of the messages before it, as a prompt, and the end of their text with it. Templates that show a turn in another way
    when it is the last are asked where in the whole the turn's own words stand. What ends a turn is learnt too, also
    where the marks leave it out; white space after the end is not.

    Args:
        tokenizer: whose special tokens the template uses.
        template: the template; default the tokenizer's own.

    Raises:
        SourceError: the template does not show what the assistant says.
    """

    def __init__(self, tokenizer: Any, template: str | None = None) -> None:
        self._tokenizer = tokenizer
        self.template: str = template or tokenizer.get_chat_template()
        self._marked = _GENERATION.search(self.template) is not None
        self.in_parts, whole = self._probe()
        self._ending = whole.partition(_ANSWER)[2].rstrip()
        ends = [end for end in (self._ending, *tokenizer.get_added_vocab()) if end.strip()]
        self._end = re.compile(rf"\s*(?:{'|'.join(map(re.escape, ends)) or '(?!)'})")

    @property
    def name(self) -> str:
        """What the template is called in an error."""
        return f"the chat template of {self._tokenizer.name_or_path or type(self._tokenizer).__name__}"

    def script(self, row: ChatRow, *, where: str) -> Script:
        """Return a conversation as text, with the spans of the assistant's turns.

        Raises:
            SourceError: the template refuses the conversation, or its turns cannot be told apart.
        """
        messages = [_in_parts(message) for message in row.messages] if self.in_parts else row.messages
        try:
            text, spans = self._marked_text(messages, row.first) if self._marked else self._text(messages, row.first)
        except Exception as error:
            raise SourceError(
                f"{where}: {self.name} must take its messages, but got {reason(error)}; change them with a loader "
                "function (--dataset-loader-fn FILE.py)"
            ) from error
        is_last = messages[-1]["role"] == "assistant"
        if not self._ending and is_last:  # nothing tells the end of an answer but the end token
            text = text.rstrip()
            spans = [(start, min(end, len(text))) for start, end in spans]
        if not spans or any(end == 0 or (self._ending and start >= end) for start, end in spans):
            raise SourceError(
                f"{where}: {self.name} must show or mark every turn of the assistant, but does not; use rows of prompt "
                "and response, or mark the turns with {% generation %} in chat_template.jinja"
            )
        return Script((Piece(text, tuple(spans)),), bos=False, eos=not self._ending and is_last)

    def _render(self, messages: Sequence[Message], *, prompt: bool = False) -> str:
        """Return messages as text; as a prompt for the next turn of the assistant, if `prompt`."""
        return str(
            self._tokenizer.apply_chat_template(
                messages, chat_template=self.template, tokenize=False, add_generation_prompt=prompt
            )
        )

    def _probe(self) -> tuple[bool, str]:
        """Return whether the template takes contents in parts, and the text of a question and an answer."""
        told = "nothing of them"
        messages = [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}]
        for in_parts in (False, True):
            try:
                whole = self._render([_in_parts(message) for message in messages] if in_parts else messages)
            except Exception as error:
                told = reason(error)
            else:
                if _ANSWER in whole and _QUESTION in whole:
                    return in_parts, whole
        raise SourceError(f"{self.name} must show a question and an answer, but got {told}")

    def _marked_text(self, messages: list[Message], first: int) -> tuple[str, list[tuple[int, int]]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        texts, marks = cast(Any, render_jinja_template)(
            conversations=[messages],
            chat_template=self.template,
            return_assistant_tokens_mask=True,
            **self._tokenizer.special_tokens_map,
        )
        text = str(texts[0])
        spans = [(int(start), int(end)) for start, end in marks[0]]
        earlier = len(_turns(messages[:first]))  # these belong to the prompt
        if earlier:
            spans = spans[earlier:] if len(spans) == len(_turns(messages)) else []
        ending = self._ending
        return text, [(start, end + len(ending) if text.startswith(ending, end) else end) for start, end in spans]

    def _text(self, messages: list[Message], first: int) -> tuple[str, list[tuple[int, int]]]:
        text = self._render(messages)
        return text, [self._span(text, messages, turn) for turn in _turns(messages) if turn >= first]

    def _span(self, text: str, messages: list[Message], turn: int) -> tuple[int, int]:
        """Return (start, end) of a turn in the text of all messages; (0, 0) where it cannot be found."""
        prompt = self._render(messages[:turn], prompt=True)
        closed = text if turn + 1 == len(messages) else self._render(messages[: turn + 1])
        if text.startswith(prompt) and text.startswith(closed):
            return len(prompt), len(closed.rstrip() if self._ending else closed)
        start, end = self._words(text, messages, turn)
        ended = self._end.match(text, end) if end else None
        return len(prompt) if text.startswith(prompt) and len(prompt) <= start else start, ended.end() if ended else end

    def _words(self, text: str, messages: list[Message], turn: int) -> tuple[int, int]:
        """Return (start, end) of a turn's own words in the text: where it changes if other words stand there."""
        if "tool_calls" in messages[turn]:
            return 0, 0
        content = [{"type": "text", "text": _ANSWER}] if self.in_parts else _ANSWER
        other = self._render([*messages[:turn], messages[turn] | {"content": content}, *messages[turn + 1 :]])
        before, _, after = other.rpartition(_ANSWER)
        fits = text.startswith(before) and text.endswith(after) and len(before) + len(after) <= len(text)
        return (len(before), len(text) - len(after)) if before and fits else (0, 0)


def _turns(messages: Sequence[Message]) -> list[int]:
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"]


def _in_parts(message: Message) -> Message:
    content = message["content"]
    return message | {"content": [{"type": "text", "text": content}]} if isinstance(content, str) else message
