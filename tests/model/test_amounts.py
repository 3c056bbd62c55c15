"""Amounts are compared in every dimension, and may be negative where they say what is left."""

from durable.model.resources import (
    NOTHING,
    at_least_nothing,
    at_most,
    how_often,
    lower_of,
    minus,
    plus,
    show_amounts,
    show_dimension,
    times,
)


def test_amounts_are_added_and_subtracted_by_dimension() -> None:
    assert plus((1, 2, 3), (10, 20, 30)) == (11, 22, 33)
    assert minus((1, 2, 3), (10, 2, 1)) == (-9, 0, 2)
    assert times((1, 2, 3), 3) == (3, 6, 9)
    assert lower_of((1, 9, 3), (4, 2, 3)) == (1, 2, 3)
    assert at_least_nothing((-1, 0, 2)) == (0, 0, 2)


def test_one_dimension_too_many_does_not_fit() -> None:
    assert at_most((1, 2, 3), (1, 2, 3))
    assert not at_most((1, 2, 4), (9, 9, 3))


def test_the_scarcest_dimension_decides_how_often_something_fits() -> None:
    assert how_often((1000, 4096, 0), (500, 1024, 0)) == 2
    assert how_often((1000, 4096, 1), (500, 1024, 2)) == 0
    assert how_often((-500, 4096, 0), (500, 1024, 0)) == 0, "a grant that shrank below its use"


def test_amounts_read_well() -> None:
    assert show_amounts((500, 1024, 2)) == "500m cpu, 1Gi, 2 gpu"
    assert show_amounts(minus(NOTHING, (1, 1, 1))) == "0 cpu"
    assert [show_dimension(dimension, 1024) for dimension in range(3)] == [
        "1024m cpu",
        "1Gi memory",
        "1024 gpu",
    ]
