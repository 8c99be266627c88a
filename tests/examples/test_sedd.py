"""The job files of examples/sedd: what each asks of its machine, and tells the program there."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from pathlib import Path

import msgspec
import pytest
import torch

from launcher import JobSpec, Plan, Site, plan, render
from tests.command_line import Castoff
from tests.launcher.scripts.readers import read_slurm
from trainers.configuration.yaml_text import read_yaml_file
from trainers.optimization.scaling import resolved
from trainers.sedd.alphabet import decode
from trainers.sedd.start.configuration import read
from trainers.sedd.start.flags import COMMAND_LINE
from trainers.sedd.start.translation import core_config
from trainers.sedd.synthetic import SyntheticProteins

FOLDER = Path(__file__).parents[2] / "examples" / "sedd"
JOB_FILES = sorted(FOLDER.glob("*.yaml"))
ON_A_NODE = {"aurora": 12, "frontier": 8, "perlmutter": 4, "polaris": 4, "slurm": 4}
"""Ranks."""


def planned(site: str) -> Plan:
    return plan(JobSpec.load(FOLDER / f"{site}.yaml"), Site.load(site))


def program(script: str) -> list[str]:
    """What a script tells the trainer of each rank."""
    words = script.partition(" train sedd ")[2].partition("\ncastoff_end ")[0]
    return shlex.split(words.replace("\\\n", " "))


def exported(script: str) -> list[str]:
    """What it tells the libraries below it."""
    return re.findall(r"^export ((?:NCCL|CUDA_DEVICE)_.*)$", script, re.MULTILINE)


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.stem)
def test_it_uses_nodes_whole_and_goes_on(path: Path) -> None:
    found = planned(path.stem)
    assert (found.nodes, found.ranks) == (2, 2 * ON_A_NODE[path.stem])
    assert (found.walltime, found.grace, found.requeue_max) == (24 * 3600, 300, 3)
    assert found.command[:3] == ["castoff", "train", "sedd"]
    assert [word.partition("=")[0] for word in found.command[3:6]] == ["--work_dir", "--config", "--datafile"]


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.stem)
def test_rate_and_warmup_follow_the_number_of_ranks(path: Path) -> None:
    """In proportion below 1,024 proteins a step, else with the root: most of a training is not a warmup."""
    found = planned(path.stem)
    arguments = COMMAND_LINE.parsed(found.command[3:])
    fields = read_yaml_file(FOLDER.parents[1] / arguments.path)
    config = core_config(read(fields, COMMAND_LINE.from_flags(arguments), arguments.overrides))
    scaled = resolved(config, found.ranks)
    assert scaled.effective_batch_size == 64 * found.ranks
    grown = found.ranks if found.ranks < 16 else math.sqrt(found.ranks)
    assert scaled.learning_rate == pytest.approx(grown)
    assert scaled.warmup_steps == round(5000 * grown) < (config.training.num_steps or 0) / 2


SBATCH = """\
#SBATCH --job-name=uniref50_ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --time=24:00:00
"""
"""What people wrote by hand."""


def test_a_script_by_hand_and_its_job_file() -> None:
    """The same nodes, tasks, devices and time, in the same words where a cluster asks for devices so."""
    site = msgspec.structs.replace(Site.load("slurm"), gpu_request="gres")
    script = render(plan(JobSpec.load(FOLDER / "slurm.yaml"), site))
    by_hand = dict(read_slurm(SBATCH))
    found = dict(read_slurm(script))
    assert {name: found[name] for name in by_hand} == {**by_hand, "job-name": "uniref50"}
    assert "\nmodule load cuda/11.8\nmodule load nccl\n" in script
    for value in ("CUDA_DEVICE_ORDER=PCI_BUS_ID", "NCCL_SOCKET_IFNAME='^docker0,lo'", "NCCL_DEBUG=INFO"):
        assert f"\nexport {value}\n" in script
    assert program(script) == [
        "--work_dir=$SCRATCH/experiments",
        "--config=examples/sedd.yaml",
        "--datafile=$SCRATCH/data/processed_uniref50.pt",
    ]


@pytest.mark.parametrize("site", ["slurm", "perlmutter", "polaris"])
@pytest.mark.parametrize(
    ("flags", "ranks"),
    [(["nodes=1", "ranks_per_node=2"], 2), (["nodes=1"], 4), ([], 8)],
    ids=["2", "4", "8"],
)
def test_any_number_of_devices(site: str, flags: list[str], ranks: int, castoff: Castoff) -> None:
    """Nothing else has to change: learning rate and warmup follow the number of ranks by themselves."""
    words = [word for flag in flags for word in ("--set", flag)]
    answer = castoff("render", FOLDER / f"{site}.yaml", "--site", site, *words, cwd=FOLDER)
    assert answer.returncode == 0, answer.stderr
    assert re.search(rf"^# uniref50 on {site}: {ranks} ranks", answer.stdout, re.MULTILINE)
    whole = render(planned(site))
    assert program(answer.stdout) == program(whole)
    assert exported(answer.stdout) == exported(whole)


SMALL = (
    *(
        "training.n_iters=2",
        "training.accum=1",
        "training.batch_size=2",
        "training.num_workers=0",
        "optim.warmup=0",
    ),
    *("training.compile=false", "training.device=cpu", "model.size=tiny", "data.max_length=32"),
    *("data.split=[0.8, 0.1, 0.1]", "sampling.number=0", "training.run=here"),
)


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
def test_it_trains(tmp_path: Path, castoff: Castoff) -> None:
    """The file for Slurm, here and on few proteins: folders and data are found by $SCRATCH."""
    shutil.copytree(FOLDER.parent, tmp_path / "examples")
    (tmp_path / "scratch" / "data").mkdir(parents=True)
    made = SyntheticProteins(20)
    proteins = [decode(made[index]) for index in range(20)]
    torch.save({"sequences": proteins}, tmp_path / "scratch" / "data" / "processed_uniref50.pt")
    command = [*planned("slurm").command, *(f"--set={field}" for field in SMALL)]
    fields = {"command": json.dumps(command), "setup": "[]", "env.SCRATCH": str(tmp_path / "scratch")}
    changed = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    here = ["--site", "local", "--nodes", "1", "--ranks-per-node", "2", *changed]
    answer = castoff("submit", "examples/sedd/slurm.yaml", *here, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    ended = castoff("wait", "uniref50", cwd=tmp_path)
    told = castoff("logs", "uniref50", cwd=tmp_path).stdout
    assert ended.returncode == 0, told
    assert "Training set size: 16, validation: 2, test: 2" in told
    assert (tmp_path / "scratch/experiments/here/checkpoints/step-0000000002/model.pt").is_file()
