"""Images of rows: opened, counted in tokens, and put where a text has their placeholders."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SourceError
from ..sources.files import reason
from .rows import ChatRow, PromptRow, Row, texts_of

if TYPE_CHECKING:
    from PIL.Image import Image


def open_image(image: object, *, where: str) -> Image:
    """Return an image in RGB.

    Args:
        image: a PIL image, a path, the bytes of a file, or {"bytes", "path"} as `datasets` keeps them.
        where: source and row, to begin an error with.

    Raises:
        SourceError: it cannot be opened.
    """
    from PIL import Image

    try:
        if isinstance(image, Mapping):
            image = image.get("bytes") or image.get("path")
        if isinstance(image, bytes):
            image = io.BytesIO(image)
        opened = image if isinstance(image, Image.Image) else Image.open(image)  # type: ignore[arg-type]
        return opened.convert("RGB")
    except Exception as error:
        raise SourceError(f"{where}: an image must be one that can be opened, but got {reason(error)}") from error


class ImageTokens:
    """How a processor writes an image into a row of tokens.

    Args:
        processor: of transformers, with `image_processor`, `tokenizer` and `image_token`.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.token: str = getattr(processor, "image_token", None) or processor.tokenizer.image_token
        self.id = int(processor.tokenizer.convert_tokens_to_ids(self.token))

    def placed(self, row: Row, images: int, *, where: str) -> Row:
        """Return the row with a placeholder for each image, put first where the row has none.

        Raises:
            SourceError: the row has another number of placeholders than images.
        """
        marks = self._marks(row)
        if marks == images or not isinstance(row, ChatRow | PromptRow):
            return row  # a row of tokens is checked when all its tokens are known
        if marks:
            raise SourceError(f"{where}: must have a placeholder for each of its {images} images, but got {marks}")
        if isinstance(row, PromptRow):
            return PromptRow(prompt=self.token * images + row.prompt, response=row.response)
        return _before_first_question(row, images, where)

    def spliced(
        self, tokens: NDArray[np.int32], targets: NDArray[np.bool_], images: Sequence[Image], *, where: str
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return tokens and targets with each placeholder replaced by all the tokens that its image takes.

        Raises:
            SourceError: there is another number of placeholders than images.
        """
        places = np.flatnonzero(tokens == self.id)
        if len(places) != len(images):
            raise SourceError(
                f"{where}: must have a placeholder {self.token!r} for each of its {len(images)} images, but got "
                f"{len(places)}"
            )
        parts, flags, done = [], [], 0
        for place, image in zip(places.tolist(), images, strict=True):
            expanded = self._expanded(image)
            parts += [tokens[done:place], expanded]
            flags += [targets[done:place], np.zeros(len(expanded), dtype=np.bool_)]
            done = place + 1
        return np.concatenate([*parts, tokens[done:]]), np.concatenate([*flags, targets[done:]])

    def _expanded(self, image: Image) -> NDArray[np.int32]:
        found = self._processor(images=[image], text=[self.token], add_special_tokens=False)
        return np.asarray(found["input_ids"][0], dtype=np.int32)

    def _marks(self, row: Row) -> int:
        if isinstance(row, PromptRow):
            return row.prompt.count(self.token)
        if not isinstance(row, ChatRow):
            return 0
        parts = [
            part for message in row.messages if isinstance(message["content"], list) for part in message["content"]
        ]
        shown = [part for part in parts if part["type"] == "image"]
        return len(shown) + sum(text.count(self.token) for text in texts_of(row))


def _before_first_question(row: ChatRow, images: int, where: str) -> ChatRow:
    for place, message in enumerate(row.messages):
        if message["role"] == "user":
            content = message["content"]
            said = [{"type": "text", "text": content}] if isinstance(content, str) else content
            shown = message | {"content": [{"type": "image"}] * images + said}
            return ChatRow(messages=[*row.messages[:place], shown, *row.messages[place + 1 :]], first=row.first)
    raise SourceError(f"{where}: must have a user turn to show its images in, but got none")
