"""Ranks of a training are killed, one after the other, and the job trains to its end: bit for bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from castoff.launcher.runs.run import RunDirectory
from tests.cluster.desk import Desk
from tests.cluster.slurm import SlurmCluster
from tests.conftest import Castoff
from tests.patience import until
from tests.systems import killed
from tests.trainers import toys

CHECKOUT = Path(__file__).resolve().parents[2]

KILLS = int(os.environ.get("CASTOFF_TESTS_MANY") or 5)
"""Of each test."""

SEED = int(os.environ.get("CASTOFF_TESTS_SEARCH") or random.SystemRandom().randrange(10**6))

RANKS = 4
STEPS = 12 * KILLS + 20

pytestmark = [pytest.mark.usefixtures("for_real"), pytest.mark.long, pytest.mark.timeout(600 + 60 * KILLS)]


class Kill(NamedTuple):
    """When a rank is killed: so many steps beyond all that was reported before, or right as it begins."""

    rank: int
    steps: int | None
    seconds: float
    """After that."""


def kills() -> list[Kill]:
    """Two in a row before any step would end the job, as they should."""
    chance = random.Random(SEED)
    found: list[Kill] = []
    for _ in range(KILLS):
        begins = found and found[-1].steps is not None and chance.random() < 0.2
        steps = None if begins else chance.randrange(1, 7)
        found.append(Kill(chance.randrange(RANKS), steps, chance.uniform(0, 3 if begins else 0.3)))
    return found


class Killer:
    """Kills ranks of a run, each in another attempt."""

    def __init__(self, run: RunDirectory):
        self.run = run
        self.best = -1
        self.number = 0

    def kill(self, kill: Kill) -> None:
        """Kill a rank of the attempt that runs, or is about to."""
        progress = self.run.path / "attempts" / f"0.{self.number}" / "progress"
        begun = self.run.log_folder / f"0.{self.number}" / f"rank-{kill.rank:05d}.log"
        until(begun.exists, f"rank {kill.rank} of attempt {self.number}, {SEED=}")
        process = until(
            lambda: self.process(kill.rank), f"rank {kill.rank} of attempt {self.number}, {SEED=}"
        )
        if kill.steps is not None:
            wanted = self.best + kill.steps
            until(lambda: reported(progress) >= wanted, f"step {wanted} in attempt {self.number}, {SEED=}")
        time.sleep(kill.seconds)
        process.send_signal(signal.SIGKILL)
        ending = progress.with_name("ending.json")
        until(ending.exists, f"the end of attempt {self.number}, {SEED=}")
        self.best = max(self.best, reported(progress))
        self.number += 1

    def process(self, rank: int) -> psutil.Process | None:
        """The one of a rank that trains; the topmost that knows its rank."""
        folder = str(self.run.path / "attempts" / f"0.{self.number}")
        assert not Path(folder, "ending.json").exists(), self.run.script_log().read_text()
        for process in psutil.process_iter():
            try:
                environ, parent = process.environ(), process.parent()
                known = parent is not None and "RANK" in parent.environ()
            except (psutil.Error, OSError):
                continue
            if (
                environ.get("CASTOFF_ATTEMPT_DIR") == folder
                and environ.get("RANK") == str(rank)
                and not known
            ):
                return process
        return None


def reported(progress: Path) -> int:
    """The step; -1: none yet."""
    return int(progress.read_text().split()[0]) if progress.exists() else -1


class Learned(NamedTuple):
    """What came of a training."""

    weights: bytes
    """The last, and not those that validate best: these are of a step before many of the kills."""

    losses: list[dict[str, float]]


def learned(folder: Path) -> Learned:
    """Of the one training there."""
    (found,) = folder.glob("toy*")
    lines = map(json.loads, (found / "metrics.jsonl").read_text().splitlines())
    losses = [{name: line[name] for name in line if name == "step" or "loss" in name} for line in lines]
    return Learned((found / "checkpoints" / f"step-{STEPS:010d}" / "model.pt").read_bytes(), losses)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """What comes of it when nobody is killed."""
    folder = tmp_path_factory.mktemp("expected")
    toys.run(killed.learn, str(folder), STEPS, folder=folder / "ranks", world_size=RANKS)
    return learned(folder)


def job_file(folder: Path, **fields: Any) -> Path:
    path = folder / "job.yaml"
    job = {
        "name": "killed",
        "command": [sys.executable, "-m", "tests.systems.killed", str(STEPS)],
        "env": {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"},
        "walltime": "12h",
        "grace": "1m",
        **fields,
    }
    path.write_text(json.dumps(job))
    return path


def survives(run: RunDirectory, folder: Path, expected: Learned, ask: Callable[..., tuple[int, str]]) -> None:
    """Kill ranks, and see that it makes no difference. `ask`: castoff's verbs, for its code and output."""
    killer, planned = Killer(run), kills()
    for kill in planned:
        killer.kill(kill)
    assert ask("wait", run.id)[0] == 0, run.script_log().read_text()
    found = learned(folder / "trained")
    assert found.losses == expected.losses, f"{SEED=}"
    assert found.weights == expected.weights, f"{SEED=}"
    assert not (folder / "overlap").exists(), (folder / "overlap").read_text()
    *failed, last = json.loads(ask("status", run.id, "--json")[1])["members"][0]["attempts"]
    assert len(failed) == KILLS and (last["ending"], last["restart"]) == ("done", KILLS)
    for number, (kill, attempt) in enumerate(zip(planned, failed, strict=True)):
        assert (attempt["ending"], attempt["code"], attempt["restart"] or 0) == ("failed", 137, number)
        reason = attempt["failure"]
        assert (reason["rank"], reason["signal"]) == (kill.rank, "SIGKILL") and reason["host"], attempt


@pytest.mark.parametrize("lives", [True, False])
def test_a_rank_of_an_earlier_attempt_is_noticed(
    lives: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the tests below rely on: a loader worker that outlives its rank counts, too."""
    monkeypatch.chdir(tmp_path)
    held = killed.show_that_it_lives(3, 1)
    worker = subprocess.Popen(["sleep", "1000"], pass_fds=[held] if lives else [])
    os.close(held)
    try:
        os.close(killed.show_that_it_lives(3, 0))
        assert not Path("overlap").exists()
        os.close(killed.show_that_it_lives(7, 0))
    finally:
        worker.kill()
        worker.wait()
    assert Path("overlap").exists() == lives


def test_on_two_hosts_with_a_spare(slurm: SlurmCluster, tmp_path: Path, expected: Learned) -> None:
    desk = Desk(slurm, tmp_path / "desk")
    restart = {"max": 10 * KILLS, "spare_nodes": 1}
    run = desk.submit_file(job_file(desk.folder, nodes=2, ranks_per_node=2, restart=restart))

    def ask(*words: str) -> tuple[int, str]:
        answer = desk.castoff(*words)
        return answer.code, answer.output

    survives(run, desk.folder, expected, ask)
    assert len(list((run.path / "set-aside").glob("*.json"))) <= 1


def test_on_one_host(castoff: Castoff, tmp_path: Path, expected: Learned) -> None:
    job = job_file(tmp_path, ranks_per_node=RANKS, restart={"max": 10 * KILLS})
    answer = castoff("submit", job, "--site", "local", "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    run = RunDirectory(Path(json.loads(answer.stdout)["directory"]))

    def ask(*words: str) -> tuple[int, str]:
        answer = castoff(*words, cwd=tmp_path)
        return answer.returncode, answer.stdout

    survives(run, tmp_path, expected, ask)
