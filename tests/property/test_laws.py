"""Laws of losses, whatever the numbers: they find themselves again, fall with tokens, and do not hang on any order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cuvee.errors import CuveeError
from cuvee.search.laws import PowerLaw, ScaleLaw, ScaleModel, StepLaw, effective_tokens, effective_weights, grown_shares
from cuvee.search.laws.repetition import REPEATS

FEW = settings(max_examples=12, deadline=None)
MANY = settings(max_examples=60, deadline=None)
COUNTS = st.floats(1e-12, 1e18)
SEEDS = st.integers(0, 2**32 - 1)


# --- repetition
@MANY
@given(
    tokens=arrays(np.float64, 12, elements=st.floats(0, 1e18)),
    unique=COUNTS,
    repeats=st.sampled_from([1e-3, 1.0, REPEATS, 1e4]),
)
def test_effective_tokens_are_fewer_rise_and_saturate(tokens: np.ndarray, unique: float, repeats: float) -> None:
    tokens = np.sort(tokens)
    worth = effective_tokens(tokens, unique, repeats=repeats)
    assert (worth <= tokens).all()
    assert (worth >= 0).all()
    assert (worth <= unique * (1 + repeats) * (1 + 1e-12)).all()  # those there are, and what repeats can give at most
    assert (np.diff(worth) >= -1e-12 * worth[1:]).all()
    assert worth[tokens <= unique] == pytest.approx(tokens[tokens <= unique], rel=1e-15)


@MANY
@given(unique=COUNTS, repeats=st.sampled_from([0.5, 1.0, REPEATS, 1e4]), most=st.floats(1.5, 1e4))
def test_effective_tokens_are_concave_and_whole_in_the_first_epoch(unique: float, repeats: float, most: float) -> None:
    worth = effective_tokens(np.linspace(0, most * unique, 200), unique, repeats=repeats)
    assert (np.diff(worth, 2) <= 1e-9 * worth[-1]).all()
    assert effective_tokens(unique, unique, repeats=repeats) == unique
    assert effective_tokens(most * unique, unique, repeats=repeats) > unique


@MANY
@given(tokens=COUNTS, unique=COUNTS, scale=st.floats(1e-6, 1e6))
def test_effective_tokens_have_no_unit(tokens: float, unique: float, scale: float) -> None:
    scaled = effective_tokens(scale * tokens, scale * unique)
    assert scaled == pytest.approx(scale * effective_tokens(tokens, unique), rel=1e-7)


@MANY
@given(tokens=st.floats(0, 1e308), unique=st.floats(5e-324, float("inf")), repeats=st.floats(1e-300, 1e300))
def test_effective_tokens_of_any_size_are_numbers(tokens: float, unique: float, repeats: float) -> None:
    worth = effective_tokens(tokens, unique, repeats=repeats)
    assert 0 <= worth <= tokens


@MANY
@given(seed=SEEDS, domains=st.integers(1, 6), tokens=st.floats(1, 1e15))
def test_effective_weights_are_the_weights_until_something_repeats(seed: int, domains: int, tokens: float) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(domains), 4)
    assert effective_weights(weights, tokens, np.full(domains, tokens)) == pytest.approx(weights, rel=1e-12)
    unique = tokens * rng.uniform(0.001, 1, domains)
    worth = effective_weights(weights, tokens, unique)
    assert (worth <= weights * (1 + 1e-12)).all()
    order = rng.permutation(domains)
    assert effective_weights(weights[:, order], tokens, unique[order]) == pytest.approx(worth[:, order], rel=1e-12)


# --- power law
@st.composite
def chinchillas(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, tokens and noise-free losses of a grid of runs that follow some power law."""
    floor, a, b = draw(st.floats(0.5, 3)), draw(st.floats(0.2, 0.5)), draw(st.floats(0.2, 0.5))
    capacity, data = draw(st.floats(0.2, 1)), draw(st.floats(0.2, 1))
    size, unit = draw(st.floats(1e3, 1e12)), draw(st.floats(1e3, 1e12))
    sizes, tokens = (part.ravel() for part in np.meshgrid(np.geomspace(0.1, 10, 5), np.geomspace(0.1, 10, 5)))
    return size * sizes, unit * tokens, floor + capacity * sizes**-a + data * tokens**-b


@FEW
@given(chinchillas())
def test_a_power_law_finds_itself_again(runs: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    sizes, tokens, losses = runs
    model = PowerLaw().fit(sizes, tokens, losses)
    assert model.predict(sizes, tokens) == pytest.approx(losses, rel=2e-3)


@FEW
@given(runs=chinchillas(), seed=SEEDS)
def test_losses_of_a_power_law_fall_with_size_and_tokens(runs: tuple[np.ndarray, ...], seed: int) -> None:
    sizes, tokens, losses = runs
    noisy = losses * np.exp(0.05 * np.random.default_rng(seed).standard_normal(len(losses)))
    model = PowerLaw().fit(sizes, tokens, noisy)
    more = np.geomspace(1e-3, 1e6, 40)
    assert (np.diff(model.predict(np.full(40, sizes[0]), tokens[0] * more)) <= 0).all()
    assert (np.diff(model.predict(sizes[0] * more, np.full(40, tokens[0]))) <= 0).all()
    assert (np.diff(model.predict(np.full(40, sizes[0]), tokens[0] * more, unique=tokens[0])) <= 0).all()
    assert (model.predict(sizes, 1e9 * tokens) >= model.floor).all()


@FEW
@given(runs=chinchillas(), seed=SEEDS)
def test_a_power_law_does_not_hang_on_the_order_of_runs(runs: tuple[np.ndarray, ...], seed: int) -> None:
    sizes, tokens, losses = runs
    rng = np.random.default_rng(seed)
    noisy, order = losses * np.exp(0.01 * rng.standard_normal(len(losses))), rng.permutation(len(losses))
    one = PowerLaw().fit(sizes, tokens, noisy).predict(sizes, tokens)
    other = PowerLaw().fit(sizes[order], tokens[order], noisy[order]).predict(sizes, tokens)
    assert other == pytest.approx(one, rel=1e-3)


@settings(max_examples=5, deadline=None)
@given(runs=chinchillas(), seed=st.integers(0, 2**31))
def test_bootstraps_of_a_power_law_are_reproducible(runs: tuple[np.ndarray, ...], seed: int) -> None:
    sizes, tokens, losses = runs
    noisy = losses * np.exp(0.02 * np.random.default_rng(seed).standard_normal(len(losses)))
    law = PowerLaw(draws=12, seed=seed)
    low, high = law.fit(sizes, tokens, noisy).interval(sizes, tokens, level=0.95)
    assert (low <= high).all()
    again = law.fit(sizes, tokens, noisy).interval(sizes, tokens, level=0.95)
    assert [part.tolist() for part in again] == [low.tolist(), high.tolist()]


# --- law of steps
STEPS = np.arange(20.0, 220, 20)


@st.composite
def curves(draw: st.DrawFn) -> np.ndarray:
    """Noise-free losses (M, T, D) with one exponent for each loss."""
    rng = np.random.default_rng(draw(SEEDS))
    runs, losses = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    exponents = np.exp(rng.uniform(np.log(0.2), np.log(0.8), losses))
    floors = rng.uniform(1, 3, (runs, losses))
    table = floors[:, None] + rng.uniform(0.5, 1, losses) * (STEPS / STEPS[-1])[:, None] ** -exponents
    return np.asarray(table)


@MANY
@given(curves())
def test_a_law_of_steps_finds_its_curves_again(table: np.ndarray) -> None:
    model = StepLaw(burn_in=0.0, draws=0).fit(STEPS, table)
    for place, steps in enumerate(STEPS.tolist()):
        assert model.predict(steps)[0] == pytest.approx(table[:, place], rel=0.01)


@MANY
@given(table=curves(), seed=SEEDS, noise=st.sampled_from([0.0, 0.01, 0.3]))
def test_losses_of_a_law_of_steps_fall_with_steps(table: np.ndarray, seed: int, noise: float) -> None:
    noisy = table * np.exp(noise * np.random.default_rng(seed).standard_normal(table.shape))
    model = StepLaw(draws=3).fit(STEPS, noisy)
    along = np.array([model.predict(steps)[0] for steps in np.geomspace(1, 1e9, 30)])
    assert (np.diff(along, axis=0) <= 1e-12 * np.abs(along[1:])).all()
    assert (np.diff([model.samples(steps) for steps in (100, 1000, 10**6)], axis=0) <= 1e-12).all()


@MANY
@given(table=curves(), seed=SEEDS)
def test_a_law_of_steps_does_not_hang_on_any_order(table: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    noisy = table * np.exp(0.02 * rng.standard_normal(table.shape))
    law, runs, losses = StepLaw(draws=5, seed=seed), rng.permutation(len(table)), rng.permutation(table.shape[2])
    one, other = law.fit(STEPS, noisy), law.fit(STEPS, noisy[runs][:, :, losses])
    assert other.samples(1000) == pytest.approx(one.samples(1000)[:, runs][:, :, losses], rel=1e-6)
    assert law.fit(STEPS, noisy).samples(1000).tolist() == one.samples(1000).tolist()
    assert other.exponents.tolist() == one.exponents[losses].tolist()


@MANY
@given(table=curves(), unit=st.floats(1e-6, 1e6))
def test_a_law_of_steps_has_no_unit(table: np.ndarray, unit: float) -> None:
    one = StepLaw(draws=0).fit(STEPS, table).predict(5000)[0]
    assert StepLaw(draws=0).fit(unit * STEPS, table).predict(unit * 5000)[0] == pytest.approx(one, rel=1e-9)


# --- scale law
def checkpoints(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mixtures of three domains, sizes, tokens and losses of runs that follow a law, with a little noise."""
    rng = np.random.default_rng(seed)
    mixtures = rng.dirichlet(np.ones(3), 9)
    rows = [(m, n, d) for m in range(len(mixtures)) for n in (1e8, 4e8) for d in (8e9, 12e9, 16e9, 2e10)]
    which, sizes, tokens = (np.array(column) for column in zip(*rows, strict=True))
    weights = mixtures[which]
    worth = 0.1 + 0.9 * np.eye(3) + 0.2 * rng.random((3, 3))
    data = (0.05 + weights**0.6 @ worth.T) ** -0.3
    losses = 1 + 0.4 * (sizes[:, None] / 1e8) ** -0.22 + data * (tokens[:, None] / 1e10) ** -0.3
    return weights, sizes, tokens, losses + 0.002 * rng.standard_normal(losses.shape)


def fitted(seed: int) -> tuple[ScaleModel, tuple[np.ndarray, ...]]:
    runs = checkpoints(seed)
    return ScaleLaw().fit(*runs), runs


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1000))
def test_a_scale_law_finds_its_runs_again_and_falls_with_size_and_tokens(seed: int) -> None:
    model, (weights, sizes, tokens, losses) = fitted(seed)
    mean, deviation = model.predict(weights, sizes, tokens)
    late = tokens >= 1e10
    assert np.abs(mean / losses - 1)[late].max() < 0.03
    assert np.isfinite(deviation).all()
    assert (deviation > 0).all()
    more = np.geomspace(1e10, 1e14, 12)
    same = np.repeat(weights[:1], 12, axis=0)
    assert (np.diff(model.predict(same, 4e8, more)[0], axis=0) <= 0).all()
    assert (np.diff(model.predict_mean(same, 1e-2 * more, 2e10)[0]) <= 0).all()
    low, high = model.interval(same, 4e8, more)
    assert ((low <= model.predict(same, 4e8, more)[0]) & (model.predict(same, 4e8, more)[0] <= high)).all()


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 1000))
def test_a_scale_law_does_not_hang_on_any_order(seed: int) -> None:
    model, (weights, sizes, tokens, losses) = fitted(seed)
    rng = np.random.default_rng(seed)
    runs, domains = rng.permutation(len(weights)), rng.permutation(3)
    own = np.argsort(domains)  # loss i stays where it is, its domain moves
    at = rng.dirichlet(np.ones(3), 5)
    mean, deviation = model.predict(at, 1e9, 3e10)
    by_runs = ScaleLaw().fit(weights[runs], sizes[runs], tokens[runs], losses[runs]).predict(at, 1e9, 3e10)
    assert by_runs[0] == pytest.approx(mean, rel=2e-3)
    assert by_runs[1] == pytest.approx(deviation, rel=0.1)
    moved = (
        ScaleLaw(own=own.tolist()).fit(weights[:, domains], sizes, tokens, losses).predict(at[:, domains], 1e9, 3e10)
    )
    assert moved[0] == pytest.approx(mean, rel=0.01)


# --- spread
@MANY
@given(seed=SEEDS, growth=st.floats(1, 1e12), losses=st.integers(1, 8))
def test_grown_shares_are_shares_and_widest_losses_lose_most(seed: int, growth: float, losses: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(4), 10)
    table = 2 + np.exp(rng.normal(0, 2, losses)) * rng.standard_normal((10, losses))
    shares = grown_shares(weights, table, growth)
    assert shares.sum() == pytest.approx(1)
    assert (np.diff(shares[np.argsort(table.std(axis=0))]) <= 1e-12).all()
    order, runs = rng.permutation(losses), rng.permutation(10)
    assert grown_shares(weights[runs], table[runs][:, order], growth) == pytest.approx(shares[order])
    assert grown_shares(weights, table, 1) == pytest.approx(np.full(losses, 1 / losses))


# --- anything at all
def refusal(call: Callable[[], object]) -> str:
    """Return what a call says against its arguments; the form of it if it took them."""
    try:
        call()
    except CuveeError as error:
        return str(error)
    return "arguments must be taken or refused, but got neither"


ANYTHING = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.floats(),
    st.lists(st.floats(), max_size=8),
    arrays(np.float64, st.tuples(st.integers(0, 8), st.integers(0, 3)), elements=st.floats(allow_infinity=True)),
    st.just([[1.0, 2.0], [3.0]]),
    st.just(10**400),
)


@settings(max_examples=150, deadline=None)
@given(st.tuples(ANYTHING, ANYTHING, ANYTHING, ANYTHING))
def test_what_is_no_table_is_refused_in_a_sentence(given_: tuple) -> None:
    one, two, three, four = given_
    for call in (
        lambda: effective_tokens(one, two),
        lambda: effective_weights(one, two, three),
        lambda: PowerLaw(huber=four).fit(one, two, three),
        lambda: PowerLaw().fit(one, two, three, unique=four),
        lambda: StepLaw(burn_in=three).fit(one, two),
        lambda: ScaleLaw().fit(one, two, three, four),
        lambda: grown_shares(one, two, three, shares=four),
    ):
        assert " must be " in refusal(call)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, exponent=st.sampled_from([-25, -8, 0, 8, 25]), same=st.booleans())
def test_few_equal_and_enormous_numbers_give_numbers(seed: int, exponent: int, same: bool) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    unit, spread = 10.0**exponent, 0.0 if same else 1.0
    sizes, tokens, losses = (unit * np.exp(spread * rng.standard_normal(count)) for _ in range(3))
    if count >= 6:
        assert np.isfinite(PowerLaw(draws=2).fit(sizes, tokens, losses).interval(sizes, tokens)).all()
    table = unit * np.exp(spread * rng.standard_normal((count, 5, 2)))
    for part in StepLaw(draws=2).fit(unit * np.arange(1.0, 6), table).predict(min(1e30, 100 * unit)):
        assert np.isfinite(part).all()
    weights = rng.dirichlet(np.ones(2), count)
    assert np.isfinite(grown_shares(weights, table[:, 0], 1e6)).all()
