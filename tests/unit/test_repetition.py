"""Proxies that repeat texts as often as the run that the mixture is for: what they refuse, and what they remark."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from cuvee.errors import MixtureError
from cuvee.search import Proxy, SyntheticDomain, TextDomain, TokenDomain, optimize_mixture, search
from cuvee.search.domains import Domain
from cuvee.search.plan import SearchPlan
from cuvee.search.repetition import tokens_a_row
from cuvee.search.space import Space

TOKENS = 20 * 16 * 8  # of a proxy run of 20 steps
NAMES = ["small", "large"]


def texts(small: int = 8000, large: int = 60_000, **facts: int) -> list[Domain]:
    random = np.random.default_rng(0)
    sizes = {"small": small, "large": large}
    return [TokenDomain(name, random.integers(0, 20, size), 20, **facts) for name, size in sizes.items()]


class Texts:
    """A user's own domain of texts."""

    name, vocab = "own", 20

    def windows(self, count: int, length: int, *, seed: int, held_out: bool) -> np.ndarray:
        return np.zeros((count, length), dtype=np.int64)


def test_proxies_train_on_thinned_text_and_are_measured_on_all_that_is_held_out() -> None:
    whole, thinned = Proxy(texts(), 20), Proxy(texts(), 20, target_tokens=16 * TOKENS)
    assert [domain.training_windows(9) for domain in thinned.domains] == [62, 469]
    before, after = (proxy.evaluate([[1, 0]], fidelity=0.05) for proxy in (whole, thinned))
    assert not np.array_equal(before, after)  # other windows from the first step on
    assert np.array_equal(whole._held_out(7), thinned._held_out(7))


def test_as_long_a_run_changes_nothing() -> None:
    plain, same = Proxy(texts(), 20), Proxy(texts(), 20, target_tokens=TOKENS)
    assert np.array_equal(plain.evaluate([[1, 2], [1, 0]]), same.evaluate([[1, 2], [1, 0]]))
    assert plain.remarks == ()
    (remark,) = same.remarks
    assert remark.startswith("Proxy runs have all of each source's text")


def test_streams_have_no_end_and_stay_as_they_are() -> None:
    stream = SyntheticDomain("stream", 20)
    proxy = Proxy([stream, *texts()], 20, target_tokens=16 * TOKENS)
    assert proxy.domains[0] is stream
    with pytest.raises(MixtureError, match=r"target_tokens must come with domains of texts.* \['stream', 'other'\]"):
        Proxy([stream, SyntheticDomain("other", 20)], 20, target_tokens=TOKENS)


def test_texts_that_cannot_be_thinned_are_refused() -> None:
    with pytest.raises(MixtureError, match="target_tokens must come with domains that are TokenDomain, but got <"):
        Proxy([Texts(), *texts()], 20, target_tokens=16 * TOKENS)
    assert Proxy([Texts(), *texts()], 20).evaluate([[1, 1, 1]]).shape == (1, 3)


def test_too_little_text_is_refused_with_the_steps_that_would_do() -> None:
    target_tokens = 20_000_000
    with pytest.raises(MixtureError, match="steps of a proxy run must be at least 157 to repeat domain 'small'"):
        Proxy(texts(), 156, target_tokens=target_tokens)
    proxy = Proxy(texts(), 157, target_tokens=target_tokens)
    assert [domain.training_windows(9) for domain in proxy.domains] == [1, 8]
    assert "Proxy runs have 1 window of 'small', and say little" in proxy.remarks[1]
    with pytest.raises(MixtureError, match="at least 157 to repeat domain 'small'"):  # of the one that needs most
        Proxy(texts()[::-1], 2, target_tokens=target_tokens)


def test_little_text_is_remarked_with_the_steps_that_would_do() -> None:
    proxy = Proxy(texts(), 20, target_tokens=100 * TOKENS)
    told = [remark for remark in proxy.remarks if "'small'" in remark]
    assert told == [
        "Proxy runs have 10 windows of 'small', and say little of its share; runs of 32 steps would have 16."
    ]
    enough = Proxy(texts(), 32, target_tokens=100 * TOKENS)
    assert len(enough.remarks) == 1


def test_rows_of_the_run_are_told_where_they_are_known() -> None:
    domains = texts(rows=100)
    assert tokens_a_row(domains) == 340
    assert tokens_a_row(texts()) is None
    (remark,) = Proxy(domains, 20, target_tokens=16 * TOKENS).remarks
    assert remark == (
        "Proxy runs have 6.2% of each source's text, and repeat it as often as a run of 40,960 tokens, about 120 rows."
    )


def test_a_source_that_was_read_in_part_is_thinned_by_its_whole_size() -> None:
    part, whole = texts(whole=100_000)[0], texts(small=100_000)[0]
    windows = [
        Proxy([one, texts()[1]], 20, target_tokens=32 * TOKENS).domains[0].training_windows(9) for one in (part, whole)
    ]
    assert windows == [391, 391]
    proxy = Proxy(texts(whole=10**6), 200, target_tokens=11 * TOKENS)  # each run would read all of a part, often
    assert any("Of 'small' too few tokens were read, 8,000 of 1,000,000" in remark for remark in proxy.remarks)
    domain = TextDomain("t", ["ten bytes."] * 50, rows=500)
    assert (len(domain), domain.whole) == (550, 5500)
    with pytest.raises(MixtureError, match=r"whole must be an integer in \[40, "):
        TokenDomain("t", np.ones(40, dtype=int), 5, whole=39)


def test_longer_proxies_than_the_run_itself_say_so() -> None:
    (remark,) = Proxy(texts(), 20, target_tokens=TOKENS // 2).remarks
    assert remark == "Proxy runs are longer than a run of 1,280 tokens, and repeat sources more often."


def test_receipts_say_how_often_proxies_repeat() -> None:
    proxy = Proxy(texts(), 20, target_tokens=16 * TOKENS)
    assert search(proxy, NAMES, 6, method="bandit", audit_seeds=1).remarks[:1] == proxy.remarks
    _, receipt = optimize_mixture(texts(), 20, 4, proxy_kwargs={"target_tokens": 16 * TOKENS}, return_receipt=True)
    assert receipt.remarks[:1] == proxy.remarks


def test_thinned_text_goes_to_other_processes() -> None:
    proxy = Proxy(texts(), 20, target_tokens=16 * TOKENS)
    assert np.array_equal(pickle.loads(pickle.dumps(proxy)).evaluate([[1, 1]]), proxy.evaluate([[1, 1]]))


def test_losses_beyond_the_steps_are_not_of_thinned_text() -> None:
    proxy = Proxy(texts(), 20, target_tokens=16 * TOKENS)
    with pytest.raises(MixtureError, match="target_steps must come with a proxy without target_tokens"):
        SearchPlan(score=proxy, space=Space(NAMES), budget=6, target_steps=100)


@pytest.mark.parametrize("part", [0, -0.5, 1.01, float("nan"), True, "half"])
def test_parts_are_checked(part: object) -> None:
    with pytest.raises(MixtureError, match="part must be"):
        texts()[0].thinned(part)
    with pytest.raises(MixtureError, match="target_tokens must be an integer in"):
        Proxy(texts(), 20, target_tokens=0)
