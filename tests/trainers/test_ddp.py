"""TrainerDDP: the bugs of its forerunners, each a test, and training that goes on as if nothing were."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import TensorDataset, random_split

from launcher.ranks import RankEnv
from tests import patience
from tests.trainers.toys import Ranks, Toy, config, digest, run
from trainers.core.checkpoint import Checkpoints, load_part
from trainers.core.config import ConfigError, Evaluation
from trainers.core.data import evaluation_loader
from trainers.core.distributed import (
    DistributedError,
    Place,
    backend_for,
    choose_device,
    device_ids,
    local_rank,
    meet,
)
from trainers.core.engine import Engine
from trainers.core.evaluation import evaluate
from trainers.core.metrics import MetricsFile
from trainers.core.stopping import StoppedEarly
from trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from trainers.task import Splits

pytestmark = pytest.mark.usefixtures("for_real")


def train(task: Toy, fields: dict[str, Any]) -> dict[str, Any]:
    """A whole training on this rank."""
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        trainer = TrainerDDP(me.rank, fields, task)
        first, second, _ = trainer.prepare_dataloaders()
        results = trainer.run_training(first, second)
        return {
            "digest": digest(trainer.model),
            "step": trainer.step,
            "epoch": trainer.epoch,
            "folder": str(trainer.folder),
            "results": results,
            "metrics": MetricsFile(trainer.folder / "metrics.jsonl").read() if me.rank == 0 else None,
        }
    finally:
        cleanup_ddp()


def threads() -> list[str]:
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def train_and_look(task: Toy, fields: dict[str, Any]) -> dict[str, Any]:
    """A whole training on this rank, and the threads that are left of it."""
    return {**train(task, fields), "threads": threads()}


def stop_and_look(task: Toy, fields: dict[str, Any]) -> list[str]:
    """The threads that are left of a training which is stopped early, while that is still told."""
    try:
        train(task, fields)
    except StoppedEarly:
        return threads()
    raise AssertionError("nobody has stopped it")


@pytest.fixture
def trainer(tmp_path: Path) -> TrainerDDP:
    return TrainerDDP(0, config(tmp_path), Toy())


# --- Seed 001's bugs, and Q1 to Q12 ------------------------------------------------------------------


def test_q1_a_fresh_trainer_has_done_nothing(trainer: TrainerDDP) -> None:
    assert (trainer.epoch, trainer.step) == (0, 0)


def test_q2_ddp_gets_an_index_and_no_device() -> None:
    assert device_ids(torch.device("cpu")) is None
    assert device_ids(torch.device("cuda", 2)) == [2]
    assert device_ids(torch.device("xpu", 0)) == [0]


class Recorder(nn.Module):
    """Stands in for DistributedDataParallel."""

    def __init__(self, module: nn.Module, **told: Any):
        super().__init__()
        self.told = told


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.core.engine.DistributedDataParallel", Recorder)
    monkeypatch.setattr("trainers.core.engine._settle_buckets", lambda wrapped: None)


@pytest.mark.usefixtures("recorded")
def test_q2_ddp_is_told_the_index(trainer: TrainerDDP, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = trainer.engine.optimizer
    engine = Engine(trainer.model, optimizer, trainer.config, Place(0, 2, torch.device("cuda", 2)))
    monkeypatch.setattr(Place, "distributed", True)
    with engine.wrapped():
        assert isinstance(engine.model, Recorder)
        assert engine.model.told["device_ids"] == [2]


class Diverging(Toy):
    """A validation that only rank 0 could call better: the decision must be one for all."""

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        return {"loss": (float(os.environ["RANK"]) + time.monotonic(), 1)}


def test_q3_all_ranks_stop_together(tmp_path: Path) -> None:
    fields = config(tmp_path / "out", num_epochs=30)
    fields["early_stopping"] = {"kwargs": {"patience": 2}}
    answers = run(train, Diverging(40), fields, folder=tmp_path / "ranks", world_size=2)
    assert [answer["epoch"] for answer in answers] == [3, 3]


def test_q3_a_rank_without_validation_data(tmp_path: Path) -> None:
    """One sample is rank 0's; the other rank knows the result, too."""
    answers = run(train, Toy(10), config(tmp_path / "out"), folder=tmp_path / "ranks", world_size=2)
    (_, first), (_, second) = (answer["results"] for answer in answers)
    assert first == second
    assert [measures["loss"] > 0 for measures in second] == [True] * 3


TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def test_q4_where_torchrun_lets_ranks_meet_is_left_alone() -> None:
    told = {"MASTER_ADDR": "head", "MASTER_PORT": "29400", **TORCHRUN}
    told |= {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    before = dict(told)
    meet(told, RankEnv.detect(told), 1, 2, "localhost", "12345")
    assert told == before


def test_q4_the_guides_example_under_torchrun(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "from trainers.ddp import initialize_ddp, cleanup_ddp\n"
        "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "place = initialize_ddp(rank=rank, worldsize=world, backend='gloo')\n"
        "import torch\n"
        "sys.stdout.write(f'sum={int(place.sum(torch.tensor([rank + 1])))} ')\n"
        "cleanup_ddp()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(script)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=patience.SECONDS, check=False
    )
    assert done.stdout == "sum=3 sum=3 ", done.stderr


def test_a_program_that_spawns_its_ranks_says_where_they_meet() -> None:
    told: dict[str, str] = {}
    meet(told, RankEnv.detect({}), 1, 2, "localhost", "12399")
    assert told == {"MASTER_ADDR": "localhost", "MASTER_PORT": "12399"}


def test_a_job_of_several_ranks_may_not_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "CASTOFF_STARTER": "local"}
    told |= {"CASTOFF_RANK": "1/4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    with pytest.raises(DistributedError, match=r"rank 1 of 4 by local, but the program says rank 0 of 2"):
        meet(told, RankEnv.detect(told), 0, 2, "localhost", "12345")


class Careless(Toy):
    """Splits by the global generator, as one does."""

    def build_data(self) -> Splits:
        return Splits(*random_split(TensorDataset(torch.arange(100.0)[:, None]), [80, 10, 10]))


def shares(fields: dict[str, Any]) -> list[list[int]]:
    """Which samples this rank trains on, validates and tests with."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    torch.manual_seed(me.rank)
    train, *others = TrainerDDP(me.rank, fields, Careless()).prepare_dataloaders()
    cleanup_ddp()
    found = [[micro.data for group in train.groups(0, 0) for micro in group.micros]]
    found += [[batch.data for batch in loader] for loader in others]
    return [[int(number) for (numbers,) in batches for number in numbers] for batches in found]


def test_q5_splits_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    """And disjoint over them: nobody trains on what another rank validates or tests with."""
    answers = run(shares, config(tmp_path / "out"), folder=tmp_path / "ranks", world_size=3)
    trained, validated, tested = ([sorted(answer[part]) for answer in answers] for part in range(3))
    assert tested[0] == tested[1] == tested[2]
    whole = [*chain(*trained), *chain(*validated), *tested[0]]
    assert sorted(whole) == list(range(100))


def test_q7_the_local_rank_chooses_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert local_rank(RankEnv.detect(told), 5, 8) == 1
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    assert choose_device("auto", 1) == torch.device("cuda", 1)
    assert choose_device("cuda", 5, 2) == torch.device("cuda", 2)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    assert choose_device("cuda", 3) == torch.device("cuda", 0)
    with pytest.raises(DistributedError, match="this host has cuda"):
        choose_device("xpu", 0)


def test_a_device_that_is_not_there() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is one on this machine")
    assert choose_device("auto", 3) == torch.device("cpu")
    with pytest.raises(DistributedError, match=r"device is cuda, but torch .* sees none here; write device"):
        choose_device("cuda", 0)


@pytest.mark.parametrize(
    ("asked", "device", "backend"),
    [(None, "cpu", "gloo"), ("ccl", "xpu", "xccl"), ("xpu", "xpu", "xccl"), ("nccl", "cuda", "nccl")],
)
def test_backends(asked: str | None, device: str, backend: str) -> None:
    assert backend_for(asked, torch.device(device)) == backend


@pytest.mark.usefixtures("recorded")
def test_q8_the_model_is_moved_before_it_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Moved(nn.Linear):
        def to(self, *where: Any, **also: Any) -> Any:
            seen.append("moved")
            return super().to(*where, **also)

    class Task(Toy):
        def build_model(self) -> nn.Module:
            return Moved(8, 1)

    class Wrapper(Recorder):
        def __init__(self, module: nn.Module, **told: Any):
            super().__init__(module, **told)
            seen.append("wrapped")

    monkeypatch.setattr("trainers.core.engine.DistributedDataParallel", Wrapper)
    trainer = TrainerDDP(0, config(tmp_path), Task())
    monkeypatch.setattr(Place, "distributed", True)
    with trainer.engine.wrapped():
        assert seen == ["moved", "wrapped"]


def test_q9_the_learning_rates_are_those_of_one_process(tmp_path: Path) -> None:
    fields = config(
        tmp_path / "out",
        lr_scheduler_type=ExponentialLR,
        lr_scheduler_kwargs={"gamma": 0.5},
        lr_scheduler_per="epoch",
        log_every=1,
    )
    (answer, _) = run(train, Toy(80), fields, folder=tmp_path / "ranks", world_size=2)
    rates = {line["epoch"]: line["lr"] for line in answer["metrics"] if "lr" in line}
    assert rates == {0: 0.01, 1: 0.005, 2: 0.0025}


def test_q10_one_folder_for_all_ranks(tmp_path: Path) -> None:
    answers = run(train, Toy(40), config(tmp_path / "out"), folder=tmp_path / "ranks", world_size=2)
    assert len({answer["folder"] for answer in answers}) == 1
    assert len(list((tmp_path / "out").iterdir())) == 1
    assert (Path(answers[0]["folder"]) / "config.yaml").exists()


def test_q11_a_checkpoint_loads_into_a_plain_module(tmp_path: Path) -> None:
    answers = run(train, Toy(40), config(tmp_path / "out"), folder=tmp_path / "ranks", world_size=2)
    newest = max((Path(answers[0]["folder"]) / "checkpoints").glob("step-*"))
    model = Toy().build_model()
    model.load_state_dict(load_part(newest, "model"))
    assert digest(model) == answers[0]["digest"] == answers[1]["digest"]


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(8, 1), nn.Linear(8, 1).requires_grad_(False)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.used(numbers)
        return out


class OneActiveHead(Toy):
    def build_model(self) -> nn.Module:
        return TwoHeads()


def test_q16_a_head_that_is_switched_off(tmp_path: Path) -> None:
    """Frozen before it is wrapped, it makes DDP wait for nothing."""
    answers = run(train, OneActiveHead(40), config(tmp_path / "out"), folder=tmp_path / "r", world_size=2)
    assert {answer["epoch"] for answer in answers} == {3}


class Normed(Toy):
    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        assert type(model) is nn.Sequential, "what DDP wraps waits for ranks that have no batch left"
        return super().evaluate(model, batch)


def test_the_end_of_an_epoch_is_enough_for_batch_norm(tmp_path: Path) -> None:
    """163 samples in global batches of 16 leave 3, of which one of two ranks had a single one."""
    fields = config(tmp_path / "out", num_epochs=2)
    answers = run(train, Normed(203), fields, folder=tmp_path / "ranks", world_size=2)
    assert {answer["step"] for answer in answers} == {2 * 11}
    assert answers[0]["digest"] == answers[1]["digest"]


def validated(fields: dict[str, Any]) -> tuple[float, float]:
    """The last validation's loss, and the same model's over the whole set on this rank alone."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = TrainerDDP(me.rank, fields, Normed(70))
    first, second, _ = trainer.prepare_dataloaders()
    _, measures = trainer.run_training(first, second)
    alone = Place(0, 1, torch.device("cpu"), alone=True)
    whole = evaluation_loader(
        Normed(70).build_data().validation,
        Evaluation(batch_size=2),
        trainer.config.training,
        trainer.task.collate,
        rank=0,
        world_size=1,
    )
    mine = evaluate(trainer.task, trainer.model, whole, alone)
    cleanup_ddp()
    return measures[-1]["loss"], mine["loss"]


def test_q17_evaluation_with_batch_norm_on_uneven_shards(tmp_path: Path) -> None:
    """Seven samples: four batches on one rank, three on the other. It ends, and is exact."""
    fields = config(tmp_path / "out", num_epochs=2, batch_size=4)
    fields |= {"validation": {"batch_size": 1}, "parallel": {"timeout": 20}}
    answers = run(validated, fields, folder=tmp_path / "ranks", world_size=2)
    (first, alone), (second, _) = answers
    assert first == second == pytest.approx(alone, rel=1e-6)


def test_train_data_are_those_of_all_ranks(tmp_path: Path) -> None:
    answers = run(train, Toy(80), config(tmp_path / "out"), folder=tmp_path / "ranks", world_size=2)
    assert answers[0]["results"] == answers[1]["results"]
    assert len(answers[0]["results"][0]) == len(answers[0]["results"][1]) == 3


# --- Going on ----------------------------------------------------------------------------------------


LONG = {"num_epochs": 4, "num_workers": 2, "checkpoint_every_steps": 5}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("whole")
    ranks = Ranks(folder / "ranks", 2, fresh=True)
    ranks.start(train_and_look, Toy(), config(folder / "out", **LONG))
    whole: dict[str, Any] = ranks.answers()[0]
    return whole


def test_no_thread_of_the_group_outlives_it(uninterrupted: dict[str, Any], tmp_path: Path) -> None:
    """One that lets go of a tensor when Python has ended aborts the rank, whose training was done."""
    stop = tmp_path / "stop"
    stop.touch()
    stopped = run(
        *(stop_and_look, Toy(), config(tmp_path / "out", **LONG)),
        folder=tmp_path / "ranks",
        world_size=2,
        CASTOFF_STOP_FILE=str(stop),
    )
    for left in (uninterrupted["threads"], *stopped):
        assert not [name for name in left if "gloo" in name]


def trace(metrics: list[dict[str, Any]]) -> list[tuple[int, Any, Any]]:
    return [(line["step"], line.get("train/loss"), line.get("val/loss")) for line in metrics]


def steps(folder: Path) -> int:
    found = [line["step"] for path in folder.glob("*/metrics.jsonl") for line in MetricsFile(path).read()]
    return max(found, default=0)


def until_step(ranks: Ranks, folder: Path, wanted: int) -> None:
    give_up = time.monotonic() + patience.SECONDS
    while steps(folder) < wanted:
        assert time.monotonic() < give_up, ranks.log(0)
        assert all(process.poll() is None for process in ranks.processes), ranks.log(0)
        time.sleep(0.01)


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_signals_to_the_whole_step(context: str, tmp_path: Path) -> None:
    """Ranks, loader workers and what those rest on all get TERM and USR2; nothing is lost."""
    outcome = tmp_path / "outcome"
    fields = config(tmp_path / "out", num_epochs=30, num_workers=2, multiprocessing_context=context)
    world = 2 if context == "fork" else 1  # other workers import torch, which takes seconds
    ranks = Ranks(tmp_path / "ranks", world, {"CASTOFF_OUTCOME_FILE": str(outcome)})
    ranks.start(train, Toy(pause=0.02), fields)
    until_step(ranks, tmp_path / "out", 3)
    for process in ranks.processes:
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGUSR2)
    assert ranks.end() == [0] * world, ranks.log(0)
    assert outcome.read_text() == "again\n"
    (folder,) = (tmp_path / "out").iterdir()
    newest = Checkpoints(folder / "checkpoints").newest()
    assert newest is not None
    assert load_part(newest, "training")["state"]["step"] == steps(tmp_path / "out")


def test_ctrl_c_saves_and_the_same_again_goes_on(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    """Of a plain program, that no script asks for an outcome: its code tells `again` from done."""
    fields = config(tmp_path / "out", **LONG)
    ranks = Ranks(tmp_path / "stopped", 2)
    ranks.start(train, Toy(pause=0.05), fields)
    until_step(ranks, tmp_path / "out", 7)
    for process in ranks.processes:
        process.send_signal(signal.SIGINT)
    assert ranks.end() == [75, 75], ranks.log(0) + ranks.log(1)
    (answer, _) = run(train, Toy(), fields, folder=tmp_path / "last", world_size=2)
    assert answer["digest"] == uninterrupted["digest"]
    assert trace(answer["metrics"]) == trace(uninterrupted["metrics"])


@pytest.mark.parametrize("how", ["stop file", "TERM", "deadline"])
def test_stopping_early_and_going_on(how: str, tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    """Agreed at a step boundary, saved, `again`, exit 0; then to the end, bit for bit."""
    stop, outcome = tmp_path / "stop", tmp_path / "outcome"
    fields = config(tmp_path / "out", **LONG)
    environ = {"CASTOFF_RUN_DIR": str(tmp_path / "run"), "CASTOFF_OUTCOME_FILE": str(outcome)}
    if how == "deadline":
        told = {**environ, "CASTOFF_DEADLINE": str(int(time.time()) + 5), "CASTOFF_GRACE": "1"}
    else:
        told = {**environ, "CASTOFF_STOP_FILE": str(stop)}
    ranks = Ranks(tmp_path / "stopped", 2, told)
    ranks.start(train, Toy(pause=0.2 if how == "deadline" else 0.05), fields)
    if how != "deadline":
        until_step(ranks, tmp_path / "out", 7)
    if how == "stop file":
        stop.touch()
    elif how == "TERM":  # one rank and its workers alone, not the first
        import psutil

        family = psutil.Process(ranks.processes[1].pid)
        for process in [family, *family.children(recursive=True)]:
            process.send_signal(signal.SIGTERM)
    assert ranks.end() == [0, 0], ranks.log(0) + ranks.log(1)
    assert outcome.read_text() == "again\n"
    answers = run(train, Toy(), fields, folder=tmp_path / "last", world_size=2, **environ)
    assert answers[0]["digest"] == uninterrupted["digest"]
    assert trace(answers[0]["metrics"]) == trace(uninterrupted["metrics"])
    assert outcome.read_text() == "done\n"


def test_a_run_that_is_over_is_not_trained_again(tmp_path: Path) -> None:
    fields = config(tmp_path / "out")
    fields["early_stopping"] = {"kwargs": {"patience": 1, "tasks": {"t": {"metric": "loss", "delta": 9e9}}}}
    one = run(train, Toy(40), fields, folder=tmp_path / "one", world_size=1)[0]
    two = run(train, Toy(40), fields, folder=tmp_path / "two", world_size=1)[0]
    assert one["step"] == two["step"]
    assert one["epoch"] == 2
    assert one["digest"] == two["digest"]


def test_another_seed_or_batch_cannot_go_on(tmp_path: Path) -> None:
    for wrong, says in [
        ({}, None),
        ({"seed": 1}, r"training\.seed: is 1, but .*step-.* was made with 0.*\n.*--fresh"),
        ({"batch_size": 7}, r"global batch"),
    ]:
        trainer = TrainerDDP(0, config(tmp_path, **wrong), Toy())
        first, second, _ = trainer.prepare_dataloaders()
        if says is None:
            trainer.run_training(first, second)
            continue
        with pytest.raises(ConfigError, match=says):
            trainer.run_training(first, second)


def test_what_a_program_saves_by_itself_is_loaded(tmp_path: Path) -> None:
    trainer = TrainerDDP(0, config(tmp_path), Toy())
    first, second, _ = trainer.prepare_dataloaders()
    trainer.run_training(first, second)
    path = trainer.save_checkpoint()
    other = TrainerDDP(0, config(tmp_path, seed=3), Toy())
    assert digest(other.model) != digest(trainer.model)
    other.load_checkpoint(path)
    assert digest(other.model) == digest(trainer.model)


def test_a_wrong_place_is_said(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="prepare_dataloaders"):
        TrainerDDP(0, config(tmp_path), Toy()).run_training([], None)  # type: ignore[arg-type]


def test_a_test_is_for_one_rank_or_all(tmp_path: Path, trainer: TrainerDDP) -> None:
    first, second, third = trainer.prepare_dataloaders()
    trainer.run_training(first, second)
    measures = trainer.run_test(third)
    assert set(measures) == {"loss"}
    assert json.loads((trainer.folder / "metrics.jsonl").read_text().splitlines()[-1])["test/loss"] > 0


@pytest.fixture(autouse=True)
def left_the_group() -> Iterator[None]:
    yield
    cleanup_ddp()


def test_a_place_without_a_group() -> None:
    place = Place(0, 1, torch.device("cpu"))
    assert torch.equal(place.sum(torch.ones(2)), torch.ones(2))
    assert place.from_main("x") == "x"
    place.barrier("nothing")
