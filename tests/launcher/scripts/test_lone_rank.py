"""A job's only rank that waits for others: castoff says so."""

from __future__ import annotations

import sys

import pytest

from .conftest import Benches

WAITS = """
import subprocess, sys, time
beside = subprocess.Popen(["cat"], stdin=subprocess.PIPE) # no rank, as Open MPI's orted
open("/proc/self/comm", "w").write("pt_tcpstore_uv") # as torch names a thread while ranks meet
while not __import__("os").path.exists(sys.argv[1]):
    time.sleep(0.1)
"""


@pytest.mark.long
def test_the_user_is_told(bench: Benches) -> None:
    here = bench("hydra")
    over = here.seen / "over"
    running = here.start(ranks_per_node=1, command=[sys.executable, "-c", WAITS, str(over)])
    try:
        assert running.process.stdout is not None
        lines = iter(running.process.stdout.readline, "")
        assert any("the only rank waits" in line and "launcher.driver" in line for line in lines)
    finally:
        over.touch()
    ended = running.end()
    assert ended.ending == ("done", 0), ended.output
    assert "the only rank waits" not in ended.output
