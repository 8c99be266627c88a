"""A program of any framework: whether to stop, and what is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from castoff.trainers import resumable
from castoff.trainers.distributed import requests

PROGRAM = """
import os, sys
from castoff.trainers import resumable

stop = resumable.StopSignal()
for step in range(10):
    if step == 3:
        open(os.environ["CASTOFF_STOP_FILE"], "w").close()
        stop._requests._looked = float("-inf")  # as if a second had passed
    if stop.asked(step):
        print("saves at", step, *(name for name in ("torch", "numpy") if name in sys.modules), flush=True)
        stop.stop()
"""


def test_a_program_without_torch_stops(tmp_path: Path) -> None:
    names = {"STOP_FILE": "stop", "OUTCOME_FILE": "outcome", "PROGRESS_FILE": "progress"}
    files = {f"CASTOFF_{variable}": str(tmp_path / name) for variable, name in names.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **files},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "saves at 3\n"
    assert (tmp_path / "outcome").read_text() == "resume\n"
    assert (tmp_path / "progress").read_text().split()[0] == "3"


def test_a_signal_asks_and_means_what_it_did_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = resumable.StopSignal()
    assert not stop.asked()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.asked()
    with pytest.raises(resumable.StoppedEarly, match="stopped early: TERM") as stopped:
        stop.stop()
    assert stopped.value.code == os.EX_TEMPFAIL
    assert signal.getsignal(signal.SIGTERM) == before


def test_near_the_deadline_it_leaves_time_for_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_LOOK_EVERY", 0.0)
    monkeypatch.setenv("CASTOFF_GRACE", "10")
    now = 1000.0
    monkeypatch.setattr("castoff.trainers.distributed.requests.time.time", lambda: now)
    monkeypatch.setattr("castoff.trainers.resumable.stop_signal.time.perf_counter", lambda: now)
    monkeypatch.setenv("CASTOFF_DEADLINE", "1040")
    stop = resumable.StopSignal()
    assert not stop.asked()
    now += 9
    assert not stop.asked()
    now += 4
    assert stop.asked(), "another step of 9 s, a checkpoint and the grace would end too late"
    stop._requests.close()
