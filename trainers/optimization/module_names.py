"""Chooses modules of a model by the patterns of a configuration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from castoff.trainers.configuration.fields import ConfigError, few

Named = list[tuple[str, nn.Module]]
"""Modules and their names."""

WITHOUT_FORWARD = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
"""Containers, which have no forward pass."""

_SHOWN = 12
"""The most names and classes that a message lists."""


def named(model: nn.Module, patterns: Sequence[str], field: str, *, need_forward: bool = True) -> Named:
    """The modules that a pattern describes, in the model's order.

    A pattern is a name, such as `encoder.layers.*`, in which `*` stands for anything but a dot, or a class,
    such as `Block`.

    Raises:
        ConfigError: a pattern describes no module, or one without the forward pass that they need.
    """
    chosen: Named = []
    unmatched = set(patterns)
    for name, module in model.named_modules():
        matching = [pattern for pattern in patterns if name and _matches(pattern, name, module)]
        if matching:
            unmatched -= set(matching)
            chosen.append((name, module))
    if unmatched:
        there = ", ".join(_described(model))
        raise ConfigError(
            [
                f"{field}: {pattern!r} is neither the name nor the class of a part of the model, which has "
                f"{there}"
                for pattern in patterns
                if pattern in unmatched
            ]
        )
    silent = [name for name, module in chosen if isinstance(module, WITHOUT_FORWARD)]
    if silent and need_forward:
        raise ConfigError(
            [f"{field}: {few(silent)}: without a forward pass; name what is in it, such as {silent[0]}.*"]
        )
    return chosen


def _matches(pattern: str, name: str, module: nn.Module) -> bool:
    if pattern == type(module).__name__:
        return True
    wanted, parts = pattern.split("."), name.split(".")
    return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))


def _described(model: nn.Module) -> list[str]:
    """The model's parts that have parameters, outer ones first: `blocks.* (12 of Block)`."""
    counts: Counter[tuple[str, str]] = Counter()
    for name, module in model.named_modules():
        if name and any(True for _ in module.parameters()):
            counts[re.sub(r"(?<![^.])\d+(?![^.])", "*", name), type(module).__name__] += 1
    outer = sorted(counts, key=lambda entry: entry[0].count("."))
    words = [
        f"{name} ({kind if counts[name, kind] == 1 else f'{counts[name, kind]} of {kind}'})"
        for name, kind in outer[:_SHOWN]
    ]
    return [*words, f"and {len(outer) - _SHOWN} more"] if len(outer) > _SHOWN else words or ["no parts"]
