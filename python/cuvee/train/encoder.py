"""Rows -> tokens and targets, many at a time; what decides the result is known as a digest."""

from __future__ import annotations

import json
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core import xxh3_128
from ..checks import canonical_json
from ..errors import SourceError
from ..sources.files import reason
from .chat import Chat, Piece, Script
from .images import ImageTokens, open_image
from .rows import ChatRow, PromptRow, RowForm, TextRow, TokenRow, images_of, parse, texts_of

MOST_CHARACTERS = 1 << 21  # of text given to the tokenizer at a time, but for one longer row
Offsets = Sequence[tuple[int, int]]


class Encoded(NamedTuple):
    """A row: its tokens, int32[n], and which of them are to be learnt, bool[n]; the first never is."""

    tokens: NDArray[np.int32]
    targets: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A row as far as it is known without the tokenizer: tokens as given, or a script."""

    where: str
    images: list[Any]
    content: TokenRow | Script

    @property
    def characters(self) -> int:
        return sum(len(piece.text) for piece in self.pieces)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self.content.pieces if isinstance(self.content, Script) else ()


class Encoder:
    """Turns rows into tokens with a tokenizer, and with its chat template where it has one.

    - `messages`, and `prompt` and `response` where there is a template: the template's text, spaced as the template
      does; `prompt` becomes the user's turn, `response` the assistant's. Targets are the assistant's turns and ends.
    - `prompt` and `response` without a template: begin token (if the tokenizer puts one), prompt, response, end token,
      with nothing between. Targets are the response and the end.
    - `text`: begin token, text, end token; all of it is target.
    - `tokens` and `prompt_mask`: as they are.

    Args:
        tokenizer: a fast tokenizer of transformers.
        processor: the processor that it belongs to, where rows have images.

    Raises:
        SourceError: the chat template cannot be used.
    """

    def __init__(self, tokenizer: Any, processor: Any = None) -> None:
        self.tokenizer = tokenizer
        self.processor = processor
        template = getattr(processor, "chat_template", None) or tokenizer.chat_template
        self._chat = Chat(tokenizer, template if isinstance(template, str) else None) if template else None
        self._images = None if processor is None else ImageTokens(processor)
        begin = tokenizer("", verbose=False)["input_ids"][:1]
        self._bos = begin if begin == [tokenizer.bos_token_id] else []
        self._eos = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        apart = [token for ids, _ in self._tokenised([Piece("a"), Piece("b")]) for token in ids]
        self._joins = tokenizer.decode(apart) == "ab"  # no space is put before each text, as SentencePiece does
        self._size = len(tokenizer)
        self._control = _control_tokens(tokenizer, None if self._images is None else self._images.token)
        self._warned: set[str] = set()

    def identity(self, form: RowForm) -> str:
        """Return a digest of all that decides what `encode` makes of rows of a form, the rows aside."""
        if form.kind == "tokens" and form.images is None:
            return f"tokens below {self._size}"
        backend = json.loads(self.tokenizer.backend_tokenizer.to_str())
        facts = {
            "backend": {key: value for key, value in backend.items() if key not in ("padding", "truncation")},
            "begin and end": [self._bos, self._eos],
            "special tokens": {key: str(value) for key, value in self.tokenizer.special_tokens_map.items()},
            "template": self._chat and self._chat.template,
            "processor": str(self.processor.to_dict()) if form.images and self.processor else None,
        }
        return str(xxh3_128(canonical_json(facts)))

    def encode(
        self, rows: Sequence[Mapping[str, Any]], form: RowForm, *, name: str, start: int = 0
    ) -> Iterator[Encoded]:
        """Yield tokens and targets of rows, in their order.

        Args:
            rows: as the source gives them.
            form: that of the source.
            name: the source's name, for errors.
            start: number of the first row, for errors.

        Raises:
            SourceError: a row is none of its form, or the tokenizer or its template refuses it; names source and row.
        """
        drafts: list[_Draft] = []
        characters = 0
        for index, row in enumerate(rows, start=start):
            draft = self._draft(row, form, where=f"source {name!r}, row {index}")
            if drafts and characters + draft.characters > MOST_CHARACTERS:
                yield from self._encoded(drafts)
                drafts, characters = [], 0
            drafts.append(draft)
            characters += draft.characters
        yield from self._encoded(drafts)

    def _draft(self, row: Mapping[str, Any], form: RowForm, *, where: str) -> _Draft:
        content = parse(row, form, where=where)
        images = [open_image(image, where=where) for image in images_of(row, form, where=where)]
        if images:
            content = self._image_tokens(where).placed(content, len(images), where=where)
        if not isinstance(content, TokenRow):
            return _Draft(where=where, images=images, content=self._script(content, where))
        if content.tokens.max(initial=0) >= self._size:
            raise SourceError(
                f"{where}: tokens must be below {self._size}, those of the tokenizer, but got {content.tokens.max()}; "
                "were they made with another tokenizer?"
            )
        return _Draft(where=where, images=images, content=content)

    def _script(self, row: ChatRow | PromptRow | TextRow, where: str) -> Script:
        if isinstance(row, TextRow):
            return Script((Piece(row.text, ((0, len(row.text)),)),), bos=True, eos=True)
        if self._chat is not None:
            chat = row if isinstance(row, ChatRow) else _as_chat(row)
            self._warn_of_control_tokens(chat, where)
            return self._chat.script(chat, where=where)
        if isinstance(row, ChatRow):
            raise SourceError(
                f"{where}: messages must have a tokenizer with a chat template, but got "
                f"{self.tokenizer.name_or_path or type(self.tokenizer).__name__!r}, which has none; use rows of prompt "
                "and response"
            )
        both = row.prompt + row.response
        if self._joins:  # apart, as they are when the model answers: no token spans the border
            pieces: tuple[Piece, ...] = (Piece(row.prompt), Piece(row.response, ((0, len(row.response)),)))
        else:
            pieces = (Piece(both, ((len(row.prompt), len(both)),)),)
        return Script(pieces, bos=True, eos=True)

    def _image_tokens(self, where: str) -> ImageTokens:
        if self._images is None:
            raise SourceError(f"{where}: must have no images where no processor was loaded, but it has some")
        return self._images

    def _warn_of_control_tokens(self, row: ChatRow, where: str) -> None:
        """Warn, once for a source, of contents that look as if a template was applied already."""
        source = where.partition(", row ")[0]
        found = next(filter(None, map(self._control.search, texts_of(row))), None)
        if found is not None and source not in self._warned:
            self._warned.add(source)
            warnings.warn(
                f"{where}: a message should be plain text, but holds the control token {found[0]!r}, which the "
                "tokenizer will read as one; the chat template is applied here, so rows should come without it",
                stacklevel=2,
            )

    def _encoded(self, drafts: Sequence[_Draft]) -> Iterator[Encoded]:
        pieces = [piece for draft in drafts for piece in draft.pieces]
        try:
            found = iter(self._tokenised(pieces))
        except Exception as error:
            where = next((draft.where for draft in drafts if self._refuses(draft)), drafts[0].where)
            raise SourceError(f"{where}: must be text for the tokenizer, but got {reason(error)}") from error
        for draft in drafts:
            tokens, targets = self._framed(draft, [_with_targets(piece, *next(found)) for piece in draft.pieces])
            if self._images is not None:
                tokens, targets = self._images.spliced(tokens, targets, draft.images, where=draft.where)
            targets[:1] = False  # nothing predicts it
            yield Encoded(tokens, targets)

    def _tokenised(self, pieces: Sequence[Piece]) -> list[tuple[list[int], Offsets]]:
        """Return the tokens of each piece, and where some are no targets each token's (start, end) in the text."""
        if not pieces:
            return []
        mixed = any(piece.is_mixed for piece in pieces)
        found = self.tokenizer(
            [piece.text for piece in pieces],
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            return_offsets_mapping=mixed,
            verbose=False,
        )
        offsets = found["offset_mapping"] if mixed else [()] * len(pieces)
        return list(zip(found["input_ids"], offsets, strict=True))

    def _refuses(self, draft: _Draft) -> bool:
        try:
            self._tokenised(draft.pieces)
        except Exception:
            return True
        return False

    def _framed(self, draft: _Draft, parts: Sequence[tuple[list[int], NDArray[np.bool_]]]) -> Encoded:
        """Return a row as given, or its parts as one, with the begin and end tokens that it lacks."""
        if not isinstance(script := draft.content, Script):
            return Encoded(script.tokens, script.targets)
        ids = [token for tokens, _ in parts for token in tokens]
        before = self._bos if script.bos and ids[:1] != self._bos else []
        after = self._eos if script.eos and parts[-1][0][-1:] != self._eos else []
        targets = [np.zeros(len(before), np.bool_), *(flags for _, flags in parts), np.ones(len(after), np.bool_)]
        return Encoded(np.array([*before, *ids, *after], dtype=np.int32), np.concatenate(targets))


def _as_chat(row: PromptRow) -> ChatRow:
    messages = [{"role": "user", "content": row.prompt}, {"role": "assistant", "content": row.response}]
    return ChatRow(messages=messages, first=1)


def _with_targets(piece: Piece, ids: list[int], offsets: Offsets) -> tuple[list[int], NDArray[np.bool_]]:
    """Return tokens with targets: those that hold any character of a span, so that nothing said is left unlearnt."""
    if not piece.is_mixed:
        return ids, np.full(len(ids), bool(piece.spans), dtype=np.bool_)
    targets = np.zeros(len(ids), dtype=np.bool_)
    for start, end in piece.spans:
        first = bisect_right(offsets, start, key=lambda offset: offset[1])
        targets[first : bisect_left(offsets, end, key=lambda offset: offset[0])] = True
    return ids, targets


def _control_tokens(tokenizer: Any, image: str | None) -> re.Pattern[str]:
    special = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return re.compile("|".join(re.escape(token) for token in special if token != image) or "(?!)")
