"""A Slurm of files: squeue and sacct that print what a test has written, and keep count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.runs.run import RunDirectory


def put(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a whole file at once: somebody may run or read the old one at the time."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


class FakeSlurm:
    """What squeue, sacct and the others say here."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder = folder / "slurm"
        self.folder.mkdir()
        self.queue = self.folder / "queue"
        self.history = self.folder / "history"
        self.queue.touch()
        self.history.touch()
        self.asked = self.folder / "asked"
        self.asked.touch()
        self.program("squeue", f"cat {self.queue}")
        self.program("sacct", f"cat {self.history}")
        monkeypatch.setenv("PATH", str(self.folder))  # a real Slurm may be here too

    def program(self, name: str, line: str) -> None:
        """A program on PATH; it is counted."""
        text = f'#!/bin/sh\necho {name} "$*" >>{self.asked}\nPATH=/usr/bin:/bin\n{line}\n'
        put(self.folder / name, text, mode=0o755)

    def questions(self) -> list[str]:
        """The programs that were asked since the last time."""
        words = [line.split()[0] for line in self.asked.read_text().splitlines()]
        self.asked.write_text("")
        return words

    def tells(self, *jobs: tuple[str, str], run: RunDirectory, reason: str = "None") -> None:
        """squeue's answer: id and state of jobs of a run's script."""
        lines = []
        for job, word in jobs:
            number, _, task = job.partition("_")
            lines.append(f"{number}|{task or 'N/A'}|{word}|{reason}|900|N/A|N/A|{run.script}\n")
        put(self.queue, "".join(lines))

    def remembers(self, *starts: tuple[str, str, str, int, int], run: RunDirectory) -> None:
        """sacct's answer: id, state, code, start and end of starts of a run's script."""
        lines = []
        for job, word, code, begin, end in starts:
            times = f"{begin - 5}|{begin or 'Unknown'}|{end or 'Unknown'}"
            lines.append(f"{job}|{word}|{code}|{times}|sbatch {run.script}\n")
        put(self.history, "".join(lines))


class OnSlurm:
    """A run directory of a run on Slurm, in some state."""

    def __init__(self, folder: Path, members: int = 1, id: str = "made-1", **submission: Any):
        self.run = RunDirectory(folder / "runs" / id)
        (self.run.path / "attempts").mkdir(parents=True, mode=0o700)
        self.run.path.chmod(0o700)
        count = members if members > 1 else None
        plan = {"name": "made", "site": "big", "scheduler": "slurm", "array_count": count}
        self.write("plan.json", plan)
        sends = [{"job": "7", "offset": 0, "count": count, "time": 899.0}]
        record = {"scheduler": "slurm", "job": "7", "time": 899.0, "sends": sends, **submission}
        self.write("submission.json", record)
        self.run.script.write_text("#SBATCH --nodes=1\n# === castoff for slurm and srun\n")

    def write(self, name: str, record: Any) -> None:
        (self.run.path / name).write_text(json.dumps(record))

    def attempt(
        self, name: str = "0.0", ending: str | None = None, code: int = 0, job: str = "7", time: int = 1000
    ) -> Path:
        """An attempt that began, and perhaps ended by its script's word."""
        folder = self.run.path / "attempts" / name
        folder.mkdir()
        self.write(f"attempts/{name}/start.json", {"job": job, "host": "n1", "time": time})
        if ending is not None:
            self.write(f"attempts/{name}/ending.json", {"ending": ending, "code": code, "time": time + 10})
        return folder
