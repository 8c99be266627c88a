"""Names in a configuration: any import path, and some short names.

Bare names are those of this project's own parts, and of torch's and torch_geometric's layers: by the
class (`GATv2Conv`, `LeakyReLU`), or short, as the libraries' own resolvers have them (`gatv2`,
`leaky_relu`).
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
"""By kind: a bare name, and where it leads."""

_LIBRARIES: dict[str, tuple[tuple[str, str], ...]] = {
    "convolution": ((f"{_PYG}.conv", "Conv"),),
    "norm": ((f"{_PYG}.norm", "Norm"),),
    "activation": (("torch.nn.modules.activation", ""),),
    "pooling": ((f"{_PYG}.aggr", "Aggregation"),),
    "monitor": (("castoff.trainers.gnn.monitors", ""),),
    "criterion": (("castoff.trainers.gnn.criteria", ""),),
}
"""By kind: modules all of whose public names count, and the ending that a short name leaves out."""

_BASES = ("MessagePassing", "Aggregation", "classes")
"""What those modules list that is nothing by itself."""

KINDS = tuple(_OWN)


def found(value: Any, field: str, kind: str) -> Any:
    """The class, function or object that a field names.

    `kind`: one of KINDS; "encoder" is a layer. What is not text and no `!pyobject` comes back as it is.

    Raises:
        ConfigError: nothing is known by that name, or it cannot be called.
    """
    if isinstance(value, str):
        return _by_name(value, field, "layer" if kind == "encoder" else kind)
    thing = resolved(value, field) if isinstance(value, PyObject) else value
    if not callable(thing):
        raise ConfigError([f"{field}: is {value!r}, but takes a class or function: {_WRITE}"])
    return thing


_WRITE = "write !pyobject and its import path, or one of the names in docs/reference/gnn-models.md"


def arguments(value: Any, field: str, problems: list[str]) -> Any:
    """Arguments with every `!pyobject` in them resolved, however deep in lists and mappings.

    What cannot be found comes to `problems`, with its place.
    """
    if isinstance(value, PyObject):
        try:
            return resolved(value, field)
        except ConfigError as error:
            problems += error.problems
            return value
    if isinstance(value, Mapping):
        return {name: arguments(each, f"{field}.{name}", problems) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        made = [arguments(each, f"{field}[{number}]", problems) for number, each in enumerate(value)]
        return made if isinstance(value, list) or hasattr(value, "_fields") else tuple(made)
    return value


def _by_name(name: str, field: str, kind: str) -> Any:
    path = _paths(kind).get(_plain(name))
    if path is not None:
        module, _, attribute = path.rpartition(".")
        return getattr(import_module(module), attribute)
    if "." in name:
        raise ConfigError([f"{field}: is the text {name!r}; write !pyobject {name}"])
    near = did_you_mean(name, _spelled(kind)) or _among(_OWN[kind], kind)
    problem = f"{field}: is {name!r}, and no {kind} is known by that name"
    raise ConfigError([f"{problem}{near}; anything else by !pyobject and its import path"])


def _among(names: Iterable[str], kind: str) -> str:
    listed = ", ".join((*names, *(f"the names in {module}" for module, _ in _LIBRARIES.get(kind, ()))))
    return f"; there are {listed}" if listed else ""


@lru_cache
def _paths(kind: str) -> dict[str, str]:
    """Where each name of a kind leads, by its plain spelling; what this project has wins."""
    if kind == "layer":  # any class of the libraries, but no short names: "graph" is several
        theirs = [_classes(each) for each in _LIBRARIES if each not in ("monitor", "criterion")]
        classes = {_plain(name): path for names in theirs for name, (path, _) in names.items()}
    else:
        classes = {}
        for name, (path, ending) in _classes(kind).items():
            classes[_plain(name)] = path
            classes.setdefault(_plain(name.removesuffix(ending)), path)
    return classes | {_plain(name): path for name, path in _OWN[kind].items()}


def _classes(kind: str) -> dict[str, tuple[str, str]]:
    """What the libraries have of a kind: where it is, and the ending of such names."""
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
    """A name without what people spell differently."""
    return name.replace("_", "").replace("-", "").lower()
