"""The network that a configuration's `model` section describes, and how it is applied to graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.gnn_model import GNNModel
from castoff.trainers.gnn.models.inputs import given, taken
from castoff.trainers.gnn.models.parts import Fields, built, part
from castoff.trainers.gnn.names import found


def model_of(section: Mapping[str, Any]) -> nn.Module:
    """Make the network of class `type`, by default GNNModel if there is an encoder_type, with its arguments
    by name.

    Another class also gets its arguments by name, or as `args` and `kwargs` if the section has nothing else.

    Raises:
        ConfigError: lists every problem of the section.
    """
    fields = dict(section)
    name = fields.pop("type", GNNModel if "encoder_type" in fields else None)
    if name is None:
        raise ConfigError(["model.type: is missing; write GNNModel, or !pyobject my_package.MyModel"])
    make = found(name, "model.type", "model")
    if make is GNNModel:
        return GNNModel.from_config(fields)
    problems: list[str] = []
    if fields and set(fields) <= {"args", "kwargs"}:
        at = Fields("model.type", "model.args", "model.kwargs")
        described = part(make, fields.get("args"), fields.get("kwargs"), at, "model", problems)
    else:
        described = part(make, None, fields, Fields("model.type", "model", "model"), "model", problems)
    if described is None:
        raise ConfigError(problems)
    return built(described, factory=True)


Applied = Callable[[nn.Module, Any], Any]
"""Maps a model, which may be wrapped, and a batch of graphs to the model's output."""


def applied(model: nn.Module) -> Applied:
    """A function that applies a model to a batch of graphs, passing the inputs that the model's forward has
    parameters for.

    Always x and edge_index; each node's graph as `batch`, or as the third parameter whatever its name; the
    number of graphs as `size`, `num_graphs` or `batch_size`; `edge_attr`, `edge_weight` and `graph_features`,
    if the graphs have them.
    """
    takes = taken(model, leaving=2)
    names = list(inspect.signature(model.forward).parameters)
    third = len(names) > 2 and names[2] not in takes and "batch" not in takes

    def apply(called: nn.Module, graphs: Any) -> Any:
        more = {name: graphs.get(name) for name in ("edge_attr", "edge_weight", "graph_features")}
        stated = given(takes, batch=graphs.batch, size=graphs.num_graphs, **more)
        first = (graphs.x, graphs.edge_index, *([graphs.batch] if third else []))
        return called(*first, **stated)

    return apply
