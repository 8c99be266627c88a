"""What a configuration need not say where causal sets are generated: network, criterion, measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trainers.core.config import Config, Evaluator, Monitor
from trainers.gnn.causets.features import NODE, SCALARS

HIDDEN = 64
_FEATURES = 32
_POOLED = ("mean", "max")
_HEAD: list[Any] = [
    "LinearSequential",
    [[len(_POOLED) * HIDDEN + _FEATURES, HIDDEN, 1]],
    {"activations": "relu"},
]

MODEL: dict[str, Any] = {
    "type": "GNNModel",
    "encoder_type": "Encoder",
    "encoder_kwargs": {
        "in_dim": len(NODE),
        "hidden": [HIDDEN, HIDDEN, HIDDEN],
        "convolution": "sage",
        "norm": "batch",
        "dropout": 0.05,
    },
    "pooling_layers": list(_POOLED),
    "graph_features_net_type": "LinearSequential",
    "graph_features_net_kwargs": {"dims": [len(SCALARS), _FEATURES, _FEATURES], "activations": "relu"},
    "downstream_tasks": [_HEAD, _HEAD],
}
"""Three blocks; the means and largest values of a set's elements beside its scalars; two heads."""

CRITERION = "manifold_and_dimension"

MONITORS: list[dict[str, Any]] = [
    {"name": "accuracy", "monitor": "Accuracy", "kwargs": {"head": 0, "column": 0}},
    {"name": "f1", "monitor": "F1", "kwargs": {"head": 0, "column": 0, "average": "macro"}},
    {
        "name": "dimension_error",
        "monitor": "MeanAbsoluteError",
        "kwargs": {"head": 1, "column": 1, "where": 1},
    },
]
"""`evaluator_tasks` of validation and test."""


def with_defaults(config: Config) -> Config:
    """The same configuration, and what it does not say where `data.causets` generates its sets.

    A `model` that names no encoder has its own fields and those of MODEL. Measures of heads that are not
    active are left out.
    """
    if "causets" not in config.data:
        return config
    model = dict(config.model)
    if not {"type", "encoder_type"} & model.keys():
        model = {**MODEL, **model}
    changes: dict[str, Any] = {"model": model}
    if config.criterion is None:
        changes["criterion"] = CRITERION
        evaluator = Evaluator(evaluator_tasks=_monitors(model.get("active_tasks")))
        if config.validation.validator is None:
            changes["validation"] = msgspec.structs.replace(config.validation, validator=evaluator)
        if config.testing.tester is None:
            changes["testing"] = msgspec.structs.replace(config.testing, tester=evaluator)
    return msgspec.structs.replace(config, **changes)


def _monitors(active: Any) -> list[Monitor]:
    """Those of active heads; numbers may be text, as `--set` leaves them."""
    off = {str(head) for head, on in active.items() if on is False} if isinstance(active, Mapping) else set()
    return [Monitor(**each) for each in MONITORS if str(each["kwargs"]["head"]) not in off]
