"""Workers that are forked while other threads are at work begin in any case."""

from __future__ import annotations

import os
import signal
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from castoff.trainers.distributed.forking import Forking
from tests import patience
from tests.trainers.data.test_loaders import loaded, samples


@pytest.fixture(scope="module")
def next_child() -> list[str]:
    """What becomes of the next child before its first line, if anything is in it: of that child alone."""
    given: list[str] = []

    def before_its_first_line() -> None:
        if given == ["asleep"]:
            signal.pause()
        elif given == ["killed"]:
            os.kill(os.getpid(), signal.SIGKILL)

    os.register_at_fork(after_in_child=before_its_first_line, after_in_parent=given.clear)
    return given


def ended() -> int | None:
    """What a process that ends with 7 ends with."""
    child = Forking().Process(target=os._exit, args=(7,))
    child.start()
    child.join(patience.SECONDS)
    code = child.exitcode
    child.close()
    return code


def test_one_that_sleeps_before_its_first_line_is_forked_anew(next_child: list[str]) -> None:
    files = len(list(Path("/proc/self/fd").iterdir()))
    next_child.append("asleep")
    assert ended() == 7
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def test_a_killed_worker_is_left_for_the_loader_to_report(next_child: list[str]) -> None:
    next_child.append("killed")
    assert ended() == -signal.SIGKILL


def test_of_a_loader(next_child: list[str]) -> None:
    next_child.append("asleep")
    loader = loaded(num_workers=2, shuffle=False)
    assert len(samples(loader.groups(0, 0))) == 20


def ignores_term(begun: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begun.send_bytes(b"ignores")
    signal.pause()


def test_a_loader_can_end_one_that_ignores_term() -> None:
    """As where the loader is found by the collector of circles, its queues before itself."""
    child = Forking().Process(target=ignores_term, args=((pipe := Pipe())[1],))
    child.start()
    assert pipe[0].recv_bytes() == b"ignores"
    child.terminate()
    child.join(patience.SECONDS)
    assert child.exitcode == -signal.SIGKILL
