"""Batches reach the device whatever they are made of, and stay what they are."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from castoff.trainers.task import move

META = torch.device("meta")
"""A device whose tensors are not the CPU's, and which every machine has."""


def tensor() -> Tensor:
    return torch.ones(2)


@dataclass
class Pair:
    first: Tensor
    second: Any
    name: str = "pair"


@dataclass(frozen=True, slots=True)
class Fixed:
    numbers: Tensor
    length: int = field(init=False, default=2)


class Named(NamedTuple):
    numbers: Tensor
    names: list[str]


class Encoding(UserDict[str, Any]):
    """As transformers' BatchEncoding, whose older versions know no non_blocking."""

    def to(self, device: torch.device) -> Encoding:
        self.data = {name: each.to(device) for name, each in self.data.items()}
        return self


class InPlace:
    """Moves itself, and gives nothing."""

    def __init__(self) -> None:
        self.numbers = tensor()

    def to(self, device: torch.device, non_blocking: bool = False) -> None:
        assert non_blocking
        self.numbers = self.numbers.to(device)


class ReadOnly(Mapping[str, Any]):
    def __init__(self, given: Mapping[str, Any]):
        self._given = dict(given)

    def __getitem__(self, name: str) -> Any:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class Indexed(dict[str, Any]):
    """Has something beside its items."""

    offset = 0


def indexed() -> Indexed:
    made = Indexed(numbers=tensor())
    made.offset = 7
    return made


def inside(batch: Any) -> list[Tensor]:
    """The tensors that a batch of these tests has."""
    if isinstance(batch, Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        return [each for part in batch.values() for each in inside(part)]
    if isinstance(batch, list | tuple):
        return [each for part in batch for each in inside(part)]
    names = getattr(batch, "__dataclass_fields__", None) or getattr(batch, "__dict__", {})
    return [each for name in names for each in inside(getattr(batch, name))]


@pytest.mark.parametrize(
    "batch",
    [
        tensor(),
        (tensor(), "text", 3),
        [{"numbers": tensor()}, None],
        Named(tensor(), ["a"]),
        torch.return_types.max((tensor(), tensor())),
        OrderedDict(numbers=tensor()),
        defaultdict(list, numbers=[tensor()]),
        UserDict(numbers=tensor()),
        Encoding(numbers=tensor()),
        MappingProxyType({"numbers": tensor()}),
        ReadOnly({"numbers": tensor()}),
        indexed(),
        Pair(tensor(), {"inner": Pair(tensor(), [tensor()])}),
        Fixed(tensor()),
        InPlace(),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_a_batch_is_moved_and_keeps_its_class(batch: Any) -> None:
    before = inside(batch)
    moved = move(batch, META)
    assert type(moved) is type(batch)
    found = inside(moved)
    assert len(found) == len(before) > 0 and all(each.device == META for each in found)


def test_what_it_was_made_of_stays(tmp_path: Any) -> None:
    pair = Pair(tensor(), [tensor()])
    lists: defaultdict[str, list[Tensor]] = defaultdict(list, numbers=[tensor()])
    move((pair, UserDict(pair=pair), lists), META)
    assert all(each.device.type == "cpu" for each in inside(pair))
    assert move(indexed(), META).offset == 7
    assert move(lists, META).default_factory is list
    assert move(Fixed(tensor()), META).length == 2


def test_lengths_of_packed_sequences_stay_on_the_cpu() -> None:
    """Where torch demands them."""
    moved = move({"text": pack_sequence([torch.ones(3), torch.ones(2)])}, META)["text"]
    assert isinstance(moved, PackedSequence)
    assert moved.data.device == META and moved.batch_sizes.device.type == "cpu"
