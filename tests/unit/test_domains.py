"""Domains that proxy runs read: patterns with noise, texts with held-out pieces, and the sources of a manifest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvee.errors import MixtureError
from cuvee.manifest import load
from cuvee.search.domains import (
    SyntheticDomain,
    TextDomain,
    TokenDomain,
    checked_domains,
    tokens_of,
    windows_of,
)
from cuvee.search.source_domains import domains_of


def test_pattern_repeats_whatever_the_seed_without_noise() -> None:
    domain = SyntheticDomain("clean", 20, 4)
    tokens = domain.sample(41, seed=3)
    assert tokens.dtype == np.int64
    assert tokens.shape == (41,)
    assert np.array_equal(tokens, np.resize(domain.pattern, 41))
    assert np.array_equal(tokens, domain.sample(41, seed=8))


def test_noise_replaces_as_many_tokens_as_it_should() -> None:
    domain = SyntheticDomain("noisy", 20, 4, 0.3)
    tokens = domain.sample(100_000, seed=1)
    changed = (tokens != np.resize(domain.pattern, 100_000)).mean()
    assert changed == pytest.approx(0.3 * 19 / 20, abs=0.005)  # a uniform token may be the same one again
    assert not np.array_equal(tokens, domain.sample(100_000, seed=2))


@pytest.mark.parametrize("domain", [SyntheticDomain("a", 20, None), SyntheticDomain("a", 20, 5, noise_p=1)])
def test_pure_noise_is_uniform(domain: SyntheticDomain) -> None:
    counts = np.bincount(domain.sample(40_000, seed=4), minlength=20)
    assert ((counts - 2000) ** 2 / 2000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = .001


def test_patterns_differ_by_seed_and_period_and_noise_by_name() -> None:
    one, other = SyntheticDomain("a", 1000, 6), SyntheticDomain("b", 1000, 6)
    assert np.array_equal(one.pattern, other.pattern)
    assert not np.array_equal(one.pattern, SyntheticDomain("a", 1000, 6, pattern_seed=1).pattern)
    assert not np.array_equal(one.pattern[:3], SyntheticDomain("a", 1000, 3).pattern)
    noise = [SyntheticDomain(name, 1000, None).sample(50) for name in "ab"]
    assert not np.array_equal(*noise)


@given(st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=25, deadline=None)
def test_fewer_tokens_are_the_beginning_of_more(short: int, more: int) -> None:
    domain = SyntheticDomain("a", 7, 3, 0.4)
    assert np.array_equal(domain.sample(short), domain.sample(short + more)[:short])


def test_training_and_held_out_streams_differ_under_one_seed() -> None:
    domain = SyntheticDomain("a", 20, None)
    training, held_out = (windows_of(domain, 50, 9, seed=5, held_out=flag) for flag in (False, True))
    assert training.shape == (50, 9)
    assert not (training[:, None] == held_out[None]).all(axis=2).any()


def test_windows_of_a_stream_begin_anywhere_in_its_pattern() -> None:
    domain = SyntheticDomain("a", 1000, 9)
    windows = windows_of(domain, 400, 9, seed=0, held_out=True)
    counts = np.bincount([int(np.flatnonzero(domain.pattern == first)[0]) for first in windows[:, 0]], minlength=9)
    assert counts.min() > 20


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"vocab": 1}, "vocab must be an integer in"),
        ({"period": 0}, "period must be"),
        ({"noise_p": 1.5}, r"noise_p must be a number in \[0, 1\], but got 1.5"),
        ({"noise_p": float("nan")}, "noise_p must be"),
        ({"pattern_seed": -1}, "pattern_seed must be"),
        ({"name": " "}, "name must be"),
    ],
)
def test_synthetic_domain_refuses(arguments: dict[str, object], told: str) -> None:
    with pytest.raises(MixtureError, match=told):
        SyntheticDomain(**{"name": "a", "vocab": 20, **arguments})


def test_domains_must_fit_together() -> None:
    one = SyntheticDomain("a", 20)
    for domains, told in (
        ([one], "at least two"),
        ([one, SyntheticDomain("a", 20)], "unique"),
        ([one, SyntheticDomain("b", 21)], "one vocabulary"),
        ([one, "b"], r"domains\[1\] must have"),
    ):
        with pytest.raises(MixtureError, match=told):
            checked_domains(domains)


# --- texts
def test_held_out_text_is_never_trained_on_and_all_the_rest_is() -> None:
    domain = TokenDomain("t", np.arange(30_000), 30_000)
    training = domain.windows(2000, 33, seed=1, held_out=False)
    held_out = domain.windows(60, 33, seed=1, held_out=True)
    seen, kept = set(training[:, :-1].ravel().tolist()), set(held_out.ravel().tolist())
    assert not set(training.ravel().tolist()) & kept
    assert (np.diff(training) == 1).all()  # windows are pieces of the text
    assert 0.85 < len(seen) / 30_000 < 0.95


def test_windows_come_all_once_before_any_comes_again() -> None:
    domain = TokenDomain("t", np.arange(5000), 5000)
    windows = domain.windows(1000, 17, seed=2, held_out=False)
    starts = windows[:, 0].tolist()
    cycle = len(set(starts))
    assert len(set(starts[:cycle])) == cycle
    assert set(starts[cycle : 2 * cycle]) == set(starts[:cycle])
    assert starts[cycle : 2 * cycle] != starts[:cycle]
    assert np.array_equal(domain.windows(100, 17, seed=2, held_out=False), windows[:100])


def test_text_is_bytes_with_ends() -> None:
    domain = TextDomain("t", ["aé", "b"] * 200)
    assert domain.vocab == 257
    assert len(domain) == 200 * 6
    assert domain.rows == 400
    found = domain.windows(1, 100, seed=0, held_out=False)[0].tolist()
    assert {97, 0xC3, 0xA9, 98, 256} == set(found)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["a", None], r"texts\[1\] must be a string of whole characters, but got None"),
        (["a\ud800"], r"texts\[0\] must be a string of whole characters"),
        (5, "texts must be strings, but got 5"),
    ],
)
def test_text_domain_refuses(texts: object, told: str) -> None:
    with pytest.raises(MixtureError, match=f"domain 't': {told}"):
        TextDomain("t", texts)


def test_streams_of_no_one_shape_are_told() -> None:
    class Ragged:
        name, vocab = "r", 4

        def sample(self, n_tokens: int, *, seed: int = 0) -> object:
            return [[0]] * n_tokens + [[0, 1]]

    with pytest.raises(MixtureError, match=r"domain 'r': sample\(3\) must be integers of shape"):
        tokens_of(Ragged(), 3, seed=0, held_out=False)


def test_token_domain_refuses() -> None:
    for arguments, told in (
        (([[1]], 5), "integers of shape"),
        (([1.5], 5), "integers of shape"),
        (([5], 5), r"must be in \[0, 5\)"),
    ):
        with pytest.raises(MixtureError, match=told):
            TokenDomain("t", *arguments)
    with pytest.raises(MixtureError, match="held_out must be"):
        TokenDomain("t", [1, 2], 5, held_out=0)
    with pytest.raises(MixtureError, match="give it more text"):
        TokenDomain("t", np.ones(40, dtype=int), 5).windows(1, 30, seed=0, held_out=True)


def test_sources_of_a_manifest_become_domains(tmp_path: Path) -> None:
    rows = {
        "plain": [{"text": f"line {i} of a text"} for i in range(300)],
        "chat": [{"prompt": f"what is {i}?", "response": f"it is {i}"} for i in range(300)],
    }
    for name, given_rows in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given_rows))
    document = {
        "version": 1,
        "seed": 1,
        "exhaustion": "cycle",
        "sources": [{"name": name, "path": f"{name}.jsonl", "weight": 1} for name in rows],
    }
    (tmp_path / "mix.json").write_text(json.dumps(document))
    domains = domains_of(load(tmp_path / "mix.json"), most_tokens=3000)
    assert [len(domain) for domain in domains_of(tmp_path / "mix.json")] > [3000, 3000]
    assert [domain.name for domain in domains] == ["plain", "chat"]
    assert [domain.rows for domain in domains] == [300, 300]
    assert [len(domain) for domain in domains] == [3000, 3000]
    assert len({domain.vocab for domain in domains}) == 1
