"""The keyed bijection: exhaustively a permutation, and uniformly random to chi-square tests. All keys are fixed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cuvee import _core

POWERS = [n for b in range(13, 19) for n in (2**b - 1, 2**b, 2**b + 1)]
LARGE = [
    *(n for b in (19, 24, 31, 32, 33, 40, 48, 61) for n in (2**b - 1, 2**b, 2**b + 1)),
    3 * 10**9,
    10**12 + 39,
    2**62,
]
SMALL = [2, 3, 4, 5, 7, 16, 17, 18, 20, 31, 32, 33, 64, 65, 100]


def assert_chi_square(
    observed: NDArray[np.int64],
    *,
    shares: NDArray[np.int64] | None = None,
    freedom: int | None = None,
    shrink: float = 1.0,
) -> None:
    """Expectations in proportion to `shares`, equal without; `shrink` corrects for sampling without return.

    The Wilson-Hilferty deviate of the statistic, standard normal for a uniform order, must be within 4.5.
    """
    shares = np.ones(observed.shape, np.int64) if shares is None else shares
    expected = observed.sum() * shares / shares.sum()
    statistic = float(((observed - expected) ** 2 / expected).sum()) * shrink
    freedom = freedom or observed.size - 1
    spread = 2 / (9 * freedom)
    deviate = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    assert abs(deviate) < 4.5, f"chi-square {statistic:.1f} at {freedom} degrees of freedom, deviate {deviate:.2f}"


def assert_permutation(n: int, key: int) -> None:
    permuted = _core.permute(n, key=key)
    assert (np.bincount(permuted, minlength=n) == 1).all()
    assert len(permuted) == n
    assert (_core.permute_inverse(n, permuted, key=key) == np.arange(n)).all()


def test_every_small_n_is_a_permutation() -> None:
    for n in range(1, 4097):
        assert_permutation(n, key=n * n)


@pytest.mark.parametrize("n", POWERS)
def test_permutation_around_powers_of_two(n: int) -> None:
    assert_permutation(n, key=12345)


def test_20_million_rows() -> None:
    n = 20_000_000
    seen = np.zeros(n, dtype=bool)
    seen[_core.permute(n, key=5, threads=2)] = True
    assert seen.all()


@pytest.mark.parametrize("n", LARGE)
def test_sampled_permutation(n: int) -> None:
    rng = np.random.default_rng(n)
    index = np.unique(np.concatenate([rng.integers(0, n, 20_000), [0, n - 1], np.arange(100)]))
    permuted = _core.permute_at(n, index, key=77)
    assert permuted.min() >= 0
    assert permuted.max() < n
    assert len(np.unique(permuted)) == len(index)
    assert (_core.permute_inverse(n, permuted, key=77) == index).all()
    assert (_core.permute_inverse(n, index, key=77) != index).any()


def test_every_way_of_asking_agrees() -> None:
    for n in (1, 2, 16, 17, 1000, 70_000, 3 * 10**9):
        stop = min(n, 50_000)
        whole = _core.permute(n, key=3, stop=stop)
        assert (_core.permute_at(n, np.arange(stop), key=3) == whole).all()
        for isa, threads in itertools.product(_core.ISAS, (1, 2, 5)):
            assert (_core.permute(n, key=3, stop=stop, threads=threads, isa=isa) == whole).all()
        for start in (0, 1, stop // 3, stop - 1, stop):
            assert (_core.permute(n, key=3, start=start, stop=stop) == whole[start:]).all()


@pytest.mark.parametrize("n", SMALL)
def test_values_are_uniform_at_every_place(n: int) -> None:
    keys = 20_000 if n <= 20 else 5_000
    table = np.zeros((n, n), dtype=np.int64)
    places = np.arange(n)
    for key in range(keys):
        table[places, _core.permute(n, key=key)] += 1
    assert_chi_square(table, freedom=(n - 1) ** 2, shrink=(n - 1) / n)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_all_orders_are_equally_likely(n: int) -> None:
    orders = {order: i for i, order in enumerate(itertools.permutations(range(n)))}
    counts = np.zeros(len(orders), dtype=np.int64)
    for key in range(200 * len(orders)):
        counts[orders[tuple(_core.permute(n, key=key).tolist())]] += 1
    assert_chi_square(counts)


@pytest.mark.parametrize("n", [n for n in SMALL if 3 <= n <= 65])
def test_adjacent_pairs_are_uniform(n: int) -> None:
    table = np.zeros((n, n), dtype=np.int64)
    start = n // 2 - 1
    for key in range(30_000):
        first, second = _core.permute(n, key=key, start=start, stop=start + 2).tolist()
        table[first, second] += 1
    assert table.diagonal().sum() == 0
    assert_chi_square(table[~np.eye(n, dtype=bool)])


@pytest.mark.parametrize("n", [257, 1000, 4097, 65_537, 10**6, 3 * 10**9])
def test_steps_between_neighbours_are_uniform(n: int) -> None:
    """(pi(i+1) - pi(i)) mod n, in 32 bins, over many keys."""
    edges = [1 + (n - 1) * b // 32 for b in range(33)]
    counts = np.zeros(32, dtype=np.int64)
    for key in range(4000):
        permuted = _core.permute(n, key=key, start=0, stop=20)
        steps = np.diff(permuted)[::2] % n
        counts += np.histogram(steps, bins=edges)[0]
    assert counts.sum() == 40_000
    assert_chi_square(counts, shares=np.diff(edges))


def test_first_percent_of_a_billion_rows() -> None:
    n, taken = 10**9, 2 * 10**6
    bins = np.bincount(_core.permute(n, key=11, stop=taken) * 200 // n, minlength=200)
    assert_chi_square(bins, shrink=1 / (1 - taken / n))


def test_keys_next_to_each_other_give_unrelated_orders() -> None:
    n = 1000
    orders = np.stack([_core.permute(n, key=key) for key in range(200)])
    same = (orders[1:] == orders[:-1]).sum()
    assert abs(same - 199) < 4.5 * math.sqrt(199)  # one fixed point expected per pair, variance one
