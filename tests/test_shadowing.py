"""Files of a user's that are called as castoff's packages are: castoff finds its own all the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import patience
from tests.command_line import Castoff


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with both, which is where programs and commands run."""
    (tmp_path / "launcher.py").write_text("mine = 1\n")
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "__init__.py").write_text("mine = 1\n")
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
class TestTheCommand:
    def test_a_job_of_the_local_scheduler(self, castoff_command: Castoff, theirs: Path) -> None:
        """The command itself, the scheduler's process, the launcher and the rank."""
        env = {"PYTHONPATH": str(theirs)}
        answer = castoff_command("submit", "--site", "local", "--name", "hi", "--", "echo", "hello", env=env)
        assert answer.returncode == 0, answer.stderr
        assert castoff_command("wait", "hi", env=env).returncode == 0
        assert castoff_command("logs", "hi", env=env).stdout.endswith("hello\n")

    def test_a_training(self, castoff_command: Castoff, theirs: Path) -> None:
        answer = castoff_command("train", "gnn", "--help")
        assert answer.returncode == 0 and "castoff train gnn" in answer.stdout, answer.stderr
        (theirs / "trainers" / "__init__.py").unlink()
        answer = castoff_command("train", "gnn", "--help", env={"PYTHONPATH": str(theirs)})
        assert answer.returncode == 0, answer.stderr

    def test_a_training_whose_name_is_taken_on_pythonpath(
        self, castoff_command: Castoff, theirs: Path
    ) -> None:
        answer = castoff_command("train", "gnn", "--help", env={"PYTHONPATH": str(theirs)})
        assert answer.returncode == 1
        assert f"{theirs}/trainers/__init__.py takes precedence over castoff's trainers" in answer.stderr


FUNCTIONS = (
    "import submitit",
    "from submitit.core import plugins",
    "from castoff_plugin import RankEnv, executor",
    "if __name__ == '__main__':",
    "    assert {'pbs', 'slurm'} <= set(plugins.get_executors()), plugins.get_executors()",
    "    job = executor({'ranks_per_node': 2}, 'local', 'runs').submit(lambda: RankEnv.detect().rank)",
    "    print(job.results())",
)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("name", ["program.py", "launcher.py"])
def test_functions_as_jobs(theirs: Path, name: str) -> None:
    """submitit's plugins, at submission and in the ranks; of a program of that very name, too."""
    done = python(theirs, *FUNCTIONS, name=name)
    assert (done.returncode, done.stdout) == (0, "[0, 1]\n"), done.stderr
    assert "Failed to load submitit plugin" not in done.stderr


@pytest.mark.usefixtures("for_real")
def test_a_program_that_trains(theirs: Path) -> None:
    done = python(
        theirs,
        "import castoff_plugin",
        "castoff_plugin.own('trainers')",
        "from trainers import Config, initialize_ddp",
        "from launcher.ranks import RankEnv",
        "print(Config.__module__, RankEnv.detect().rank)",
    )
    assert done.stdout == "trainers.configuration.config 0\n", done.stderr


def test_what_cannot_be_names_the_file(theirs: Path) -> None:
    later = python(theirs, "from castoff_plugin import RankEnv", "from launcher import mine")
    assert re.search(
        rf"ImportError: castoff's launcher has no mine, and {theirs}/launcher\.py is not loaded: "
        r"castoff's has its name; rename that file",
        later.stderr,
    )
    before = python(theirs, "from launcher import mine", "from castoff_plugin import RankEnv")
    says = f"ImportError: {theirs}/launcher.py is loaded as launcher, the name of castoff's own package"
    assert says in before.stderr
    (theirs / "trainers" / "__init__.py").unlink()  # a folder without one comes after castoff's own
    before = python(theirs, "import launcher", "import trainers")
    assert says in before.stderr


def test_a_name_that_nobody_has(tmp_path: Path) -> None:
    done = python(tmp_path, "import castoff_plugin, launcher", "print(hasattr(launcher, 'mine'))")
    assert done.stdout == "False\n", done.stderr
