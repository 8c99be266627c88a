"""The variables of env_from in a run's directory, and when they go."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from castoff.launcher.process.locks import locked
from castoff.launcher.runs.run import LOCK
from castoff.launcher.runs.secrets import remove_secrets
from castoff.launcher.status.watch import status

from ..fake_slurm import FakeSlurm, OnSlurm


@pytest.fixture
def made(tmp_path: Path) -> OnSlurm:
    """A run whose script was killed: it wrote no ending, and could take nothing away."""
    made = OnSlurm(tmp_path)
    (made.run.path / "secrets.sh").write_text("export TOKEN=s3cr3t\n")
    return made


def stays(made: OnSlurm) -> bool:
    return (made.run.path / "secrets.sh").exists()


@pytest.mark.parametrize(
    ("word", "ago", "stay"),
    [
        ("FAILED", 10, False),
        ("OUT_OF_MEMORY", 10, False),
        ("COMPLETED", 10, False),
        ("RUNNING", 10, True),
        # Slurm may start such a one again, as far as anybody knows; after an hour it does not.
        ("PREEMPTED", 10, True),
        ("NODE_FAIL", 10, True),
        ("CANCELLED", 10, True),
        ("CANCELLED", 7200, False),
    ],
)
def test_whoever_sees_that_a_run_is_over_removes_them(
    word: str, ago: int, stay: bool, made: OnSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm, end = FakeSlurm(tmp_path, monkeypatch), int(time.time()) - ago
    made.attempt(time=end - 100)
    if word == "RUNNING":
        slurm.tells(("7", word), run=made.run)
    else:
        slurm.remembers(("7", word, "1:0", end - 100, end), run=made.run)
    now = status(made.run)
    assert now.state == ("running" if word == "RUNNING" else "ended"), now
    assert stays(made) == stay


def test_those_of_a_submission_since_stay(made: OnSlurm) -> None:
    record = made.run.submission()
    assert record is not None
    remove_secrets(made.run, (record.time or 0) - 1)
    assert stays(made)
    with locked(made.run.path / LOCK):  # it is just being submitted
        remove_secrets(made.run, record.time)
    assert stays(made)
    remove_secrets(made.run, record.time)
    assert not stays(made)
