"""An agent that outlives a start of ranks, as a job's script has it: the next has copies of the same."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial

import psutil
import pytest

from castoff.launcher.launchers.local import agent as local_agent
from tests.launcher.launchers.local import test_endings as endings
from tests.launcher.launchers.local.conftest import Outcome, Run, Spawn, finish, gone, python
from tests.patience import until

from .conftest import begin_as_copies

NAMES_AGENT = python("import os; print(os.getppid())")


@pytest.fixture(autouse=True)
def copies(owner: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    begin_as_copies(monkeypatch, agent_for=owner.pid)


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    """The process that starts them, one after the other."""
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()
    while local_agent._OF_OWNERS:
        local_agent._OF_OWNERS.pop().wait()


@pytest.fixture
def spawn(spawn: Spawn) -> Spawn:
    """With the environment that `run` gives: for another, the agent's imports would be the wrong ones."""
    return partial(spawn, env={"PATH": os.environ["PATH"]})


@pytest.fixture(autouse=True)
def agent(spawn: Spawn) -> int:
    """That of a first start, whose launcher is gone."""
    (agent,) = agents(finish(spawn(NAMES_AGENT)))
    return agent


def agents(ended: Outcome) -> set[int]:
    assert (ended.code, "starts without" in ended.output) == (0, False), ended
    return {int(line.split()[-1]) for line in ended.output.splitlines()}


@pytest.mark.long
class TestFailure(endings.TestFailure):
    """Of a later start."""


@pytest.mark.long
class TestNobodyIsLeft(endings.TestNobodyIsLeft):
    """After a later start."""


def test_all_starts_have_one(run: Run, agent: int) -> None:
    assert agents(run(NAMES_AGENT)) == agents(run(NAMES_AGENT)) == {agent}


def test_it_ends_with_its_owner(owner: subprocess.Popen[bytes], agent: int) -> None:
    assert psutil.pid_exists(agent)
    owner.kill()
    until(lambda: gone(agent))


def test_one_that_somebody_stopped_runs_again(run: Run, agent: int) -> None:
    os.kill(agent, signal.SIGSTOP)
    assert agents(run(NAMES_AGENT)) == {agent}


def test_another_takes_its_place(run: Run, agent: int) -> None:
    os.kill(agent, signal.SIGKILL)
    until(lambda: gone(agent))
    (other,) = agents(run(NAMES_AGENT))
    assert agents(run(NAMES_AGENT)) == {other} != {agent}


def test_a_killed_launcher_takes_it_along(spawn: Spawn, agent: int) -> None:
    """It has ranks then, and nobody else ends those."""
    process = spawn(python("import time; print('ready', flush=True); time.sleep(600)"))
    assert process.stdout is not None and b"ready" in process.stdout.readline()
    process.kill()
    until(lambda: gone(agent))
