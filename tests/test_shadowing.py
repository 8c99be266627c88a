"""castoff's names are its own, whatever lies beside a user's program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import castoff
import castoff.trainers
from tests import patience
from tests.command_line import Castoff

pytestmark = pytest.mark.costly


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of programs, with files and folders that are called as parts of castoff are."""
    for name in ("trainers", "templates", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "launcher.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "castoff").mkdir()  # of job files: a folder without __init__.py is no package
    (tmp_path / "castoff" / "job.yaml").write_text("command: [true]\n")
    (tmp_path / "castoff.yaml").write_text("command: [true]\n")
    return tmp_path


def python(folder: Path, *lines: str, name: str = "program.py") -> subprocess.CompletedProcess[str]:
    """A program that lies in a folder, and runs there."""
    (folder / name).write_text("\n".join([*lines, ""]))
    return subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )


@pytest.mark.usefixtures("for_real")
def test_every_public_name(theirs: Path) -> None:
    """Those of castoff and of castoff.trainers, and the programs that documents name."""
    done = python(
        theirs,
        f"from castoff import {', '.join(castoff.__all__)}",
        f"from castoff.trainers import {', '.join(castoff.trainers.__all__)}",
        "import castoff, castoff.trainers.gnn, castoff.trainers.sedd, castoff.trainers.dpo",
        "assert castoff.trainers.Task is Task and castoff.submit is submit",
        "print(submit.__module__, Task.__module__)",
    )
    assert done.stdout == "castoff.launcher.api.submit castoff.trainers.task\n", done.stderr


@pytest.mark.usefixtures("for_real")
class TestTheCommand:
    def test_a_job_of_the_local_scheduler(self, castoff_command: Castoff, theirs: Path) -> None:
        """The command itself, the scheduler's process, the launcher and the rank."""
        env = {"PYTHONPATH": str(theirs)}
        answer = castoff_command("submit", "--site", "local", "--name", "hi", "--", "echo", "hello", env=env)
        assert answer.returncode == 0, answer.stderr
        assert castoff_command("wait", "hi", env=env).returncode == 0
        assert castoff_command("logs", "hi", env=env).stdout.endswith("hello\n")

    def test_a_training(self, castoff_command: Castoff, theirs: Path) -> None:
        for env in ({}, {"PYTHONPATH": str(theirs)}):
            answer = castoff_command("train", "gnn", "--help", env=env)
            assert answer.returncode == 0 and "castoff train gnn" in answer.stdout, answer.stderr

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="only Python 3.11 has -P")
    def test_a_file_of_castoffs_own_name(self, castoff_command: Castoff, theirs: Path) -> None:
        """What castoff starts is not looked for in the working directory."""
        (theirs / "castoff.py").write_text("raise SystemExit('the wrong one')\n")
        assert castoff_command("train", "gnn", "--help").returncode == 0
        assert castoff_command("submit", "--site", "local", "--name", "hi", "--", "true").returncode == 0
        assert castoff_command("wait", "hi").returncode == 0

    def test_as_a_module(self, theirs: Path) -> None:
        words = [sys.executable, "-m", "castoff", "version"]
        done = subprocess.run(words, cwd=theirs, capture_output=True, text=True, check=False)
        assert done.stdout.startswith("castoff, version "), done.stderr


FUNCTIONS = (
    "import submitit",
    "from submitit.core import plugins",
    "from castoff import RankEnv, executor",
    "if __name__ == '__main__':",
    "    assert {'pbs', 'slurm'} <= set(plugins.get_executors()), plugins.get_executors()",
    "    job = executor({'ranks_per_node': 2}, 'local', 'runs').submit(lambda: RankEnv.detect().rank)",
    "    print(job.results())",
)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("name", ["program.py", "launcher.py"])
def test_functions_as_jobs(theirs: Path, name: str) -> None:
    """submitit's plugins, at submission and in the ranks; of a program called launcher.py, too."""
    done = python(theirs, *FUNCTIONS, name=name)
    assert (done.returncode, done.stdout) == (0, "[0, 1]\n"), done.stderr
    assert "Failed to load submitit plugin" not in done.stderr
