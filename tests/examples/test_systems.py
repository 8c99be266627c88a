"""examples/jobs and examples/sites: one job file for each training system, one profile for each machine."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from castoff import JobSpec, Plan, Site, plan, render
from castoff.launcher.config.site import Search
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.yaml_text import read_yaml_file
from castoff.trainers.dpo.start import configuration as of_dpo
from castoff.trainers.dpo.start.flags import COMMAND_LINE as DPO
from castoff.trainers.optimization.scaling import resolved
from castoff.trainers.sedd.alphabet import decode
from castoff.trainers.sedd.start import configuration as of_sedd
from castoff.trainers.sedd.start.flags import COMMAND_LINE as SEDD
from castoff.trainers.sedd.start.translation import core_config
from castoff.trainers.sedd.synthetic import SyntheticProteins
from tests.command_line import Castoff
from tests.launcher.scripts.readers import read_slurm

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted(path.stem for path in (EXAMPLES / "jobs").glob("*.yaml"))
PROFILES = sorted(path.stem for path in (EXAMPLES / "sites").glob("*.yaml"))
RANKS = {"aurora": 12, "frontier": 8, "perlmutter": 4, "polaris": 4, "slurm": 4}
"""On a node."""
HOURS = {"gnn": 6, "sedd": 24, "dpo": 6}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the examples, and with their profiles where a project keeps its own."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    shutil.copytree(EXAMPLES / "sites", tmp_path / ".castoff" / "sites")
    return tmp_path


def planned(job: str, profile: str, project: Path, *overrides: str) -> Plan:
    spec = JobSpec.load(EXAMPLES / "jobs" / f"{job}.yaml", overrides=overrides)
    return plan(spec, Site.load(profile, search=Search(os.environ, project)))


def configured(job: str, found: Plan) -> Config:
    """What the program makes of its words."""
    assert found.command[:3] == ["castoff", "train", job]
    words = found.command[3:]
    if job == "gnn":
        return Config.load(EXAMPLES.parent / words[0], [word.removeprefix("--set=") for word in words[1:]])
    if job == "dpo":
        arguments = DPO.parsed(words)
        return of_dpo.read({}, DPO.from_flags(arguments), arguments.overrides)
    arguments = SEDD.parsed(words)
    fields: Any = read_yaml_file(EXAMPLES.parent / arguments.path)
    return core_config(of_sedd.read(fields, SEDD.from_flags(arguments), arguments.overrides))


def test_there_is_one_of_each() -> None:
    assert sorted(HOURS) == JOBS
    assert [f"{site}-project" for site in sorted(RANKS)] == PROFILES


@pytest.mark.parametrize("job", JOBS)
def test_the_commands_of_the_comments(job: str, tmp_path: Path, castoff: Castoff) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    text = (EXAMPLES / "jobs" / f"{job}.yaml").read_text()
    first, *others = re.findall(r"^#   (.*?)(?:  +.*)?$", text, re.MULTILINE)
    subprocess.run(["bash", "-c", first], cwd=tmp_path, check=True)
    shown, submitted = [shlex.split(words.removeprefix("castoff ")) for words in others]
    assert shown[1] == submitted[1] == f"examples/jobs/{job}.yaml"
    answer = castoff(*shown, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == render(planned(job, shown[3], tmp_path))
    assert castoff(*submitted, "--dry-run", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("job", JOBS)
def test_it_uses_nodes_whole_and_resumes(job: str, profile: str, project: Path) -> None:
    found = planned(job, profile, project)
    site = profile.removesuffix("-project")
    assert (found.nodes, found.ranks, found.devices_per_rank) == (2, 2 * RANKS[site], 1)
    assert (found.walltime, found.grace, found.requeue_max) == (HOURS[job] * 3600, 300, 3)
    assert ("SCRATCH" in found.variables) == (site not in ("perlmutter", "slurm"))  # which set it themselves


@pytest.mark.parametrize("job", JOBS)
def test_rate_and_warmup_follow_the_number_of_ranks(
    job: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    found = planned(job, "aurora-project", project)
    config = configured(job, found)
    scaled = resolved(config, found.ranks)
    alone = {"gnn": 1.0, "sedd": 1.0, "dpo": 1.0}[job]
    assert scaled.learning_rate == pytest.approx(alone * math.sqrt(found.ranks))
    if job == "sedd":
        assert scaled.warmup_steps == round(5000 * math.sqrt(found.ranks))
    if job == "dpo":
        assert config.training.optimizer_kwargs["lr"] == 3e-7
        assert (config.training.path, config.training.run) == ("/scratch/me/dpo", "first")


@pytest.mark.parametrize("profile", PROFILES)
def test_what_the_network_is_told(profile: str, project: Path) -> None:
    """A profile sets nothing that the machine's own has; devices have the numbers that nvidia-smi shows."""
    site = profile.removesuffix("-project")
    text = (EXAMPLES / "sites" / f"{profile}.yaml").read_text()
    own = {*re.findall(r"^  ([A-Z_]+): ", text, re.MULTILINE)}
    assert not own & Site.load(site).env.keys()
    told = planned("gnn", profile, project).variables
    interfaces = {"frontier": "hsn0,hsn1,hsn2,hsn3", "perlmutter": "hsn", "slurm": "^docker0,lo"}
    assert told.get("NCCL_SOCKET_IFNAME") == interfaces.get(site)
    assert ("CUDA_DEVICE_ORDER" in told) == (site in ("perlmutter", "polaris", "slurm"))
    assert ("NCCL_DEBUG" in told) == (site != "aurora") == ("CCL_LOG_LEVEL" not in told)


SBATCH = """\
#SBATCH --job-name=uniref50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --time=24:00:00
"""
"""What people wrote by hand."""


def test_a_script_by_hand_and_the_job_file(project: Path) -> None:
    script = render(planned("sedd", "slurm-project", project))
    by_hand, found = dict(read_slurm(SBATCH)), dict(read_slurm(script))
    assert {name: found[name] for name in by_hand} == by_hand
    assert "\nmodule load cuda/11.8\nmodule load nccl\n" in script
    for value in ("CUDA_DEVICE_ORDER=PCI_BUS_ID", "NCCL_SOCKET_IFNAME='^docker0,lo'", "NCCL_DEBUG=INFO"):
        assert f"\nexport {value}\n" in script


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("fields", "ranks"),
    [(["nodes=1", "ranks_per_node=2"], 2), (["nodes=1"], 4), ([], 8)],
    ids=["2", "4", "8"],
)
def test_any_number_of_devices(job: str, fields: list[str], ranks: int, project: Path) -> None:
    """Nothing else has to change."""
    found = planned(job, "slurm-project", project, *fields)
    whole = planned(job, "slurm-project", project)
    assert (found.ranks, found.command, found.variables["NCCL_DEBUG"]) == (ranks, whole.command, "INFO")


SMALL = {
    "gnn": ("training.num_epochs=1", "training.device=cpu", "data.causets.number=200"),
    "sedd": (
        *("training.n_iters=2", "training.accum=1", "training.batch_size=2", "training.num_workers=0"),
        *("optim.warmup=0", "training.compile=false", "training.device=cpu", "model.size=tiny"),
        *("data.max_length=32", "data.split=[0.8, 0.1, 0.1]", "sampling.number=0", "training.run=here"),
    ),
}


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("job", SMALL)
def test_it_trains(job: str, project: Path, castoff: Castoff) -> None:
    """Here and on little data: folders are found by $SCRATCH."""
    scratch = project / "scratch"
    if job == "sedd":
        (scratch / "data").mkdir(parents=True)
        made = SyntheticProteins(20)
        torch.save({"sequences": [decode(made[at]) for at in range(20)]}, scratch / "data" / "uniref50.pt")
    words = planned(job, "slurm-project", project).command
    words = [word.replace("data/uniref50", "data/uniref50.pt") for word in words]
    command = [*words, *(f"--set={field}" for field in SMALL[job])]
    fields = {"command": json.dumps(command), "env.SCRATCH": str(scratch)}
    changed = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    here = ["--site", "local", "--nodes", "1", "--ranks-per-node", "2", "--name", "small", *changed]
    answer = castoff("submit", f"examples/jobs/{job}.yaml", *here, cwd=project)
    assert answer.returncode == 0, answer.stderr
    ended = castoff("wait", "small", cwd=project)
    told = castoff("logs", "small", cwd=project).stdout
    assert ended.returncode == 0, told
    assert list(scratch.glob("*/*/checkpoints/step-*")) or list(scratch.glob("*/checkpoints/step-*")), told
