"""What somebody new on Aurora gets wrong is refused before qsub, with the fix; nothing is made or sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from castoff import JobSpec, Site, plan
from castoff.launcher.errors import InvalidInput
from tests.conftest import Castoff

JOB = """\
command: [python, train.py]
nodes: 2
account: MyProject
queue: debug
walltime: "00:30:00"
directives: {filesystems: "home:flare"}
"""

MISTAKES = {
    "no file systems": (
        ["directives.filesystems=null"],
        "directives.filesystems=null: is missing, and aurora needs it: PBS refuses the job: "
        '"Resource: filesystems is required to be set."; give it, as in '
        '`directives: {pbs: {filesystems: "home:flare"}}` (aurora/running-jobs-aurora, 2026-08-19)',
    ),
    "another machine's file system": (
        ["directives.filesystems=home:eagle"],
        "=home:eagle: is 'home:eagle', but aurora has no 'eagle'; there are: home, flare, "
        "daos_user_fs, daos_perf_fs, daos_user, daos_perf, joined by : (aurora/running-jobs-aurora; "
        "aurora/data-management/daos/daos-overview, 2026-08-19); one that is newer: directive_values in a ",
    ),
    "a misspelled file system": (
        ["directives.filesystems=home:flair"],
        "=home:flair: is 'home:flair', but aurora has no 'flair'; did you mean flare?; there are:",
    ),
    "file systems with a comma": (
        ['directives.filesystems="home,flare"'],
        "is 'home,flare', but aurora has no 'home,flare'",
    ),
    "another -k": (
        ["directives.k=oe"],
        "k=oe: is 'oe', but aurora takes doe alone (running-jobs/index, 2026-08-19): drop it",
    ),
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake(mistake: str, job: Path) -> None:
    changes, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput) as caught:
        plan(JobSpec.load(job, overrides=changes), Site.load("aurora"))
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1, "one mistake, one message"


def test_without_a_mistake(job: Path) -> None:
    assert plan(JobSpec.load(job), Site.load("aurora")).ranks == 24


@pytest.mark.parametrize("verb", ["render", "submit"])
def test_all_at_once_and_nothing_is_left(verb: str, job: Path, castoff: Castoff, tmp_path: Path) -> None:
    called = tmp_path / "called"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "qsub").write_text(f"#!/bin/sh\ntouch {called}\n")
    (tmp_path / "bin" / "qsub").chmod(0o755)
    words = ["--set", "account=null", "--set", "walltime=2h", "--set", "directives.filesystems=home:eagle"]
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    answer = castoff(verb, job, "--site", "aurora", *words, cwd=tmp_path, env={"PATH": path})
    assert answer.returncode == 2
    for field in ("account=null: is missing", "queue: is 'debug'", "filesystems=home:eagle: is 'home:eagle'"):
        assert field in answer.stderr, answer.stderr
    assert not called.exists() and not (tmp_path / "castoff-runs").exists()


def test_the_profile_shows_the_file_systems(castoff: Castoff) -> None:

    shown = json.loads(castoff("sites", "aurora", "--json").stdout)
    assert shown["directive_values"]["filesystems"]["among"][:4] == [
        "home",
        "flare",
        "daos_user_fs",
        "daos_perf_fs",
    ]
