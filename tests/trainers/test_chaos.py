"""Trouble in the middle of a training: nothing hangs, nothing good is lost, and afterwards it resumes.

Each run comes into one trouble after the other, and in the end has become what it would have without.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.writer import Writer
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed import requests, stopping
from castoff.trainers.distributed.failures import end
from castoff.trainers.program.logs import setup_logging
from tests import patience
from tests.mounts import join_mounts, mount_read_only, mount_small, mount_writable_again, with_mounts
from tests.trainers.toys import Outcome, Ranks, Sensitive, digest, run, same, train, with_checkpoints

HOST = socket.gethostname()
LIMIT = 4.0
"""Seconds that ranks wait for each other, once they have made a step."""

DAY = 86400.0

pytestmark = pytest.mark.usefixtures("for_real")


def fields_of(path: Path, **training: Any) -> dict[str, Any]:
    return {
        **with_checkpoints(path, **training),
        "validation": {"batch_size": 1},
        "parallel": {"start_timeout": 3600, "timeout": LIMIT},
    }


# --- Trouble -----------------------------------------------------------------------------------------


class Trouble(NamedTuple):
    """What befalls a rank, at its n-th `event` since it was started."""

    rank: int
    event: str
    """loss, evaluate, after_evaluation: a method of the task; flush: of what is written of checkpoints."""
    number: int
    what: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def prepare(self, task: Sensitive) -> None:
        happened = 0

        def count() -> None:
            nonlocal happened
            happened += 1
            if happened == self.number:
                self.what(*self.arguments)

        if self.event == "flush":
            flush = os.fsync

            def flushed(descriptor: int) -> None:
                if threading.current_thread().name == "checkpoint":
                    count()
                flush(descriptor)

            vars(os)["fsync"] = flushed  # until the process ends
            return
        method = getattr(task, self.event)

        def counted(model: nn.Module, *more: Any) -> Any:
            # In the first step loss and evaluate are also called to be looked at.
            if {"loss": model.training, "evaluate": task.state.validating}.get(self.event, True):
                count()
            return method(model, *more)

        vars(task)[self.event] = counted


def send(name: str) -> None:
    os.kill(os.getpid(), signal.Signals[name])


def terminate_and_hold() -> None:
    """TERM, and what is being written comes to its end only when the training waits for it."""

    def is_waited_for() -> bool:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None and frame.f_code is not Writer.wait.__code__:
            frame = frame.f_back
        return frame is not None

    send("SIGTERM")
    patience.until(is_waited_for, "the training does not wait for its checkpoint")


class NextDay:
    """Stands in for the module `time`."""

    perf_counter = staticmethod(time.perf_counter)

    @staticmethod
    def time() -> float:
        return time.time() + DAY

    @staticmethod
    def monotonic() -> float:
        return time.monotonic() + DAY


def let_a_day_pass() -> None:
    vars(requests)["time"] = NextDay  # until the process ends


def once_written(what: Callable[..., None], disk: Path) -> None:
    """When all that was saved until now is on the disk."""
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join(patience.SECONDS)
    what(disk)


def fill(disk: Path) -> None:
    with (disk / "fill").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def program(task: Sensitive, fields: dict[str, Any], trouble: Trouble | None, mounts: int | None) -> Outcome:
    """As `castoff train` begins and ends."""
    me = RankEnv.detect()
    if mounts is not None:
        join_mounts(mounts)
    setup_logging(me.rank)
    stopping._MESSAGE_EVERY = 0.0  # as where steps are long; these are over before anybody is heard
    if trouble is not None and trouble.rank == me.rank:
        trouble.prepare(task)
    try:
        return train(task, fields)
    except Exception as error:  # noqa: BLE001
        end(error, me, fields["training"]["path"])


class Attempts:
    """A run that is started again and again, on so many ranks."""

    def __init__(self, folder: Path, world_size: int, disk: Path | None = None):
        self.folder = folder
        self.fields = fields_of(folder if disk is None else disk)
        self.checkpoints = Checkpoints(Path(self.fields["training"]["path"]) / "toy" / "checkpoints")
        self.world_size = world_size
        self.mounts = None if disk is None else os.getpid()
        self.number = 0
        self.environ: dict[str, str] = {}

    def start(self, trouble: Trouble | None) -> Ranks:
        self.number += 1
        ranks = Ranks(self.folder / f"attempt{self.number}", self.world_size, self.environ)
        ranks.start(program, Sensitive(), self.fields, trouble, self.mounts)
        return ranks

    def into(self, trouble: Trouble) -> tuple[list[int], list[str]]:
        """Exit codes and logs; whatever happens, what was good stays, and there is more of it."""
        before = self.step()
        ranks = self.start(trouble)
        codes = ranks.end()
        logs = [ranks.log(rank) for rank in range(self.world_size)]
        assert self.step() >= before, logs[0]
        assert [path for path in self.checkpoints.all() if self.checkpoints.problem(path)] == []
        return codes, logs

    def step(self) -> int:
        """Of the newest checkpoint."""
        newest = self.checkpoints.newest()
        return 0 if newest is None else int(newest.name[-10:])

    def become(self, whole: Outcome) -> None:
        answers = self.start(None).answers()
        same(answers[0], whole)
        assert {answer.judged for answer in answers} == {whole.judged}


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Outcome]:
    """What comes of it without any trouble, by world size."""
    folder = tmp_path_factory.mktemp("whole")
    return {
        size: run(
            *(program, Sensitive(), fields_of(folder / f"{size}"), None, None),
            folder=folder / f"r{size}",
            world_size=size,
        )[0]
        for size in (2, 3)
    }


# --- Signals -----------------------------------------------------------------------------------------


def test_asked_to_stop_at_any_time(tmp_path: Path, wholes: dict[int, Outcome]) -> None:
    """One rank alone is asked: in a step, while a checkpoint is written, and in a validation."""
    attempts = Attempts(tmp_path, 2)
    for trouble in (
        Trouble(1, "loss", 4, send, ("SIGTERM",)),
        Trouble(1, "loss", 4, send, ("SIGINT",)),
        Trouble(0, "flush", 2, terminate_and_hold),
        Trouble(1, "evaluate", 1, send, ("SIGTERM",)),
    ):
        codes, logs = attempts.into(trouble)
        assert codes == [75, 75], logs
        step = attempts.step()
        reason = f"{'INT' if 'SIGINT' in trouble.arguments else 'TERM'}{' to rank 1' * trouble.rank}"
        assert f"Stopped early at step {step} ({reason})" in logs[0]
        newest = attempts.checkpoints.newest()
        assert newest is not None
        if trouble.event == "evaluate":
            assert load_part(newest, "training")["state"]["validating"]
    outcome = tmp_path / "outcome"
    deadline = str(time.time() + DAY)
    attempts.environ = {"CASTOFF_DEADLINE": deadline, "CASTOFF_OUTCOME_FILE": str(outcome)}
    codes, logs = attempts.into(Trouble(0, "loss", 4, let_a_day_pass))
    assert codes == [0, 0], logs
    assert f"Stopped early at step {attempts.step()} (the deadline)" in logs[0]
    assert outcome.read_text() == "resume\n"
    attempts.environ = {"CASTOFF_OUTCOME_FILE": str(outcome)}
    attempts.become(wholes[2])
    assert outcome.read_text() == "done\n"


@pytest.mark.long
def test_ranks_that_are_killed_or_do_not_answer(tmp_path: Path, wholes: dict[int, Outcome]) -> None:
    """In a step, in a validation, and where rank 0 alone is busy after one."""
    attempts = Attempts(tmp_path, 3)
    codes, logs = attempts.into(Trouble(1, "evaluate", 3, send, ("SIGKILL",)))
    assert codes == [1, -signal.SIGKILL, 1], logs
    lost = f"rank 1 ({HOST}) does not answer; the last step that it took part in is 11"
    assert f"castoff train: {lost}" in logs[0]
    assert lost in logs[2]
    assert attempts.step() == 11

    codes, logs = attempts.into(Trouble(0, "after_evaluation", 1, send, ("SIGKILL",)))
    assert codes == [-signal.SIGKILL, 1, 1], logs
    for log in logs[1:]:
        assert "castoff train: " in log and "rank 0" in log
    assert attempts.step() == 11

    ranks = attempts.start(Trouble(2, "loss", 5, send, ("SIGSTOP",)))
    assert [process.wait(patience.SECONDS) for process in ranks.processes[:2]] == [1, 1]
    assert f"rank 2 ({HOST}) does not answer; the last step that it took part in is 15" in ranks.log(0)
    assert attempts.step() > 11
    ranks.processes[2].send_signal(signal.SIGCONT)
    assert ranks.end() == [1, 1, 1], ranks.log(2)
    attempts.become(wholes[3])


# --- Disks -------------------------------------------------------------------------------------------


@pytest.mark.apart
def test_a_disk_that_fills_up_and_one_that_turns_read_only(
    tmp_path: Path, wholes: dict[int, Outcome]
) -> None:
    """Between two steps, and while a checkpoint is written; all ranks end, and what is good stays."""

    def test() -> None:
        disk = tmp_path / "disk"
        mount_small(disk, "size=4m")
        attempts = Attempts(tmp_path, 2, disk)
        for trouble, why in (
            (Trouble(0, "loss", 5, once_written, (fill, disk)), "No space left on device"),
            (Trouble(0, "flush", 8, fill, (disk,)), "No space left on device"),
            (Trouble(0, "loss", 5, once_written, (mount_read_only, disk)), "Read-only file system"),
            (Trouble(0, "flush", 8, mount_read_only, (disk,)), "Read-only file system"),
        ):
            before = attempts.step()
            codes, logs = attempts.into(trouble)
            assert codes == [1, 1], logs
            assert re.search(rf"castoff train: training\.path: {disk}\S*: {why}\n", logs[0]), logs[0]
            # Rank 0 keeps the ranks' store, and tells why it ends where it still can.
            gone = r"castoff train: rank 0 \(\S+\)(, which keeps the ranks' store, is gone| ended after step)"
            assert re.search(gone, logs[1]), logs[1]
            assert attempts.step() > before
            if why.startswith("No space"):
                (disk / "fill").unlink()
            else:
                mount_writable_again(disk)
        attempts.become(wholes[2])

    with_mounts(tmp_path, test)


# --- Damage ------------------------------------------------------------------------------------------


class Broken(Exception):
    """Raised in the middle of a training."""


class Interrupted(NamedTuple):
    """A run that broke off, and what becomes of it if nothing is damaged."""

    path: Path
    whole: Outcome


def alone(path: Path) -> dict[str, Any]:
    """The highest loss is the best here: that of the first validation, whatever comes."""
    worst = {"t": {"metric": "loss", "mode": "max"}}
    fields = fields_of(path, batch_size=8, checkpoint_every_steps=None)
    return {**fields, "early_stopping": {"kwargs": {"patience": 99, "tasks": worst}}}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """Its checkpoints are those of two validations: the first is the best, the second the newest."""
    folder = tmp_path_factory.mktemp("interrupted")
    whole = train(Sensitive(), alone(folder / "whole"))
    task = Sensitive()

    def broken() -> None:
        raise Broken

    Trouble(0, "loss", 2 * STEPS + 3, broken).prepare(task)
    with pytest.raises(Broken):
        train(task, alone(folder / "broken"))
    return Interrupted(folder / "broken", whole)


STEPS = 17
"""Of one epoch."""
BEST, NEWEST = f"step-{STEPS:010d}", f"step-{2 * STEPS:010d}"


def truncated(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def flipped(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("model.pt", flipped),
        pytest.param("training.pt", truncated, marks=pytest.mark.long),
        pytest.param("manifest.json", flipped, marks=pytest.mark.long),
        ("record.json", truncated),
    ],
)
def test_the_newest_is_damaged(
    name: str,
    damaged: Callable[[bytes], bytes],
    tmp_path: Path,
    interrupted: Interrupted,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The one before it does, or the model is validated anew: everything comes out the same."""
    shutil.copytree(interrupted.path, tmp_path / "out", symlinks=True)
    newest = tmp_path / "out" / "toy" / "checkpoints" / NEWEST
    (newest / name).write_bytes(damaged((newest / name).read_bytes()))
    same(train(Sensitive(), alone(tmp_path / "out")), interrupted.whole)
    what = "the record of checkpoint" if name == "record.json" else "checkpoint"
    assert f"{what} {newest} is damaged, and not used: " in caplog.text
    assert Checkpoints(newest.parent).problem(newest) is None, "it was made anew"


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("model.pt", truncated),
        pytest.param("training.pt", flipped, marks=pytest.mark.long),
        pytest.param("manifest.json", truncated, marks=pytest.mark.long),
        ("record.json", flipped),
    ],
)
def test_the_best_is_damaged(
    name: str,
    damaged: Callable[[bytes], bytes],
    tmp_path: Path,
    interrupted: Interrupted,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Training comes to its end; nothing that is damaged is tested, and it stays until it is mended."""
    shutil.copytree(interrupted.path, tmp_path / "out", symlinks=True)
    best = tmp_path / "out" / "toy" / "checkpoints" / BEST
    good = (best / name).read_bytes()
    (best / name).write_bytes(damaged(good))
    trainer = TrainerDDP(0, alone(tmp_path / "out"), Sensitive())
    training, validation, test = trainer.prepare_dataloaders()
    trainer.run_training(training, validation)
    assert digest(trainer.model) == interrupted.whole.weights
    if name == "record.json":
        assert f"the record of checkpoint {best} is damaged, and not used: " in caplog.text
        assert trainer.checkpoints.best() is None
    else:
        with pytest.raises(CheckpointError, match=rf"the best checkpoint, {best}, is damaged: .*{name}"):
            trainer.run_test(test)
    (best / name).write_bytes(good)
    same(train(Sensitive(), alone(tmp_path / "out")), interrupted.whole)
