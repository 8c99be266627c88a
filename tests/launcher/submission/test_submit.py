"""submit and dry_run from Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, InvalidInput
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import Submission
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.command import Answering
from castoff.launcher.schedulers.local import control as local
from castoff.launcher.status.watch import wait
from castoff.launcher.submission import send as sending
from castoff.launcher.submission.submit import dry_run, submit
from tests import patience
from tests.records import submission_of

pytestmark = pytest.mark.usefixtures("for_real")


def job(**fields: Any) -> JobSpec:
    return JobSpec.of({"command": ["true"], **fields})


def test_a_submitted_run_lists_its_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = submit(job(name="mine", walltime="1h"), Site.load("local"))
    assert run.path.parent == tmp_path / "castoff-runs" and run.id == run.path.name
    assert run.script.read_text().startswith("#!/bin/bash")
    reported = submission_of(run)
    assert run.job == reported.job and str(run.job).startswith("local-")
    assert (reported.directory, reported.node_hours) == (str(tmp_path), 1.0)
    assert run.facts().name == "mine"
    assert wait(run, patience.SECONDS).ending == "done"
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
    assert [known.run.path for known in Index.of(given).entries()] == [run.path]
    assert wait(run, patience.SECONDS).ending == "done"
    assert "[0] x y:t\n" in run.script_log().read_text()


def test_a_dry_run_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    would = dry_run(job(), Site.load("slurm"))
    assert would.command.startswith('CASTOFF_RUN_DIR="$CASTOFF_RUN_DIR" sbatch --parsable ')
    assert would.command.endswith(' "$CASTOFF_RUN_DIR/job.sh"')
    with pytest.raises(InvalidInput, match="account"):
        dry_run(job(), Site.load("aurora"))


def test_a_dry_runs_command_is_one_for_a_shell(tmp_path: Path) -> None:
    """Names of runs are text; only castoff's own placeholder is expanded."""
    names = ["$CASTOFF_RUN_DIR$(touch x)", "it's", "\x1b[31mred\t\u2028", "`touch y`", "\\"]
    command = dry_run(job(after={"afterok": names}), Site.load("slurm")).command
    assert command.isprintable()
    (tmp_path / "sbatch").write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    (tmp_path / "sbatch").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CASTOFF_RUN_DIR": "/a b"}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, check=True)
    words = done.stdout.decode().split("\0")[:-1]
    assert words[1] == "--output=/a b/logs/job-0.log"
    assert words[3] == f"--dependency=afterok:{':'.join(names)}"
    assert [path.name for path in tmp_path.iterdir()] == ["sbatch"]


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_on_the_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    def fail(*_: Any) -> None:
        raise problem

    monkeypatch.setattr(RunDirectory, "write_submission", fail)
    with pytest.raises((CastoffError, KeyboardInterrupt)):
        submit(job(), Site.load("local"), runs_dir=tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_disk_that_is_full_once_the_job_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is told, lest somebody sends it again."""
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 21\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    write = RunDirectory.write_submission

    def full(run: RunDirectory, record: Submission) -> None:
        if record.job:
            raise OSError(28, "No space left on device")
        write(run, record)

    monkeypatch.setattr(RunDirectory, "write_submission", full)
    said = "No space left on device; job 21 was submitted, so do not submit it again: `castoff status "
    with pytest.raises(CastoffError, match=said):
        submit(job(walltime="5m"), Site.load("slurm"), runs_dir=tmp_path / "runs")


def _interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C while the submit command runs."""
    real, times = Answering.wait, []

    def wait_for(answering: Answering, *given: Any, **words: Any) -> None:
        times.append(1)
        if len(times) == 1:
            raise KeyboardInterrupt
        real(answering, *given, **words)

    monkeypatch.setattr(Answering, "wait", wait_for)


@pytest.mark.parametrize("starts", [True, False])
def test_an_interrupt_is_for_us_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: bool) -> None:
    """Somebody presses Ctrl-C: it is still found out, and said, whether it was submitted."""
    _interrupt(monkeypatch)
    if not starts:
        monkeypatch.setattr(local, "submit_command", lambda _: ["false"])
    said = "interrupted, but .* was submitted: `castoff logs -f" if starts else "nothing was started"
    with pytest.raises(CastoffError, match=said) as caught:
        submit(job(), Site.load("local"), runs_dir=tmp_path)
    assert caught.value.exit_code == (130 if starts else 1)
    (script,) = tmp_path.glob("*/job.sh")
    assert wait(RunDirectory(script.parent), patience.SECONDS).ending == ("done" if starts else "failed")


def test_a_scheduler_that_hangs_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_PATIENCE", 0.2)
    monkeypatch.setattr(local, "submit_command", lambda _: ["sleep", "86400"])
    _interrupt(monkeypatch)
    with pytest.raises(CastoffError, match="failed with exit code -9: killed by signal 9"):
        submit(job(), Site.load("local"), runs_dir=tmp_path)


def test_an_answer_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "submit_command", lambda _: ["echo", "what?"])
    with pytest.raises(CastoffError, match=r"failed with exit code 0: what\?\n"):
        submit(job(), Site.load("local"), runs_dir=tmp_path)
    (record,) = tmp_path.glob("*/submission.json")
    assert json.loads(record.read_text())["error"] == "what?"


def test_a_refusal_leaves_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "xyzzy-1")
    monkeypatch.setattr(local, "submit_command", lambda _: ["false"])
    with pytest.raises(CastoffError, match="nothing was started"):
        submit(job(env_from=["TOKEN"]), Site.load("local"), runs_dir=tmp_path)
    (run,) = tmp_path.glob("*/job.sh")
    assert not (run.parent / "secrets.sh").exists()
