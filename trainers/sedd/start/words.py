"""The core's fields by their names in the YAML of `castoff train sedd`."""

from __future__ import annotations

import re

MOVED = {
    "training.path": "training.work_dir",
    "training.num_epochs": "training.epochs",
    "training.gradient_accumulation_steps": "training.accum",
    "training.scaling": "scaling",
    "training.schedule.warmup_steps": "optim.warmup",
    "training.max_memory_per_gpu": "memory.max_memory_per_gpu",
    "training.ema_decay": "training.ema",
    "training.clip_grad_norm": "optim.grad_clip",
    "training.log_every": "training.log_freq",
    "validation.batch_size": "eval.batch_size",
    "validation.num_workers": "eval.num_workers",
    "testing.batch_size": "eval.batch_size",
    "testing.num_workers": "eval.num_workers",
    "parallel.find_unused_parameters": "ddp.find_unused_parameters",
    "parallel.gradient_as_bucket_view": "ddp.gradient_as_bucket_view",
    "parallel.static_graph": "ddp.static_graph",
}
"""The core's fields that have another name in this YAML, but the same value."""

IN_OWN_WORDS = MOVED | {
    "training.num_steps": "training.n_iters",
    "training.optimizer_type": "optim.optimizer",
    "training.optimizer_kwargs": "optim",
    "training.schedule": "lr_schedule",
    "training.schedule.floor": "lr_schedule.min_lr_ratio",
    "training.precision": "memory.mixed_precision",
    "training.checkpoint_every_steps": "training.snapshot_freq",
    "validation.every_steps": "validation.eval_freq",
    "early_stopping.kwargs.patience": "validation.patience",
    "early_stopping.kwargs.tasks.loss.delta": "validation.min_delta",
    # without their section, as in messages about several fields
    "gradient_accumulation_steps": "accum",
    "num_steps": "n_iters",
    "num_epochs": "epochs",
    "warmup_steps": "optim.warmup",
}
"""Names in the core's messages, and the names of this YAML to show instead."""

_LONGEST_FIRST = "|".join(sorted(map(re.escape, IN_OWN_WORDS), reverse=True))
_CORES = re.compile(rf"(?<![\w.])(?:task_kwargs\.|({_LONGEST_FIRST})(?!\w))")


def in_own_words(text: str) -> str:
    """Replace the core's field names in a message by those that the user has written."""
    return _CORES.sub(lambda match: IN_OWN_WORDS[match[1]] if match[1] else "", text)
