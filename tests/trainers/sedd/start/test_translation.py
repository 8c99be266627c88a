"""What is passed to the core, what scaling makes of it, and in whose words errors are said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.configuration.yaml_text import read_yaml, to_yaml
from castoff.trainers.optimization.learning_rate import LearningRate
from castoff.trainers.optimization.scaling import resolved
from castoff.trainers.sedd import settings
from castoff.trainers.sedd.start.configuration import read
from castoff.trainers.sedd.start.translation import core_config, without_effect
from castoff.trainers.sedd.start.words import IN_OWN_WORDS, in_own_words


def translated(text: str = "") -> Config:
    return core_config(read(read_yaml(text)))


# --- What is passed ----------------------------------------------------------------------------------


def test_the_defaults() -> None:
    """Those of the trainer whose files these are."""
    config = translated()
    training = config.training
    assert (training.batch_size, training.gradient_accumulation_steps, training.num_steps) == (16, 4, 100_000)
    assert training.optimizer_type == PyObject("torch.optim.AdamW")
    assert training.optimizer_kwargs["lr"] == 5e-5
    assert training.schedule == core.Schedule(type="cosine", warmup_steps=5000, floor=0.1)
    assert (training.clip_grad_norm, training.ema_decay, training.log_every) == (1.0, 0.9995, 100)
    assert (config.validation.every_steps, training.checkpoint_every_steps) == (2000, 2000)
    assert config.early_stopping is None


def test_it_is_what_the_core_takes() -> None:
    """Also from the file that stays in a run's folder."""
    config = translated("logging: {wandb: {project: p}}\nvalidation: {patience: 2}")
    assert Config.of(read_yaml(to_yaml(config))) == config


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("name: n", "name", "n"),
        ("log_level: DEBUG", "log_level", "DEBUG"),
        ("training: {epochs: 3}", "training.num_epochs", 3),
        ("training: {epochs: 3}", "training.num_steps", None),
        ("training: {n_iters: 7}", "training.num_steps", 7),
        ("training: {work_dir: /w}", "training.path", "/w"),
        ("training: {resume_checkpoint: /c}", "training.resume_checkpoint", "/c"),
        ("training: {ema: null}", "training.ema_decay", None),
        ("training: {seed: 8, device: cpu, compile: true}", "training.seed", 8),
        ("optim: {optimizer: Adam}", "training.optimizer_type", PyObject("torch.optim.Adam")),
        ("optim: {betas: [0.8, 0.9]}", "training.optimizer_kwargs.betas", [0.8, 0.9]),
        ("optim: {weight_decay: 0.1}", "training.optimizer_kwargs.weight_decay", 0.1),
        ("optim: {eps: 1e-6}", "training.optimizer_kwargs.eps", 1e-6),
        ("optim: {grad_clip: null}", "training.clip_grad_norm", None),
        ("lr_schedule: {type: constant}", "training.schedule.type", "constant"),
        ("lr_schedule: {type: constant}", "training.schedule.warmup_steps", 5000),
        ("lr_schedule: {type: linear_with_warmup}", "training.schedule.type", "linear"),
        ("lr_schedule: {type: constant, min_lr_ratio: 0.5}", "training.schedule.floor", 0.0),
        ("lr_schedule: {type: linear_with_warmup, steps: 9000}", "training.schedule.steps", 9000),
        ("memory: {mixed_precision: true}", "training.precision", "bf16"),
        ("memory: {mixed_precision: false}", "training.precision", "fp32"),
        ("memory: {mixed_precision: fp16}", "training.precision", "fp16"),
        ("memory: {gradient_checkpointing: true}", "task_kwargs.memory.gradient_checkpointing", True),
        ("training: {eval_freq: 10}", "validation.every_steps", 10),
        ("training: {eval_freq: 10}\nvalidation: {eval_freq: 5}", "validation.every_steps", 5),
        ("training: {snapshot_freq_for_preemption: 50}", "training.checkpoint_every_steps", 50),
        ("validation: {checkpoint_freq: 30}", "training.checkpoint_every_steps", 30),
        ("training: {snapshot_freq: null}", "training.checkpoint_every_steps", None),
        ("ddp: {find_unused_parameters: true}", "parallel.find_unused_parameters", True),
        ("ddp: {gradient_as_bucket_view: false}", "parallel.gradient_as_bucket_view", False),
        ("ddp: {static_graph: true}\ntraining: {accum: 1}", "parallel.static_graph", True),
        ("parallel: {start_timeout: 5}", "parallel.start_timeout", 5.0),
        ("eval: {batch_size: 3}", "validation.batch_size", 3),
        ("eval: {batch_size: 3}", "testing.batch_size", 3),
        ("eval: {num_workers: 2}", "validation.num_workers", 2),
        ("eval: {num_workers: 2}", "testing.num_workers", 2),
        ("model: {length: 64}", "task_kwargs.data.max_length", 64),
        ("data: {max_length: 65}", "task_kwargs.data.max_length", 65),
        ("sampling: {predictor: euler}", "task_kwargs.sampling.predictor", "euler"),
        ("curriculum: {enabled: true}", "task_kwargs.curriculum.enabled", True),
        ("memory: {max_memory_per_gpu: 0.85}", "training.max_memory_per_gpu", 0.85),
        ("monitoring: {log_gradients: true}", "monitoring.log_gradients", True),
        ("monitoring: {log_weights: true}", "monitoring.log_weights", True),
        ("monitoring: {sample_frequency: 9}", "task_kwargs.monitoring.sample_frequency", 9),
        ("validation: {patience: 3}", "early_stopping.kwargs.patience", 3),
        ("validation: {min_delta: 0.5}", "early_stopping.kwargs.tasks.loss.delta", 0.5),
        ("validation: {min_delta: 0.5}", "early_stopping.kwargs.patience", None),
        ("logging: {tensorboard: true}", "logging.tensorboard", True),
    ],
)
def test_each_field_is_translated_to_its_equal(text: str, path: str, value: object) -> None:
    found: Any = translated(text)
    for name in path.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value


def test_one_measure_decides_which_model_is_best() -> None:
    """The loss of validation: never the one of training, and no other beside it."""
    stopping = translated("validation: {patience: 3, min_delta: 0.01}").early_stopping
    assert stopping is not None
    assert stopping.kwargs["tasks"] == {"loss": {"metric": "loss", "mode": "min", "delta": 0.01}}


@pytest.mark.parametrize(
    ("text", "proteins"),
    [
        ("", None),
        ("validation: {val_batch_limit: 10}", 160),
        ("validation: {val_batch_limit: 10}\neval: {batch_size: 4}", 40),
        ("validation: {val_batch_limit: 10}\neval: {proteins: 7}", 7),
    ],
)
def test_a_limited_validation_is_the_same_on_any_number_of_ranks(text: str, proteins: int | None) -> None:
    assert translated(text).task_kwargs["eval"]["proteins"] == proteins


def test_the_task_gets_its_sections_whole_and_plain() -> None:
    kwargs = translated().task_kwargs
    expected = {section.name: section.type for section in msgspec.structs.fields(settings.Task)}
    assert {name: set(fields) for name, fields in kwargs.items()} == {
        name: {field.name for field in msgspec.structs.fields(kind)} for name, kind in expected.items()
    }
    assert msgspec.convert(kwargs, settings.Task, strict=True) == settings.Task()


# --- Scaling -----------------------------------------------------------------------------------------

TABLE = {1: (5e-5, 5000, 64), 2: (1e-4, 10000, 128), 4: (2e-4, 20000, 256), 8: (4e-4, 40000, 512)}
"""Ranks: learning rate, warmup and effective batch, by the rules that the trainer's document gives."""


def comes_to(text: str, ranks: int) -> tuple[float, int, int]:
    """The rate and warmup that are used, and the samples of a step."""
    config = translated(text)
    found = resolved(config, ranks)
    rate = config.training.optimizer_kwargs["lr"] * found.learning_rate
    return rate, found.warmup_steps, found.effective_batch_size


@pytest.mark.parametrize("ranks", TABLE)
def test_one_configuration_for_1_2_4_and_8(ranks: int) -> None:
    assert comes_to("", ranks) == pytest.approx(TABLE[ranks])


BY_HAND = """
training: {batch_size: 16, accum: 4}
optim: {lr: 1e-4, warmup: 10000}
"""
"""The document's file for two GPUs: its numbers are doubled already."""


def test_what_was_doubled_by_hand_is_not_doubled_again() -> None:
    declared = f"{BY_HAND}scaling: {{base_world_size: 2}}"
    assert comes_to(declared, 2) == pytest.approx(TABLE[2])
    assert comes_to(declared, 1) == pytest.approx(TABLE[1])
    assert comes_to(declared, 8) == pytest.approx(TABLE[8])


EIGHT_BY_HAND = """
training: {batch_size: 12, accum: 4}
optim: {lr: 3e-4, warmup: 30000}
scaling: {base_world_size: 8}
"""
"""The document's file for eight GPUs."""


def test_the_documents_table_contradicts_its_file_for_8() -> None:
    """By its rules 4e-4, 40,000 and 512; in its file 3e-4, 30,000 and 384, which are 6 times the base."""
    rule, file = TABLE[8], comes_to(EIGHT_BY_HAND, 8)
    assert rule == pytest.approx((4e-4, 40000, 512))
    assert file == pytest.approx((3e-4, 30000, 384))
    assert (file[0] / TABLE[1][0], file[1] / TABLE[1][1]) == pytest.approx((6, 6))


# --- What changes nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", []),
        (
            "training: {eval_freq: 10}\nvalidation: {eval_freq: 5}",
            ["training.eval_freq: has no effect; validation.eval_freq says how often: every 5 steps"],
        ),
        (
            "lr_schedule: {type: constant, min_lr_ratio: 0.5, steps: 3}",
            [
                "lr_schedule.steps: has no effect; a constant rate has no end",
                "lr_schedule.min_lr_ratio: has no effect; a constant rate never falls",
            ],
        ),
        (
            "validation: {checkpoint_on_improvement: false, save_best_only: true}",
            ["validation.checkpoint_on_improvement: ", "validation.save_best_only: "],
        ),
        ("ddp: {broadcast_buffers: true}", ["ddp.broadcast_buffers: "]),
        ("data: {datafile: x, synthetic: 3}", ["data.synthetic: "]),
        ("curriculum: {difficulty_ramp: 3}", ["curriculum.difficulty_ramp: "]),
        ("curriculum: {difficulty_ramp: 3, enabled: true}", []),
        ("scaling: {cap: 2}", ["scaling.cap: "]),
        ("scaling: {cap: 2, warmup: capped}", []),
        ("data: {min_length: 9, max_unknown: 0.5}", ["data.min_length: ", "data.max_unknown: "]),
        ("data: {validation_datafile: x, min_length: 9, max_unknown: 0.5}", []),
        ("noise: {eps: 1e-4, type: cosine}", ["noise.eps: "]),
        ("noise: {sigma_min: 1e-5, sigma_max: 30}", ["noise.sigma_min: ", "noise.sigma_max: "]),
        ("noise: {sigma_min: 1e-5, type: geometric}", []),
        ("{monitoring: {sample_frequency: 5}, sampling: {number: 0}}", ["monitoring.sample_frequency: "]),
        (
            "training: {snapshot_freq_for_preemption: 5000}",
            [
                "training.snapshot_freq_for_preemption: has no effect; training.snapshot_freq already asks "
                "for checkpoints more often"
            ],
        ),
        ("validation: {checkpoint_freq: 100}", []),
    ],
)
def test_fields_without_effect_are_reported(text: str, said: list[str]) -> None:
    found = without_effect(read(read_yaml(text)))
    assert len(found) == len(said)
    for line, beginning in zip(found, said, strict=True):
        assert line.startswith(beginning) and ": has no effect; " in line


# --- Words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (
            "training.schedule.warmup_steps: is 9, but the training has 6 steps",
            "optim.warmup: is 9, but the training has 6 steps",
        ),
        ("training.scaling.warmup: linear turned 4", "scaling.warmup: linear turned 4"),
        ("training.optimizer_kwargs.lr: is", "optim.lr: is"),
        ("task_kwargs.model.n_heads: is 3", "model.n_heads: is 3"),
        ("batch_size x gradient_accumulation_steps x ranks", "batch_size x accum x ranks"),
        ("training.batch_size: 4 keeps it", "training.batch_size: 4 keeps it"),
        ("my_training.path_to", "my_training.path_to"),
        ("a.training.path", "a.training.path"),
    ],
)
def test_the_cores_words_in_those_of_the_file(text: str, ours: str) -> None:
    assert in_own_words(text) == ours


def paths(kind: type[Any], prefix: str = "") -> set[str]:
    """Of all fields of a struct, and of sections in it."""
    found = set()
    for field in msgspec.structs.fields(kind):
        found.add(prefix + field.name)
        options = getattr(field.type, "__args__", ()) if not isinstance(field.type, type) else (field.type,)
        for each in options:
            if isinstance(each, type) and issubclass(each, msgspec.Struct):
                found |= paths(each, f"{prefix}{field.name}.")
    return found


def test_every_word_is_a_field_on_both_sides() -> None:
    """And no field that the translation sets under another name lacks one."""
    from castoff.trainers.sedd.start.configuration import Settings

    ours, theirs = paths(Settings), paths(Config)
    dotted = {core: here for core, here in IN_OWN_WORDS.items() if "." in core}
    assert {here for here in dotted.values() if here not in ours} == set()
    assert {each for each in dotted if each not in theirs and not each.startswith("early_stopping.")} == set()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("optim: {warmup: 4}\ntraining: {n_iters: 6}", "optim.warmup: is 8, but the training has 6 steps"),
        (
            "optim: {warmup: 4}\ntraining: {n_iters: 6}",
            "scaling.warmup: linear turned 4 warmup steps into 8",
        ),
        (
            "optim: {warmup: 4}\nlr_schedule: {steps: 5}",
            "lr_schedule.steps: is 5, but the warmup alone takes 8; write more",
        ),
    ],
)
def test_later_errors_of_the_core_name_the_files_fields(text: str, says: str) -> None:
    import torch

    from castoff.trainers.optimization.optimizer import CONFIGURED

    config = translated(text)
    optimizer = torch.optim.AdamW(torch.nn.Linear(1, 1).parameters(), lr=1.0)
    optimizer.param_groups[0][CONFIGURED] = {"lr": 1.0}
    with pytest.raises(ConfigError) as error:
        LearningRate(config, optimizer, world_size=2)
    assert any(in_own_words(problem).startswith(says) for problem in error.value.problems)
