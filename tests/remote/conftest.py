"""castoff on a laptop, which is this test's process, and on a machine, which a real sshd leads to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.hosts import why_no_hosts
from tests.command_line import COMMAND, Castoff
from tests.conftest import SystemProgram
from tests.remote_machine import PACKAGES, SHELLS, RemoteMachine, remote_machine

PROGRAM = """
import os, sys, time
with open(os.environ["HOME"] + "/ran", "a") as file:
    file.write(os.environ["CASTOFF_RUN_ID"] + "\\n" if "CASTOFF_RUN_ID" in os.environ else "run\\n")
print("here is", os.getcwd(), "with", os.environ.get("TOKEN"))
"""


class Laptop:
    """The castoff command on a laptop, in a project of its user's."""

    def __init__(self, castoff: Castoff, machine: RemoteMachine, folder: Path, home: Path):
        self._castoff = castoff
        self.machine = machine
        self.project = folder / "my project"
        self.far = folder / "far 'away'"
        """The folder of the entries, on the machine."""
        self.home = home
        self.project.mkdir()
        self.far.mkdir()

    def __call__(
        self, *words: str | Path, env: Mapping[str, str | None] | None = None, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`castoff WORDS` in the project."""
        variables = {**self.machine.environment(self.home), **(env or {})}
        return self._castoff(*words, cwd=self.project, env=variables, input=input)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """The same, which is not waited for."""
        return subprocess.Popen(
            [str(COMMAND), *map(str, words)],
            cwd=self.project,
            env={**os.environ, **self.machine.environment(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def add(self, name: str, host: str = "sh", **fields: str) -> None:
        """An entry, whose castoff is this one unless `castoff=""`."""
        given = {"dir": str(self.far), "site": "local", "castoff": str(COMMAND), **fields}
        options = [word for field, value in given.items() if value for word in (f"--{field}", value)]
        added = self("on", "add", name, host, *options)
        assert added.returncode == 0, added.stderr

    def write(self, name: str, text: str) -> Path:
        """A file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *words: str) -> None:
        """git in the project."""
        about = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *about, *words], cwd=self.project, check=True, capture_output=True)

    def commit(self) -> None:
        """All files of the project, in its repository."""
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "one")

    def a_job(self) -> Path:
        """A job file with its program, committed."""
        self.write("train.py", PROGRAM)
        job = self.write("job.yaml", "name: toy\ncommand: [python3, train.py]\nranks_per_node: 1\n")
        self.commit()
        return job

    def runs(self) -> list[str]:
        """All that lies where run directories are made, hidden folders too."""
        folder = self.far / "castoff-runs"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def submitted(self, *words: str | Path, env: Mapping[str, str | None] | None = None) -> dict[str, object]:
        """What `--on NAME submit --json` says, which has to work."""
        answer = self("--on", *words[:2], "--json", *words[2:], env=env)
        assert answer.returncode == 0, answer.stderr
        facts: dict[str, object] = json.loads(answer.stdout)
        return facts

    def times_run(self, user: str = "sh") -> int:
        """How often the program of `a_job` has run."""
        path = self.machine.homes[user] / "ran"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope="session")
def machine(
    tmp_path_factory: pytest.TempPathFactory, system_program: SystemProgram, for_real: None
) -> Iterator[RemoteMachine]:
    """A real sshd on this machine, with users of several login shells."""
    if why := why_no_hosts():
        pytest.skip(why)
    for program, package in PACKAGES.items():
        system_program(program, package)
    folder = tmp_path_factory.mktemp("a machine")
    folder.chmod(0o755)  # as where homes lie
    with remote_machine(folder) as found:
        yield found


@pytest.fixture
def laptop(
    castoff_command: Castoff, machine: RemoteMachine, tmp_path: Path, fresh_home: Path
) -> Iterator[Laptop]:
    """A laptop with a project, and the homes on the machine empty."""
    for user in SHELLS:
        shutil.rmtree(machine.homes[user])
        machine.homes[user].mkdir()
    machine.order_link("")
    found = Laptop(castoff_command, machine, tmp_path, fresh_home)
    yield found
    machine.order_link("")
