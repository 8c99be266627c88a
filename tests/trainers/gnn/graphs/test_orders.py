"""Which order a stored matrix means."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from castoff.trainers.gnn.causets.order import links
from castoff.trainers.gnn.graphs.orders import ordered
from tests.trainers.gnn.graphs import written

ORDER = written.orders(1)[0]


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float32", "int64"])
def test_either_way_round_it_is_the_same_order(dtype: str) -> None:
    for matrix, stated in ((ORDER, None), (ORDER.T, None), (ORDER, False), (ORDER.T, True)):
        found = ordered(matrix.astype(dtype), None, stated)
        assert (found.order == ORDER).all() and (found.bare == links(ORDER)).all() and found.numbers is None


def test_a_given_order_is_used() -> None:
    found = ordered(ORDER, None, True)
    assert found.numbers is not None
    assert (found.order == ORDER.T[numpy.ix_(found.numbers, found.numbers)]).all()
    assert not numpy.tril(found.order).any()


@settings(max_examples=30)
@given(some.permutations(range(len(ORDER))), some.booleans())
def test_elements_in_any_numbering_are_put_in_time(places: list[int], transposed: bool) -> None:
    matrix = ORDER[numpy.ix_(places, places)]
    found = ordered(matrix.T if transposed else matrix, None, transposed)
    assert not numpy.tril(found.order).any() and found.order.sum() == ORDER.sum()
    numbers = numpy.arange(len(matrix)) if found.numbers is None else found.numbers
    assert (found.order == matrix[numpy.ix_(numbers, numbers)]).all()


def test_a_matrix_that_does_not_show_the_way_needs_the_argument() -> None:
    places = numpy.random.default_rng(0).permutation(len(ORDER))
    with pytest.raises(ValueError, match=r"set data\.transposed"):
        ordered(ORDER[numpy.ix_(places, places)], None, None)


def test_links_alone_are_closed() -> None:
    assert (ordered(links(ORDER).astype(float), None, None).order == ORDER).all()


def test_faults_in_an_order_stay() -> None:
    faulty = numpy.zeros((4, 4), dtype=bool)
    faulty[[0, 1, 0, 2], [1, 2, 2, 3]] = True
    assert (ordered(faulty, None, None).order == faulty).all()


def test_elements_that_precede_themselves_all_do() -> None:
    assert (ordered(ORDER | numpy.eye(len(ORDER), dtype=bool), None, None).order == ORDER).all()


def test_what_is_left_of_the_room_is_cut_off() -> None:
    room = numpy.zeros((len(ORDER) + 7,) * 2)
    room[: len(ORDER), : len(ORDER)] = ORDER.T
    assert (ordered(room, len(ORDER), None).order == ORDER).all()


CIRCLE = numpy.roll(numpy.eye(4), 1, axis=1)


@pytest.mark.parametrize(
    ("matrix", "size", "said"),
    [
        (CIRCLE, None, r"have a cycle near the elements \[0, 1, 2\]"),
        (numpy.diag([0, 1, 0]), None, "element 1 precedes itself"),
        (numpy.zeros((3, 4)), None, r"shape \(3, 4\), which is not a square"),
        (numpy.zeros(3), None, "not a square"),
        (numpy.full((2, 2), numpy.nan), None, "NaN"),
        (numpy.array([["a"]]), None, "not numbers"),
        (ORDER, len(ORDER) + 1, "elements, but its matrix has"),
        (ORDER, 0, "its size is 0 elements"),
        (ORDER, len(ORDER) - 1, "also relates others"),
    ],
)
def test_what_means_no_order_is_reported(matrix: written.ANY, size: int | None, said: str) -> None:
    for transposed in (None, False):
        with pytest.raises(ValueError, match=said):
            ordered(matrix, size, transposed)
