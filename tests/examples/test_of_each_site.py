"""The job files that each training system has for each site: their comments, and what the network is told."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from launcher import JobSpec, Site, plan, render
from tests.command_line import Castoff

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB_FILES = sorted(path for system in ("dpo", "gnn", "sedd") for path in (EXAMPLES / system).glob("*.yaml"))
LOCAL = EXAMPLES / "local" / "dpo.yaml"


def site_of(path: Path) -> str:
    return "local" if path == LOCAL else path.stem


def named(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


@pytest.mark.parametrize("path", [*JOB_FILES, LOCAL], ids=named)
def test_the_commands_of_the_comments(path: Path, castoff: Castoff) -> None:
    commands = re.findall(r"^#   castoff (.*?)(?:  +.*)?$", path.read_text(), re.MULTILINE)
    site = site_of(path)
    assert commands[0] == f"render examples/{named(path)} --site {site}"
    for words in commands:
        dry = ["--dry-run"] if words.startswith("submit") else []
        answer = castoff(*shlex.split(words), *dry, cwd=EXAMPLES.parent)
        assert answer.returncode == 0, answer.stderr
    shown = castoff(*shlex.split(commands[0]), cwd=EXAMPLES.parent).stdout
    assert shown == render(plan(JobSpec.load(path), Site.load(site)))


@pytest.mark.parametrize("path", JOB_FILES, ids=named)
def test_what_the_network_is_told(path: Path) -> None:
    """What a site says of it, no job file says otherwise; devices are numbered as nvidia-smi does."""
    job, site = JobSpec.load(path), Site.load(path.stem)
    assert not job.env.keys() & site.env.keys()
    told = plan(job, site).env
    interfaces = {"frontier": "hsn0,hsn1,hsn2,hsn3", "perlmutter": "hsn", "slurm": "^docker0,lo"}
    assert told.get("NCCL_SOCKET_IFNAME") == interfaces.get(path.stem)
    assert ("CUDA_DEVICE_ORDER" in told) == (path.stem in ("perlmutter", "polaris", "slurm"))
    assert ("NCCL_DEBUG" in told) == (path.stem != "aurora") == ("CCL_LOG_LEVEL" not in told)
