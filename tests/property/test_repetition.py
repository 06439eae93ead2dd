"""Thinned text: whatever the part, windows are of the whole text, and repeat as often as in the run it stands for."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvee.search.domains import TokenDomain
from cuvee.search.proxy_reads import Stream
from cuvee.search.repetition import Repetition

BATCH = 8
OTHER = 100_000  # first token of the other domain
BLOCKS = st.integers(1, 40)
PARTS = st.floats(1e-4, 1)


def domain_of(tokens: int, *, whole: int | None = None, name: str = "t") -> TokenDomain:
    """Return a domain whose every token is its place, so that a window tells where it is from."""
    return TokenDomain(name, np.arange(tokens), tokens, whole=whole)


def starts(domain: TokenDomain, block: int, *, seed: int = 0, held_out: bool = False, count: int = 3000) -> list[int]:
    return domain.windows(count, block + 1, seed=seed, held_out=held_out)[:, 0].tolist()


@given(tokens=st.integers(600, 20_000), more=st.integers(0, 100_000), part=PARTS, block=BLOCKS)
@settings(max_examples=60, deadline=None)
def test_as_many_windows_are_left_as_fill_the_part(tokens: int, more: int, part: float, block: int) -> None:
    domain = domain_of(tokens, whole=tokens + more)
    there = domain.training_windows(block + 1)
    left = domain.thinned(part).training_windows(block + 1)
    assert left == min(there, max(1, round(part * (tokens + more) / block)))


@given(part=PARTS, seeds=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), block=BLOCKS)
@settings(max_examples=40, deadline=None)
def test_what_is_left_is_the_same_under_every_seed_and_some_of_what_was_there(
    part: float, seeds: tuple[int, int], block: int
) -> None:
    domain = domain_of(2500)
    left = [set(starts(domain.thinned(part), block, seed=seed)) for seed in seeds]
    assert left[0] == left[1]
    assert len(left[0]) == domain.thinned(part).training_windows(block + 1)
    assert left[0] <= set(starts(domain, block))
    assert left[0] <= set(starts(domain.thinned((1 + part) / 2), block))  # of a larger part, too


@given(part=PARTS, seed=st.integers(0, 2**62), block=BLOCKS)
@settings(max_examples=40, deadline=None)
def test_held_out_text_is_not_thinned(part: float, seed: int, block: int) -> None:
    domain = domain_of(3000)
    held_out = domain.thinned(part).windows(200, block + 1, seed=seed, held_out=True)
    assert np.array_equal(held_out, domain.windows(200, block + 1, seed=seed, held_out=True))
    trained = domain.thinned(part).windows(200, block + 1, seed=seed, held_out=False)
    assert not set(trained.ravel().tolist()) & set(held_out.ravel().tolist())


@given(seed=st.integers(0, 2**62), block=BLOCKS)
@settings(max_examples=20, deadline=None)
def test_a_part_of_one_changes_nothing(seed: int, block: int) -> None:
    domain = domain_of(3000, whole=90_000)
    whole = domain.windows(700, block + 1, seed=seed, held_out=False)
    assert np.array_equal(domain.thinned(1).windows(700, block + 1, seed=seed, held_out=False), whole)


@given(
    sizes=st.tuples(st.integers(2000, 20_000), st.integers(2000, 60_000)),
    share=st.floats(0.02, 0.98),
    steps=st.integers(2, 120),
    times=st.integers(2, 40),
    block=st.integers(2, 16),
)
@settings(max_examples=60, deadline=None)
def test_windows_repeat_as_often_as_in_the_run_that_the_mixture_is_for(
    sizes: tuple[int, int], share: float, steps: int, times: int, block: int
) -> None:
    target_tokens = times * steps * BATCH * block
    domains = [
        TokenDomain(name, np.arange(n) + at, 200_000) for name, n, at in zip("ab", sizes, (0, OTHER), strict=True)
    ]
    thinned = Repetition(steps=steps, batch_size=BATCH, block=block, target_tokens=target_tokens).thinned(domains)
    stream = Stream.of(thinned, steps, batch_size=BATCH, block=block, unit="windows", seed=3)
    windows = np.concatenate([batch[0] for batch in stream.batches(np.array([[share, 1 - share]]), 0, steps)])
    reads = Counter(windows[:, 0].tolist())
    for domain, tokens, part in zip(thinned, sizes, (share, 1 - share), strict=True):
        kept = set(starts(domain, block, count=20_000))
        repeats = part * target_tokens / tokens
        rounding = (repeats / 2 + 4) / len(kept)  # windows are whole, and each step is within one of its share
        assert all(abs(reads[start] - repeats) <= 1 + rounding for start in kept)
    assert reads.total() == steps * BATCH
