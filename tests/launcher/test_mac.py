"""The verbs that a Mac is for, in a Python without what only Linux has: see `tests.as_on_a_mac`.

Here that is Linux's with names removed. The forge's workflow runs this file on a real Mac, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import as_on_a_mac, patience
from tests.command_line import COMMAND, Castoff

from .fake_slurm import OnSlurm

SAFE_PATH = ["-P"] if sys.version_info >= (3, 11) else []

SSH = """#!/bin/sh
for word; do [ "$word" != -G ] || exit 0; done
exec /bin/sh -c "$word"
"""
"""An ssh to this machine itself."""


class Mac:
    """The castoff command on a Mac, in a folder of its user's, and a machine to reach from there."""

    def __init__(self, folder: Path, home: Path):
        self.folder, self.far = folder / "here", folder / "far"
        for path in (self.folder, self.far, folder / "bin"):
            path.mkdir()
        ssh = folder / "bin" / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        self._environ = {**os.environ, "HOME": str(home), "PATH": f"{ssh.parent}:{os.environ['PATH']}"}

    def __call__(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """`castoff WORDS`."""
        return subprocess.run(
            [sys.executable, *SAFE_PATH, as_on_a_mac.__file__, *map(str, words)],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience.SECONDS,
            check=False,
        )

    def works(self, *words: str | Path) -> str:
        """What it prints, which has to work."""
        answer = self(*words)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def add_far(self) -> None:
        """Name the machine, whose castoff is this one."""
        self.works("on", "add", "far", "far", "--dir", self.far, "--site", "local", "--castoff", COMMAND)


@pytest.fixture
def mac(tmp_path: Path, fresh_home: Path) -> Mac:
    return Mac(tmp_path, fresh_home)


@pytest.mark.parametrize("site", ["aurora", "slurm", "local"])
def test_it_renders_the_same_script(mac: Mac, castoff: Castoff, site: str) -> None:
    words = ["render", "--site", site, "-A", "project", "-q", "debug", "-t", "00:10:00"]
    words += ["--set", "directives.filesystems=home"] if site == "aurora" else []
    rendered = mac.works(*words, "--", "python", "train.py")
    assert rendered == castoff(*words, "--", "python", "train.py").stdout != ""


def test_it_imports_a_script(mac: Mac) -> None:
    (mac.folder / "run.sh").write_text("#!/bin/bash\n#SBATCH -N 2 -t 10\nsrun python train.py\n")
    assert "nodes: 2" in mac.works("import", "run.sh")


@pytest.mark.parametrize("words", [["list"], ["on"], ["sites"], ["schema"], ["init"], ["help"]])
def test_it_answers_about_itself(mac: Mac, words: list[str]) -> None:
    mac.works(*words)


@pytest.mark.costly
def test_it_sees_and_fetches_runs_of_a_machine(mac: Mac) -> None:
    mac.add_far()
    made = OnSlurm(mac.far)
    made.attempt(ending="done")
    made.run.log_folder.mkdir()
    made.run.script_log().write_text("trained\n")
    run = str(made.run.path)
    assert mac.works("--on", "far", "list") == ""
    assert "trained" in mac.works("--on", "far", "logs", run)
    mac.works("--on", "far", "report", run, "-o", "there.html")
    assert "fetched" in mac.works("--on", "far", "pull", run)
    here = f"./{made.run.id}"
    assert "trained" in mac.works("logs", here)
    mac.works("report", here, "-o", "here.html")
    assert {"there.html", "here.html"} < {path.name for path in mac.folder.iterdir()}


def test_it_plans_and_sends_a_job(mac: Mac) -> None:
    mac.add_far()
    (mac.folder / "job.yaml").write_text("name: toy\ncommand: [python3, train.py]\n")
    (mac.folder / "train.py").touch()
    answer = mac("--on", "far", "submit", "--dry-run", "job.yaml")
    assert answer.returncode == 0 and "would send the code to far" in answer.stderr, answer.stderr


@pytest.mark.parametrize("words", [["launch"], ["launch", "--here"], ["submit", "--site", "local"]])
def test_ranks_start_on_linux_only(mac: Mac, words: list[str]) -> None:
    refused = mac(*words, "--", "true")
    assert refused.returncode == 1 and refused.stdout == ""
    assert "starts ranks on Linux only, and this is macOS: `castoff render` prints" in refused.stderr
    assert "`castoff --on NAME submit`" in refused.stderr
    assert not (mac.folder / "castoff-runs").exists()
