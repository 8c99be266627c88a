"""The YAML of a training run: seed 002's as it stands, and every mistake said at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.configuration.synonyms import _FIELDS, _type_at
from castoff.trainers.configuration.without_effect import without_effect
from castoff.trainers.configuration.yaml_text import get_loader, read_yaml, read_yaml_file, to_yaml
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.task.configured_task import ConfiguredTask
from tests.hostile import SCALARS, json_values
from tests.trainers.toys import Toy
from tests.trainers.toys import config as toy_config

GUIDE = """
criterion: !pyobject __main__.compute_loss
parallel:
  world_size: 3
  rank: null
  master_addr: "localhost"
  master_port: "12355"
  output_device: null
  find_unused_parameters: false
training:
  seed: 42
  device: "cuda"
  path: /path/to/output/directory
  num_epochs: 50
  batch_size: 64
  optimizer_type: !pyobject torch.optim.AdamW
  optimizer_args: []
  optimizer_kwargs: {lr: 0.001, weight_decay: 0.00005}
  num_workers: 4
  pin_memory: true
  drop_last: true
  prefetch_factor: 2
  checkpoint_at: 10
model:
  type: "GNNModel"
validation: {batch_size: 64, num_workers: 2, pin_memory: true, drop_last: false, validator: {device: "cuda"}}
testing: {batch_size: 64, num_workers: 2, pin_memory: true, drop_last: false, tester: {device: "cuda"}}
early_stopping: {type: "DefaultEarlyStopping", args: [], kwargs: {patience: 5}}
"""
"""The configuration of TrainerDDP's guide, value for value."""


def test_q12_the_guides_configuration_is_valid() -> None:
    """A null rank and a port in quotes are fine; nothing is imported or called."""
    config = Config.of(read_yaml(GUIDE))
    assert config.training.optimizer_type == PyObject("torch.optim.AdamW")
    assert config.criterion == PyObject("__main__.compute_loss")
    assert (config.parallel.world_size, config.parallel.rank) == (3, None)


def test_what_the_guides_configuration_lacks_is_named() -> None:
    data = read_yaml(GUIDE)
    data["parallel"]["world_size"] = 1
    data["training"]["device"] = "cpu"
    with pytest.raises(ConfigError) as error:
        TrainerDDP(0, data)
    assert "model.type: is 'GNNModel', a bare name" in str(error.value)
    assert "data: is missing" in str(error.value)


def test_a_world_size_that_is_not_so() -> None:
    with pytest.raises(ConfigError, match=r"parallel\.world_size: is 3, but this process has not joined"):
        TrainerDDP(0, read_yaml(GUIDE.replace('"cuda"', '"cpu"')))


def test_nothing_is_imported_while_loading() -> None:
    assert "this" not in sys.modules
    read_yaml("x: !pyobject this.s")
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("torch.optim.Adamw", "did you mean"),
        ("torch_.optim.AdamW", "there is no module torch_"),
        ("AdamW", "is a bare name"),
        ("os.path.join.inner", "has no inner"),
    ],
)
def test_objects_that_are_not_there(path: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        PyObject(path).resolve()


def test_objects_that_are_there() -> None:
    assert PyObject("torch.optim.AdamW").resolve() is torch.optim.AdamW
    assert PyObject("pathlib.Path.cwd").resolve() == Path.cwd


@pytest.mark.parametrize("text", ["x: !pyobject os.system('ls')", "x: !pyobject [a]", "x: !pyobject ''"])
def test_a_pyobject_is_a_path_and_no_call(text: str) -> None:
    with pytest.raises(ConfigError, match="!pyobject takes an import path"):
        read_yaml(text)


def test_a_configuration_is_code_once_it_is_used(tmp_path: Path) -> None:
    """As docs/reference/trainer-configuration.md warns: any function of any module, with any argument."""
    model = yaml.load(f"{{type: !pyobject os.system, command: 'touch {tmp_path}/ran'}}", get_loader())
    stated = {**toy_config(tmp_path), "model": model, "data": {"dataset": print}, "criterion": print}
    config = Config.of(stated)
    assert not (tmp_path / "ran").exists()
    ConfiguredTask(config).build_model()
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["x: !sweep [1, 2]", "x: !!python/object/apply:os.system [ls]"])
def test_other_tags_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_yaml(text)


@pytest.mark.parametrize("text", ["name: a\nname: b\n", "training: {lr: 1, lr: 2}\n"])
def test_a_duplicate_field_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"config:\d: .*appears twice \(first at config:1\); keep one"):
        read_yaml(text)
    assert read_yaml("a: {1: x, '1': y}\nb: &b {c: 1}\nd: {<<: *b, c: 2}")["d"] == {"c": 2}


def test_every_mistake_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        Config.of(
            {"training": {"path": "x", "num_epoch": 3, "batch_size": 0}, "modle": {}}, ["training.seed=many"]
        )
    for part in (
        "modle: there is no such field; did you mean model?",
        "training.num_epoch: there is no such field; did you mean num_epochs?",
        "training.batch_size: is 0",
        "--set training.seed=many: is 'many'",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("training.floor", "training.schedule.floor"),
        ("validation.every", "every_steps"),
        ("parallel.device", "training.device"),
        ("training.every_steps", "validation.every_steps"),
        ("testing.every_steps", "validation.every_steps"),
        ("validation.tester", "testing.tester"),
        ("testing.validator", "validation.validator"),
    ],
)
def test_of_a_misplaced_field_the_error_names_its_place(field: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config.of(read_yaml(GUIDE), [f"{field}=1"])
    (problem,) = error.value.problems
    assert problem == f"{field}: there is no such field; did you mean {says}?"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("training.lr=1e-3", "training.optimizer_kwargs: {lr: 1e-3}"),
        ("training.learning_rate=0.1", "training.optimizer_kwargs: {lr: 0.1}"),
        ("learning_rate=0.1", "training.optimizer_kwargs: {lr: 0.1}"),
        ("training.weight_decay=0.01", "training.optimizer_kwargs: {weight_decay: 0.01}"),
        ("training.betas=[0.9, 0.95]", "training.optimizer_kwargs: {betas: [0.9, 0.95]}"),
        ("training.optimizer=adamw", "training.optimizer_type"),
        ("training.lr_scheduler=cosine", "training.schedule: {type: cosine}"),
        ("training.scheduler=OneCycleLR", "training.schedule.type"),
        ("training.num_warmup_steps=10", "training.schedule: {warmup_steps: 10}"),
        ("num_epochs=3", "training.num_epochs: 3"),
        ("training.max_epochs=3", "training.num_epochs: 3"),
        ("epochs=3", "training.num_epochs: 3"),
        ("training.max_steps=100", "training.num_steps: 100"),
        ("batch_size=8", "training.batch_size: 8"),
        ("per_device_train_batch_size=8", "training.batch_size: 8"),
        ("training.eval_batch_size=8", "validation.batch_size: 8"),
        ("num_workers=4", "training.num_workers: 4"),
        ("training.dataloader_num_workers=4", "training.num_workers: 4"),
        ("training.accumulate_grad_batches=4", "training.gradient_accumulation_steps: 4"),
        ("gradient_accumulation_steps=4", "training.gradient_accumulation_steps: 4"),
        ("training.max_grad_norm=1.0", "training.clip_grad_norm: 1.0"),
        ("training.gradient_clip_val=1.0", "training.clip_grad_norm: 1.0"),
        ("training.gradient_clip_val=none", "training.clip_grad_norm"),
        ("training.bf16=true", "training.precision: bf16"),
        ("training.mixed_precision=fp16", "training.precision: fp16"),
        ("training.torch_compile=true", "training.compile: true"),
        ("training.log_every_n_steps=10", "training.log_every: 10"),
        ("training.save_total_limit=3", "training.keep_checkpoints: 3"),
        ("training.eval_steps=5", "validation.every_steps: 5"),
        ("training.output_dir=out", "training.path: out"),
        ("patience=4", "early_stopping.patience: 4"),
        ("report_to=wandb", "logging"),
    ],
)
def test_another_trainers_spelling_is_answered_with_the_field_and_the_value(given: str, meant: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config.of(read_yaml(GUIDE), [given])
    (problem,) = error.value.problems
    assert problem == f"{given.partition('=')[0]}: there is no such field; did you mean {meant}?"


@pytest.mark.parametrize(
    ("field", "says"), [("devices", "ranks_per_node"), ("num_nodes", "nodes"), ("ddp", "parallel")]
)
def test_what_the_job_file_sets_is_not_looked_for_in_the_training(field: str, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"{field}=2: there is no such field; .* {says}$"):
        Config.of(read_yaml(GUIDE), [f"training.{field}=2"])


def test_every_synonym_names_a_field_that_exists() -> None:
    for field, words in _FIELDS.items():
        assert _type_at(Config, tuple(field.split(".")))[0], field
        for word in words.split():
            assert not _type_at(Config, ("training", word))[0], word


@pytest.mark.parametrize("override", ["training", "=3", "training..x=1", "training.seed=[", "a.b=!y z"])
def test_overrides_that_are_none(override: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set "):
        Config.of(read_yaml(GUIDE), [override])


def test_overrides_win_and_leave_the_data_alone() -> None:
    data = read_yaml(GUIDE)
    config = Config.of(data, ["training.num_epochs=2", "training.optimizer_kwargs.lr=0.5"])
    assert config.training.num_epochs == 2
    assert config.training.optimizer_kwargs == {"lr": 0.5, "weight_decay": 0.00005}
    assert data["training"]["num_epochs"] == 50
    assert data["training"]["optimizer_kwargs"]["lr"] == 0.001
    assert Config.of(data, ["training.path=/scratch/a=b"]).training.path == "/scratch/a=b"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        Config.load(tmp_path / "none.yaml")


def test_the_loader_of_the_guides_scripts() -> None:
    import yaml

    assert yaml.load("a: !pyobject b.c", get_loader()) == {"a": PyObject("b.c")}


def test_a_configuration_can_be_written_down_and_read_again() -> None:
    config = Config.of(read_yaml(GUIDE))
    text = to_yaml(config)
    assert "optimizer_type: !pyobject 'torch.optim.AdamW'" in text
    assert Config.of(read_yaml(text)) == config


def test_objects_of_python_code_are_written_by_their_import_path() -> None:
    training = {"path": "x", "num_epochs": 1, "batch_size": 1, "optimizer_type": torch.optim.SGD}
    text = to_yaml(Config.of({"training": training, "criterion": object()}))
    assert Config.of(read_yaml(text)).training.optimizer_type.resolve() is torch.optim.SGD
    assert "criterion: <object object at" in text


@given(json_values(SCALARS))
def test_no_data_makes_it_fail_otherwise(data: object) -> None:
    with pytest.raises(ConfigError) as error:  # there is no valid one among these
        Config.of(data)  # type: ignore[arg-type]
    assert error.value.problems


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"training.optimizer_type": "AdamW"}, r"training\.optimizer_type: is 'AdamW'; write !pyobject"),
        ({"training.optimizer_kwargs": {"lr": -1.0}}, r"training\.optimizer_type: Invalid learning rate: -1"),
        ({"training.lr_scheduler_type": "Step"}, r"training\.lr_scheduler_type: is 'Step'; write !pyobject"),
        (
            {"early_stopping": {"type": PyObject("QuantumGrav.DefaultEarlyStopping")}},
            r"early_stopping\.type: !pyobject .*; write "
            r"!pyobject castoff\.trainers\.gnn\.DefaultEarlyStopping$",
        ),
        (
            {"early_stopping": {"kwargs": {"tasks": {"a": {"metric": PyObject("os.curdirr")}}}}},
            r"early_stopping\.kwargs\.tasks\.a\.metric: !pyobject os\.curdirr: os has no",
        ),
        (
            {"training.optimizer_kwargs": {"betas": [PyObject("math.pie"), 0.1]}},
            r"training\.optimizer_kwargs\.betas\[0\]: !pyobject math\.pie: math has no pie; did you mean pi",
        ),
        ({"early_stopping": {"type": "Patient"}}, r"early_stopping\.type: is 'Patient'; write Default"),
        (
            {"training.optimizer_kwargs": {"learning_rate": 0.1}},
            r"training\.optimizer_kwargs\.learning_rate: \w+ takes no such argument",
        ),
        (
            {"training.lr_scheduler_type": PyObject("torch.optim.lr_scheduler.StepLR")},
            r"training\.lr_scheduler_kwargs\.step_size: is missing; StepLR needs it",
        ),
        (
            {"early_stopping": {"kwargs": {"patience": 0}}},
            r"early_stopping\.kwargs\.patience: is 0, but takes",
        ),
        (
            {"early_stopping": {"kwargs": {"tasks": {0: {"metric": "loss", "delta": float("nan")}}}}},
            r"early_stopping\.kwargs\.tasks\.0\.delta: is nan, but takes a number",
        ),
        ({"early_stopping": {"kwargs": {"pace": 1}}}, r"early_stopping\.kwargs\.pace: .* no such argument"),
        ({"task": "MyTask"}, r"task: is 'MyTask'; write !pyobject"),
        ({"task": PyObject("tests.trainers.toys.Toy"), "criterion": "x"}, r"task: brings its own criterion"),
        (
            {"task": PyObject("tests.trainers.toys.Toy"), "task_kwargs": {"x": 1}},
            r"task_kwargs\.x: Toy takes no",
        ),
    ],
)
def test_an_object_that_cannot_be_constructed_is_reported(
    fields: dict[str, Any], says: str, tmp_path: Path
) -> None:
    data = toy_config(tmp_path)
    for path, value in fields.items():
        section, _, name = path.rpartition(".")
        (data[section] if section else data)[name] = value
    task = None if "task" in fields else Toy()
    with pytest.raises(ConfigError, match=says):
        _train(data, task)


def falling(step: int) -> float:
    return 0.5**step


def test_objects_are_found_anywhere_in_arguments(tmp_path: Path) -> None:
    """A custom schedule, as torch's LambdaLR takes it."""
    data = toy_config(tmp_path, num_steps=2, num_epochs=None)
    data["training"] |= {
        "lr_scheduler_type": PyObject("torch.optim.lr_scheduler.LambdaLR"),
        "lr_scheduler_kwargs": {"lr_lambda": PyObject(f"{__name__}.falling")},
        "lr_scheduler_per": "step",
    }
    trainer = TrainerDDP(0, data, Toy())
    before = trainer.engine.optimizer.param_groups[0]["lr"]
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    assert trainer.engine.optimizer.param_groups[0]["lr"] == before / 4


def _train(data: dict[str, Any], task: Toy | None) -> None:
    trainer = TrainerDDP(0, data, task)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])


SECTIONS = """
training:
  path: x
  num_steps: 100
  batch_size: 8
  gradient_accumulation_steps: 2
  optimizer_type: !pyobject torch.optim.AdamW
  optimizer_kwargs: {lr: 1.0e-4, betas: [0.9, 0.95]}
  schedule: {type: cosine, warmup_steps: 10, floor: 0.1}
  scaling: {learning_rate: sqrt, base_world_size: 2}
  ema_decay: 0.9999
  precision: bf16
logging: {tensorboard: true, wandb: {project: p, tags: [a, "null", "1e-4"]}}
parallel: {communication_hook: bf16, start_timeout: 60}
model: {since: 2024-01-02, mask: !!binary aGk=, names: !!set {a, b}, "on": {3: "1e-4", off: ~}}
validation: {every_steps: 5, validator: {device: cuda, evaluator_tasks: [{name: f1, monitor: !pyobject a.b}]}}
"""


def test_every_section_can_be_written_down_and_read_again() -> None:
    config = Config.of(read_yaml(SECTIONS))
    assert Config.of(read_yaml(to_yaml(config))) == config


def test_numbers_and_texts_of_other_libraries_are_written_as_numbers_and_texts() -> None:
    import enum

    import numpy

    class Kind(str, enum.Enum):
        GCN = "gcn"

    model = {"width": numpy.int64(3), "rate": numpy.float64(0.5), "kind": Kind.GCN, "path": Path("a")}
    data = {**read_yaml(SECTIONS), "model": model, "criterion": lambda: 0}
    config = Config.of(read_yaml(to_yaml(Config.of(data))))
    assert config.model == {"width": 3, "rate": 0.5, "kind": "gcn", "path": "a"}
    assert "<lambda>" in config.criterion


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("training.seed=many", "is 'many', but takes a whole number"),
        ("training.seed", "--set training.seed: write it as --set FIELD=VALUE, as in --set training.seed=3"),
        (f"model={'[' * 5000}", "nest"),
        ("training.seed=1.5", "is 1.5, but takes a whole number"),
        ("training.seed=9223372036854775808", "from -9223372036854775808 to 9223372036854775807"),
        ("training.batch_size=0", "is 0, but takes a whole number of at least 1"),
        ("training.clip_grad_norm=0", "is 0, but takes a number above 0"),
        ("training.ema_decay=1", "is 1, but takes a number of at least 0 and below 1"),
        ("training.ema_decay=.nan", "is nan, but takes a number of at least 0"),
        ("training.schedule={floor: 2}", "training.schedule.floor: is 2, but takes a number from 0 to 1"),
        ("parallel.timeout=.inf", "is inf, but takes a number above 0"),
        ("training.shuffle=1", "is 1, but takes true or false"),
        ("logging.wandb.tags=x", "is 'x', but takes a list of texts; use `logging: {wandb: {tags: [x]}}`"),
        (
            "training.freeze=[{modules: embed, until: 10}]",
            "is 'embed', but takes a list of texts; write modules: [embed]",
        ),
        ("logging.wandb.mode=ofline", "is 'ofline', but takes one of offline, online; did you mean offline?"),
        ("training.schedule.type=cosin", "takes one of constant, linear, cosine, noam; did you mean cosine?"),
        ("training.precision=BF16", "takes one of fp32, bf16, fp16; did you mean bf16?"),
        ("training.precision=half", "is 'half', but takes one of fp32, bf16, fp16"),
        (
            "training.optimizer_kwargs=3",
            "is 3, but takes names, each with a value",
        ),
        ("model={on: 3}", "has a field True, whose name is not text; put it in quotes"),
        ("training.seed={on: 3}", "is a mapping, but takes a whole number"),
        ("parallel=3", "is 3, but takes fields: world_size, master_addr"),
        ("validation.validator.evalutor_tusks=5", "no such field; did you mean evaluator_tasks?"),
        (
            "testing.tester.x=5",
            "there are: type, args, kwargs, device, criterion, apply_model, evalua",
        ),
        ("testing.tester.device=gpu", "is 'gpu', but takes one of auto, cpu, cuda, xpu, mps"),
        (
            "testing.tester.evaluator_tasks=f1",
            "is 'f1', but takes a list of the fields name, monitor",
        ),
        ("testing.tester.evaluator_tasks=[f1]", "tester.evaluator_tasks.0: is 'f1', but takes fields"),
        (
            "testing.tester.evaluator_tasks=[{name: f1}]",
            "evaluator_tasks.0.monitor: is missing; it takes a !pyobject",
        ),
        (
            "testing.tester.evaluator_tasks=[{name: a, monitor: b}, {name: f1, monitor: F1, kwarg: {}}]",
            "tester.evaluator_tasks.1.kwarg: there is no such field; did you mean kwargs?",
        ),
        (
            "training.num_epochs=3",
            "training.num_steps: is 100, and training.num_epochs is 3; only one of them",
        ),
        ("training.num_steps=null", "training.num_epochs: is missing; set either"),
        ("training.num_steps=0", "is 0, but takes a whole number of at least 1"),
    ],
)
def test_a_mistake_in_plain_words(field: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config.of(read_yaml(SECTIONS), [field])
    assert len(error.value.problems) == 1
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("num_epoch", "num_epochs"),
        ("num_train_epochs", "training.num_epochs: 3"),
        ("total_steps", "training.num_steps: 3"),
        ("optimizer", "training.optimizer_type"),
        ("batch_sise", "batch_size"),
    ],
)
def test_what_stands_under_a_wrong_name_is_not_missing_too(wrong: str, meant: str) -> None:
    fields = toy_config("x")
    training = fields["training"]
    for name in ("num_epochs", "num_steps", "optimizer_type", "batch_size"):
        if name in meant or ("num_" in meant and "num_" in name):
            training.pop(name, None)
    with pytest.raises(ConfigError) as error:
        Config.of({**fields, "training": {**training, wrong: 3}})
    assert error.value.problems == [f"training.{wrong}: there is no such field; did you mean {meant}?"]


def test_fields_without_effect_are_reported() -> None:
    said = without_effect(Config.of(read_yaml(GUIDE)))
    assert [line.partition(":")[0] for line in said] == ["training.checkpoint_at"]
    assert without_effect(Config.of(toy_config("x"))) == []


@pytest.mark.parametrize(
    ("field", "beside"),
    [
        ("training.prefetch_factor=2", "training.num_workers=1"),
        ("training.persistent_workers=true", "training.num_workers=1"),
        ("testing.prefetch_factor=2", "testing.num_workers=1"),
        ("validation.persistent_workers=true", "validation.num_workers=1"),
        ("training.checkpoint_at=2", "validation.every_steps=5"),
        ("parallel.rank=0", None),
    ],
)
def test_a_field_without_effect_is_reported_once(field: str, beside: str | None) -> None:
    (said,) = without_effect(Config.of(toy_config("x"), [field]))
    assert said.startswith(f"{field.partition('=')[0]}: has no effect; ")
    if beside is not None:
        assert without_effect(Config.of(toy_config("x"), [field, beside])) == []


def test_a_memory_limit_that_torch_cannot_enforce_is_reported() -> None:
    limited = Config.of(toy_config("x"), ["training.max_memory_per_gpu=0.85"])
    (said,) = without_effect(limited, limits_memory=False)
    assert said.startswith("training.max_memory_per_gpu: has no effect; torch limits no process's memory")
    assert without_effect(limited, limits_memory=True) == []


MINIMAL = {"path": "x", "num_epochs": 1, "batch_size": 1, "optimizer_type": "x"}
NUMBER = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]{1,3}"


@given(st.from_regex(NUMBER, fullmatch=True, alphabet="0123456789.eE+-"))
def test_a_number_with_an_exponent_is_a_number(text: str) -> None:
    """1e-4, which YAML 1.1 reads as a text; in files and in overrides."""
    assert read_yaml(f"lr: {text}") == {"lr": float(text)}
    stated = Config.of({"training": {**MINIMAL}}, [f"training.optimizer_kwargs.lr={text}"])
    assert stated.training.optimizer_kwargs == {"lr": float(text)}


@pytest.mark.parametrize(
    ("text", "number"), [("1e-4", 1e-4), ("1E5", 1e5), (".5e3", 500.0), ("-2e-3", -2e-3), ("-.5", -0.5)]
)
def test_numbers_of_yaml_1_2(text: str, number: float) -> None:
    assert read_yaml(text) == number


@pytest.mark.parametrize("text", ["abc", "e5", "1e", "1e5x", "x1e5", "1e-", ".e3", "12e3.5", "1 e5", "08"])
def test_what_only_looks_like_a_number_is_a_text(text: str) -> None:
    assert read_yaml(text) == text


LOOKS = st.from_regex(r"[-+.0-9eE]{1,8}", fullmatch=True, alphabet="0123456789.eE+-")


@given(LOOKS | st.floats(allow_nan=False))
def test_texts_and_numbers_stay_what_they_are_when_written(value: str | float) -> None:
    config = Config.of({"training": {**MINIMAL, "optimizer_kwargs": {"value": value}}})
    again = Config.of(read_yaml(to_yaml(config))).training.optimizer_kwargs["value"]
    assert (again, type(again)) == (value, type(value))


def test_a_file_that_everybody_could_have_written(tmp_path: Path) -> None:
    """Its `!pyobject` would be imported and called."""
    (path := tmp_path / "config.yaml").write_text("{}\n")
    path.chmod(0o664)
    assert read_yaml_file(path).data == {}
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=f"^{path}: is not used, since it can be changed by everybody "):
        read_yaml_file(path)
