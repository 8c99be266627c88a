"""Site local, where a job names an mpiexec: that starts the ranks, however the job is started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from castoff.launcher.runs.records import ending_of
from castoff.launcher.runs.run import RunDirectory
from tests import patience
from tests.conftest import SystemProgram
from tests.launcher.conftest import Castoff, LocalJobs

MPIEXECS = [("hydra", "mpich"), ("openmpi", "openmpi-bin")]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OF_MPI = "${PMI_RANK-$OMPI_COMM_WORLD_RANK}/${PMI_SIZE-$OMPI_COMM_WORLD_SIZE}"
WHO = f'echo "$RANK/$WORLD_SIZE {OF_MPI} $LOCAL_RANK/$LOCAL_WORLD_SIZE $CASTOFF_LAUNCHER" >"who-$RANK"'


def who(folder: Path) -> list[str]:
    return sorted(path.read_text().strip() for path in folder.glob("who-*"))


@pytest.fixture(params=MPIEXECS, ids=[name for name, _ in MPIEXECS])
def mpi(
    request: pytest.FixtureRequest,
    for_real: None,
    system_program: SystemProgram,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    name, package = request.param
    system_program(f"mpiexec.{name}", package)
    for variable, value in AS_ROOT.items():
        monkeypatch.setenv(variable, value)
    # A job around this, whose hosts an mpiexec would ask.
    monkeypatch.setenv("SLURM_JOBID", "7")
    monkeypatch.setenv("SLURM_NODELIST", "n[1-2]")
    return str(name)


@pytest.mark.everyday("hydra-1")
@pytest.mark.parametrize("ranks", [1, 3])
def test_castoff_launch(castoff_command: Castoff, mpi: str, ranks: int, tmp_path: Path) -> None:
    """With logs, records and code as in an allocation."""
    words = ["launch", "--here", "-n", str(ranks), "--set", f"launcher.name={mpi}", "--", "sh", "-c"]
    done = castoff_command(*words, f"{WHO}; echo said by $RANK")
    assert done.returncode == 0, done.stderr
    assert who(tmp_path) == [f"{n}/{ranks} {n}/{ranks} {n}/{ranks} {mpi}" for n in range(ranks)]
    assert done.stdout == "said by 0\n" and f"started by {mpi}" in done.stderr
    (run,) = (tmp_path / "castoff-runs").iterdir()
    logs = sorted(path.read_text() for path in (run / "logs" / "0.0").glob("rank-*"))
    assert logs == [f"said by {n}\n" for n in range(ranks)]


@pytest.mark.everyday("hydra")
def test_castoff_submit(jobs: LocalJobs, mpi: str, tmp_path: Path) -> None:
    """A rank that fails ends the others; its code is the run's."""
    fails = f"{WHO}; [ $RANK = 1 ] || exec sleep 1000; until [ -e who-0 ] && [ -e who-2 ]; do :; done; exit 5"
    run = jobs.submit("--ranks", "3", "--set", f"launcher.name={mpi}", sh=fails)
    ended = jobs.wait(run)
    assert (ended["ending"], ended["code"]) == ("failed", 5)
    assert who(tmp_path) == [f"{n}/3 {n}/3 {n}/3 {mpi}" for n in range(3)]
    patience.until(lambda: jobs.nothing_left(run))


def test_the_rendered_script(castoff: Castoff, mpi: str, tmp_path: Path) -> None:
    """Asked to end, it passes that on, and the program's word counts."""
    saves = f"trap 'echo resume >$CASTOFF_OUTCOME_FILE; exit 0' TERM; {WHO}; while :; do sleep 0.1; done"
    words = ["render", "--site", "local", "--ranks", "3", "--set", f"launcher.name={mpi}"]
    (tmp_path / "job.sh").write_text(castoff(*words, "--", "bash", "-c", saves).stdout)
    script = subprocess.Popen(["bash", "job.sh"], cwd=tmp_path)
    patience.until(lambda: len(who(tmp_path)) == 3)
    (run,) = tmp_path.glob("castoff-local-*")
    (run / "attempts" / "0.0" / "stop").touch()
    script.terminate()
    assert script.wait(patience.SECONDS) == 143
    assert (run / "attempts" / "0.0" / "outcome").read_text() == "resume\n"
    record = ending_of(RunDirectory(run).path / "attempts" / "0.0")
    assert record is not None and record.ending == "cancelled"


def of_one(folder: Path, version: str, starts: str = "exit 9") -> dict[str, str]:
    """PATH with an mpiexec that says so of itself at --version, before all other programs."""
    (programs := folder / "bin").mkdir()
    (programs / "mpiexec").write_text(f'#!/bin/sh\n[ "$1" != --version ] || exec echo {version}\n{starts}\n')
    (programs / "mpiexec").chmod(0o755)
    return {"PATH": f"{programs}:{os.environ['PATH']}"}


def test_another_mpis_mpiexec_is_refused_before_it_starts(castoff_command: Castoff, tmp_path: Path) -> None:
    env = of_one(tmp_path, "HYDRA")
    words = ["launch", "--here", "--set", "launcher.name=intelmpi", "--", "touch", "started"]
    done = castoff_command(*words, env=env)
    why = "the launcher is intelmpi, but no mpiexec of it is on PATH (there is: mpiexec of hydra)"
    assert done.returncode == 127 and why in done.stderr
    assert not (tmp_path / "started").exists()
    (run,) = (tmp_path / "castoff-runs").iterdir()
    record = ending_of(run / "attempts" / "0.0")
    assert record is not None and record.reason == why


@pytest.mark.everyday("7")
@pytest.mark.parametrize("number", range(5, 10))
def test_a_rank_keeps_the_file_by_which_its_mpiexec_talks_to_it(
    castoff_command: Castoff, tmp_path: Path, number: int
) -> None:
    """Which number it has is chance: PMI_FD of MPICH's second rank is 9 below castoff's own scheduler."""
    (tmp_path / "said").write_text("by mpiexec\n")
    variables = f"PMI_FD={number} PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1"
    env = of_one(tmp_path, "HYDRA", f'shift 4; exec env {variables} "$@" {number}<said')
    words = ["launch", "--here", "--set", "launcher.name=hydra", "--", "sh", "-c", "cat <&$PMI_FD"]
    done = castoff_command(*words, env=env)
    assert (done.returncode, done.stdout) == (0, "by mpiexec\n"), done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--log-dir", "logs"], "--log-dir is for castoff's own launcher, but hydra starts this job"),
        (["--nodes", "2"], "--nodes: is 2, but this machine is one node"),
    ],
)
def test_what_goes_with_no_mpiexec(castoff_command: Castoff, words: list[str], why: str) -> None:
    done = castoff_command("launch", *words, "--here", "--set", "launcher.name=hydra", "--", "true")
    assert done.returncode == 2 and why in done.stderr
