"""Modules that compute their intermediate results twice: the same numbers to the bit, and the same names."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.activation_checkpointing import checkpoint_activations
from castoff.trainers.optimization.wrapping import prepared_model
from tests.trainers.toys import Toy, config


class Block(nn.Module):
    """Random numbers, and buffers that count."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.calls = 0

    def forward(self, numbers: Tensor, *, scale: float = 1.0) -> Tensor:
        self.calls += 1
        out: Tensor = nn.functional.dropout(self.norm(self.inner(numbers)).tanh(), 0.3, self.training)
        return numbers + scale * out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, numbers: Tensor) -> Tensor:
        for block in self.blocks:
            numbers = block(numbers, scale=0.5)
        return numbers


def made(*patterns: str) -> Net:
    torch.manual_seed(0)
    net = Net()
    checkpoint_activations(net, patterns)
    return net


def stepped(net: Net) -> list[Tensor]:
    """Everything that two steps change."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()
    return [*net.state_dict().values(), torch.rand(1)]


def calls(net: Net) -> list[int]:
    return [block.calls for block in net.blocks if isinstance(block, Block)]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [(["Block"], [4, 4, 4]), (["blocks.1"], [2, 4, 2]), (["blocks.*.inner"], [2, 2, 2])],
)
def test_the_numbers_are_the_same_to_the_bit(patterns: list[str], expected: list[int]) -> None:
    plain, again = made(), made(*patterns)
    wanted = stepped(plain)
    found = stepped(again)
    assert all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))
    assert plain.state_dict().keys() == again.state_dict().keys()
    assert (calls(plain), calls(again)) == ([2, 2, 2], expected)


def test_an_evaluation_computes_once() -> None:
    net = made("Block").eval()
    net(torch.randn(4, 8))
    with torch.no_grad():
        net.train()(torch.randn(4, 8))
    assert calls(net) == [2, 2, 2]


def test_a_copy_computes_with_its_own_weights() -> None:
    net = made("Block")
    copied = copy.deepcopy(net).eval()
    numbers = torch.randn(4, 8)
    before = copied(numbers)
    stepped(net)
    assert torch.equal(copied(numbers), before)
    assert not torch.equal(net.eval()(numbers), before)


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(ConfigError) as caught:
        made("Block", "layers.*", "blocks")
    assert str(caught.value) == (
        "training.activation_checkpointing: 'layers.*' is neither the name nor the class of a part of the "
        "model, which has blocks (ModuleList), blocks.* (3 of Block), blocks.*.inner (3 of Linear), "
        "blocks.*.norm (3 of BatchNorm1d)"
    )
    with pytest.raises(ConfigError, match=r"blocks: without a forward pass; name what is in it, such"):
        made("blocks")


def test_the_field(tmp_path: Path) -> None:
    fields = Config.of(config(tmp_path, activation_checkpointing=["Linear"]))
    model = prepared_model(Toy(), fields, RankContext(0, 1, torch.device("cpu")))
    assert [name for name, each in model.named_modules() if "forward" in vars(each)] == ["0", "3"]
