"""The YAML of `castoff train sedd`: what it takes, and what is said of what it does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.yaml_text import read_yaml, read_yaml_file
from castoff.trainers.sedd.start.configuration import Settings, read

EXAMPLE = Path(__file__).parents[4] / "examples" / "sedd.yaml"


def problems(text: str, *overrides: str, **flags: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read(read_yaml(text), flags, overrides)
    return error.value.problems


DOCUMENTED = {
    "2 GPUs": "training: {batch_size: 16, accum: 4}\noptim: {lr: 1e-4, warmup: 10000}",
    "4 GPUs": "training: {batch_size: 16, accum: 4}\noptim: {lr: 2e-4, warmup: 20000}",
    "8 GPUs": "training: {batch_size: 12, accum: 4}\noptim: {lr: 3e-4, warmup: 30000}",
    "memory": "memory: {gradient_checkpointing: False, mixed_precision: True, max_memory_per_gpu: 0.85}",
    "ddp": "ddp: {find_unused_parameters: False, gradient_as_bucket_view: True}",
    "workers": "training: {num_workers: 4}\nmonitoring: {log_gradients: False, log_weights: False}",
    "out of memory": "training: {batch_size: 8}\nmodel: {hidden_size: 512}",
    "slow": "training: {num_workers: 6}\nmonitoring: {log_gradients: False, sample_frequency: 5000}",
    "convergence": 'optim: {lr: !!float "1e-4", warmup: 25000}',
}


@pytest.mark.parametrize("text", DOCUMENTED.values(), ids=DOCUMENTED)
def test_what_the_uniref50_trainers_document_shows_is_taken(text: str) -> None:
    data = read_yaml(text)
    given = read(data)
    for section, fields in data.items():
        assert fields == {name: getattr(getattr(given, section), name) for name in fields}


@pytest.mark.parametrize("nothing", [None, {}])
def test_everything_has_a_default(nothing: object) -> None:
    assert read(nothing) == Settings()


def test_the_example_is_one() -> None:
    given = read(read_yaml_file(EXAMPLE))
    assert (given.name, given.model.size, given.memory.mixed_precision) == ("uniref50", "small", "bf16")


@pytest.mark.parametrize("number", ["1e-4", '!!float "1e-4"', "0.0001"])
def test_numbers_as_people_write_them(number: str) -> None:
    """YAML 1.1 takes the first for a text."""
    assert read(read_yaml(f"optim: {{lr: {number}}}")).optim.lr == 1e-4


def test_what_wins() -> None:
    """A flag over the file, and --set over both."""
    text = "training: {seed: 1, batch_size: 4, accum: 2}"
    given = read(read_yaml(text), {"training.seed": 2, "training.accum": 3}, ["training.accum=5"])
    assert (given.training.seed, given.training.batch_size, given.training.accum) == (2, 4, 5)


def test_a_flag_may_begin_a_section() -> None:
    given = read(read_yaml("logging: {tensorboard: true}"), {"logging.wandb.project": "proteins"})
    assert given.logging.tensorboard and given.logging.wandb is not None
    assert given.logging.wandb.project == "proteins"


def test_every_mistake_is_reported_at_once() -> None:
    said = problems(
        "training: {batchsize: 3, accum: 0}\noptim: {optimizer: Adan, lr: fast}\nnoise: {sigma_max: -1}\n"
        "modle: {}\nmodel: {size: huge}",
        "validation.patience=no",
    )
    assert said == [
        "modle: there is no such field; did you mean model?",
        "training.batchsize: there is no such field; did you mean batch_size?",
        "training.accum: is 0, but takes a whole number of at least 1",
        "optim.optimizer: is 'Adan', but takes one of AdamW, Adam; did you mean Adam?",
        "optim.lr: is 'fast', but takes a number of at least 0",
        "model.size: is 'huge', but takes one of tiny, mini, small",
        "noise.sigma_max: is -1, but takes a number from 1e-06 to 1000",
        "validation.patience: is no, but takes a whole number of at least 1",
    ]


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("training: {gradient_accumulation_steps: 2}", "training.accum"),
        ("training: {num_steps: 2}", "training.n_iters"),
        ("training: {path: x}", "training.work_dir"),
        ("training: {scaling: {warmup: none}}", "scaling"),
        ("parallel: {static_graph: true}", "ddp.static_graph"),
        ("validation: {every_steps: 3}", "validation.eval_freq"),
    ],
)
def test_the_cores_names_are_answered_with_those_here(text: str, here: str) -> None:
    (said,) = problems(text)
    assert said.endswith(f": there is no such field; here: {here}")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("training: {lr: 1e-4}", "optim.lr: 0.0001"),
        ("optim: {learning_rate: 1e-4}", "optim.lr: 0.0001"),
        ("optim: {dropout: 0.1}", "model.dropout"),
        ("ddp: {mixed_precision: true}", "memory.mixed_precision"),
        ("patience: 4", "validation.patience"),
    ],
)
def test_a_field_that_belongs_elsewhere(text: str, where: str) -> None:
    (said,) = problems(text)
    assert said.endswith(f": there is no such field; did you mean {where}?")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "training: {n_iters: 5, epochs: 2}",
            "training.n_iters: is 5, and training.epochs is 2; only one of",
        ),
        ("model: {length: 64}\ndata: {max_length: 65}", "model.length: is 64, and data.max_length is 65;"),
        (
            "parallel: {strategy: fsdp}\nddp: {static_graph: true}\ntraining: {accum: 1}",
            "ddp.static_graph: is true, an argument of DistributedDataParallel, but parallel.strategy",
        ),
        (
            "parallel: {strategy: fsdp}\nmemory: {mixed_precision: fp16}",
            "memory.mixed_precision: is fp16, for which the loss is scaled",
        ),
        ("parallel: {fsdp: {}}", "parallel.fsdp: is given, but parallel.strategy is ddp"),
        ("ddp: {static_graph: true}", "ddp.static_graph: is true, but torch cannot accumulate gradients"),
    ],
)
def test_fields_that_exclude_each_other_are_refused(text: str, says: str) -> None:
    (said,) = problems(text)
    assert said.startswith(says)


@pytest.mark.parametrize("data", ["[]", "text", "3"])
def test_no_sections(data: str) -> None:
    assert problems(data) == ["holds no sections (training, data …)"]


def test_a_section_twice() -> None:
    with pytest.raises(ConfigError, match="optim: appears twice"):
        read_yaml("optim: {lr: 1}\noptim: {warmup: 2}")


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        (["optim.lr=1e-4"], "none"),
        (["optim={lr: 1e-4}"], "none"),
        (["optim.lr=1e-4", "scaling.learning_rate=sqrt"], "sqrt"),
        (["optim.warmup=3"], "linear"),
    ],
)
def test_a_literal_rate_is_not_scaled(overrides: list[str], rule: str) -> None:
    assert read({}, overrides=overrides).scaling.learning_rate == rule
