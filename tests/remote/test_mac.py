"""A Mac as the laptop: see `tests.as_on_a_mac`. The machine, over a real sshd, is Linux."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests import as_on_a_mac, patience
from tests.remote.conftest import Laptop

pytestmark = pytest.mark.costly


def test_a_job_from_a_mac(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.a_job()
    environ = {**os.environ, **laptop.machine.environment(laptop.home)}

    def mac(*words: str) -> subprocess.CompletedProcess[str]:
        answer = subprocess.run(
            [sys.executable, "-P", as_on_a_mac.__file__, "--on", "far", *words],
            cwd=laptop.project,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience.SECONDS,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return answer

    run = str(json.loads(mac("submit", "--json", "job.yaml").stdout)["id"])
    assert "here is" in mac("logs", "-f", run).stdout
    assert run in mac("list", "--all").stdout
    assert mac("wait", run).stdout == f"{run}: done\n"
    mac("pull", run)
    assert "here is" in (laptop.project / run / "logs" / "job-0.log").read_text()
