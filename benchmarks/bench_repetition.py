"""Whether proxies find the right share of a small source only if they repeat it as often as the training does.

The text is what every Python has: a small source of its language reference, a large one of docstrings of its standard
library, and other pages of the reference to be judged by. Runs of D tokens on a grid of shares show which one is best;
runs of D / 16 tokens choose from the same grid, with whole sources and with thinned ones (`target_tokens`).
"""

from __future__ import annotations

import ast
import os
import pydoc_data.topics
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cuvee.search import Proxy, TokenDomain
from harness import Report, main

STEPS = 1600  # of the training
PARTS = 16  # it is so many times as long as a proxy run
SMALL_TOKENS = 16_000
JUDGED_TOKENS = 100_000  # of the reference, that no source has
SOURCES = 6  # small ones, one after the other
TARGET_SEEDS = 2  # whose losses are averaged, to know the best share
PROXY_SEEDS = 4
VOCAB = 128  # ASCII
SIZE: dict[str, Any] = {"d_model": 16, "block": 16, "lr": 1e-2, "eval_tokens": 16_384}
LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "pydoc_data"}


class Judged(TokenDomain):
    """A source whose held-out text is another's."""

    def __init__(self, name: str, tokens: Any, judges: TokenDomain) -> None:
        super().__init__(name, tokens, VOCAB, held_out=0.01)
        self._judges = judges

    def windows(self, count: int, length: int, *, seed: int, held_out: bool) -> Any:
        """Return windows of this text to train on, or of the other to be judged by."""
        if held_out:
            return self._judges.windows(count, length, seed=seed, held_out=True)
        return super().windows(count, length, seed=seed, held_out=False)


def tokens_of(text: str) -> Any:
    """Return a text as ASCII."""
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8)


def docstrings() -> str:
    """Return the docstrings of the standard library."""
    library, found = Path(os.__file__).parent, []
    for path in sorted([*library.glob("*.py"), *library.glob("*/*.py")]):
        if LEFT_OUT & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # files kept for the sake of their errors
            continue
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef
        found += [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(filter(None, found))


def pairs_of_sources(count: int) -> list[list[TokenDomain]]:
    """Return pairs of a small source and the large one; the small ones are different pages of the reference."""
    topics = pydoc_data.topics.topics
    reference, large = tokens_of("\n\n".join(topics[name] for name in sorted(topics))), tokens_of(docstrings())
    judges = TokenDomain("judges", reference[:JUDGED_TOKENS], VOCAB, held_out=0.5)
    starts = np.linspace(JUDGED_TOKENS, len(reference) - SMALL_TOKENS, count).astype(int)
    smalls = [reference[start : start + SMALL_TOKENS] for start in starts]
    return [[Judged("reference", small, judges), TokenDomain("docstrings", large, VOCAB)] for small in smalls]


def losses_of(domains: list[TokenDomain], steps: int, shares: Any, seeds: int, **settings: Any) -> Any:
    """Return losses on the text that sources are judged by, shape (shares,): means over some seeds."""
    proxy = Proxy(domains, steps, **SIZE, **settings)
    mixtures = np.stack([shares, 1 - shares], axis=1)
    return np.mean([proxy.evaluate(mixtures, training_seed=seed)[:, 0] for seed in range(seeds)], axis=0)


def measure(report: Report) -> None:
    """Report, for proxies with whole and with thinned sources, how far off the share is that they choose."""
    torch.set_num_threads(1)
    steps, count, seeds = (160, 1, (1, 1)) if report.quick else (STEPS, SOURCES, (TARGET_SEEDS, PROXY_SEEDS))
    shares = np.linspace(0, 1, 3 if report.quick else 11)
    tokens = steps * 16 * SIZE["block"]
    kinds: dict[str, dict[str, Any]] = {"whole sources": {}, "sources thinned": {"target_tokens": tokens}}
    best, chosen, lost = [], {kind: [] for kind in kinds}, {kind: [] for kind in kinds}
    for domains in pairs_of_sources(count):
        truth = losses_of(domains, steps, shares, seeds[0])
        best.append(shares[truth.argmin()])
        for kind, settings in kinds.items():
            place = losses_of(domains, steps // PARTS, shares, seeds[1], **settings).argmin()
            chosen[kind].append(shares[place])
            lost[kind].append(truth[place] - truth.min())
    repeats = tokens / SMALL_TOKENS
    note = f"best in training {np.round(best, 2).tolist()}, where a share of 1 is {repeats:.1f} passes"
    report.value("repetition/best share of the small source", float(np.mean(best)), "share", note)
    for kind in kinds:
        name = f"repetition/proxies of 1/{PARTS} of the tokens, {kind}"
        error = np.abs(np.subtract(chosen[kind], best))
        said = f"chosen {np.round(chosen[kind], 2).tolist()}"
        report.value(f"{name}/error of the share", float(error.mean()), "share", said)
        of_each = str(np.round(lost[kind], 3).tolist())
        report.value(f"{name}/loss above the best", float(np.mean(lost[kind])), "nats", of_each)


if __name__ == "__main__":
    main(measure)
