"""Whatever starts its ranks, a training system learns the same, to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import castoff
from tests import patience
from tests.cluster import functions
from tests.cluster.desk import Desk
from tests.cluster.slurm import SlurmCluster
from tests.conftest import Castoff, SystemProgram
from tests.pbs.cluster import PbsCluster
from tests.ports import free_port
from tests.systems.rank import CONFIG, called, stopped
from tests.systems.systems import SYSTEMS, System
from tests.trainers import toys

pytestmark = pytest.mark.usefixtures("for_real")

OFTEN = "sedd"
"""The system that `make test-costly` tries, by launchers that no example tries; the others are long."""

SURROUNDINGS = {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}


class Learnt(NamedTuple):
    """What a training came to."""

    weights: dict[str, str]
    """A digest of each tensor, by its file and its name."""
    losses: list[float]
    """Of the training set, at each step."""
    validated: list[float]
    """Of the validation set, each time."""


class Training:
    """A folder in which a system trains, on two ranks."""

    def __init__(self, system: System, folder: Path):
        self.system, self.folder = system, folder
        folder.mkdir(exist_ok=True)
        system.write_data(folder)
        (folder / CONFIG).write_text(system.config.replace("FOLDER", str(folder)))
        self.program = ["-m", "tests.systems.rank", system.name]
        """What Python runs as each rank."""

    def run(self, *words: str | Path) -> None:
        """Run a command that starts the ranks, to its end."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, **SURROUNDINGS},
            capture_output=True,
            text=True,
            timeout=patience.SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def job_file(self, **fields: Any) -> Path:
        """A job file that starts them."""
        job = {"name": "job", "command": [sys.executable, *self.program], "env": SURROUNDINGS, **fields}
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def submit(self, desk: Desk) -> None:
        """Submit it on a cluster, one rank on each of two nodes, and wait for its end."""
        run = desk.submit_file(self.job_file(nodes=2, ranks_per_node=1, walltime="10m"))
        assert desk.castoff("wait", run.id).code == 0, desk.castoff("logs", run.id).output
        assert len({rank["host"] for rank in self.ranks()}) == 2

    def ranks(self) -> list[dict[str, Any]]:
        """What each rank found."""
        files = sorted(self.folder.glob("rank-*.json"))
        return [json.loads(path.read_text()) for path in files]

    def weights(self) -> dict[str, str]:
        """A digest of each tensor of its last checkpoint, averaged ones too."""
        *_, last = sorted(self.folder.glob("**/checkpoints/step-*"))
        return {
            f"{file}: {name}": sha256(tensor.numpy().tobytes()).hexdigest()
            for file in ("model.pt", "ema.pt")
            for name, tensor in torch.load(last / file, weights_only=True).items()
        }

    def learnt(self) -> Learnt:
        """What all its steps came to."""
        found = self.folder.glob("**/metrics.jsonl")
        (file,) = (path for path in found if "attempts" not in path.parts)  # else it is the run's own copy
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        losses, validated = (
            [line[name] for line in lines if name in line] for name in ("train/loss", "val/loss")
        )
        return Learnt(self.weights(), losses, validated)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(system, marks=[] if name == OFTEN else [pytest.mark.long], id=name)
        for name, system in SYSTEMS.items()
    ],
)
def system(request: pytest.FixtureRequest) -> System:
    chosen: System = request.param
    return chosen


@pytest.fixture(scope="module")
def expected(system: System, tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    """What two ranks learn that the test itself has started: no launcher's may learn anything else."""
    before = Training(system, tmp_path_factory.mktemp("before"))
    toys.run(stopped, system.name, before.folder, folder=before.folder / "ranks", world_size=1)
    training = Training(system, tmp_path_factory.mktemp("expected"))
    toys.run(called, system.name, training.folder, folder=training.folder / "ranks", world_size=2)
    learnt = training.learnt()
    assert not learnt.weights.items() & before.weights().items()
    assert learnt.validated[-1] < 0.95 * learnt.validated[0]
    return learnt


@pytest.fixture
def training(system: System, tmp_path: Path) -> Training:
    return Training(system, tmp_path / "training")


def check(training: Training, expected: Learnt, launcher: str, *marks: str, by_castoff: bool) -> None:
    """Its two ranks were started so, had a thread each, and have learnt what was expected.

    `launcher` is what a rank finds out; castoff tells it in CASTOFF_LAUNCHER if it has started the rank.
    `marks` are variables that this launcher, or its scheduler, sets.
    """
    found = training.ranks()
    places = [(rank["rank"], rank["world_size"], rank["launcher"], rank["threads"]) for rank in found]
    assert places == [(0, 2, launcher, 1), (1, 2, launcher, 1)]
    for rank in found:
        assert rank["environ"].get("CASTOFF_LAUNCHER") == (launcher if by_castoff else None)
        assert {*marks} <= rank["environ"].keys()
    assert training.learnt() == expected


@pytest.mark.long
def test_castoff_here(training: Training, expected: Learnt, castoff: Castoff) -> None:
    job = training.job_file(ranks_per_node=2)
    answer = castoff("submit", job, "--site", "local", cwd=training.folder)
    assert answer.returncode == 0, answer.stderr
    ended = castoff("wait", "job", cwd=training.folder)
    assert ended.returncode == 0, castoff("logs", "job", cwd=training.folder).stdout
    check(training, expected, "local", "CASTOFF_RUN_DIR", by_castoff=True)


@pytest.mark.long
def test_torchrun(training: Training, expected: Learnt) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    training.run(*torchrun, *training.program)
    check(training, expected, "torchrun", "TORCHELASTIC_RUN_ID", by_castoff=False)


@pytest.mark.long
def test_spawn(training: Training, expected: Learnt) -> None:
    training.run(sys.executable, *training.program, str(free_port()))
    assert [rank["process"] for rank in training.ranks()] == ["SpawnProcess-1", "SpawnProcess-2"]
    check(training, expected, "single", by_castoff=False)


@pytest.mark.long
def test_mpiexec(training: Training, expected: Learnt, system_program: SystemProgram) -> None:
    mpiexec = system_program("mpiexec.mpich", "mpich")
    training.run(mpiexec, "-n", "2", sys.executable, *training.program)
    check(training, expected, "hydra", "PMI_RANK", by_castoff=False)


@pytest.mark.long  # docs/tutorials/slurm.md shows a training by a job file, on two hosts
def test_slurm_job_file(training: Training, expected: Learnt, slurm: SlurmCluster) -> None:
    training.submit(Desk(slurm, training.folder))
    check(training, expected, "srun", "SLURM_JOB_ID", by_castoff=True)


@pytest.mark.costly
def test_slurm_function(training: Training, expected: Learnt, slurm: SlurmCluster) -> None:
    commands = ("sbatch", "squeue", "sacct", "scancel", "scontrol")
    with functions.login(slurm, training.folder, commands):
        job = {"nodes": 2, "ranks_per_node": 1, "walltime": "10m", "env": SURROUNDINGS}
        executor = castoff.executor(job, "slurm", training.folder / "runs")
        submitted = executor.submit(called, training.system.name, training.folder)
        assert submitted.results() == [None, None]
    check(training, expected, "srun", "SLURM_JOB_ID", by_castoff=True)


@pytest.mark.costly
def test_pbs_job_file(training: Training, expected: Learnt, pbs: PbsCluster) -> None:
    training.submit(Desk(pbs, training.folder))
    check(training, expected, "hydra", "PBS_JOBID", by_castoff=True)
