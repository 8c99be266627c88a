"""Where metrics go, over kills, full disks and services that fail."""

from __future__ import annotations

import errno
import json
import logging
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from castoff.trainers.configuration.config import Config, Logging, Mlflow, Wandb
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.devices import device_name
from castoff.trainers.program.training import train
from castoff.trainers.reporting import sinks as sinks_module
from castoff.trainers.reporting.curves import draw, draw_curves, others
from castoff.trainers.reporting.metrics_file import MetricsFile
from castoff.trainers.reporting.services import FURTHER_NAMES, with_further_names
from castoff.trainers.reporting.sinks import METRICS, Sinks, check_packages
from tests.patience import until
from tests.ports import free_port
from tests.trainers.toys import Toy, config


def sinks(folder: Path, **asked: Any) -> Sinks:
    return Sinks(folder, Logging(**asked), "toy", {"training": {"lr": 1.0}, "ddp/world_size": 2})


def steps(folder: Path) -> list[int]:
    return [line["step"] for line in MetricsFile(folder / "metrics.jsonl").read()]


# metrics.jsonl


def test_what_was_written_after_the_checkpoint_is_cut(tmp_path: Path) -> None:
    first = sinks(tmp_path)
    first.write(1, {"x": 1.0})
    first.write(2, {"x": float("nan")})
    position = first.position()
    first.write(2, {"val/x": 1.0})
    first.write(3, {"x": 1.0})
    with first.metrics.path.open("a") as raw:
        raw.write('{"step": 4, "x"')
    second = sinks(tmp_path)
    second.go_back(position, 2)
    assert (tmp_path / "metrics.jsonl").stat().st_size == position
    second.write(3, {"x": 5.0})
    lines = MetricsFile(tmp_path / "metrics.jsonl").read()
    assert [(line["step"], line["x"]) for line in lines] == [(1, 1.0), (2, None), (3, 5.0)]


def test_the_run_records_what_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was configured: not what follows from that, nor which member of a sweep it is."""
    path = tmp_path / "of the attempt"
    monkeypatch.setenv("CASTOFF_METRICS_FILE", str(path))
    asked = {"training": {"lr": 1.0}, "ddp/world_size": 2, "member": {"number": 3}}
    Sinks(tmp_path, Logging(), "toy", asked).begin(5, 90, "a device")
    (line,) = MetricsFile(path).read()
    packages = line.pop("packages")
    assert line.pop("time") > 0
    assert line == {
        **{"step": 5, "total_steps": 90, "device": "a device"},
        **{"folder": str(tmp_path), "parameters": {"training": {"lr": 1.0}}},
    }
    assert packages["torch"] == str(torch.__version__)
    assert packages["python"] == platform.python_version()
    assert "json" not in packages and not [name for name in packages if "." in name]


def test_the_run_records_a_loss_that_is_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """metrics.jsonl stays what every reader of JSON reads; castoff shows a loss that is nan as such."""
    path = tmp_path / "of the attempt"
    monkeypatch.setenv("CASTOFF_METRICS_FILE", str(path))
    sinks(tmp_path).write(1, {"val/loss": float("nan")})
    assert '"val/loss": NaN' in path.read_text()
    assert '"val/loss": null' in (tmp_path / "metrics.jsonl").read_text()


def test_devices_have_names() -> None:
    assert device_name(torch.device("cpu")) == "cpu"


def test_beginning_anew_keeps_nothing(tmp_path: Path) -> None:
    sinks(tmp_path).write(1, {"x": 1.0})
    new = sinks(tmp_path)
    new.go_back(0, 0)
    assert new.position() == 0
    assert steps(tmp_path) == []


@pytest.mark.parametrize("lost", [1, 30])
def test_a_file_that_is_shorter_keeps_its_whole_lines(
    lost: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = sinks(tmp_path)
    for step in (1, 2, 3):
        first.write(step, {"x": 1.0})
    position = first.position()
    os.truncate(first.metrics.path, position - lost)
    second = sinks(tmp_path)
    second.go_back(position, 3)
    assert "the rest is lost" in caplog.text
    second.write(4, {"x": 1.0})
    assert steps(tmp_path) == [1, 2, 4]
    assert second.metrics.path.read_bytes().count(b"\n") == 3


def test_half_a_line_is_dropped_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"ste')
    MetricsFile(path).write({"step": 2})
    assert steps(tmp_path) == [1, 2]


def test_lines_wait_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    used = sinks(tmp_path)
    used.write(1, {"x": 1.0})
    opened = Path.open
    full = True

    class Full:
        """Takes three bytes, and then no more."""

        def __init__(self, file: Any):
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, data: bytes) -> int:
            return int(self.file.write(data[:3] if full else data))

    monkeypatch.setattr(Path, "open", lambda self, *a, **k: Full(opened(self, *a, **k)))
    used.write(2, {"x": 1.0})
    used.write(3, {"x": 1.0})
    assert caplog.text.count("its lines wait") == 1
    with pytest.raises(
        OSError, match=os.strerror(errno.ENOSPC)
    ):  # a checkpoint must not say that it has them
        used.position()
    full = False
    used.write(4, {"x": 1.0})
    monkeypatch.undo()
    assert steps(tmp_path) == [1, 2, 3, 4]
    assert used.position() == used.metrics.path.stat().st_size


# What is missing, and what fails


def test_a_missing_package_is_named_with_its_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()  # as a run of wandb leaves one; it looks like a package
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    for name in ("tensorboard", "wandb", "mlflow"):
        for module in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
            monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ConfigError) as caught:
        check_packages(Logging(tensorboard=True, wandb=Wandb(project="p"), mlflow=Mlflow(experiment="e")))
    text = str(caught.value)
    for name in ("tensorboard", "wandb", "mlflow"):
        assert f"logging.{name}: is set" in text
        assert f"pip install {name}" in text
    check_packages(Logging())


def test_a_service_that_fails_is_dropped_and_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def __init__(self, *_: object):
            pass

        def write(self, *_: object) -> None:
            raise RuntimeError("the server is on fire")

        flush = close = write

    monkeypatch.setattr(sinks_module, "TensorBoard", Failing)
    used = sinks(tmp_path, tensorboard=True)
    for step in (1, 2, 3):
        used.write(step, {"x": 1.0})
    used.position()
    used.close()
    assert caplog.text.count("TensorBoard gets no more metrics") == 1
    assert "the server is on fire" in caplog.text
    assert steps(tmp_path) == [1, 2, 3]


# TensorBoard and Weights & Biases


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_hides_what_is_trained_again(tmp_path: Path) -> None:
    first = sinks(tmp_path, tensorboard=True)
    first.go_back(0, 0)
    for step in (1, 2, 3):
        first.write(step, {"train/loss": float(step)})
    first.position()  # and then it is killed
    second = sinks(tmp_path, tensorboard=True)
    second.go_back(0, 1)
    for step in (2, 3, 4):
        second.write(step, {"train/loss": 10.0 * step})
    second.close()
    assert curve(tmp_path, "train/loss") == [(1, 1.0), (2, 20.0), (3, 30.0), (4, 40.0)]


class FakeRun:
    """What wandb.init gives, as far as it is used."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []
        self.over = False

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        pass

    def log(self, values: dict[str, float]) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.over = True


class FakeWandb:
    """Keeps what was passed to it."""

    class errors:
        UsageError = type("UsageError", (Exception,), {})
        CommError = type("CommError", (Exception,), {})

    def __init__(self, refuses: str | None = None):
        self.refuses = refuses
        self.unreachable = False
        self.holds = False
        self.begun: list[dict[str, Any]] = []
        self.runs: list[FakeRun] = []

    def Settings(self, **named: object) -> dict[str, object]:
        return named

    def init(self, **named: Any) -> FakeRun:
        if self.refuses:
            raise self.errors.UsageError(self.refuses)
        if self.unreachable and named["mode"] == "online":
            self.holds = True
            raise self.errors.CommError("deadline exceeded")
        assert not self.holds, "run ID is in use"
        self.begun.append(named)
        self.runs.append(FakeRun())
        return self.runs[-1]

    def teardown(self) -> None:
        self.holds = False


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    made = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", made)
    return made


def test_wandb_is_given_the_run_and_resumes_it(tmp_path: Path, wandb: FakeWandb) -> None:
    asked = Wandb(project="p", entity="e", group="g", tags=["a", "b"], mode="online")
    for _ in range(2):
        used = sinks(tmp_path, wandb=asked)
        used.go_back(0, 0)
        used.write(3, {"train/loss": 1.0})
        used.close()
    first, second = wandb.begun
    assert first == second, "the same identifier, too"
    stated = {name: first[name] for name in ("project", "entity", "group", "tags", "mode", "name", "resume")}
    assert stated == {
        "project": "p",
        "entity": "e",
        "group": "g",
        "tags": ["a", "b"],
        "mode": "online",
        "name": "toy",
        "resume": "allow",
    }
    assert first["config"] == {"training": {"lr": 1.0}, "ddp/world_size": 2}
    assert wandb.runs[0].logged == [{"step": 3, "train/step": 3, "train/loss": 1.0}]
    assert wandb.runs[0].over


def test_a_run_may_have_a_name_of_its_own_there(tmp_path: Path, wandb: FakeWandb) -> None:
    used = sinks(tmp_path, wandb=Wandb(project="p", name="mine"))
    used.go_back(0, 0)
    used.close()
    assert wandb.begun[0]["name"] == "mine"


def test_settings_that_wandb_refuses_end_the_start(tmp_path: Path, wandb: FakeWandb) -> None:
    wandb.refuses = "No API key configured."
    with pytest.raises(ConfigError, match=r"logging.wandb: No API key configured.; `wandb login`"):
        sinks(tmp_path, wandb=Wandb(project="p", mode="online")).go_back(0, 0)


def test_a_test_is_reported_in_the_run_that_is_there(
    tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "_installed", lambda name: True)
    fields = {**config(tmp_path), "logging": {"tensorboard": True, "wandb": {"project": "p"}}}
    trainer = train(fields, Toy()).trainer
    (run,) = wandb.runs
    assert "test/loss" in run.logged[-1]
    assert run.over
    assert len(list((trainer.folder / "tensorboard").iterdir())) == 1
    assert [step for step, _ in curve(trainer.folder, "test/loss")] == [trainer.step]


def test_a_training_that_fails_closes_its_run(
    tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "_installed", lambda name: True)
    fields = {**config(tmp_path), "logging": {"wandb": {"project": "p"}}}
    trainer = TrainerDDP(0, fields, Toy())
    loaders = trainer.prepare_dataloaders()[:2]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_end_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.run_training(*loaders)
    (run,) = wandb.runs
    assert run.over


def test_wandb_is_offline_where_its_service_does_not_answer(
    tmp_path: Path, wandb: FakeWandb, caplog: pytest.LogCaptureFixture
) -> None:
    wandb.unreachable = True
    used = sinks(tmp_path, wandb=Wandb(project="p", mode="online"))
    used.go_back(0, 0)
    used.write(1, {"train/loss": 1.0})
    assert wandb.begun[0]["mode"] == "offline"
    assert len(wandb.runs[0].logged) == 1
    assert "the service does not answer, so wandb is offline (deadline exceeded)" in caplog.text


def test_members_of_a_castoff_run_are_a_group(
    tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("alone", "member", "own"):
        (tmp_path / name).mkdir()
    sinks(tmp_path / "alone", wandb=Wandb(project="p")).go_back(0, 0)
    monkeypatch.setenv("CASTOFF_RUN_DIR", "/runs/rings-ab12")
    monkeypatch.setenv("CASTOFF_ARRAY_INDEX", "3")
    sinks(tmp_path / "member", wandb=Wandb(project="p")).go_back(0, 0)
    sinks(tmp_path / "own", wandb=Wandb(project="p", group="mine")).go_back(0, 0)
    groups = [(each["group"], each["job_type"]) for each in wandb.begun]
    assert groups == [(None, None), ("rings-ab12", "member 3"), ("mine", None)]


@pytest.mark.costly  # mlflow takes seconds to import
@pytest.mark.usefixtures("for_real")
def test_mlflow_itself_in_the_runs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed attempt continues the run; what is trained again is there twice, with the same values."""
    monkeypatch.setenv("CASTOFF_RUN_DIR", "/runs/rings-ab12")
    asked = Mlflow(experiment="rings", tags={"team": "a"})
    for begin in (0, 2):
        used = sinks(tmp_path, mlflow=asked)
        used.go_back(0, begin)
        for step in range(begin + 1, 5):
            used.write(step, {"train/loss": 1 / step, "val/F1@5": float("nan")})
        used.close()
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("rings")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "toy"
    assert run.info.status == "FINISHED"
    assert run.data.params == {"training.lr": "1.0", "ddp/world_size": "2"}
    assert {"castoff.run": "rings-ab12", "castoff.member": "0", "team": "a"}.items() <= run.data.tags.items()
    points = client.get_metric_history(run.info.run_id, "train/loss")
    assert sorted((point.step, point.value) for point in points) == [
        (step, 1 / step) for step in (1, 2, 3, 3, 4, 4)
    ]
    assert len(client.get_metric_history(run.info.run_id, "val/F1_5")) == 6


@pytest.mark.costly
@pytest.mark.usefixtures("for_real")
def test_an_mlflow_server_that_does_not_answer_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    used = sinks(tmp_path, mlflow=Mlflow(experiment="e", tracking_uri=f"http://127.0.0.1:{free_port()}"))
    used.go_back(0, 0)
    used.write(1, {"train/loss": 1.0})
    assert caplog.text.count("MLflow gets no more metrics, but metrics.jsonl has them all") == 1
    assert steps(tmp_path) == [1]


@pytest.mark.usefixtures("for_real")
@pytest.mark.long
def test_wandb_itself_offline(tmp_path: Path) -> None:
    used = sinks(tmp_path, wandb=Wandb(project="p"))
    used.go_back(0, 0)
    used.write(1, {"train/loss": 0.123456, "train/step_time": 2.5, "val/best_loss": 0.5})
    used.close()
    assert [set(line) for line in used.metrics.read()] == [
        {"step", "time", "train/loss", "train/step_time", "val/best_loss"}
    ]
    (written,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    kept = (tmp_path / "wandb-run-id").read_text().strip()
    assert kept in written.name
    further = (b"train/step", b"train/batch_time", b"checkpoint/best_loss", b"validation/best_loss")
    uncertain = (b"train/loss", b"0.123456", b"ddp/world_size", *further)
    until(
        lambda: all(stated in written.read_bytes() for stated in uncertain)
    )  # wandb's own process writes it


UNIREF50 = {
    "train/step": "step",
    "train/epoch": "epoch",
    "train/learning_rate": "train/lr",
    "train/batch_time": "train/step_time",
    "system/gpu_memory_allocated_gb": "train/memory_allocated_gb",
    "system/gpu_memory_reserved_gb": "train/memory_reserved_gb",
    "validation/loss": "val/loss",
    "checkpoint/current_loss": "val/loss",
    "validation/best_loss": "val/best_loss",
    "checkpoint/best_loss": "val/best_loss",
    "validation/steps_without_improvement": "val/without_improvement",
}
"""What the metrics of the UniRef50 trainer are here."""


@given(st.dictionaries(st.sampled_from([*UNIREF50.values(), "train/loss", "test/loss"]), st.integers()))
def test_further_names_have_the_same_values(values: dict[str, float]) -> None:
    further = {name: values[own] for name, own in UNIREF50.items() if own in values}
    assert with_further_names(values) == {**values, **further}


# Curves


def test_a_picture_of_any_training(tmp_path: Path) -> None:
    used = sinks(tmp_path)
    for step in range(1, 6):
        used.write(step, {"train/loss": -float(step), "train/step_time": 1.0, "train/lr": 0.1})
    used.write(5, {"train_epoch/loss": 1.0})
    assert others(used.metrics.read()) == ["train/lr"]
    used.write(5, {"train/accuracy": 1.0})
    assert others(used.metrics.read()) == ["train/accuracy"]
    used.write(
        5, {"val/loss": float("nan"), "val/f1": 0.5, "val/best_loss": 2.0, "val/without_improvement": 1}
    )
    assert others(used.metrics.read()) == ["val/f1"]
    assert draw_curves(tmp_path, {"chance": 0.5}) == tmp_path / "curves.png"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_record_has_a_picture_too(tmp_path: Path) -> None:
    draw(tmp_path / "metrics.jsonl", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").is_file()


def test_missing_matplotlib_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with caplog.at_level(logging.INFO):
        assert draw_curves(tmp_path) is None
    assert "pip install matplotlib" in caplog.text


def test_what_wandb_is_given_of_a_configuration_is_plain(tmp_path: Path, wandb: FakeWandb) -> None:
    from torch.optim import AdamW

    from castoff.trainers.configuration.yaml_text import plain

    resolved = plain(Config.of(config(tmp_path)))
    Sinks(tmp_path, Logging(wandb=Wandb(project="p")), "toy", resolved).go_back(0, 0)
    stated = wandb.begun[0]["config"]
    assert stated["training"]["optimizer_type"] == f"{AdamW.__module__}.AdamW"
    json.dumps(stated)


def test_the_reference_has_every_metric(tmp_path: Path) -> None:
    asked = {"monitoring": {"log_gradients": True, "log_weights": True}}
    trained = train(config(tmp_path) | asked, Toy())
    lines = MetricsFile(trained.trainer.folder / "metrics.jsonl").read()
    found = {name for line in lines for name in line} - {"step", "epoch", "time"}
    assert {"train/loss", "val/loss", "test/loss", "gradients/0"} < found
    parts = {name.partition("/")[0] for name in METRICS if name.endswith("/PART")}
    assert {name for name in found - set(METRICS) if name.partition("/")[0] not in parts} == set()
    assert {name for name in FURTHER_NAMES if "/" in name} < set(METRICS)
