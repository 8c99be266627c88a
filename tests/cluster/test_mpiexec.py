"""PBS scripts with real mpiexecs on several hosts, which they reach as they would by ssh."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from launcher import JobSpec, Site, plan, render
from tests import patience
from tests.launcher.scripts.harness import PROBE, STALE, STALE_SLURM

from .hosts import Hosts, why_no_hosts

HOSTS = ["n1", "n2", "n3"]
COUNTS = [3, 2, 2]
FLAGS = {
    "hydra": ["-launcher", "ssh", "-launcher-exec"],
    "intelmpi": ["-bootstrap", "ssh", "-bootstrap-exec"],
    "openmpi": ["--allow-run-as-root", "--mca", "plm_rsh_agent"],
}
PACKAGES = {"hydra": "mpich", "openmpi": "openmpi-bin"}
INTEL_MPI = Path(sys.prefix, "intelmpi", "bin", "mpiexec.hydra")


@pytest.fixture(scope="module")
def hosts(for_real: None) -> Iterator[Hosts]:
    if why := why_no_hosts():
        pytest.skip(why)
    made = Hosts(HOSTS, {})
    yield made
    made.close()


class Ended(NamedTuple):
    code: int
    output: str
    run_dir: Path

    def record(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.run_dir / "attempts" / "0.0" / f"{name}.json").read_text())
        return told


class Job(NamedTuple):
    """A job of seven ranks on three hosts."""

    hosts: Hosts
    folder: Path
    site: Site

    def run(self, probe: str) -> Ended:
        nodefile = self.folder / "nodes"
        nodefile.write_text("".join(f"{host}\n" * 3 for host in HOSTS))
        spec = {"name": "probed", "command": PROBE, "nodes": 3, "ranks": 7, "walltime": "10m"}
        (self.folder / "job.sh").write_text(render(plan(JobSpec.of(spec), self.site)))
        told = {"PBS_JOBID": "7.head", "PBS_O_WORKDIR": str(self.folder), "PBS_NODEFILE": str(nodefile)}
        env = {**os.environ, **STALE, **STALE_SLURM, **told, "PROBE": probe, "PROBE_FOLDER": str(self.folder)}
        done = self.hosts.run("n1", ["bash", "job.sh"], cwd=self.folder, env=env, timeout=patience.SECONDS)
        return Ended(done.returncode, done.stdout + done.stderr, self.folder / "castoff-7.head")

    def ranks(self) -> list[dict[str, Any]]:
        return [json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in range(sum(COUNTS))]


def intel_mpi() -> Path:
    """Intel's mpiexec, from PyPI, in a place of its own: on PATH it would hide the others."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("Intel MPI is for Linux on x86-64 alone")
    if not INTEL_MPI.exists():
        pytest.fail(f"there is no {INTEL_MPI}: make test puts it there", pytrace=False)
    return INTEL_MPI


@pytest.fixture(params=list(FLAGS))
def job(
    request: pytest.FixtureRequest,
    hosts: Hosts,
    tmp_path: Path,
    system_program: Callable[[str, str], Path],
) -> Job:
    starter = request.param
    if starter == "intelmpi":
        program = intel_mpi()
    else:
        program = system_program(f"mpiexec.{PACKAGES[starter].partition('-')[0]}", PACKAGES[starter])
    remote = hosts.remote_shell(tmp_path / "remote")
    changes = {"starter": starter, "mpiexec": str(program), "start_args": [*FLAGS[starter], str(remote)]}
    return Job(hosts, tmp_path, msgspec.structs.replace(Site.load("pbs"), **changes))


def test_seven_ranks_on_three_hosts(job: Job) -> None:
    ended = job.run("nothing")
    assert ended.code == 0, ended.output
    assert ended.record("ending")["ending"] == "done"
    fields = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "starter")
    expected = [(local, count, node) for node, count in enumerate(COUNTS) for local in range(count)]
    assert [tuple(rank["detected"][field] for field in fields) for rank in job.ranks()] == [
        (rank, 7, *place, job.site.starter) for rank, place in enumerate(expected)
    ]
    assert {rank["environ"]["MASTER_ADDR"] for rank in job.ranks()} == {"n1"}


@pytest.mark.parametrize("failing", [0, 4])
def test_a_rank_that_fails_ends_the_job_at_once(failing: int, job: Job) -> None:
    """On the first host, and on another: its record and its code, whatever the others and mpiexec say."""
    ended = job.run(f"fail {failing} 7")
    assert ended.code == 7, ended.output
    failure = ended.record("failure")
    host = HOSTS[[node for node, count in enumerate(COUNTS) for _ in range(count)][failing]]
    assert (failure["rank"], failure["code"], failure["host"]) == (failing, 7, host)
    assert f"castoff: rank {failing} on {host} was the first to fail, with code 7" in ended.output
    assert ended.record("ending")["ending"] == "failed"
    assert job.hosts.run("n1", ["pgrep", "-af", "probe.py"]).stdout == ""  # on any host: all are seen
