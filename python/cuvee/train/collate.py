"""Encoded rows -> the tensors that a model trains on; images are prepared here, so in the loader's worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import as_int
from ..errors import SourceError

if TYPE_CHECKING:
    import torch

IGNORED = -100  # the label of what is not learnt


class SFTCollator:
    """Pads rows of `EncodedRows` on the right to one length.

    Args:
        pad_token_id: what stands in the padding; neither seen by the model nor learnt.
        pad_to_multiple_of: the length is a multiple of it.
        processor: prepares images, where rows have some.
    """

    def __init__(self, pad_token_id: int, *, pad_to_multiple_of: int = 8, processor: Any = None) -> None:
        self.pad_token_id = as_int(pad_token_id, "pad_token_id", 0, 2**31, SourceError)
        self.pad_to_multiple_of = as_int(pad_to_multiple_of, "pad_to_multiple_of", 1, 2**31, SourceError)
        self.processor = processor

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the batch.

        Args:
            rows: with "input_ids", integers of shape (n,), "targets", bool of shape (n,), and "images" where the model
                takes them.

        Returns:
            "input_ids", "attention_mask" and "labels", int64 of shape (rows, length); labels are -100 for all that is
            not learnt. With images also what the processor of images makes of them, such as "pixel_values".
        """
        import torch

        step = self.pad_to_multiple_of
        length = -(-max(len(row["input_ids"]) for row in rows) // step) * step
        batch = {
            "input_ids": np.full((len(rows), length), self.pad_token_id, dtype=np.int64),
            "attention_mask": np.zeros((len(rows), length), dtype=np.int64),
            "labels": np.full((len(rows), length), IGNORED, dtype=np.int64),
        }
        for place, row in enumerate(rows):
            ids, targets = row["input_ids"], row["targets"]
            batch["input_ids"][place, : len(ids)] = ids
            batch["attention_mask"][place, : len(ids)] = 1
            batch["labels"][place, : len(ids)] = np.where(targets, ids, IGNORED)
        tensors = {key: torch.from_numpy(values) for key, values in batch.items()}
        images = [image for row in rows for image in row.get("images", ())]
        return tensors | self._prepared(images, batch["input_ids"]) if images else tensors

    def _prepared(self, images: list[Any], ids: NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """Return what the model needs to see the images of a batch, besides their tokens."""
        import torch

        if self.processor is None:
            raise SourceError(f"rows must have no images where the collator has no processor, but got {len(images)}")
        prepared = dict(self.processor.image_processor(images, return_tensors="pt"))
        if "mm_token_type_ids" in self.processor.model_input_names:  # where in a row images are, for some models
            prepared["mm_token_type_ids"] = torch.tensor(self.processor.create_mm_token_type_ids(ids.tolist()))
        return prepared
