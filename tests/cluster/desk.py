"""A user at the cluster's head node, with castoff."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from castoff.launcher.runs.run import RunDirectory
from tests import patience
from tests.cluster import HEAD
from tests.cluster.base import Cluster
from tests.patience import until


class Ended(NamedTuple):
    """A command that is over."""

    code: int
    output: str
    errors: str


class Desk:
    """A folder on the head node, and the commands that a user types there."""

    def __init__(self, cluster: Cluster, folder: Path):
        self.cluster, self.folder = cluster, folder
        folder.mkdir(exist_ok=True)
        environ = cluster.environment()
        path = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
        self.environ = {**environ, "PATH": path, "XDG_STATE_HOME": str(folder / "state")}

    def start(self, *words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command."""
        return self.cluster.popen(HEAD, words, cwd=self.folder, env={**self.environ, **(env or {})})

    def end(self, process: subprocess.Popen[str], timeout: float = patience.SECONDS) -> Ended:
        """What a command came to."""
        with process:
            output, errors = process.communicate(timeout=timeout)
        return Ended(process.returncode, output, errors)

    def run(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Ended:
        """Run a command to its end."""
        return self.end(self.start(*words, env=env))

    def castoff(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Ended:
        """Run castoff to its end."""
        return self.run("castoff", *words, env=env)

    def submit(
        self,
        *words: str,
        sh: str = "true",
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> RunDirectory:
        """Submit a job whose program is a command, or a shell's."""
        program = command or ["sh", "-c", sh]
        return self.submit_file(*words, "--", *program, env=env)

    def submit_file(self, *words: str | Path, env: Mapping[str, str] | None = None) -> RunDirectory:
        """Submit a job that `castoff submit` is told of in these words, such as a file."""
        answer = self.castoff("submit", "--site", self.cluster.site, "--json", *words, env=env)
        assert answer.code == 0, answer.errors
        return RunDirectory(Path(json.loads(answer.output)["directory"]))

    def status(self, run: RunDirectory, **env: str) -> dict[str, Any]:
        """As `castoff status --json` prints it."""
        answer = self.castoff("status", "--json", run.path, env=env)
        assert answer.code == 0, answer.errors
        reported: dict[str, Any] = json.loads(answer.output)
        return reported

    def until(self, run: RunDirectory, env: Mapping[str, str] | None = None, **wanted: Any) -> dict[str, Any]:
        """The status as soon as it is so."""
        now: dict[str, Any] = {}

        def holds() -> bool:
            now.update(self.status(run, **(env or {})))
            return {name: now[name] for name in wanted} == wanted

        until(holds, f"{wanted} of {run.id}")
        return now

    def slurm(self, *words: str) -> str:
        """What a command of Slurm's prints."""
        answer = self.run(*words)
        assert answer.code == 0, answer.errors
        return answer.output.strip()

    def accounted(self, run: RunDirectory) -> list[str]:
        """The jobs of a run that Slurm knows, by its script: `ID STATE`, members of arrays each."""
        reported = self.slurm(
            "sacct", "-X", "-n", "-P", "-S", "now-1hour", "-o", "JobID,State,SubmitLine%-2000"
        )
        lines = [line.split("|", 2) for line in reported.splitlines() if str(run.script) in line]
        return [f"{job} {state}" for job, state, _ in lines]

    def over(self, run: RunDirectory, members: int = 1) -> list[str]:
        """The accounted jobs of a run, once all have ended."""

        def ended() -> list[str] | None:
            found = self.accounted(run)
            over = [line for line in found if line.split()[1] not in ("PENDING", "RUNNING", "REQUEUED")]
            return found if len(found) == len(over) == members else None

        found: list[str] = until(ended, f"the end of {run.id}")
        return found

    def record(self, run: RunDirectory, name: str, attempt: str = "0.0") -> dict[str, Any]:
        """A record of an attempt, once it is there."""
        path = run.path / "attempts" / attempt / f"{name}.json"
        until(path.exists, f"{name} of {attempt} of {run.id}")
        record: dict[str, Any] = json.loads(path.read_text())
        return record

    def program(self, name: str, text: str) -> dict[str, str]:
        """A program that stands before the real one on PATH, and the environment in which it does."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)
        return {"PATH": f"{path.parent}:{self.environ['PATH']}"}
