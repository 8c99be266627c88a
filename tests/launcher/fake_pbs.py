"""A PBS of files: qstat that prints what a test has written, and keeps count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.runs.run import RunDirectory

from .fake_slurm import put

_QSTAT = """\
cat {0}
code=0
for job; do
  case $job in -*) continue ;; esac
  grep -qxF "Job Id: $job" {0} || {{ echo "qstat: Unknown Job Id $job" >&2; code=153; }}
done
exit $code"""


class FakePbs:
    """What qstat and the others say here."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder = folder / "pbs"
        self.folder.mkdir()
        self.answer = self.folder / "answer"
        self.asked = self.folder / "asked"
        self.asked.touch()
        self.tells({})
        self.program("qstat", _QSTAT.format(self.answer))
        self.selects()
        self.program("qsub", "echo 9.head")
        monkeypatch.setenv("PATH", str(self.folder))  # a real PBS may be here too

    def program(self, name: str, line: str) -> None:
        """A program on PATH; it is counted."""
        text = f'#!/bin/sh\necho {name} "$*" >>{self.asked}\nPATH=/usr/bin:/bin\n{line}\n'
        put(self.folder / name, text, mode=0o755)

    def questions(self) -> list[str]:
        """What was asked since the last time."""
        lines = self.asked.read_text().splitlines()
        self.asked.write_text("")
        return lines

    def selects(self, *jobs: str) -> None:
        """qselect's answer: the ids of the user's jobs that wait or run."""
        self.program("qselect", f"printf '%s\\n' {' '.join(jobs)}" if jobs else "true")

    def tells(self, jobs: dict[str, dict[str, Any]], run: RunDirectory | None = None) -> None:
        """qstat's answer: the attributes of jobs of a run's script. It knows no others."""
        tag = {"Submit_arguments": f"-v A {run.script}"} if run else {}
        text = ""
        for job, attributes in jobs.items():
            held = {name: value for name, value in {**tag, **attributes}.items() if value is not None}
            text += "\n".join([f"Job Id: {job}", *(f"    {name} = {value}" for name, value in held.items())])
            text += "\n\n"
        put(self.answer, text)


class OnPbs:
    """A run directory of a run on PBS, in some state."""

    def __init__(self, folder: Path, members: int = 1, chain: int = 0, id: str = "made-1", **submission: Any):
        self.run = RunDirectory(folder / "runs" / id)
        (self.run.path / "attempts").mkdir(parents=True, mode=0o700)
        self.run.path.chmod(0o700)
        count = members if members > 1 else None
        self.write("plan.json", {"name": "made", "site": "big", "scheduler": "pbs", "array_count": count})
        job = "7[].head" if count else "7.head"
        sends: list[dict[str, Any]] = [{"job": job, "offset": 0, "count": count, "time": 899.0}]
        if chain:
            sends = [{**sends[0], "job": f"{7 + link}.head", "link": link} for link in range(chain)]
        record = {"scheduler": "pbs", "job": job, "time": 899.0, "sends": sends, **submission}
        self.write("submission.json", record)
        self.run.script.write_text("#PBS -N made\n# === castoff for pbs and pals\n")

    def write(self, name: str, record: Any) -> None:
        (self.run.path / name).write_text(json.dumps(record))

    def attempt(
        self,
        name: str = "0.0",
        ending: str | None = None,
        code: int = 0,
        job: str = "7.head",
    ) -> Path:
        """An attempt that began, and perhaps ended by its script's word."""
        folder = self.run.path / "attempts" / name
        folder.mkdir()
        self.write(f"attempts/{name}/start.json", {"job": job, "host": "n1", "time": 1000})
        if ending is not None:
            self.write(f"attempts/{name}/ending.json", {"ending": ending, "code": code, "time": 1010})
        return folder

    def goes_on(self, name: str = "0.0", job: str = "8.head") -> None:
        """An attempt that has submitted its own copy."""
        self.attempt(name, "resume")
        self.write(f"attempts/{name}/next.json", {"job": job, "time": 1009})
