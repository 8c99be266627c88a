"""A stored matrix as an order: without padding, transposed and renumbered to be upper triangular."""

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
    """Each element's index in the stored matrix; None: unchanged."""


def ordered(matrix: Array, size: int | None, transposed: bool | None) -> Ordered:
    """The order that a matrix describes; if it has links only, the other relations are added.

    `size`: the number of elements, if the matrix has room for more. `transposed`: whether [i, j] means that j
    precedes i; None: inferred from the matrix, in which an earlier element must have a lower number.

    Raises:
        ValueError: it is not an order; the message says why.
    """
    related = _within(matrix, size)
    diagonal = related.diagonal()
    if len(diagonal) and diagonal.all():  # a reflexive order
        related = related & ~numpy.eye(len(related), dtype=bool)
    elif diagonal.any():
        raise ValueError(f"element {int(diagonal.argmax())} precedes itself, which is impossible in an order")
    below, above = bool(numpy.tril(related).any()), bool(numpy.triu(related).any())
    if transposed or (transposed is None and below and not above):
        related = related.T
        below, above = above, below
    numbers = None
    if below:
        numbers = _in_time(related)
        if transposed is None:
            raise ValueError(
                "its matrix is neither upper nor lower triangular, so it does not show which of two "
                "elements comes first; set data.transposed: true if [i, j] means that j precedes i, "
                "else false"
            )
        related = related[numpy.ix_(numbers, numbers)]
    order = numpy.ascontiguousarray(related)
    bare = links(order)
    return Ordered(closed(order) if (bare == order).all() else order, bare, numbers)


def _within(matrix: Array, size: int | None) -> Order:
    """Which elements are related, without the matrix's unused part."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"its matrix has the shape {matrix.shape}, which is not a square")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"its matrix holds {matrix.dtype}, not numbers")
    if matrix.dtype.kind == "f" and not numpy.isfinite(matrix).all():
        raise ValueError("its matrix has NaN or infinity in it")
    related: Order = matrix != 0
    if size is None:
        return related
    if not 1 <= size <= len(related):
        raise ValueError(f"its size is {size} elements, but its matrix has {len(related)}")
    if related[size:].any() or related[:, size:].any():
        raise ValueError(f"its size is {size} elements, but its matrix also relates others")
    return related[:size, :size]


def _in_time(related: Order) -> numpy.typing.NDArray[numpy.int64]:
    """The elements sorted so that each comes before all that it precedes."""
    waiting = related.sum(0, dtype=numpy.int64)
    remaining = numpy.ones(len(related), dtype=bool)
    sorted_groups = []
    while remaining.any():
        ready = numpy.flatnonzero(remaining & (waiting == 0))
        if not len(ready):
            in_cycle = numpy.flatnonzero(remaining)[:3].tolist()
            raise ValueError(
                f"its relations have a cycle near the elements {in_cycle}, which is impossible in an order"
            )
        remaining[ready] = False
        waiting -= related[ready].sum(0, dtype=numpy.int64)
        sorted_groups.append(ready)
    return numpy.concatenate(sorted_groups) if sorted_groups else numpy.empty(0, dtype=numpy.int64)
