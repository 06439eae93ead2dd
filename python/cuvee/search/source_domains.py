"""The sources of a manifest as domains of proxy runs: some of their tokens, and how many there are in all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..manifest import Manifest, load
from .domains import TokenDomain

READ_TOKENS = 1 << 22  # that are read of a source, unless said otherwise
ROWS_AT_ONCE = 256
ROWS_SIZED = 16  # of the rest of such rows, where not all are needed


def domains_of(
    manifest: Manifest | str | os.PathLike[str],
    *,
    loader: Any = None,
    most_tokens: int = READ_TOKENS,
    held_out: float = 0.1,
) -> list[TokenDomain]:
    """Return the sources of a manifest as domains of bytes, read as training with `--ckpt tiny` reads them.

    Of a source with more than `most_tokens` tokens so many are read, from rows spread over all of it; `whole` is then
    an estimate from the rows that were read.

    Args:
        manifest: a checked document, or the path of one.
        loader: the user's function that makes rows of each source, as `cuvee.sources.load_function` returns it.
        most_tokens: read of each source.
        held_out: share of them to hold out.

    Raises:
        ManifestError: the document is wrong.
        SourceError: a source cannot be opened, or its rows cannot be trained on.
        MixtureError: a source has too little text.
    """
    from ..sources import open_sources

    if not isinstance(manifest, Manifest):
        manifest = load(manifest)
    opened = open_sources(manifest.sources, loader=loader, folder=manifest.folder, alike=False)
    return domains_in(opened, most_tokens=most_tokens, held_out=held_out)


def domains_in(
    opened: Mapping[str, Any], *, most_tokens: int = READ_TOKENS, held_out: float = 0.1
) -> list[TokenDomain]:
    """Return opened sources, rows by name, as `domains_of` does."""
    from ..train.encoder import Encoder
    from ..train.model import tiny_tokenizer
    from ..train.rows import check_sources

    forms = check_sources(opened)
    encoder = Encoder(tiny_tokenizer())
    domains = []
    for name, rows in opened.items():
        tokens, whole = _some_tokens(rows, encoder, forms[name], name, most_tokens)
        domains.append(
            TokenDomain(name, tokens, len(encoder.tokenizer), held_out=held_out, rows=len(rows), whole=whole)
        )
    return domains


def _some_tokens(rows: Any, encoder: Any, form: Any, name: str, most: int) -> tuple[NDArray[np.int32], int]:
    """Return tokens of a source, shape (n,), n at most `most`; and an estimate of how many it has in all.

    Rows are read in a shuffled order, a batch at a time, and inside a batch in the order of the source. Rows at its
    beginning may be longer than those at its end: of the rest of a batch that is not needed, some are counted, too.
    """
    from ..train.rows import read_rows

    order = _core.permute(len(rows), key=_core.key64("rows of a domain", seed=0, name=name))
    parts, read, seen, estimate = [np.empty(0, dtype=np.int32)], 0, 0, 0.0
    for start in range(0, len(order), ROWS_AT_ONCE):
        index: Sequence[int] = sorted(order[start : start + ROWS_AT_ONCE].tolist())
        batch = read_rows(rows, index, form.columns, name=name)
        taken = 0
        for encoded in encoder.encode(batch, form, name=name):
            parts.append(encoded.tokens)
            taken, read = taken + 1, read + len(encoded.tokens)
            if read >= most:
                break
        seen += len(batch)
        rest = batch[taken:]
        some = rest[:: max(1, -(-len(rest) // ROWS_SIZED))]
        if some:
            sizes = [len(encoded.tokens) for encoded in encoder.encode(some, form, name=name)]
            estimate = float(np.mean(sizes)) * len(rest)
        if read >= most:
            break
    whole = round((read + estimate) * len(rows) / max(1, seen))
    tokens = np.concatenate(parts)[:most]
    return tokens, max(whole, len(tokens))
