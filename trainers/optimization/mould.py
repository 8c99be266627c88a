"""Copies of a sharded model: whole ones, which are evaluated, and parts of an average."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, complex, str, type(None))
"""Types of attributes that copies take over, since training may change them."""


class Mould:
    """A model's modules without weights, from which copies are made.

    It is made before the model is sharded, because torch cannot copy sharded modules.
    """

    def __init__(self, model: nn.Module):
        memo = {id(each): _without_memory(each) for each in model.parameters()}
        self._empty = copy.deepcopy(model, memo)

    @torch.no_grad()
    def filled(self, model: nn.Module, weight: Callable[[Tensor], Tensor]) -> nn.Module:
        """A copy with `weight(parameter)` in place of each of the model's parameters, and with copies of its
        buffers. Parameters that were shared still are.
        """
        made = copy.deepcopy(self._empty)
        given = dict(model.named_parameters())
        for name, places in _places(made).items():
            parameter = nn.Parameter(weight(given[name].detach()), given[name].requires_grad)
            for module, attribute in places:
                module.register_parameter(attribute, parameter)
        modules = dict(model.named_modules())
        for name, module in made.named_modules():
            _take_over(module, modules[name])
        return made

    def unfilled(self, device: torch.device) -> nn.Module:
        """A copy on a device, whose weights must be loaded."""
        made = copy.deepcopy(self._empty)
        for places in _places(made).values():
            module, attribute = places[0]
            like = getattr(module, attribute)
            parameter = nn.Parameter(torch.empty_like(like, device=device), like.requires_grad)
            for module, attribute in places:
                module.register_parameter(attribute, parameter)
        return made.to(device)  # its buffers


def _without_memory(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(torch.empty_like(parameter, device="meta"), parameter.requires_grad)


def _places(model: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """The modules and attributes that hold each parameter, by the name that `named_parameters` gives it."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    places: dict[str, list[tuple[nn.Module, str]]] = defaultdict(list)
    for module in model.modules():
        for attribute, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            places[names[parameter]].append((module, attribute))
    return places


def _take_over(module: nn.Module, model: nn.Module) -> None:
    """Copy the buffers and simple attributes of a module."""
    for name, buffer in model.named_buffers(recurse=False):
        setattr(module, name, buffer.clone())
    vars(module).update({name: value for name, value in vars(model).items() if type(value) in _PLAIN})
