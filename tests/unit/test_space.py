"""Spaces of mixtures: bounds, what they refuse, and the mixtures they make."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cuvee.errors import MixtureError
from cuvee.search.space import Space

NAMES = ("web", "code", "math")


def test_default_space_is_the_whole_simplex() -> None:
    space = Space(NAMES)
    assert space.lower.tolist() == [0, 0, 0]
    assert space.upper.tolist() == [1, 1, 1]
    assert space.uniform == pytest.approx([1 / 3] * 3, abs=1e-15)
    assert space.prior.tolist() == space.uniform.tolist()
    assert space.free.all()


def test_bounds_are_tightened_by_what_the_others_leave() -> None:
    space = Space(NAMES, lower={"web": 0.5}, upper={"code": 0.1})
    assert space.lower == pytest.approx([0.5, 0, 0])
    assert space.upper == pytest.approx([1, 0.1, 0.5])
    assert Space(NAMES, upper={"code": 0.1, "math": 0.2}).lower == pytest.approx([0.7, 0, 0])


def test_fixed_shares_do_not_vary() -> None:
    space = Space(NAMES, fixed={"math": 0.25})
    assert space.free.tolist() == [True, True, False]
    drawn = space.sample(50, np.random.default_rng(0))
    assert drawn[:, 2] == pytest.approx(0.25)
    assert len(space.corners()) == 2
    assert Space(NAMES, fixed={"web": 0.5, "code": 0.5}).free.tolist() == [False, False, False]


def test_repetition_bounds_shares_by_rows_of_the_target() -> None:
    rows = {"web": 1000, "code": 100, "math": 50}
    space = Space(NAMES, rows=rows, target_rows=1000, max_repetition=4)
    assert space.upper == pytest.approx([1.0, 0.4, 0.2])  # 4 x 100 of 1000 rows, 4 x 50 of 1000
    assert space.prior == pytest.approx(np.array([1000, 100, 50]) / 1150)
    assert Space(NAMES, rows=rows).prior == pytest.approx(space.prior)  # in proportion to rows if nobody says


def test_prior_is_kept_in_ratio_where_bounds_allow() -> None:
    assert Space(NAMES, prior=[2, 1, 1]).prior == pytest.approx([0.5, 0.25, 0.25])
    assert Space(NAMES, prior=[6, 1, 1], upper={"web": 0.5}).prior == pytest.approx([0.5, 0.25, 0.25])
    assert Space(NAMES, prior=[1, 0, 0], upper={"web": 0.5}).prior == pytest.approx([0.5, 0.25, 0.25])


def test_projection_is_that_of_paper_and_pencil() -> None:
    space = Space(NAMES)
    assert space.project([1.0, 1.0, 0.0]) == pytest.approx([0.5, 0.5, 0.0])
    assert space.project([2.0, 0.0, 0.0]) == pytest.approx([1, 0, 0])
    assert space.project([0.5, 0.4, -1.0]) == pytest.approx([0.55, 0.45, 0])
    assert Space(NAMES, upper={"web": 0.4}).project([1, 0, 0]) == pytest.approx([0.4, 0.3, 0.3])


def test_lattice_has_every_composition_once() -> None:
    points = Space(NAMES).lattice(4)
    assert len(points) == math.comb(6, 2)
    assert points.sum(axis=1) == pytest.approx(1)
    assert len(np.unique(points, axis=0)) == len(points)
    bounded = Space(NAMES, upper={"web": 0.5}).lattice(1)
    assert bounded == pytest.approx(np.array([[0.5, 0.25, 0.25], [0, 1, 0], [0, 0, 1]]))
    assert Space(NAMES, fixed={"web": 0.5, "code": 0.2}).lattice(3).tolist() == [pytest.approx([0.5, 0.2, 0.3])]
    with pytest.raises(MixtureError, match="degree must give at most 1000000 mixtures of the lattice, but got"):
        Space([f"d{i}" for i in range(60)]).lattice(8)


def test_corners_give_a_domain_all_it_can_have() -> None:
    space = Space(NAMES, upper={"web": 0.6}, lower={"math": 0.1})
    assert space.corners() == pytest.approx(np.array([[0.6, 0.2, 0.2], [0, 0.9, 0.1], [0, 0, 1]]), abs=1e-6)


def test_a_single_domain_is_a_space_of_one_mixture() -> None:
    space = Space(["all"])
    assert space.prior.tolist() == [1.0]
    assert not space.free.any()
    assert space.sample(3, np.random.default_rng(0)).tolist() == [[1.0]] * 3
    assert space.corners().shape == (0, 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lower": {"webb": 0.1}}, r"lower must be of domains .* but got 'webb'; did you mean 'web'\?"),
        ({"lower": {"web": 1.5}}, r"lower of 'web' must be in \[0, 1\], but got 1.5"),
        ({"upper": {"web": math.nan}}, r"upper of 'web' must be in \[0, 1\], but got nan"),
        ({"upper": [0.5, 0.5]}, r"upper must have shape \(3,\), but got \(2,\)"),
        ({"upper": ["a", "b", "c"]}, "upper must be numbers, but got"),
        ({"lower": {"web": 0.7, "code": 0.7}}, "lower bounds must sum to at most 1, but got 1.4"),
        ({"upper": [0.2, 0.2, 0.2]}, "upper bounds must sum to at least 1, but got 0.6; raise upper or max_repetition"),
        (
            {"lower": {"web": 0.4}, "upper": {"web": 0.2}},
            "lower of 'web' must be at most its upper bound 0.2, but got 0.4",
        ),
        (
            {"fixed": {"web": 0.4}, "upper": {"web": 0.2}},
            r"fixed of 'web' must be within its bounds \[0, 0.2\], but got 0.4",
        ),
        ({"prior": [0, 0, 0]}, r"prior must not all be 0, but got \[0.0, 0.0, 0.0\]"),
        ({"prior": {"web": 1}}, r"prior must be given for every domain, but got none for \['code', 'math'\]"),
        ({"prior": [1, -1, 1]}, "prior of 'code' must be finite and at least 0, but got -1.0"),
        ({"max_repetition": 4}, "max_repetition must come with rows and target_rows, but got rows=None"),
        (
            {"rows": [1, 1, 1], "target_rows": 0, "max_repetition": 4},
            "target_rows must be finite and above 0, but got 0",
        ),
        (
            {"rows": [1, 1, 1], "target_rows": 9, "max_repetition": -1},
            "max_repetition must be finite and above 0, but got -1",
        ),
        (
            {"rows": [1, 1, 1], "target_rows": 90, "max_repetition": 4},
            "upper bounds must sum to at least 1, but got 0.13",
        ),
    ],
)
def test_what_is_refused(options: dict, text: str) -> None:
    with pytest.raises(MixtureError, match=text):
        Space(NAMES, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fixed": [0.5, 0.5, 0]}, r"fixed must be shares by name, but got \[0.5, 0.5, 0\]"),
        ({"rows": [10**400, 1, 1]}, "rows must be numbers, but got"),
        ({"lower": {NAMES[0]: True}}, "lower must be numbers, but got .True"),
        ({"upper": ["0.5", 1, 1]}, "upper must be numbers, but got"),
        (
            {"rows": [1, 1, 1], "target_rows": "9", "max_repetition": 4},
            "target_rows must be finite and above 0, but got '9'",
        ),
        (
            {"rows": [1, 1, 1], "target_rows": 9, "max_repetition": True},
            "max_repetition must be finite and above 0, but got True",
        ),
        (
            {"rows": [1, 1, 1], "target_rows": 10**400, "max_repetition": 4},
            "target_rows must be finite and above 0, but got 1000",
        ),
    ],
)
def test_what_is_no_number_is_refused(options: dict, text: str) -> None:
    with pytest.raises(MixtureError, match=text):
        Space(NAMES, **options)


def test_limits_beyond_all_numbers_are_none() -> None:
    space = Space(NAMES, rows=[1e308, 1e308, 1.0], target_rows=1, max_repetition=1e308)
    assert space.upper.tolist() == [1, 1, 1]


@pytest.mark.parametrize("names", ["abc", b"bytes", None, 5])
def test_names_are_a_sequence_of_names(names: object) -> None:
    with pytest.raises(MixtureError, match="names must be a sequence of names, but got"):
        Space(names)


def test_names_are_different_and_there_is_one() -> None:
    with pytest.raises(MixtureError, match="names must be different, but got 'a' twice"):
        Space(["a", "a"])
    with pytest.raises(MixtureError, match="number of domains must be an integer in"):
        Space([])
