"""How script and shim wait for what they started: its code is read right, whatever signals come meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff import JobSpec, Site, plan
from tests import patience

from .machine import part, written

TRIES = 4  # bash loses a code in about two of three

ENDS_WITH_7 = [
    *(sys.executable, "-S", "-E", "-c"),
    "import os, signal\n"
    "signal.signal(signal.SIGUSR2, lambda *_: os._exit(7))\n"
    "os.write(int(os.environ['READY']), b'.')\n"
    "while True: signal.pause()\n",
]
"""A program that ends at once, by its own code, when the signal comes."""

SCRIPT = """
set -euo pipefail
{waiting}
castoff_signalled= castoff_watch_due=0
trap 'castoff_signalled=1; :' USR2
"$@" &
castoff_launcher=$!
castoff_wait
exit "$castoff_code"
"""


def signalled(command: list[str | Path], env: dict[str, str], signals: list[int]) -> int:
    """The code of a command whose whole group gets signals once its program is ready."""
    reading, writing = os.pipe()
    reported = {**os.environ, **env, "READY": str(writing)}
    process = subprocess.Popen(
        command,
        env=reported,
        pass_fds=[writing],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as ready:
        assert ready.read(1) == b"."
    for number in signals:
        os.killpg(process.pid, number)
    return process.wait(timeout=patience.SECONDS)


def test_a_script_reads_the_launchers_code(tmp_path: Path) -> None:
    waiting = part("stopping")
    script = tmp_path / "waits.sh"
    script.write_text(SCRIPT.format(waiting=waiting))
    for _ in range(TRIES):
        assert signalled(["bash", script, *ENDS_WITH_7], {}, [signal.SIGUSR2]) == 7


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest, system_program: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """What may be /bin/sh: Debian's is dash; SUSE's and Red Hat's are a bash that is called sh."""
    link = tmp_path / "sh"
    link.symlink_to(system_program(request.param, request.param))
    return link


def test_the_shim_reads_its_programs_code(shell: Path, tmp_path: Path) -> None:
    decided = plan(JobSpec.of({"command": ["x"], "ranks_per_node": 1}), Site.load("slurm"))
    script = written(decided, "rank", tmp_path)
    reported = {f"SLURM_{name}": "0" for name in ("PROCID", "LOCALID", "NODEID")} | {
        "SLURM_STEP_NUM_TASKS": "1"
    }
    failure = tmp_path / "failure.json"
    reported |= {f"CASTOFF_{name}_DIR": str(tmp_path) for name in ("ATTEMPT", "LOG")}
    reported["CASTOFF_FAILURE_FILE"] = str(failure)
    # bash loses it in some tries, and then says which signal it was.
    known = {7} if shell.resolve().name == "dash" else {7, 128 + signal.SIGUSR2}
    for _ in range(TRIES):
        code = signalled([shell, script, *ENDS_WITH_7], reported, [signal.SIGUSR2])
        assert code in known
        assert json.loads(failure.read_text())["code"] == code
        failure.unlink()
