"""Fields of a training that contradict each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from castoff.launcher.typed import Problem
from castoff.launcher.typed.document import FieldPath
from castoff.launcher.typed.structure import is_meant

_LENGTHS = ("num_epochs", "num_steps")
"""Fields of `training` that set its length; exactly one is required."""


def contradictions(data: Mapping[str, Any], known: list[Problem]) -> list[tuple[FieldPath, str]]:
    """Problems with combinations of fields; `known`: the problems already found in single fields."""
    training = data.get("training")
    if not isinstance(training, Mapping):
        return []
    return [*_length(training, known), *of_strategy(data.get("parallel"), training)]


def _length(training: Mapping[str, Any], known: list[Problem]) -> list[tuple[FieldPath, str]]:
    given = [name for name in _LENGTHS if training.get(name) is not None]
    if not given and not any(is_meant(("training", name), known) for name in _LENGTHS):
        missing = "is missing; set either this or training.num_steps"
        return [(("training", "num_epochs"), missing)]
    if len(given) == 2:
        both = f"is {training['num_steps']!r}, and training.num_epochs is {training['num_epochs']!r}"
        return [
            (("training", "num_steps"), f"{both}; only one of them can end the training, so drop the other")
        ]
    return []


_DDP_ONLY = {
    "find_unused_parameters": False,
    "gradient_as_bucket_view": True,
    "static_graph": False,
    "bucket_cap_mb": None,
    "communication_hook": None,
    "output_device": None,
}
"""Arguments of DistributedDataParallel in `parallel`, and their values without effect."""


def of_strategy(parallel: Any, training: Mapping[str, Any]) -> list[tuple[FieldPath, str]]:
    """Fields of `parallel` and `training` that the strategy in `parallel` does not have."""
    if not isinstance(parallel, Mapping):
        return []
    if parallel.get("strategy", "ddp") != "fsdp":
        if parallel.get("fsdp") is None:
            return []
        return [(("parallel", "fsdp"), "is given, but parallel.strategy is ddp; write fsdp, or drop this")]
    problems: list[tuple[FieldPath, str]] = [
        (
            ("parallel", name),
            f"is {json.dumps(parallel[name])}, an argument of DistributedDataParallel, but "
            "parallel.strategy is fsdp; drop one of the two",
        )
        for name, idle in _DDP_ONLY.items()
        if parallel.get(name, idle) != idle
    ]
    if training.get("precision") == "fp16":
        half = "is fp16, for which the loss is scaled, which parallel.strategy: fsdp does not do; write bf16"
        problems.append((("training", "precision"), half))
    if training.get("freeze"):
        only = "works only with parallel.strategy: ddp; the strategy is fsdp"
        problems.append((("training", "freeze"), only))
    return problems
