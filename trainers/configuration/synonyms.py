"""Other trainers' names for fields of a training, for messages about unknown fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_origin

from castoff.launcher.typed.document import Document, FieldPath, dotted
from castoff.launcher.typed.structure import Hint, bare, converts, fields_of, is_struct, members

_FIELDS = {
    "name": "run_name experiment_name exp_name project_name",
    "log_level": "verbosity",
    "logging": "logger loggers report_to log_with",
    "logging.tensorboard": "tensorboard use_tensorboard",
    "logging.wandb": "wandb use_wandb",
    "logging.wandb.project": "wandb_project",
    "early_stopping.patience": "patience early_stopping_patience",
    "parallel.strategy": "strategy distributed_strategy",
    "parallel.backend": "ddp_backend dist_backend process_group_backend",
    "parallel.find_unused_parameters": "ddp_find_unused_parameters",
    "parallel.sync_batchnorm": "sync_bn sync_batch_norm",
    "parallel.bucket_cap_mb": "ddp_bucket_cap_mb",
    "parallel.timeout": "ddp_timeout",
    "training.path": "output_dir out_dir default_root_dir save_dir checkpoint_dir project_dir",
    "training.resume_checkpoint": "resume resume_from resume_from_checkpoint ckpt_path",
    "training.num_epochs": "epochs max_epochs n_epochs num_train_epochs",
    "training.num_steps": "steps max_steps num_train_steps max_train_steps total_steps max_iters n_iters",
    "training.batch_size": "train_batch_size micro_batch_size per_device_train_batch_size "
    "per_gpu_train_batch_size train_micro_batch_size_per_gpu",
    "validation.batch_size": "val_batch_size eval_batch_size per_device_eval_batch_size",
    "testing.batch_size": "test_batch_size",
    "training.gradient_accumulation_steps": "accumulate_grad_batches grad_accumulation_steps grad_accum "
    "grad_accum_steps accumulation_steps accum_steps",
    "training.optimizer_type": "optimizer optimiser optim",
    "training.optimizer_kwargs.lr": "lr learning_rate base_lr init_lr",
    "training.optimizer_kwargs.weight_decay": "weight_decay wd",
    "training.optimizer_kwargs.momentum": "momentum",
    "training.optimizer_kwargs.betas": "betas adam_betas",
    "training.optimizer_kwargs.eps": "eps epsilon adam_epsilon",
    "training.schedule.type": "scheduler lr_scheduler lr_schedule",
    "training.schedule.warmup_steps": "warmup warmup_steps num_warmup_steps lr_warmup_steps",
    "training.clip_grad_norm": "max_grad_norm grad_clip clip_grad gradient_clip gradient_clip_val "
    "gradient_clipping clip_norm",
    "training.precision": "mixed_precision amp bf16 fp16",
    "training.activation_checkpointing": "gradient_checkpointing activation_checkpoint",
    "training.compile": "torch_compile compile_model",
    "training.ema_decay": "ema",
    "training.seed": "seed_everything random_seed manual_seed",
    "training.device": "accelerator",
    "training.num_workers": "workers n_workers dataloader_num_workers",
    "training.pin_memory": "dataloader_pin_memory",
    "training.prefetch_factor": "dataloader_prefetch_factor",
    "training.persistent_workers": "dataloader_persistent_workers",
    "training.drop_last": "dataloader_drop_last",
    "training.log_every": "log_every_n_steps log_interval log_freq log_steps logging_steps",
    "training.checkpoint_every_steps": "save_steps save_every save_interval checkpoint_every "
    "checkpoint_interval checkpointing_steps every_n_train_steps",
    "training.keep_checkpoints": "save_total_limit save_top_k checkpoints_total_limit",
    "validation.every_steps": "eval_steps eval_every eval_interval val_interval val_check_interval",
}
"""Fields of castoff's trainer, and their names in Lightning, Transformers, Accelerate and DeepSpeed."""

_SENTENCES = {
    "the job file sets how many ranks there are: ranks_per_node": "devices gpus num_gpus n_gpus "
    "num_processes nproc_per_node",
    "the job file sets how many nodes there are: nodes": "num_nodes nnodes num_machines",
    "models are wrapped in DistributedDataParallel, whose arguments are in parallel": "ddp",
}
"""Advice on settings of other trainers that are not fields of a training."""


def hint_from(document: Document, root: type[Any], named_here: Callable[[str], str] = str) -> Hint:
    """Return a function that suggests the right field, with the given value, for a field with another name.

    `root` is the configuration's type; `named_here` translates a core field's name to this configuration's.
    """

    def hint(_kind: str, path: FieldPath, _known: list[str]) -> str:
        if path[:-1] not in ((), ("training",), ("optim",)):  # the last is SEDD's
            return ""
        word = str(path[-1])
        if sentence := _by_word(_SENTENCES).get(word):
            return f"; {sentence}"
        place = tuple(named_here(_by_word(_FIELDS).get(word, f"training.{word}")).split("."))
        known, kind = _type_at(root, place)
        if not known or place == path:
            return ""
        return f"; did you mean {_written(place, _value(document, path, word, kind))}?"

    return hint


def _by_word(table: dict[str, str]) -> dict[str, str]:
    return {word: meant for meant, words in table.items() for word in words.split()}


def _type_at(kind: Any, place: FieldPath) -> tuple[bool, Any]:
    """Whether the field at `place` exists, and its type."""
    for name in place:
        options = [bare(option) for option in members(bare(kind))]
        structs = [option for option in options if is_struct(option)]
        if any(get_origin(option) is dict for option in options):
            return True, object
        if not structs or name not in fields_of(structs[0]):
            return False, None
        kind = fields_of(structs[0])[str(name)].type
    return True, kind


def _value(document: Document, path: FieldPath, word: str, kind: Any) -> str | None:
    """The given value as it is written in YAML; None if the suggested field does not accept it."""
    value = document.data
    for name in path:
        value = value[name]
    if value is True and _takes(kind, word):  # as in `bf16: true`
        return word
    if not _takes(kind, value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        items = (document.text((*path, index), item) for index, item in enumerate(value))
        return f"[{', '.join(items)}]"
    return document.text(path, value)


def _takes(kind: Any, value: Any) -> bool:
    scalars = value if isinstance(value, list) else [value]
    if not all(isinstance(scalar, (bool, int, float, str)) for scalar in scalars):
        return False
    if kind is object:
        return True
    if bare(kind) is Any:  # a Python object by its import path
        return False
    return converts(value, kind)


def _written(place: FieldPath, value: str | None) -> str:
    if value is None:
        return dotted(place)
    if len(place) <= 2:
        return f"{dotted(place)}: {value}"
    return f"{dotted(place[:2])}: {{{place[2]}: {value}}}"
