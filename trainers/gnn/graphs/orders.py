"""A stored matrix as an order: its padding cut off, turned and numbered so that it is upper triangular."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy
import numpy.typing

from castoff.trainers.gnn.causets.order import Order, closed, links

Array: TypeAlias = "numpy.typing.NDArray[Any]"


class Ordered(NamedTuple):
    """An order, strictly upper triangular, and its links."""

    order: Order
    bare: Order
    numbers: numpy.typing.NDArray[numpy.int64] | None
    """The element of the stored matrix that each is; None: they are as they were."""


def ordered(matrix: Array, size: int | None, transposed: bool | None) -> Ordered:
    """The order that a matrix means; one that has links alone is closed.

    `size`: how many elements there are, of those that the matrix has room for. `transposed`: whether [i, j]
    says that j precedes i; None: what the matrix shows, in which an earlier element has a lower number.

    Raises:
        ValueError: it means none; the text says why.
    """
    related = _within(matrix, size)
    diagonal = related.diagonal()
    if len(diagonal) and diagonal.all():  # each precedes itself, as some write it
        related = related & ~numpy.eye(len(related), dtype=bool)
    elif diagonal.any():
        raise ValueError(f"element {int(diagonal.argmax())} precedes itself, which no order has")
    below, above = bool(numpy.tril(related).any()), bool(numpy.triu(related).any())
    if transposed or (transposed is None and below and not above):
        related = related.T
        below, above = above, below
    numbers = None
    if below:
        numbers = _in_time(related)
        if transposed is None:
            raise ValueError(
                "its matrix is neither upper nor lower triangular, so it does not show which of two elements "
                "comes first; say it: data.transposed: true where [i, j] says that j precedes i, else false"
            )
        related = related[numpy.ix_(numbers, numbers)]
    order = numpy.ascontiguousarray(related)
    bare = links(order)
    return Ordered(closed(order) if (bare == order).all() else order, bare, numbers)


def _within(matrix: Array, size: int | None) -> Order:
    """Which elements are related, without the room that is left."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"its matrix has the shape {matrix.shape}, which is not a square")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"its matrix holds {matrix.dtype}, and no numbers")
    if matrix.dtype.kind == "f" and not numpy.isfinite(matrix).all():
        raise ValueError("its matrix has NaN or infinity in it")
    related: Order = matrix != 0
    if size is None:
        return related
    if not 1 <= size <= len(related):
        raise ValueError(f"it has {size} elements by its size, but a matrix of {len(related)}")
    if related[size:].any() or related[:, size:].any():
        raise ValueError(f"it has {size} elements by its size, but relations of others beyond them")
    return related[:size, :size]


def _in_time(related: Order) -> numpy.typing.NDArray[numpy.int64]:
    """The elements in an order in which none comes after one that it precedes."""
    waiting = related.sum(0, dtype=numpy.int64)
    left = numpy.ones(len(related), dtype=bool)
    found = []
    while left.any():
        ready = numpy.flatnonzero(left & (waiting == 0))
        if not len(ready):
            some = numpy.flatnonzero(left)[:3].tolist()
            raise ValueError(f"its relations have a cycle near the elements {some}, which no order has")
        left[ready] = False
        waiting -= related[ready].sum(0, dtype=numpy.int64)
        found.append(ready)
    return numpy.concatenate(found) if found else numpy.empty(0, dtype=numpy.int64)
