"""Defaults for generated causal sets: network, criterion, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from torch.optim.lr_scheduler import ReduceLROnPlateau

from castoff.trainers.configuration.config import Config, Evaluator, Monitor
from castoff.trainers.configuration.pyobject import resolved
from castoff.trainers.gnn.causets.features import NODE, SCALARS
from castoff.trainers.task.configured_task import is_custom

HIDDEN = 64
_FEATURES = 32
_POOLED = ("mean", "max")
_HEAD: list[Any] = [
    "LinearSequential",
    [[len(_POOLED) * HIDDEN + _FEATURES, HIDDEN, 1]],
    {"activations": "relu"},
]
_MEANS = [0.26, 4.1, 3.3, 3.8, 2.2, 0.94, 2.5, 0.61, 1.1, 0.83, 0.58]
_SPREADS = [0.18, 0.32, 1.3, 3.0, 1.6, 0.47, 1.6, 0.40, 0.76, 0.67, 0.53]
"""Means and spreads of SCALARS, for the default kinds and sizes of causal sets."""

MODEL: dict[str, Any] = {
    "type": "GNNModel",
    "encoder_type": "Encoder",
    "encoder_kwargs": {
        "in_dim": len(NODE),
        "hidden": [HIDDEN, HIDDEN, HIDDEN],
        "convolution": "sage",
        "norm": "layer",
        "dropout": 0.0,
    },
    "pooling_layers": list(_POOLED),
    "graph_features_net_type": "ScaledSequential",
    "graph_features_net_kwargs": {
        "dims": [len(SCALARS), _FEATURES, _FEATURES],
        "means": _MEANS,
        "spreads": _SPREADS,
    },
    "downstream_tasks": [_HEAD, _HEAD],
}
"""Three blocks; mean and max pooling next to the set's scalars; two heads.

It has no batch norm, and no dropout before max pooling: these would shift outputs in training against those
in evaluation, by a tenth of a dimension.
"""

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
"""`evaluator_tasks` for validation and test."""


def with_defaults(config: Config) -> Config:
    """Fill in what a configuration leaves out, if its `data.causets` generates causal sets.

    The fields of a `model` that names no encoder override those of MODEL. With the built-in criterion, active
    heads are measured, but not those of a custom network, which are unknown.
    """
    if config.task is not None:
        return config
    config = _stepped_each_epoch(config)
    if "causets" not in config.data:
        return config
    model = dict(config.model)
    if not {"type", "encoder_type"} & model.keys():
        model = _over(model, MODEL)
    changes: dict[str, Any] = {"model": model}
    if config.criterion is None:
        monitors, (validation, testing) = _monitors(model), (config.validation, config.testing)
        changes["criterion"] = CRITERION
        changes["validation"] = replace(validation, validator=_measuring(validation.validator, monitors))
        changes["testing"] = replace(testing, tester=_measuring(testing.tester, monitors))
    return replace(config, **changes)


def _stepped_each_epoch(config: Config) -> Config:
    """Step torch's schedulers after each epoch, as QuantumGrav does, if nothing else is configured."""
    training = config.training
    if training.lr_scheduler_type is None or training.lr_scheduler_per is not None:
        return config
    kind = resolved(training.lr_scheduler_type, "training.lr_scheduler_type")
    if isinstance(kind, type) and issubclass(kind, ReduceLROnPlateau):
        return config
    return replace(config, training=replace(training, lr_scheduler_per="epoch"))


def _over(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Add defaults for what is not set; a part whose type is set gets no default arguments."""
    types = [name.removesuffix("_type") for name in fields if name.endswith("_type")]
    others = {f"{part}_{rest}" for part in types for rest in ("args", "kwargs")}
    defaults = {name: value for name, value in defaults.items() if name not in others}
    both = {**defaults, **fields}
    for name, value in fields.items():
        if isinstance(value, Mapping) and isinstance(defaults.get(name), Mapping):
            both[name] = _over(value, defaults[name])
    return both


def _measuring(evaluator: Evaluator | None, monitors: list[Monitor]) -> Evaluator | None:
    if not monitors or (evaluator is not None and (evaluator.evaluator_tasks or is_custom(evaluator))):
        return evaluator
    return replace(evaluator or Evaluator(), evaluator_tasks=monitors)


def _monitors(model: Mapping[str, Any]) -> list[Monitor]:
    """The monitors of active heads. Heads' numbers may be text, as `--set` leaves them."""
    heads, active = model.get("downstream_tasks"), model.get("active_tasks")
    off = {str(head) for head, on in active.items() if on is False} if isinstance(active, Mapping) else set()
    on = {str(head) for head in range(len(heads) if isinstance(heads, list) else 0)} - off
    return [Monitor(**monitor) for monitor in MONITORS if str(monitor["kwargs"]["head"]) in on]
