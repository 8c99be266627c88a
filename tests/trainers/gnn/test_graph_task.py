"""A network on graphs that a configuration describes: from its YAML to a test, on one rank and on several."""

from __future__ import annotations

import hashlib
import importlib
import pickle
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn
from torch_geometric.data import Data

import castoff.trainers
import castoff.trainers.gnn
from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing import differences
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.flattened import fields
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.gnn.causets.features import NODE
from castoff.trainers.gnn.task import GraphTask
from castoff.trainers.gnn.train_ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from castoff.trainers.program.logs import setup_logging
from tests.trainers.configuration.test_config import GUIDE
from tests.trainers.gnn.graphs import written
from tests.trainers.gnn.graphs_in_memory import (
    ENCODER,
    HEAD,
    WIDTH,
    Broken,
    Featured,
    Graphs,
    Sum,
    described,
    monitored,
)
from tests.trainers.toys import Ranks, run


def trained(given: Mapping[str, Any], rank: int = 0) -> tuple[TrainerDDP, list[dict[str, float]], Any]:
    """A training to its end; what it measured, and what the test did on rank 0."""
    trainer = TrainerDDP(rank, given)
    training, validation, test = trainer.prepare_dataloaders()
    _, metrics = trainer.run_training(training, validation)
    return trainer, metrics, trainer.run_test(test) if rank == 0 else None


# --- Described ----------------------------------------------------------------------------------------


def test_a_network_of_bare_names_learns(tmp_path: Path) -> None:
    given = described(tmp_path, num_epochs=12, optimizer_kwargs={"lr": 0.05})
    given["validation"] = {"validator": monitored("F1", "Accuracy")}
    given["testing"] = {"tester": monitored({"name": "f1", "monitor": "F1", "kwargs": {"average": "none"}})}
    watched = {0: {"metric": "f1", "mode": "max"}}
    given["early_stopping"] = {"kwargs": {"patience": 3, "tasks": watched}}
    trainer, metrics, tested = trained(given)
    assert max(each["f1"] for each in metrics) == 1.0
    assert len(metrics) < 12, "nothing gets better than all of them"
    assert set(metrics[0]) == {"loss", "f1", "accuracy"}
    assert set(tested) == {"loss", "f1/0", "f1/1"} and tested["f1/0"] == 1.0
    assert type(trainer.model).__name__ == "GNNModel"


@pytest.mark.parametrize(
    "model",
    [
        {"type": PyObject(f"{Sum.__module__}.Sum"), "widths": [WIDTH, 1]},
        {"type": Sum, "args": [[WIDTH, 1], PyObject("torch.nn.Linear")], "kwargs": {"bias": False}},
        {"type": Featured},
    ],
)
def test_a_network_of_ones_own(model: dict[str, Any], tmp_path: Path) -> None:
    """By the names of its arguments, or as others write it; called with what its forward takes."""
    trainer, _, _ = trained({**described(tmp_path), "model": model})
    assert isinstance(trainer.model, (Sum, Featured))


def test_another_way_to_apply_it(tmp_path: Path) -> None:
    def negated(model: nn.Module, batch: Any) -> dict[int, Tensor]:
        outputs = model(batch.x, batch.edge_index, batch.batch)
        return {number: -each for number, each in outputs.items()}

    given = described(tmp_path, num_epochs=6, optimizer_kwargs={"lr": 0.05})
    both = {**monitored("Accuracy"), "apply_model": negated}
    _, metrics, tested = trained(
        {**given, "validation": {"validator": monitored("Accuracy")}, "testing": {"tester": both}}
    )
    assert metrics[-1]["accuracy"] == 1.0 and tested["accuracy"] == 0.0


# --- What cannot be -----------------------------------------------------------------------------------


def test_all_that_is_missing_is_reported_at_once(tmp_path: Path) -> None:
    given = described(tmp_path)
    del given["model"], given["data"], given["criterion"]
    given["validation"] = {"validator": monitored("F2")}
    with pytest.raises(ConfigError) as error:
        TrainerDDP(0, given)
    fields = [problem.partition(":")[0] for problem in error.value.problems]
    assert fields[:3] == ["model", "criterion", "data"]


def test_a_monitor_that_nobody_knows(tmp_path: Path) -> None:
    given = {**described(tmp_path), "validation": {"validator": monitored("F2", "Acuracy")}}
    with pytest.raises(ConfigError) as error:
        TrainerDDP(0, given)
    first, second = error.value.problems
    assert first.startswith(
        "validation.validator.evaluator_tasks.0.monitor: is 'F2', but no monitor is known"
    )
    assert "did you mean Accuracy?" in second


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"files": ["a.zarr"], "causets": {}}, "data.causets: is set, and data.files, too"),
        ({"outptu": "x"}, "data: has neither files"),
        ({"causets": {"number": 0}}, "data.causets.number: is 0"),
        ({"dataset": "Graphs"}, "data.dataset: is 'Graphs'; write !pyobject and the import path"),
    ],
)
def test_data_that_make_no_sense(data: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        TrainerDDP(0, {**described(tmp_path), "data": data})
    assert says in str(error.value)


def test_graphs_that_the_network_cannot_take(tmp_path: Path) -> None:
    """Reported before the first step, and with the widths."""
    given = described(tmp_path)
    given["model"] = {**given["model"], "encoder_args": [WIDTH + 1]}
    trainer = TrainerDDP(0, given)
    says = r"model: cannot process the first graph of data, which has 3 numbers per node: mat1 and mat2"
    with pytest.raises(ConfigError, match=says):
        trainer.prepare_dataloaders()


def test_graphs_without_what_the_network_takes(tmp_path: Path) -> None:
    """torch says of them that None has no attribute."""
    bare = [
        Data(edge_index=torch.zeros(2, 1, dtype=torch.int64), y=torch.ones(1, 1), num_nodes=1)
        for _ in range(10)
    ]
    given = described(tmp_path)
    trainer = TrainerDDP(0, {**given, "data": {"dataset": lambda: bare}})
    with pytest.raises(ConfigError, match="model: cannot process the first graph of data, which has Data"):
        trainer.prepare_dataloaders()


def test_a_mistake_in_somebodys_own_network_keeps_its_place(tmp_path: Path) -> None:
    trainer = TrainerDDP(0, {**described(tmp_path), "model": {"type": Broken}})
    with pytest.raises(ValueError, match="mine"):
        trainer.prepare_dataloaders()


# --- __main__ -----------------------------------------------------------------------------------------


def test_the_guides_criterion_is_the_programs_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where torchrun, mp.spawn or python runs a script with compute_loss in it."""
    script = types.ModuleType("__main__")
    vars(script)["compute_loss"] = compute_loss = lambda outputs, batch: outputs[0].mean()
    monkeypatch.setitem(sys.modules, "__main__", script)
    given = {**described(tmp_path), "criterion": PyObject("__main__.compute_loss")}
    assert GraphTask(Config.of(given))._training.criterion.function is compute_loss


def test_where_castoff_is_the_program_it_belongs_into_a_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = types.ModuleType("__main__")
    program.__spec__ = importlib.machinery.ModuleSpec("castoff.trainers.gnn.__main__", None)
    monkeypatch.setitem(sys.modules, "__main__", program)
    with pytest.raises(ConfigError) as error:
        TrainerDDP(0, {**described(tmp_path), "criterion": PyObject("__main__.compute_loss")})
    assert (
        "!pyobject __main__.compute_loss: __main__ has no compute_loss: the program that runs is "
        "castoff.trainers.gnn.__main__; put compute_loss into a module next to the YAML file, such as "
        "my_module.py, and write !pyobject my_module.compute_loss"
    ) in str(error.value)


# --- Resuming -----------------------------------------------------------------------------------------


def compared(before: dict[str, Any], now: dict[str, Any], path: Path) -> differences.Differences:
    base = {**described(path), "data": {"causets": {"number": 9}, **before}}
    given = {**described(path), "data": {"causets": {"number": 9}, **now}}
    old, new = (fields(Config.of(each), 1) for each in (base, given))
    return differences.compare(old, new, "step-1", 1, GraphTask(Config.of(given)))


@pytest.mark.parametrize(
    ("field", "one", "other"), [("output", "/a/x", "/b/y"), ("n_processes", 1, 4), ("chunksize", 5, 6)]
)
def test_how_graphs_are_written_does_not_matter(field: str, one: Any, other: Any, tmp_path: Path) -> None:
    found = compared({field: one}, {field: other}, tmp_path)
    assert (found.refused, found.reported) == ([], [])


def test_which_graphs_there_are_matters(tmp_path: Path) -> None:
    found = compared({}, {"causets": {"number": 10}}, tmp_path)
    assert [line.partition(":")[0] for line in found.refused] == ["data.causets.number"]


def stored(path: Path, number: int) -> dict[str, Any]:
    """A configuration with the graphs of a store, which is written."""
    store = path / "sets.h5"
    store.unlink(missing_ok=True)
    written.julia_hdf5(store, written.one_by_one(written.orders(number)))
    given = described(path / "out", num_epochs=1)
    given["data"] = {"files": [str(store)], "targets": ["dimension"], "output": str(path / "graphs")}
    given["model"]["encoder_args"] = [len(NODE)]
    return given


def test_a_training_resumes_with_the_same_graphs(tmp_path: Path) -> None:
    """Written again, elsewhere, from a file with another time, they are the same."""
    trained(stored(tmp_path, 10))
    given = stored(tmp_path, 10)
    given["training"]["num_epochs"] = 2
    given["data"]["output"] = str(tmp_path / "elsewhere")
    _, metrics, _ = trained(given)
    assert len(metrics) == 2
    changed = stored(tmp_path, 9)
    changed["training"]["num_epochs"] = 3
    with pytest.raises(ConfigError, match=r"data\.files: give 9 graphs, which are not the 10 graphs that"):
        trained(changed)


# --- Several ranks ------------------------------------------------------------------------------------

pytestmark = pytest.mark.usefixtures("for_real")


def validated(given: dict[str, Any]) -> tuple[list[dict[str, float]], list[dict[str, float]], int]:
    """What this rank has measured: the training and the validations; and how many steps there were."""
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer, metrics, _ = trained(given, me.rank)
    cleanup_ddp()
    return trainer.train_data, metrics, trainer.step


def test_three_ranks_are_one_process_also_where_they_have_unequal_shares(tmp_path: Path) -> None:
    """Loss and F1 score of seven graphs in batches of two, while all ranks stop after the same validation."""
    given = described(tmp_path / "out", length=35, num_epochs=6, optimizer_kwargs={"lr": 0.0})
    given["data"]["split"] = [0.6, 0.2, 0.2]
    given["validation"] = {"batch_size": 2, "every_steps": 1, "validator": monitored("F1", "Accuracy")}
    given["early_stopping"] = {"kwargs": {"patience": 2, "tasks": {0: {"metric": "f1", "mode": "max"}}}}
    given["testing"] = {"tester": monitored("F1")}  # of rank 0 alone, while the others are at their end
    given["model"]["encoder_kwargs"]["norm"] = "layer"
    answers = run(validated, given, folder=tmp_path / "ranks", world_size=3)
    assert answers[0] == answers[1] == answers[2]
    _, several, steps = answers[0]
    assert (len(several), steps) == (3, 3)
    given["training"] |= {"path": str(tmp_path / "alone"), "batch_size": 12}
    _, alone, _ = validated(given)
    for one, other in zip(several, alone, strict=True):
        assert one == pytest.approx(other, rel=1e-6)


def inactive(given: dict[str, Any], off: int) -> dict[str, bool]:
    """Whether each part of a model with two heads is as it was, after some steps."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = TrainerDDP(me.rank, given)
    before = {name: digest(part) for name, part in trainer.model.named_parameters()}
    training, validation, _ = trainer.prepare_dataloaders()
    trainer.run_training(training, validation)
    cleanup_ddp()
    return {name: digest(part) == before[name] for name, part in trainer.model.named_parameters()}


def digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()


@pytest.mark.parametrize("off", [0, 1])
def test_an_inactive_head_under_ddp(off: int, tmp_path: Path) -> None:
    """DistributedDataParallel waits for nothing, and the head stays as it was made."""
    given = described(tmp_path / "out", heads=2, num_epochs=1)
    given["model"]["active_tasks"] = {off: False}
    first, second = run(inactive, given, off, folder=tmp_path / "ranks", world_size=2)
    assert first == second
    for name, is_as_it_was in first.items():
        assert is_as_it_was == name.startswith(f"downstream_tasks.{off}."), name


def by_the_guide(path: str, world_size: int) -> None:
    """The steps of the guide's scripts, on this rank."""
    rank = RankEnv.detect().rank
    setup_logging(rank)
    initialize_ddp(rank=rank, worldsize=world_size, backend="gloo")
    with Path(path).open() as file:
        config = yaml.load(file, castoff.trainers.gnn.get_loader())
    config["parallel"]["world_size"] = world_size
    trainer = castoff.trainers.gnn.TrainerDDP(rank=rank, config=config)
    train_loader, val_loader, test_loader = trainer.prepare_dataloaders()
    assert (len(train_loader.dataset), len(val_loader.dataset), len(test_loader.dataset)) == (800, 100, 100)
    trainer.run_training(train_loader, val_loader)
    if rank == 0:
        trainer.run_test(test_loader)
    castoff.trainers.gnn.cleanup_ddp()


def test_the_guides_configuration_trains(tmp_path: Path) -> None:
    """Value by value, once its model, data, device and criterion are filled in; one epoch of the fifty.

    The null rank, the port in quotes, the bare names and early stopping with nothing but a patience are
    as they are; so are the workers. The log has the guide's lines.
    """
    text = GUIDE.replace("__main__", Graphs.__module__).replace('"cuda"', '"cpu"')
    text = text.replace("/path/to/output/directory", str(tmp_path / "out"))
    text = text.replace("num_epochs: 50", "num_epochs: 1")
    text = text.replace('  type: "GNNModel"\n', '  type: "GNNModel"\n' + MODEL)
    text += f"data: {{dataset: !pyobject {Graphs.__module__}.Graphs, length: 1000}}\n"
    (tmp_path / "train_ddp.yaml").write_text(text)
    ranks = Ranks(tmp_path / "ranks", 3)
    ranks.start(by_the_guide, str(tmp_path / "train_ddp.yaml"), 3)
    ranks.answers()
    log = ranks.log(0)
    for line in (
        "INFO: Training set size: 800, validation: 100",
        "INFO: Starting distributed training",
        "Validation: loss=0.",
        " ± ",
        "Saving checkpoint for model at epoch 1",
        "Test: loss=0.",
    ):
        assert line in log
    assert all(line.startswith("[RANK 0] ") for line in log.splitlines() if " INFO " in line)
    assert " INFO " not in ranks.log(1)


MODEL = "".join(f"  {name}: {value}\n" for name, value in (*ENCODER.items(), ("downstream_tasks", [HEAD])))


# --- Names for scripts --------------------------------------------------------------------------------


def test_scripts_find_the_names_that_they_know() -> None:
    from castoff.trainers.evaluation.early_stopping import DefaultEarlyStopping
    from castoff.trainers.gnn.models.gnn_block import GNNBlock
    from castoff.trainers.gnn.models.gnn_model import GNNModel

    there = castoff.trainers.gnn
    assert (there.TrainerDDP, there.GNNModel, there.models.GNNBlock) == (TrainerDDP, GNNModel, GNNBlock)
    assert (there.initialize_ddp, there.cleanup_ddp) == (initialize_ddp, cleanup_ddp)
    assert there.DefaultEarlyStopping is DefaultEarlyStopping
    assert there.get_loader is castoff.trainers.get_loader
    assert PyObject("castoff.trainers.gnn.models.GNNBlock").resolve() is GNNBlock
    with pytest.raises(
        AttributeError, match=r"module 'castoff\.trainers\.gnn' has no attribute 'JuliaWorker'"
    ):
        there.JuliaWorker  # noqa: B018


def test_completion_offers_them() -> None:
    for package in (castoff.trainers, castoff.trainers.gnn, castoff.trainers.gnn.models):
        assert set(package.__all__) <= set(dir(package))


def test_nothing_is_loaded_before_it_is_used() -> None:
    loaded = "'torch' in sys.modules or 'torch_geometric' in sys.modules"
    asks = f"import sys, castoff.trainers.gnn; sys.exit({loaded})"
    assert subprocess.run([sys.executable, "-c", asks], check=False).returncode == 0


def test_what_loader_workers_get_travels_to_spawned_ones_without_the_task(tmp_path: Path) -> None:
    """A rank of multiprocessing.spawn spawns its workers, too, and a task is not a thing to be pickled."""
    trainer = TrainerDDP(0, described(tmp_path))
    trainer.prepare_dataloaders()
    assert pickle.loads(pickle.dumps(trainer.task.collate)) is GraphTask.collate
