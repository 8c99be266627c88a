"""Jobs of runs whose directories were deleted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory

from ..conftest import Castoff
from ..fake_slurm import FakeSlurm, OnSlurm

ID = "train-20261129-090013-8c4d"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    slurm = FakeSlurm(tmp_path, monkeypatch)
    slurm.program("scancel", f'echo "$@" >>{tmp_path}/ended; : >{slurm.queue}')
    return slurm


@pytest.fixture
def deleted(tmp_path: Path, slurm: FakeSlurm) -> RunDirectory:
    """A run that has an array of jobs, beside those of a directory of the same name elsewhere."""
    run = OnSlurm(tmp_path, id=ID).run
    Index.of(os.environ).add(run, "train", "slurm")
    slurm.tells(("7_1", "RUNNING"), ("7_2", "PENDING"), run=run)
    elsewhere = f"9|N/A|RUNNING|None|900|N/A|N/A|/elsewhere/{ID}/job.sh\n"
    slurm.queue.write_text(slurm.queue.read_text() + elsewhere)
    shutil.rmtree(run.path)
    return run


@pytest.mark.parametrize("by", ["name", "id", "path"])
def test_are_named_and_ended(castoff: Castoff, deleted: RunDirectory, tmp_path: Path, by: str) -> None:
    reference = {"name": "train", "id": ID, "path": f"{deleted.path}/"}[by]
    shown = castoff("status", reference)
    assert shown.returncode == 1
    assert f"Slurm still has its job 7; `castoff cancel {ID}` or `scancel 7` ends it" in shown.stderr
    answer = castoff("cancel", reference)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"{ID}: its directory {deleted.path} is gone; ended its job 7 (Slurm)\n"
    assert (tmp_path / "ended").read_text() == "7\n", "and not the other directory's job"
    answer = castoff("cancel", reference)
    assert answer.returncode == 1 and "Slurm has no waiting or running job of it" in answer.stderr


def test_what_the_scheduler_refuses_is_reported(
    castoff: Castoff, deleted: RunDirectory, slurm: FakeSlurm
) -> None:
    slurm.program("scancel", "echo 'scancel: error: Access denied on job id 7' >&2; exit 1")
    answer = castoff("cancel", ID)
    assert answer.returncode == 1
    assert "still has its job 7: " in answer.stderr and "Access denied" in answer.stderr
    assert "`scancel 7`" in answer.stderr


def test_a_silent_scheduler_has_said_nothing(
    castoff: Castoff, deleted: RunDirectory, slurm: FakeSlurm, tmp_path: Path
) -> None:
    slurm.program("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    for verb in ("status", "cancel"):
        answer = castoff(verb, ID)
        assert answer.returncode == 1
        assert "Slurm could not be asked" in answer.stderr and "with scancel" in answer.stderr
        assert "running job of it" not in answer.stderr
    assert not (tmp_path / "ended").exists()
