"""A run's folder: its name, who may train into it, and that nothing in it is lost."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
import torch

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing import run_lock
from castoff.trainers.checkpointing.run_folder import RunFolder, run_name
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.reporting import sinks
from tests.patience import until
from tests.trainers.toys import Ranks, Toy, config, run

ALONE = RankContext(0, 1, torch.device("cpu"))


def configured(path: Path | str, **training: Any) -> Config:
    return Config.of(config(path, **training))


def folder(path: Path, castoff_run: str = "", **training: Any) -> RunFolder:
    environ = {"CASTOFF_RUN_DIR": f"/runs/{castoff_run}"} if castoff_run else {}
    return RunFolder(configured(path, **training), ALONE, environ)


# --- Its name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "environ", "name"),
    [
        (None, {}, "toy"),
        (None, {"CASTOFF_RUN_DIR": "/a/x-1"}, "toy_x-1"),
        (
            None,
            {"CASTOFF_RUN_DIR": "/a/x-1", "CASTOFF_ARRAY_COUNT": "3", "CASTOFF_ARRAY_INDEX": "2"},
            "toy_x-1-2",
        ),
        ("mine", {}, "mine"),
        ("mine", {"CASTOFF_RUN_DIR": "/a/x-1", "CASTOFF_ARRAY_COUNT": "1"}, "mine"),
        (
            "mine",
            {"CASTOFF_RUN_DIR": "/a/x-1", "CASTOFF_ARRAY_COUNT": "3", "CASTOFF_ARRAY_INDEX": "2"},
            "mine-2",
        ),
    ],
)
def test_its_name(given: str | None, environ: dict[str, str], name: str) -> None:
    assert run_name(configured("out", run=given), environ) == name


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MY_SCRATCH", str(tmp_path / "s"))
    monkeypatch.delenv("NOWHERE", raising=False)
    assert folder(Path("~/a")).path == tmp_path / "a" / "toy"
    assert folder(Path("${MY_SCRATCH}/b")).path == tmp_path / "s" / "b" / "toy"
    with pytest.raises(ConfigError, match=r"training\.path: is '\$NOWHERE/c', but NOWHERE is not set here"):
        folder(Path("$NOWHERE/c"))
    with pytest.raises(ConfigError, match=r"training\.path: is '~nobody-here/c', .* home folder of ~nobody"):
        folder(Path("~nobody-here/c"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\nb", "\x00", "\x1b[31m", "\u2028"])
def test_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        folder(tmp_path, run=name)
    assert str(error.value).startswith(f"training.run: is {name!r}, but must be the name of the run's folder")
    with pytest.raises(ConfigError, match="name: is "):
        run_name(Config.of({**config(tmp_path), "name": name}), {})
    assert not list(tmp_path.iterdir())


# --- Who may train into it ---------------------------------------------------------------------------


def join_one_in_use(path: str) -> str:
    """The error that this rank gets."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        RunFolder(configured(path), place, {})
    except ConfigError as error:
        return str(error)
    finally:
        cleanup_ddp()
    return "nothing"


@pytest.mark.usefixtures("for_real")
def test_two_runs_cannot_share_it(tmp_path: Path) -> None:
    """Every rank of the second learns who holds it, at once; a second trainer of this process may."""
    held = folder(tmp_path / "out")
    assert folder(tmp_path / "out").path == held.path
    given = run(join_one_in_use, str(tmp_path / "out"), folder=tmp_path / "ranks", world_size=2)
    words = (
        f"training.run: process {os.getpid()} on {os.uname().nodename} is training in {held.path}; wait "
        "until it has ended, or give this training its own folder: --set training.run=NAME"
    )
    assert given == [words, words]


def die_and_leave_a_worker(path: str, left: str) -> NoReturn:
    """Rank 0 is killed, and what it has forked is still running."""
    RunFolder(configured(path), ALONE, {})
    if os.fork() == 0:
        Path(left).with_suffix(".draft").write_text(str(os.getpid()))
        Path(left).with_suffix(".draft").replace(left)
        signal.pause()
    until(Path(left).exists)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.usefixtures("for_real")
def test_a_killed_rank_0_releases_the_folder(tmp_path: Path) -> None:
    """Also while one of its loader workers, which inherits every descriptor, lives on."""
    left = tmp_path / "worker"
    ranks = Ranks(tmp_path / "ranks", 1)
    ranks.start(die_and_leave_a_worker, str(tmp_path / "out"), str(left))
    assert ranks.end() == [-signal.SIGKILL], ranks.log(0)
    worker = psutil.Process(int(left.read_text()))
    try:
        assert folder(tmp_path / "out").path.is_dir()
        assert worker.is_running()
    finally:
        worker.kill()


def hold(path: str, held: str) -> None:
    RunFolder(configured(path), ALONE, {"CASTOFF_RUN_DIR": "/runs/x"})
    Path(held).touch()
    signal.pause()


@pytest.mark.usefixtures("for_real")
def test_an_attempt_waits_for_the_end_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a while, and only in a castoff run."""
    ranks = Ranks(tmp_path / "ranks", 1)
    ranks.start(hold, str(tmp_path / "out"), str(tmp_path / "held"))
    try:
        until((tmp_path / "held").exists)
        looks = []

        def sleep(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) == 3:
                ranks.kill()

        with monkeypatch.context() as patched:
            patched.setattr(run_lock, "PREVIOUS", 0.0)
            with pytest.raises(ConfigError, match=f"process {ranks.processes[0].pid} on "):
                folder(tmp_path / "out", "x")
        monkeypatch.setattr(time, "sleep", sleep)
        assert folder(tmp_path / "out", "x").path.name == "toy_x"
        assert len(looks) == 3
    finally:
        ranks.kill()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_used_and_reported(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lockf(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    caplog.set_level(logging.INFO)
    assert folder(tmp_path).path.is_dir()
    assert [line for line in caplog.messages if "no locks there" in line] == caplog.messages


def test_one_that_is_set_aside_meanwhile_is_not_the_one_that_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its opening and its locking."""
    lockf = fcntl.lockf
    renamed: list[Path] = []

    def after_a_rename(*what: Any) -> None:
        if not renamed:
            renamed.append((tmp_path / "toy").rename(tmp_path / "toy.1"))
        lockf(*what)

    monkeypatch.setattr(fcntl, "lockf", after_a_rename)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    folder(tmp_path, "x", run="toy")
    assert json.loads((tmp_path / "toy" / ".lock").read_text())["pid"] == os.getpid()


# --- Beginning anew ----------------------------------------------------------------------------------


def train_into(made: RunFolder, text: str) -> None:
    (made.path / "metrics.jsonl").write_text(text)


def test_fresh_sets_the_earlier_one_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert folder(tmp_path, fresh=True).path == tmp_path / "toy"
    for text in ("first", "second"):
        train_into(folder(tmp_path), text)
        folder(tmp_path, fresh=True)
    assert {path.name for path in tmp_path.iterdir()} == {"toy", "toy.1", "toy.2"}
    assert [(tmp_path / f"toy.{n}" / "metrics.jsonl").read_text() for n in (1, 2)] == ["first", "second"]
    assert not (tmp_path / "toy" / "metrics.jsonl").exists()
    assert caplog.messages[-1] == f"Starting over: the earlier folder {tmp_path}/toy is now {tmp_path}/toy.2"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"schedule": {"type": "noam"}}, "noam has its peak there"),
        (
            {"schedule": {"warmup_steps": 30}, "num_epochs": None, "num_steps": 20},
            "the training has 20 steps",
        ),
        ({"scaling": {"learning_rate": "linear"}}, "base_world_size: is missing"),
        ({"lr_scheduler_type": torch.optim.lr_scheduler.StepLR}, "step_size: is missing"),
    ],
)
def test_nothing_is_set_aside_for_what_cannot_be_trained(
    fields: dict[str, Any], says: str, tmp_path: Path
) -> None:
    TrainerDDP(0, config(tmp_path), Toy())
    (tmp_path / "toy" / "metrics.jsonl").write_text("")
    with pytest.raises(ConfigError, match=says):
        TrainerDDP(0, config(tmp_path, **{**fields, "fresh": True}), Toy())
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_nothing_is_set_aside_for_a_package_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TrainerDDP(0, config(tmp_path), Toy())
    (tmp_path / "toy" / "metrics.jsonl").write_text("")
    monkeypatch.setattr(sinks, "_installed", lambda name: False)
    with pytest.raises(ConfigError, match="package tensorboard is not installed"):
        TrainerDDP(0, {**config(tmp_path, fresh=True), "logging": {"tensorboard": True}}, Toy())
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_fresh_counts_for_the_first_attempt_of_a_castoff_run(tmp_path: Path) -> None:
    """What it made is its own, in all that follow; what another run made is not."""
    train_into(folder(tmp_path, "before", run="mine"), "before")
    train_into(folder(tmp_path, "x", run="mine", fresh=True), "attempt 0")
    again = folder(tmp_path, "x", run="mine", fresh=True)
    assert (again.path / "metrics.jsonl").read_text() == "attempt 0"
    folder(tmp_path, "y", run="mine", fresh=True)
    assert [(tmp_path / f"mine.{n}" / "metrics.jsonl").read_text() for n in (1, 2)] == ["before", "attempt 0"]


@pytest.mark.parametrize("left", [None, ".lock", ".run.json"])
def test_fresh_after_a_kill_while_it_was_made(left: str | None, tmp_path: Path) -> None:
    """There is nothing to set aside, and a run's first attempt owns what it finds."""
    (tmp_path / "mine").mkdir()
    if left:
        (tmp_path / "mine" / left).write_text('{"castof')
    for _ in range(2):
        train_into(folder(tmp_path, "x", run="mine", fresh=True), "attempt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# --- What it tells -----------------------------------------------------------------------------------


def test_the_configuration_of_every_start_is_kept(tmp_path: Path) -> None:
    made = folder(tmp_path)
    for epochs, fresh in ((3, True), (3, False), (4, False), (5, False)):
        made.write_config(configured(tmp_path, num_epochs=epochs, fresh=fresh))
    texts = {path.name: path.read_text() for path in made.path.glob("config*")}
    assert set(texts) == {"config.yaml", "config-1.yaml", "config-2.yaml"}
    for name, epochs in (("config-1.yaml", 3), ("config-2.yaml", 4), ("config.yaml", 5)):
        assert f"num_epochs: {epochs}\n" in texts[name] and "fresh: false" in texts[name]


def test_another_rank_writes_no_configuration(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made._context = RankContext(1, 2, torch.device("cpu"))
    made.write_config(configured(tmp_path))
    assert not (made.path / "config.yaml").exists()
