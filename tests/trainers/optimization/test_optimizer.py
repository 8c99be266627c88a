"""Which of torch's implementations of an optimizer is used, and checkpoints of the others."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from castoff.trainers.configuration.config import Config
from castoff.trainers.optimization.optimizer import load_optimizer, make_optimizer
from tests.trainers.toys import Toy, config


class Groups(Toy):
    """A group for each parameter, with the same entries."""

    def __init__(self, **entries: Any):
        super().__init__()
        self.entries = entries

    def parameters(self, model: nn.Module) -> list[dict[str, Any]]:
        return [{"params": [each], **self.entries} for each in model.parameters()]


def made(
    task: Toy | None = None, kind: Any = torch.optim.AdamW, model: nn.Module | None = None, **kwargs: Any
) -> torch.optim.Optimizer:
    fields = config("x", optimizer_type=kind, optimizer_kwargs={"lr": 0.01, **kwargs})
    return make_optimizer(Config.of(fields), task or Toy(), model or layers())


def layers(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(8, 3, dtype=dtype)


def fused(optimizer: torch.optim.Optimizer) -> set[Any]:
    return {group.get("fused") for group in optimizer.param_groups}


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("task", [Toy(), Groups(lr=0.1)])
def test_adam_is_fused_on_a_cpu(kind: Any, task: Toy) -> None:
    assert fused(made(task, kind)) == {True}


@pytest.mark.parametrize("kwargs", [{"fused": False}, {"foreach": True}, {"differentiable": True}])
def test_the_users_choice_wins(kwargs: dict[str, Any]) -> None:
    assert True not in fused(made(**kwargs))
    assert True not in fused(made(Groups(**kwargs)))


def test_others_stay_as_torch_makes_them() -> None:
    class Own(torch.optim.AdamW):
        pass

    assert True not in fused(made(kind=torch.optim.SGD))  # whose fused version takes no sparse gradients
    assert True not in fused(made(kind=Own))
    assert True not in fused(made(model=layers(torch.complex64)))


def steps(optimizer: torch.optim.Optimizer, model: nn.Module, *numbers: int) -> None:
    for number in numbers:
        torch.manual_seed(number)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


@pytest.mark.parametrize(
    ("before", "after"), [({}, {"fused": False}), ({"fused": False}, {}), ({"foreach": True}, {}), ({}, {})]
)
def test_each_resumes_from_the_others_checkpoint(before: dict[str, Any], after: dict[str, Any]) -> None:
    whole, model = made(model=(one := layers()), **after), one
    steps(whole, model, 1, 2, 3, 4)

    first_model = layers()
    first = made(model=first_model, **before)
    steps(first, first_model, 1, 2)
    second_model = copy.deepcopy(first_model)
    second = made(model=second_model, **after)
    lines = load_optimizer(second, copy.deepcopy(first.state_dict()))
    steps(second, second_model, 3, 4)

    assert fused(second) == fused(whole)
    assert bool(lines) == (before != after), "the log names what has changed"
    found, wanted = (values(each) for each in (second, whole))
    if before == after:
        assert all(a.equal(b) for a, b in zip(found, wanted, strict=True))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)


def values(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    states = [each for parameter in parameters for each in optimizer.state[parameter].values()]
    return [*(each.detach() for each in parameters), *states]


class Views(nn.Module):
    """A parameter with `weights`, which may be a view."""

    def __init__(self, weights: Tensor):
        super().__init__()
        self.weights = nn.Parameter(weights)


NUMBERS = torch.arange(48.0).reshape(2, 4, 6) / 7


@pytest.mark.parametrize(
    ("view", "is_dense"),
    [
        (NUMBERS[..., ::2], False),
        (NUMBERS[..., 1:4], False),
        (NUMBERS[:, 1], False),
        (NUMBERS.transpose(0, 2), True),
        (NUMBERS[:1, :, :].transpose(1, 2), True),
        (NUMBERS[..., 2][:1, :0], True),
    ],
)
def test_views_train_as_copies_do(view: Tensor, is_dense: bool) -> None:
    """Torch's fused Adam would change elements of memory that are not the view's."""
    memory = view.clone() if is_dense else NUMBERS.clone()
    model = Views(memory if is_dense else memory.as_strided(view.shape, view.stride(), view.storage_offset()))
    plain = Views(view.clone(memory_format=torch.contiguous_format))
    optimizer, other = made(model=model), made(model=plain, fused=False)
    assert fused(optimizer) == ({True} if is_dense else {None})
    for number in range(3):
        torch.manual_seed(number)
        plain.weights.grad = torch.randn(view.shape)
        model.weights.grad = torch.empty_like(model.weights).copy_(plain.weights.grad)
        optimizer.step(), other.step()
    torch.testing.assert_close(model.weights, plain.weights)


def test_threads_do_not_change_its_results() -> None:
    """Else ranks with different numbers of threads would end up with different weights."""
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            model = nn.Linear(173, 389)
            torch.manual_seed(0)
            nn.init.normal_(model.weight), nn.init.normal_(model.bias)
            optimizer = made(model=model, weight_decay=0.1)
            steps(optimizer, model, 1, 2, 3)
            found.append(values(optimizer))
    finally:
        torch.set_num_threads(threads)
    assert all(one.equal(other) for one, other in zip(*found, strict=True))
