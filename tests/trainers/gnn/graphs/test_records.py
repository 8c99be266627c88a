"""A graph is the same after it was written, whatever it holds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor
from torch_geometric.data import Batch, Data

from castoff.trainers.gnn.graphs.records import decoded, encoded

DTYPES = [
    *(torch.float32, torch.int64, torch.bool, torch.float64, torch.int32, torch.uint8, torch.int16),
    *(torch.int8, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.uint16, torch.uint32, torch.uint64),
]
NAMES = some.sampled_from(
    ["x", "edge_index", "y", "kind", "pos", "größe", "a name", "num_nodes", "train_mask"]
)


@some.composite
def tensors(draw: some.DrawFn) -> Tensor:
    """Of any type and shape, scalars and empty ones too, and not always contiguous."""
    shape = draw(some.lists(some.integers(0, 4), max_size=3))
    dtype = draw(some.sampled_from(DTYPES))
    size = math.prod(shape) * dtype.itemsize
    content = bytearray(draw(some.binary(min_size=size, max_size=size)))
    if not size:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool:
        content = bytearray(byte % 2 for byte in content)
    found = torch.frombuffer(content, dtype=dtype).view(shape)
    return found.T if len(shape) == 2 and draw(some.booleans()) else found


PLAIN = some.none() | some.booleans() | some.integers() | some.floats() | some.text() | some.binary()
VALUES = some.recursive(
    PLAIN | tensors(),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.lists(inner, max_size=3).map(tuple)
        | some.dictionaries(some.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and bits(one) == bits(other)
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@settings(max_examples=60)
@given(some.dictionaries(NAMES, VALUES, max_size=6))
def test_a_graph_comes_back_bit_by_bit(content: dict[str, Any]) -> None:
    data = Data.from_dict(content)
    back = decoded(bytearray(encoded(data)))
    assert type(back) is Data and same(data.to_dict(), back.to_dict())


@settings(max_examples=60)
@given(some.binary(max_size=80))
def test_bytes_that_are_not_a_record_are_reported(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a graph's record"):
        decoded(bytearray(content))


def test_a_record_that_was_cut_is_reported() -> None:
    record = encoded(Data(x=torch.ones(3, 4)))
    for length in range(len(record) - 1):
        with pytest.raises(ValueError, match="not a graph's record"):
            decoded(bytearray(record[:length]))


def test_what_is_done_in_place_stays_in_the_graph() -> None:
    record = encoded(Data(x=torch.ones(3, 4), y=torch.zeros(1, 2)))
    first = decoded(bytearray(record))
    first.x += 1
    assert first.y.tolist() == [[0, 0]] and decoded(bytearray(record)).x.tolist() == [[1] * 4] * 3


def test_gradients_and_conjugates_are_written_as_values() -> None:
    data = Data(x=torch.ones(2, requires_grad=True), z=torch.tensor([1 + 2j]).conj())
    back = decoded(bytearray(encoded(data)))
    assert not back.x.requires_grad and back.z.tolist() == [1 - 2j]


class Pair(Data):  # type: ignore[misc]
    """Says how it becomes a batch."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 100 if key == "other" else super().__inc__(key, value, *args, **kwargs)


def test_a_class_of_the_users_stays_what_it_is() -> None:
    pairs = [Pair(x=torch.ones(2, 1), other=torch.zeros(1)) for _ in range(2)]
    back = [decoded(bytearray(encoded(each))) for each in pairs]
    assert Batch.from_data_list(back).other.tolist() == [0, 100]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Data(a=object()), "a: is a builtins.object"),
        (Data(a={"b": [1, torch.eye(2).to_sparse()]}), "a: is a tensor of torch.float32, torch.sparse_coo"),
        (Data(a={(1, 2): 3}), "a: is a builtins.dict"),
        (Batch.from_data_list([Data(x=torch.ones(1, 1))]), "is a DataBatch"),
        (type("Local", (Data,), {})(x=torch.ones(1)), "Local, which cannot be imported"),
        ({"x": torch.ones(1)}, "is a dict"),
    ],
)
def test_what_cannot_be_written_is_named(data: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        encoded(data)
