"""The lock of a run's folder where its holder cannot be ended: a later attempt replaces it."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from castoff.trainers.checkpointing import run_lock
from castoff.trainers.checkpointing.run_lock import RunLock
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.attempt import Attempt, AttemptOver
from tests.patience import until
from tests.trainers.toys import Ranks

pytestmark = pytest.mark.usefixtures("for_real")


def attempt(folder: Path, number: int, member: int = 0, run: str = "run") -> Attempt:
    """Attempt `number` of a castoff run in a folder."""
    own = folder / run / "attempts" / f"{member}.{number}"
    own.mkdir(parents=True, exist_ok=True)
    environ = {"CASTOFF_RUN_DIR": str(folder / run), "CASTOFF_ATTEMPT_DIR": str(own)}
    return Attempt({**environ, "CASTOFF_ARRAY_INDEX": str(member), "CASTOFF_ATTEMPT": str(number)})


def hold(folder: str) -> str:
    """Hold it as attempt 1 until CONT comes; what that process finds out then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    lock = RunLock(Path(folder, "trained"), attempt(Path(folder), 1))
    lock.check()
    Path(folder, "held").touch()
    signal.sigwait({signal.SIGCONT})
    try:
        lock.check()
    except AttemptOver as error:
        return str(error)
    return "nothing"


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    """A process that holds the lock and is stopped, as if its host were lost."""
    monkeypatch.setattr(run_lock, "ENDED", 0.0)
    ranks = Ranks(tmp_path / "ranks", 1)
    ranks.start(hold, str(tmp_path))
    try:
        until((tmp_path / "held").exists, "its lock")
        ranks.processes[0].send_signal(signal.SIGSTOP)
        yield ranks
    finally:
        ranks.kill()


@pytest.mark.parametrize("ended", [True, False])
def test_the_next_attempt_replaces_it(
    ended: bool,
    tmp_path: Path,
    holder: Ranks,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At once after an ending that the script has recorded. Whoever held it knows when it wakes up."""
    monkeypatch.setattr(run_lock, "PREVIOUS", float("inf") if ended else 0.0)
    if ended:
        (tmp_path / "run" / "attempts" / "0.1" / "ending.json").touch()
    with caplog.at_level(logging.WARNING):
        lock = RunLock(tmp_path / "trained", attempt(tmp_path, 2))
    lock.check()
    host = os.uname().nodename
    assert f"replaced the lock of process {holder.processes[0].pid} on {host}" in caplog.text
    RunLock(tmp_path / "trained", attempt(tmp_path, 2)).check()  # as a second trainer of this process does
    holder.processes[0].send_signal(signal.SIGCONT)
    (said,) = holder.answers()
    assert said.startswith(
        f"process {os.getpid()} on {host} of run run is now training in {tmp_path}/trained: "
    )


@pytest.mark.parametrize(
    ("number", "member", "run"), [(1, 0, "run"), (0, 0, "run"), (2, 1, "run"), (2, 0, "other")]
)
def test_nobody_else_does(
    number: int, member: int, run: str, tmp_path: Path, holder: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same attempt, an earlier one, another member's, another run's: whatever was recorded."""
    monkeypatch.setattr(run_lock, "PREVIOUS", 0.0)
    (tmp_path / "run" / "attempts" / "0.1" / "ending.json").touch()
    before = (tmp_path / "trained" / ".lock").stat().st_ino
    with pytest.raises(
        ConfigError, match=rf"process {holder.processes[0].pid} on \S+ of run run is training in "
    ):
        RunLock(tmp_path / "trained", attempt(tmp_path, number, member, run))
    assert (tmp_path / "trained" / ".lock").stat().st_ino == before


def test_outside_a_run_nobody_waits(tmp_path: Path, holder: Ranks) -> None:
    with pytest.raises(ConfigError, match=f"process {holder.processes[0].pid} on "):
        RunLock(tmp_path / "trained", Attempt({}))
