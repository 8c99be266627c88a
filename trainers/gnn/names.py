"""Names in a configuration: any import path, and some short names.

Bare names are those of castoff's own parts, and of torch's and torch_geometric's layers: by the class
(`GATv2Conv`, `LeakyReLU`), or short, as in the libraries' own resolvers (`gatv2`, `leaky_relu`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from castoff.launcher.typed.suggestion import did_you_mean
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject, resolved

_MODELS = "castoff.trainers.gnn.models"
_PYG = "torch_geometric.nn"

_LAYERS = {
    name: f"{_MODELS}.{name}"
    for name in (
        "Encoder",
        "GNNBlock",
        "GPSModel",
        "LinearSequential",
        "ScaledSequential",
        "Sequential",
        "SkipConnection",
    )
} | {"GPSTransformer": f"{_MODELS}.GPSModel", "Linear": "torch.nn.Linear", "MLP": f"{_PYG}.MLP"}

_OWN: dict[str, dict[str, str]] = {
    "model": {"GNNModel": f"{_MODELS}.GNNModel"},
    "layer": _LAYERS | {"identity": "torch.nn.Identity"},
    "convolution": {"gin": f"{_MODELS}.layers.gin"},
    "norm": {
        "batch": f"{_MODELS}.layers.batch_norm",
        "batch_norm": f"{_MODELS}.layers.batch_norm",
        "layer": "torch.nn.LayerNorm",
        "layer_norm": "torch.nn.LayerNorm",
        "BatchNorm1d": "torch.nn.BatchNorm1d",
        "RMSNorm": "torch.nn.RMSNorm",
        "identity": "torch.nn.Identity",
    },
    "activation": {"identity": "torch.nn.Identity"},
    "pooling": {
        "mean": f"{_PYG}.global_mean_pool",
        "max": f"{_PYG}.global_max_pool",
        "sum": f"{_PYG}.global_add_pool",
        "add": f"{_PYG}.global_add_pool",
        "global_mean_pool": f"{_PYG}.global_mean_pool",
        "global_max_pool": f"{_PYG}.global_max_pool",
        "global_add_pool": f"{_PYG}.global_add_pool",
    },
    "aggregation": {name: f"{_MODELS}.aggregations.{name}" for name in ("cat", "sum", "mean", "max")},
    "monitor": {},
    "criterion": {},
}
"""Bare names of each kind, and their import paths."""

_LIBRARIES: dict[str, tuple[tuple[str, str], ...]] = {
    "convolution": ((f"{_PYG}.conv", "Conv"),),
    "norm": ((f"{_PYG}.norm", "Norm"),),
    "activation": (("torch.nn.modules.activation", ""),),
    "pooling": ((f"{_PYG}.aggr", "Aggregation"),),
    "monitor": (("castoff.trainers.gnn.monitors", ""),),
    "criterion": (("castoff.trainers.gnn.criteria", ""),),
}
"""For each kind, modules whose public names are known, and the ending that short names leave out."""

_BASES = ("MessagePassing", "Aggregation", "classes")
"""Public names of these modules that are useless by themselves."""

KINDS = tuple(_OWN)


def found(value: Any, field: str, kind: str) -> Any:
    """Find the class, function or object that a field names.

    `kind`: one of KINDS; "encoder" is a layer. A value that is neither text nor a `!pyobject` is returned as
    it is.

    Raises:
        ConfigError: there is no such name, or its value cannot be called.
    """
    if isinstance(value, str):
        return _by_name(value, field, "layer" if kind == "encoder" else kind)
    target = resolved(value, field) if isinstance(value, PyObject) else value
    if not callable(target):
        raise ConfigError([f"{field}: is {value!r}, but takes a class or function: {_WRITE}"])
    return target


_WRITE = "write !pyobject and its import path, or one of the names in docs/reference/gnn-models.md"


def arguments(value: Any, field: str, problems: list[str]) -> Any:
    """Resolve every `!pyobject` in arguments, at any depth of lists and mappings.

    Names that cannot be found are added to `problems`, with their fields.
    """
    if isinstance(value, PyObject):
        try:
            return resolved(value, field)
        except ConfigError as error:
            problems += error.problems
            return value
    if isinstance(value, Mapping):
        return {name: arguments(item, f"{field}.{name}", problems) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [arguments(item, f"{field}[{number}]", problems) for number, item in enumerate(value)]
        return items if isinstance(value, list) or hasattr(value, "_fields") else tuple(items)
    return value


def _by_name(name: str, field: str, kind: str) -> Any:
    path = _paths(kind).get(_plain(name))
    if path is not None:
        module, _, attribute = path.rpartition(".")
        return getattr(import_module(module), attribute)
    if "." in name:
        raise ConfigError([f"{field}: is the text {name!r}; write !pyobject {name}"])
    near = did_you_mean(name, _spelled(kind)) or _among(_OWN[kind], kind)
    problem = f"{field}: is {name!r}, but no {kind} is known by that name"
    raise ConfigError([f"{problem}{near}; anything else by !pyobject and its import path"])


def _among(names: Iterable[str], kind: str) -> str:
    listed = ", ".join((*names, *(f"the names in {module}" for module, _ in _LIBRARIES.get(kind, ()))))
    return f"; there are {listed}" if listed else ""


@lru_cache
def _paths(kind: str) -> dict[str, str]:
    """The import path of each name of a kind, by its plain spelling; castoff's own names come first."""
    if kind == "layer":  # all classes, but no short names: "graph" is ambiguous
        theirs = [_classes(each) for each in _LIBRARIES if each not in ("monitor", "criterion")]
        classes = {_plain(name): path for names in theirs for name, (path, _) in names.items()}
    else:
        classes = {}
        for name, (path, ending) in _classes(kind).items():
            classes[_plain(name)] = path
            classes.setdefault(_plain(name.removesuffix(ending)), path)
    return classes | {_plain(name): path for name, path in _OWN[kind].items()}


def _classes(kind: str) -> dict[str, tuple[str, str]]:
    """The libraries' names of a kind, each with its import path and the ending that short names leave out."""
    return {
        name: (f"{module}.{name}", ending)
        for module, ending in _LIBRARIES.get(kind, ())
        for name in import_module(module).__all__
        if name not in _BASES
    }


def _spelled(kind: str) -> list[str]:
    """The names of a kind as people write them."""
    theirs = _classes(kind) if kind != "layer" else {}
    short = [name.removesuffix(ending).lower() for name, (_, ending) in theirs.items()]
    return list(dict.fromkeys([*_OWN[kind], *short, *theirs]))


def _plain(name: str) -> str:
    """A name in lower case, without underscores and hyphens."""
    return name.replace("_", "").replace("-", "").lower()
