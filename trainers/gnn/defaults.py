"""What a configuration need not say where causal sets are generated: network, criterion, measures."""

from __future__ import annotations

from typing import Any

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
