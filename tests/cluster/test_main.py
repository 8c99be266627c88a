"""python -m tests.cluster: a cluster for people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import patience
from tests.conftest import SystemProgram

from . import standing
from .__main__ import SLURM
from .hosts import memory_groups, why_no_hosts
from .slurm import PACKAGES

CHECKOUT = Path(__file__).parents[2]


def cluster(*words: str) -> subprocess.CompletedProcess[str]:
    reported = [sys.executable, "-m", "tests.cluster", *words]
    return subprocess.run(
        reported, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=patience.SECONDS
    )


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system_program: SystemProgram, for_real: None
) -> Iterator[Path]:
    """Where the cluster of these tests lies, whatever other one there is."""
    if why := why_no_hosts():
        pytest.skip(why)
    for program, package in PACKAGES.items():
        system_program(program, package)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield tmp_path / f"castoff-slurm-{os.geteuid()}"
    cluster("down")


def test_it_stays_until_it_is_asked_to_end(folder: Path) -> None:
    up = cluster("up")
    assert up.returncode == 0, up.stderr
    assert f"its logs are in {folder / 'logs'}\n" in up.stdout
    again = cluster("up")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith("tests.cluster: it is up already; to begin anew: python")

    reported = cluster("shell", "n2", "sh", "-c", "hostname; srun -w n3 hostname; exit 7")
    assert (reported.returncode, reported.stdout) == (7, "n2\nn3\n"), reported.stderr
    shell = subprocess.run(
        [sys.executable, "-m", "tests.cluster", "shell", "head"],
        cwd=CHECKOUT,
        env={**os.environ, "SHELL": "/bin/sh"},
        input="hostname\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == "head\n"
    assert cluster("shell", "n5").stderr == (
        "tests.cluster: n5 is none of its hosts, which are head, n1, n2, n3, n4\n"
    )

    init = psutil.Process(json.loads((folder / "hosts.json").read_text())[0])
    groups = set() if (made := memory_groups()) is None else set(made.glob("castoff-*"))
    down = cluster("down")
    assert (down.returncode, down.stderr) == (0, "")
    assert not init.is_running() and list(folder.parent.iterdir()) == []
    assert made is None or groups - set(made.glob("castoff-*"))
    down = cluster("down")
    assert (down.returncode, down.stderr) == (1, "tests.cluster: it is not up\n")


def test_a_cluster_that_ended_with_the_machine_can_be_started_again(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / "hold")
    (folder / "hosts.json").write_text('[1, {"n1": 1}]')
    (folder / "logs").mkdir()
    reported = cluster("shell", "n1", "true")
    assert reported.returncode == 1 and reported.stderr.startswith(
        "tests.cluster: it is not up; to start it: "
    )
    up = cluster("up")
    assert up.returncode == 0, up.stderr
    assert cluster("shell", "n1", "hostname").stdout == "n1\n"


def test_nobody_elses_folder_is_believed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    folder.symlink_to(tmp_path / "theirs")
    for words in (["up"], ["shell", "n1"], ["down"]):
        reported = cluster(*words)
        assert reported.returncode == 1
        assert reported.stderr == (
            f"tests.cluster: {folder} is not a folder of yours that is closed to others; remove it first\n"
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.name, "theirs"]


def test_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(standing, "why_no_hosts", lambda: "only root can make the hosts of a cluster")
    assert standing.main(SLURM, ["up"]) == 1
    assert capsys.readouterr().err == "tests.cluster: only root can make the hosts of a cluster\n"

    monkeypatch.setattr(standing, "why_no_hosts", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert standing.main(SLURM, ["up"]) == 1
    assert capsys.readouterr().err == (
        "tests.cluster: this needs Debian packages: "
        "apt-get install munge slurmctld slurmd slurm-client slurmdbd mariadb-server iproute2\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["shell"], ["up", "n1"], ["--help"]])
def test_other_words_are_answered_with_the_right_ones(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert standing.main(SLURM, words) == 2
    assert "python -m tests.cluster shell HOST [COMMAND…]" in capsys.readouterr().err
