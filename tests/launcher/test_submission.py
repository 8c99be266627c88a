"""submit and dry_run from Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launcher import submission
from launcher.errors import CastoffError, InvalidInput
from launcher.index import Index
from launcher.runs import write_file
from launcher.site import Site
from launcher.spec import JobSpec
from launcher.submission import dry_run, submit
from launcher.watch import wait


def job(**fields: Any) -> JobSpec:
    return JobSpec.of({"command": ["true"], **fields})


def test_what_a_run_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = submit(job(name="mine", walltime="1h"), Site.load("local"))
    assert run.path.parent == tmp_path / "castoff-runs" and run.id == run.path.name
    assert run.script.read_text().startswith("#!/bin/bash")
    told = run.submission()
    assert run.job == told["job"] and str(run.job).startswith("local-")
    assert (told["directory"], told["node_hours"]) == (str(tmp_path), 1.0)
    assert run.plan()["name"] == "mine"
    assert wait(run, 30).ending == "done"
    assert [(member, attempt) for member, attempt, _ in run.attempts()] == [(0, 0)]


def test_the_environment_is_the_one_that_is_given(tmp_path: Path) -> None:
    given = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "MINE": "x y",
        "CASTOFF_RUNS_DIR": str(tmp_path / "r"),
    }
    spec = job(command=["sh", "-c", 'echo "$MINE:$TOKEN"'], env_from=["TOKEN"])
    with pytest.raises(CastoffError, match="TOKEN not set"):
        submit(spec, Site.load("local"), environ=given)
    run = submit(spec, Site.load("local"), environ={**given, "TOKEN": "t"})
    assert run.path.parent == tmp_path / "r"
    assert [known.path for known, _ in Index.of(given).runs()] == [run.path]
    assert wait(run, 30).ending == "done"
    assert "[0] x y:t\n" in run.script_log().read_text()


def test_a_dry_run_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    would = dry_run(job(), Site.load("slurm"))
    assert would.command.startswith('CASTOFF_RUN_DIR="$CASTOFF_RUN_DIR" sbatch --parsable ')
    assert would.command.endswith(' "$CASTOFF_RUN_DIR/job.sh"')
    with pytest.raises(InvalidInput, match="account"):
        dry_run(job(), Site.load("aurora"))


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_on_the_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    def fail(path: Path, *words: Any) -> None:
        if path.name == "submission.json":
            raise problem
        write_file(path, *words)

    monkeypatch.setattr(submission, "write_file", fail)
    with pytest.raises((CastoffError, KeyboardInterrupt)):
        submit(job(), Site.load("local"), runs_dir=tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_an_answer_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = subprocess.CompletedProcess([], 0, stdout="what?\n", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: silent)
    with pytest.raises(CastoffError, match=r"failed with exit code 0: what\?\n"):
        submit(job(), Site.load("local"), runs_dir=tmp_path)
    (record,) = tmp_path.glob("*/submission.json")
    assert json.loads(record.read_text())["error"] == "what?"
