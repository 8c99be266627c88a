"""Which job an unclear submission turns out to be, where the queue has several of its script."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.schedulers.slurm.queue import SlurmQueue
from castoff.launcher.status.settle import settle
from tests.records import submission_of

from ..fake_slurm import FakeSlurm, OnSlurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(tmp_path, monkeypatch)


def test_a_job_with_members_that_were_not_sent_is_another_one(slurm: FakeSlurm, tmp_path: Path) -> None:
    """As when somebody submits the script by hand meanwhile: its lower number makes it no candidate."""
    sent = {"job": None, "members": [2, 5], "count": None, "time": 899.0}
    made = OnSlurm(tmp_path, members=6, job=None, sends=[sent])
    slurm.tells(("8_0", "RUNNING"), ("8_2", "RUNNING"), ("9_2", "PENDING"), run=made.run)
    assert settle(made.run, SlurmQueue())
    assert submission_of(made.run).sends[0].job == "9"


def test_nor_is_one_without_members_an_array(slurm: FakeSlurm, tmp_path: Path) -> None:
    sent = {"job": None, "members": [2, 5], "count": None, "time": 899.0}
    made = OnSlurm(tmp_path, members=6, job=None, sends=[sent])
    slurm.tells(("8", "RUNNING"), run=made.run)
    assert not settle(made.run, SlurmQueue())
    assert submission_of(made.run).sends[0].job is None


def test_jobs_before_the_send_are_not_its_own(slurm: FakeSlurm, tmp_path: Path) -> None:
    sends = [{"job": "9", "time": 890.0}, {"job": None, "time": 899.0}]
    made = OnSlurm(tmp_path, job="9", sends=sends)
    slurm.tells(("8", "RUNNING"), ("12", "PENDING"), ("11", "PENDING"), run=made.run)
    assert settle(made.run, SlurmQueue())
    assert submission_of(made.run).sends[1].job == "11"
