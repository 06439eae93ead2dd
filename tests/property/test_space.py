"""Whatever the bounds: mixtures made are inside them, and projections are the nearest ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvee.search.methods.coordinates import Sticks
from cuvee.search.space import Space


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Any feasible space of 2 to 8 domains, some shares fixed."""
    size = draw(st.integers(2, 8))
    inside = np.array(draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size)))
    inside /= inside.sum()
    width = st.lists(st.sampled_from([0.0, 0.01, 0.3, 1.0]), min_size=size, max_size=size)
    lower = np.clip(inside - np.array(draw(width)), 0, 1)
    upper = np.clip(inside + np.array(draw(width)), 0, 1)
    prior = np.array(draw(st.lists(st.sampled_from([0.0, 0.1, 1.0, 7.0]), min_size=size, max_size=size)))
    prior[0] += 0.5
    return Space([f"d{place}" for place in range(size)], lower=lower, upper=upper, prior=prior)


def points(space: Space, seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, space.size)) * rng.choice([0.1, 1, 10], (n, 1))


@settings(max_examples=150, deadline=None)
@given(spaces(), st.integers(0, 1000))
def test_all_mixtures_made_are_in_the_space(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wild = points(space, seed, 20)
    made = [space.project(wild), space.fit(np.abs(wild)), space.sample(20, rng), space.lattice(2), space.corners()]
    made += [space.moves(space.prior, 20, rng), space.sample(9, rng, around=space.uniform, strengths=(50, 500))]
    made += [space.prior[None], space.uniform[None], space.fit(np.zeros((1, space.size)))]
    for mixtures in made:
        assert space.contains(mixtures).all()
        assert (mixtures >= 0).all()


@settings(max_examples=100, deadline=None)
@given(spaces(), st.integers(0, 1000))
def test_projection_is_the_nearest_mixture_and_changes_none_inside(space: Space, seed: int) -> None:
    wild = points(space, seed, 5)
    near = space.project(wild)
    others = space.sample(40, np.random.default_rng(seed))
    # the angle between where a point lies and any mixture, seen from its projection, is not below a right one
    inner = ((wild - near)[:, None, :] * (others[None] - near[:, None, :])).sum(axis=-1)
    assert (inner <= 1e-7 * (1 + np.abs(wild).max())).all()
    assert np.abs(space.project(others) - others).max() < 1e-9
    assert np.abs(space.fit(others) - others).max() < 1e-6


@settings(max_examples=100, deadline=None)
@given(spaces(), st.integers(0, 1000))
def test_coordinates_lead_to_their_mixture_and_back(space: Space, seed: int) -> None:
    sticks = Sticks(space)
    for mixture in space.sample(5, np.random.default_rng(seed), strengths=(1, 50)):
        coordinates = sticks.coordinates(mixture)
        assert coordinates.shape == (max(0, int(space.free.sum()) - 1),)
        assert ((coordinates >= 0) & (coordinates <= 1)).all()
        assert np.abs(sticks.mixture(coordinates) - mixture).max() < 1e-6
