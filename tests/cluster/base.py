"""What the clusters of the tests have in common, whichever scheduler runs on them."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests import patience
from tests.cluster.hosts import Hosts


def no_start_up_files(folder: Path) -> dict[str, Path]:
    """An empty file, made in `folder`, in place of each that this user's login shells read at home.

    The jobs of tests are login shells, and what a person does in there may take long, or a lock.
    """
    nothing = folder / "nothing"
    nothing.touch()
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    names = (".profile", ".bash_profile", ".bash_login", ".bashrc")
    return {str(home / name): nothing for name in names if (home / name).exists()}


class Cluster:
    """A scheduler on hosts of its own: a head node and four others; it lives until `close`."""

    title: ClassVar[str]
    """What people call the scheduler."""
    site: ClassVar[str]
    """The profile of castoff's that fits."""
    sends: ClassVar[tuple[str, ...]]
    """The command in front of a script that submits it and prints the job's id."""
    outputs: ClassVar[str]
    """What a job's output is called in the folder from which it was submitted."""
    hosts: Hosts
    logs: Path
    """A folder with the logs of all daemons."""

    def run(
        self,
        host: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host, as `Hosts.run` does."""
        return self.hosts.run(host, command, env=self.environment(env), **options)

    def popen(
        self,
        host: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start a command on a host, as `Hosts.popen` does."""
        return self.hosts.popen(host, command, env=self.environment(env), **options)

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """A user's environment on a host: the given one, or this process's, with the scheduler in it."""
        return dict(os.environ if given is None else given)

    def down(self, node: str) -> None:
        """Take a node's network away."""
        self.hosts.down(node)

    def close(self) -> None:
        """End it and everything that runs on it."""
        self.hosts.close()

    def _must(self, host: str, command: Sequence[str | Path]) -> str:
        answer = self._daemons_command(host, command)
        if answer.returncode:
            said = answer.stderr.strip() or answer.stdout.strip()
            raise RuntimeError(f"{shlex.join(answer.args)} on {host}: {said}; logs are in {self.logs}")
        return answer.stdout

    def _does(self, host: str, command: Sequence[str | Path]) -> bool:
        return self._daemons_command(host, command).returncode == 0

    def _daemons_command(self, host: str, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        """Run what daemons are made of: what they have in their environment, jobs may have too."""
        environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        return self.run(host, command, cwd="/", env=environ, timeout=patience.SECONDS)

    def _until(self, holds: Callable[[], bool]) -> None:
        patience.until(holds, f"{self.title} does not get ready; its logs are in {self.logs}")
