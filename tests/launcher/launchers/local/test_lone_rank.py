from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from castoff.launcher.launchers.local import lone_rank
from tests import patience

IN_STORE = (
    "import time; open('/proc/self/comm', 'w').write('pt_tcpstore_uv'); "
    "print('there', flush=True); time.sleep(1e6)"
)
"""Like a rank that waits in torch's rendezvous, without torch."""


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(text: str, *words: str) -> subprocess.Popen[str]:
        one = subprocess.Popen([sys.executable, "-c", text, *words], stdout=subprocess.PIPE, text=True)
        started.append(one)
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_the_user_is_told(spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
    """Once, and a rank that waits for others is not ended for it."""
    started = spawn([sys.executable, "-c", IN_STORE], ranks=1)
    assert started.stderr is not None
    lines = iter(started.stderr.readline, b"")
    assert any(b"the only rank waits" in line and b"launcher.driver" in line for line in lines)
    assert started.poll() is None
    started.send_signal(signal.SIGTERM)
    assert b"the only rank waits" not in b"".join(lines)


def test_one_that_computes_is_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lone_rank, "meeting", lambda rank: [rank])
    took = iter([1.0, 3.5, 3.6])
    monkeypatch.setattr(lone_rank, "cpu_seconds", lambda pid: next(took))
    looks = lone_rank.LoneRank(7, 0.0)
    said = []
    while (due := looks.due) is not None:
        said.append(looks.look(due))
    assert said == [None, None, lone_rank.HINT]


def test_it_is_known_soon_after_the_wait_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the imports took before."""
    now = 0.0
    monkeypatch.setattr(lone_rank, "meeting", lambda rank: [rank] if now > 1000 else [])
    monkeypatch.setattr(lone_rank, "cpu_seconds", lambda pid: 9.0)
    looks, said = lone_rank.LoneRank(7, now), None
    while said is None:
        assert looks.due is not None
        now = looks.due
        said = looks.look(now)
    assert now <= 1000 + 20.0


@pytest.mark.parametrize(
    ("before", "meant"),
    [
        ("", True),
        ("import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)", False),
        ("import subprocess; subprocess.Popen(['cat'], stdin=-1)", True),  # as Open MPI's orted
        ("from multiprocessing import resource_tracker as kept; kept.ensure_running()", True),
    ],
)
def test_only_where_no_workers_run_below(
    before: str, meant: bool, program: Callable[..., subprocess.Popen[str]]
) -> None:
    """As torchrun's do, whose own store serves its ranks."""
    one = program(f"{before}\n{IN_STORE}")
    assert one.stdout is not None and one.stdout.readline() == "there\n"
    # A child that has just been forked still looks like its parent.
    patience.until(lambda: (one.pid in lone_rank.meeting(one.pid)) == meant, "it is taken for the other kind")


@pytest.mark.costly
def test_torchs_own_names(program: Callable[..., subprocess.Popen[str]]) -> None:
    """A group of two waits for the other; one of its own does not wait."""
    text = (
        "import sys, time; import torch.distributed as dist; "
        "store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False); "
        "dist.init_process_group('gloo', store=store, rank=0, world_size=int(sys.argv[1])); "
        "print('met', flush=True); time.sleep(1e6)"
    )
    waits = program(text, "2")
    patience.until(lambda: lone_rank.meeting(waits.pid) == [waits.pid], "no thread is named as expected")
    alone = program(text, "1")
    assert alone.stdout is not None and alone.stdout.readline() == "met\n"
    # Threads name themselves, a moment after they begin.
    patience.until(lambda: not lone_rank.meeting(alone.pid), "a group of one is taken for one that waits")
