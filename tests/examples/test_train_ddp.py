"""The examples of the graph trainer: the same training by each way to start its ranks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from castoff.trainers.configuration.yaml_text import read_yaml
from castoff.trainers.gnn.graphs.settings import Files, read
from tests import patience
from tests.cluster.hosts import Hosts, why_no_hosts
from tests.command_line import COMMAND
from tests.ports import free_port
from tests.trainers import toys
from tests.trainers.logged import unwrapped

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.usefixtures("for_real")

TINY = (
    *("training.num_epochs=2", "training.log_every=1", "data.causets.number=60", "training.batch_size=8"),
    "data.causets.size=[8, 16]",
)

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRON = {"OMP_NUM_THREADS": "1"}  # ranks with a thread a core wait for each other


class Learnt(NamedTuple):
    """What a training came to."""

    lines: list[dict[str, Any]]
    """Of metrics.jsonl, without times."""
    weights: dict[str, str]
    """Digests of all tensors of each checkpoint."""


class Mine:
    """A folder with copies of the examples in it, as a user has them, far from the checkout."""

    def __init__(self, folder: Path):
        self.folder = folder / "mine"
        self.folder.mkdir(parents=True)
        for name in ("train_ddp.py", "train_ddp_standalone.py", "train_ddp.yaml"):
            shutil.copy(EXAMPLES / name, self.folder)

    def train(self, *words: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Run a command that trains, to its end; all that it said."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, **ENVIRON, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience.SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def learnt(self) -> Learnt:
        """What the only run here came to."""
        (run,) = (self.folder / "trained").iterdir()
        weights = {
            f"{path.parent.name}: {name}": sha256(tensor.numpy().tobytes()).hexdigest()
            for path in sorted(run.glob("checkpoints/step-*/model.pt"))
            for name, tensor in torch.load(path, weights_only=True).items()
        }
        return Learnt(toys.lasting_lines(run), weights)


def started(way: str, ranks: int) -> list[str | Path]:
    """The words of each way of the guide, on this machine."""
    script = ["train_ddp.py", *TINY]
    if way == "torchrun":
        return [*TORCHRUN, "--standalone", f"--nproc_per_node={ranks}", *script]
    if way == "torch.distributed.launch":
        return [
            *(sys.executable, "-m", "torch.distributed.launch", f"--nproc_per_node={ranks}"),
            *(f"--master_port={free_port()!s}", *script),
        ]
    if way == "castoff":
        return [COMMAND, "launch", "-n", str(ranks), "--", sys.executable, *script]
    assert way == "spawn"
    port = f"parallel.master_port={free_port()!s}"
    return [sys.executable, "train_ddp_standalone.py", "--ranks", str(ranks), *TINY, port]


def only_rank_0_talks(said: str) -> None:
    told = re.findall(r"^(?:\[\d+\] )?\[RANK (\d+)\] \S+ \S+ (\w+) ", said, re.MULTILINE)
    assert ("0", "INFO") in told, said
    assert {rank for rank, level in told if level == "INFO"} == {"0"}, said


@pytest.mark.long
def test_torchrun_and_spawn_learn_the_same(tmp_path: Path) -> None:
    by_torchrun, spawned = Mine(tmp_path / "torchrun"), Mine(tmp_path / "spawn")
    said = by_torchrun.train(*started("torchrun", 2))
    only_rank_0_talks(said)
    assert "Training set size: 48, validation: 6, test: 6" in said
    assert re.search(r"The best model is in \S+; its test loss is [\d.]+", unwrapped(said))
    only_rank_0_talks(spawned.train(*started("spawn", 2)))
    learnt = by_torchrun.learnt()
    assert spawned.learnt() == learnt
    assert [line["val/f1"] for line in learnt.lines if "val/f1" in line]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    """What three ranks learn that castoff has started."""
    mine = Mine(tmp_path_factory.mktemp("three"))
    only_rank_0_talks(mine.train(*started("castoff", 3)))
    return mine.learnt()


@pytest.mark.long
@pytest.mark.parametrize("way", ["torchrun", "torch.distributed.launch", "spawn"])
def test_three_ranks_learn_the_same_by_each_way(way: str, three: Learnt, tmp_path: Path) -> None:
    """Spawned ones have four workers each, as the guide has them: what is learnt does not depend on that."""
    mine = Mine(tmp_path)
    workers = ["training.num_workers=4", "training.prefetch_factor=2"] if way == "spawn" else []
    said = mine.train(*started(way, 3), *workers)
    only_rank_0_talks(said)
    assert ("deprecated" in said) == (way == "torch.distributed.launch")
    assert mine.learnt() == three


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    if why := why_no_hosts():
        pytest.skip(why)
    made = Hosts(["one", "two"], {})
    yield made
    made.close()


@pytest.mark.long
def test_two_nodes_by_their_numbers(hosts: Hosts, three: Learnt, tmp_path: Path) -> None:
    """torchrun on each of two hosts: two ranks on the first, one on the second."""
    mine = Mine(tmp_path)
    environ = {**os.environ, **ENVIRON}

    def command(node: int, ranks: int) -> list[str]:
        meet = ["--nnodes=2", f"--node_rank={node}", "--master_addr=one", "--master_port=12355"]
        return [*TORCHRUN, *meet, f"--nproc_per_node={ranks}", "train_ddp.py", *TINY]

    other = hosts.popen("two", command(1, 1), cwd=mine.folder, env=environ, stderr=subprocess.STDOUT)
    first = hosts.run("one", command(0, 2), cwd=mine.folder, env=environ)
    said, _ = other.communicate(timeout=patience.SECONDS)
    assert (first.returncode, other.returncode) == (0, 0), first.stderr + said
    only_rank_0_talks(first.stderr)
    assert "RANK 0" not in said
    assert mine.learnt() == three


PROBE = """
import hashlib
import sys
from pathlib import Path

import train_ddp
from tests.trainers.toys import digest
from train_ddp import compute_loss


class Probed(train_ddp.TrainerDDP):
    def run_training(self, *loaders):
        found = super().run_training(*loaders)
        Path(f"digest-{self.rank}").write_text(f"{digest(self.model)} {self.folder}")
        return found


train_ddp.TrainerDDP = Probed
train_ddp.main()
"""


@pytest.mark.long
def test_all_ranks_have_the_same_weights_and_folder(three: Learnt, tmp_path: Path) -> None:
    mine = Mine(tmp_path)
    (mine.folder / "probe.py").write_text(PROBE)
    words = [word if word != "train_ddp.py" else "probe.py" for word in started("torchrun", 3)]
    mine.train(*words, env={"PYTHONPATH": str(EXAMPLES.parent)})
    digests = [(mine.folder / f"digest-{rank}").read_text() for rank in range(3)]
    assert len({*digests}) == 1
    assert mine.learnt() == three


@pytest.mark.long
def test_in_one_process(tmp_path: Path) -> None:
    mine = Mine(tmp_path)
    said = mine.train(sys.executable, "train_ddp.py", *TINY)
    only_rank_0_talks(said)
    assert len(mine.learnt().lines) > 2


@pytest.mark.long
def test_spawned_by_a_rank_of_torchrun(tmp_path: Path) -> None:
    """Its store is not where these ranks meet."""
    mine = Mine(tmp_path)
    _, *words = started("spawn", 2)
    only_rank_0_talks(mine.train(*TORCHRUN, "--standalone", "--nproc_per_node=1", *words))


def test_the_data_section_for_stores_has_fields_that_there_are(tmp_path: Path) -> None:
    """It stands in the template as a comment, to be taken in the place of `causets`."""
    text = (EXAMPLES / "train_ddp.yaml").read_text()
    (section,) = re.findall(r"^# (data:\n(?:#   .*\n)+)", text, re.MULTILINE)
    for name in ("data1.zarr", "data2.zarr"):
        (tmp_path / name).mkdir()
    told = read_yaml(section.replace("\n# ", "\n").replace("/path/to", str(tmp_path)))
    problems: list[str] = []
    assert isinstance(read(told["data"], problems), Files), problems
    assert problems == []
