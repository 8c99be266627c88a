"""castoff killed at every step: a workplace for each kill, and what has to hold afterwards."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from castoff import JobSpec, Site, plan, render
from castoff.launcher.cli import main as cli
from castoff.launcher.process.locks import is_locked
from castoff.launcher.runs.directory import is_draft
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import LOCK, RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.local import control as local
from castoff.launcher.status.watch import status, wait
from castoff.launcher.submission import submit as submission
from tests import patience
from tests.records import submission_of

from ..conftest import processes_of
from .kill_at import Killer

HERE = Path(__file__).parent

PROGRAM = 'echo "$CASTOFF_ATTEMPT" >>ran; [ ! -e fail ]'
"""Says that it ran, and as which attempt."""


class Answer(NamedTuple):
    """What a command of castoff said."""

    code: int
    output: str
    errors: str


class Workplace:
    """A folder with a home of its own, to submit from."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder = folder
        self.journal = folder / "journal"
        self._monkeypatch = monkeypatch
        folder.mkdir()
        self.enter()

    def enter(self) -> None:
        """Let what follows happen here."""
        self._monkeypatch.chdir(self.folder)
        self._monkeypatch.setenv("XDG_STATE_HOME", str(self.folder / "state"))

    def castoff(self, *words: str | Path) -> Answer:
        """Run a command in this process."""
        output, errors = io.StringIO(), io.StringIO()
        code: object = None
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                cli.main([*map(str, words)])
            except SystemExit as end:
                code = end.code
        assert isinstance(code, int)
        return Answer(code, output.getvalue(), errors.getvalue())

    def submit_words(self, *words: str) -> list[str]:
        return ["submit", "--site", "local", "--name", "job", *words, "--", "sh", "-c", PROGRAM]

    def killed(self, what: Callable[[], object], number: int) -> list[str]:
        """Do something in a fork that is killed at its n-th effect; the effects up to there."""
        self.journal.unlink(missing_ok=True)
        killer = Killer(number, str(self.journal))
        pid = os.fork()
        if pid == 0:
            try:
                null = os.open(os.devnull, os.O_RDWR)
                for target in range(3):
                    os.dup2(null, target)
                sys.stdout = sys.__stdout__
                sys.stderr = sys.__stderr__
                killer.install()
                what()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        killer.close()
        return self.effects()

    def effects(self) -> list[str]:
        """What the process that was to be killed has done."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def entries(self) -> list[Path]:
        """What lies in the folder of runs."""
        return sorted(self.folder.glob("castoff-runs/*"))

    def drafts(self) -> list[Path]:
        return [path for path in self.entries() if is_draft(path)]

    def runs(self) -> list[RunDirectory]:
        """What looks like a run; each of them has to be one."""
        found = [RunDirectory(path) for path in self.entries() if not is_draft(path)]
        for run in found:
            for name in ("job.yaml", "plan.json", "job.sh", "submission.json", "attempts", "logs", LOCK):
                assert (run.path / name).exists(), f"{run.id} has no {name}"
            assert run.facts().name == "job" and submission_of(run).scheduler == "local"
        return found

    def ran(self) -> list[str]:
        """The attempts as which the program ran."""
        path = self.folder / "ran"
        return path.read_text().split() if path.exists() else []

    def settled(self, run: RunDirectory) -> RunStatus:
        """A run's status when nobody sees to it any more."""
        now = wait(run, patience.SECONDS)
        assert now.over, now
        patience.until(lambda: not is_locked(run.path / LOCK) and not processes_of(run), run.id)
        return status(run)

    def copy_of(self, run: RunDirectory) -> RunDirectory:
        """A run that was submitted elsewhere, as if it had been here."""
        copy = RunDirectory(self.folder / "castoff-runs" / run.id)
        shutil.copytree(run.path, copy.path)
        record = submission_of(run)
        record.directory = str(self.folder)
        copy.write_submission(record)
        Index.of(os.environ).add(copy, "job")
        return copy

    def with_scheduler(self, who: str, number: int) -> Answer:
        """Submit, with a scheduler one of whose two processes is killed at its n-th effect."""
        killer = [sys.executable, str(HERE / "kill_at.py"), str(number), str(self.journal), who]
        with self._monkeypatch.context() as patch:
            patch.setattr(local, "submit_command", lambda run_dir: [*killer, run_dir])
            return self.castoff(*self.submit_words("--json"))

    def submits_again(self) -> None:
        """The next submission works, sweeps what was left, and says so."""
        before = {path.stem[1:] for path in self.drafts() if (path / "job.sh").exists()}
        with self._monkeypatch.context() as patch:
            patch.setattr(submission, "send", lambda *_: None)  # that a scheduler starts is seen elsewhere
            answer = self.castoff(*self.submit_words("--json"))
        assert answer.code == 0, answer.errors
        swept = "its submission was interrupted before it reached the scheduler; its directory was removed"
        assert {line.split(": ")[1] for line in answer.errors.splitlines() if swept in line} == before
        assert self.drafts() == []
        made = RunDirectory(Path(json.loads(answer.output)["directory"]))
        assert made.path in [entry.run.path for entry in Index.of(os.environ).entries()]
        assert not is_locked(made.path / LOCK)


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_real: None
) -> Callable[[object], Workplace]:
    """`workplace(3)`: a new one, with templates that are compiled already."""
    render(plan(JobSpec.of({"command": ["true"]}), Site.load("local")))
    return lambda name: Workplace(tmp_path / str(name), monkeypatch)
