"""Messages about jobs of a real Slurm: from the nodes, and from the head node where a job could send none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from castoff.launcher.notify import webhooks
from tests.webhook import SECRET

from . import HEAD
from .desk import Desk
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

CHECKOUT = Path(__file__).resolve().parents[2]


def test_one_that_fails_and_one_that_is_killed(slurm: SlurmCluster, tmp_path: Path) -> None:
    desk, config = Desk(slurm, tmp_path / "desk"), tmp_path / "config"
    program = [sys.executable, "-m", "tests.webhook"]
    server = slurm.popen(HEAD, program, cwd=CHECKOUT, stdin=subprocess.PIPE)
    assert server.stdout is not None and server.stdin is not None
    with server:
        port = int(server.stdout.readline())
        webhooks.add("phone", f"http://head:{port}/{SECRET}", None, {"XDG_CONFIG_HOME": str(config)})
        own = ["--set", "notify.to=phone", "--set", f"env.XDG_CONFIG_HOME={config}", "--walltime", "5m"]
        killed = desk.submit(*own, "--name", "killed", sh="sleep 600")
        failed = desk.submit(*own, "--name", "failed", command=[sys.executable, "-c", "int('x')"])
        got = json.loads(server.stdout.readline())
        assert (got["title"], got["run"]) == ("failed: failed", failed.id)
        assert got["reason"].startswith(
            "ValueError: invalid literal for int() with base 10: 'x'; rank 0 on n"
        )
        desk.until(killed, state="running")
        desk.slurm("scancel", "--signal=KILL", "--full", str(killed.job))
        watched = desk.castoff("watch", env={"XDG_CONFIG_HOME": str(config)})
        assert watched.code == 0 and watched.output.endswith(" phone: killed: cancelled\n"), watched
        got = json.loads(server.stdout.readline())
        assert (got["title"], got["run"]) == ("killed: cancelled", killed.id)
        server.stdin.close()
        assert server.stdout.read() == "", "each of them once"
    for run in (killed, failed):
        held = [
            path for path in run.path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
        ]
        assert held == []
