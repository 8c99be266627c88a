"""PBS scripts with real mpiexecs on several hosts, which they reach as they would by ssh."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pytest

from castoff import JobSpec, Site, plan, render
from castoff.launcher.config.site_fields import Node
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus
from castoff.launcher.status.script_output import script_output
from tests import patience
from tests.cases import others_long
from tests.launcher.scripts.harness import PROBE, STALE, STALE_SLURM
from tests.patience import until

from .hosts import Hosts, why_no_hosts

pytestmark = pytest.mark.costly

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
        reported: dict[str, Any] = json.loads(
            (self.run_dir / "attempts" / "0.0" / f"{name}.json").read_text()
        )
        return reported


SEVEN = {"name": "probed", "command": PROBE, "nodes": 3, "ranks": 7, "walltime": "10m"}


class Job(NamedTuple):
    """A PBS job on the first hosts; of seven ranks on three, unless it is told otherwise."""

    hosts: Hosts
    folder: Path
    site: Site

    def run(self, probe: str, spec: JobSpec | None = None) -> Ended:
        """Its rendered script."""
        wanted = spec or JobSpec.of(SEVEN)
        (self.folder / "job.sh").write_text(render(plan(wanted, self.site)))
        return self.run_words(probe, wanted.nodes or 1, "bash", "job.sh", **STALE, **STALE_SLURM)

    def run_words(self, probe: str, nodes: int, *words: str, **env: str) -> Ended:
        """A command on its first host."""
        nodefile = self.folder / "nodes"
        nodefile.write_text("".join(f"{host}\n" * 3 for host in HOSTS[:nodes]))
        reported = {"PBS_JOBID": "7.head", "PBS_O_WORKDIR": str(self.folder), "PBS_NODEFILE": str(nodefile)}
        environ = {**os.environ, **env, **reported, "PROBE": probe, "PROBE_FOLDER": str(self.folder)}
        done = self.hosts.run("n1", words, cwd=self.folder, env=environ, timeout=patience.SECONDS)
        return Ended(done.returncode, done.stdout + done.stderr, self.folder / "castoff-7.head")

    def ranks(self) -> list[dict[str, Any]]:
        """What they found, all that there are."""
        found = [json.loads(path.read_text()) for path in self.folder.glob("rank-*.json")]
        return sorted(found, key=lambda rank: int(rank["detected"]["rank"]))


def intel_mpi() -> Path:
    """Intel's mpiexec, from PyPI, in a place of its own: on PATH it would hide the others."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("Intel MPI is for Linux on x86-64 alone")
    if not INTEL_MPI.exists():
        pytest.fail(f"there is no {INTEL_MPI}: make test puts it there", pytrace=False)
    return INTEL_MPI


SystemPrograms: TypeAlias = Callable[[str, str], Path]


@pytest.fixture(params=list(FLAGS))
def job(request: pytest.FixtureRequest, hosts: Hosts, tmp_path: Path, system_program: SystemPrograms) -> Job:
    return job_with(request.param, hosts, tmp_path, system_program)


def job_with(launcher: str, hosts: Hosts, tmp_path: Path, system_program: SystemPrograms) -> Job:
    if launcher == "intelmpi":
        program = intel_mpi()
    else:
        program = system_program(f"mpiexec.{PACKAGES[launcher].partition('-')[0]}", PACKAGES[launcher])
    remote = hosts.remote_shell(tmp_path / "remote")
    changes = {
        "launcher": launcher,
        "mpiexec": str(program),
        "launcher_args": [*FLAGS[launcher], str(remote)],
    }
    return Job(hosts, tmp_path, msgspec.structs.replace(Site.load("pbs"), **changes))


@pytest.mark.parametrize("launcher", [{}, {"preload": ["json"]}], ids=["plain", "copies"])
def test_seven_ranks_on_three_hosts(job: Job, launcher: dict[str, Any]) -> None:
    ended = job.run("nothing", JobSpec.of({**SEVEN, "launcher": launcher}))
    assert ended.code == 0, ended.output
    logs = "".join(path.read_text() for path in (ended.run_dir / "logs").glob("*/*.log"))
    assert "preload" not in ended.output + logs
    left = ["pgrep", "-af", f"{job.folder}/castoff"]
    until(lambda: not job.hosts.run("n1", left).stdout, "the end of what watches over the ranks of each node")
    assert ended.record("ending")["ending"] == "done"
    fields = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "launcher")
    expected = [(local, count, node) for node, count in enumerate(COUNTS) for local in range(count)]
    assert [tuple(rank["detected"][field] for field in fields) for rank in job.ranks()] == [
        (rank, 7, *place, job.site.launcher) for rank, place in enumerate(expected)
    ]
    assert {rank["environ"]["MASTER_ADDR"] for rank in job.ranks()} == {"n1"}


def test_ranks_of_whole_nodes_keep_to_their_cores(job: Job) -> None:
    """As the script says; also those that the job file names, in another order."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    node = Node(sockets=[",".join(map(str, cores))], exclusive=True, source="nproc", date="2026-11-28")
    job = job._replace(site=msgspec.structs.replace(job.site, node=node))
    shape = {**SEVEN, "nodes": 2, "ranks": 4}
    for binding in (None, f"{cores[1]}:{cores[0]}"):
        ended = job.run("nothing", JobSpec.of({**shape, "binding": binding}))
        assert ended.code == 0, ended.output
        assert "# each rank: 1 core\n" in (job.folder / "job.sh").read_text()
        expected = [[core] for core in (cores if binding is None else cores[::-1])]
        assert [rank["cpus"] for rank in job.ranks()] == expected * 2


def test_an_mpiexec_that_cannot_start_ranks(job: Job) -> None:
    """What it prints of an option that it does not know is what status says."""
    job = job._replace(
        site=msgspec.structs.replace(job.site, launcher_args=[*job.site.launcher_args, "--nonsense"])
    )
    ended = job.run("nothing")
    run = RunDirectory(ended.run_dir)
    run.script_log().write_text(ended.output)  # as PBS does
    record = ended.record("ending")
    attempt = AttemptStatus(
        0,
        "ended",
        record["ending"],
        record["code"],
        record.get("reason"),
        "n1",
        1.0,
        2.0,
        None,
        str(run.log_folder / "0.0"),
    )
    assert "nonsense" in script_output(run, 0, attempt)[0]


def test_cores_of_shared_nodes_are_not_promised(job: Job) -> None:
    script = render(plan(JobSpec.of({**SEVEN, "cores_per_rank": 2}), job.site))
    assert "# each rank: 2 cores (not bound to them)\n" in script


# --- `mpiexec -n 12 -ppn 6` on two hosts -------------------------------------------------------------

TWELVE = [(rank, 12, rank % 6, 6) for rank in range(12)]
JOB_FILE = Path(__file__).parents[2] / "examples" / "aurora" / "dpo_6_ranks.yaml"


def one_job(ranks: list[dict[str, Any]]) -> None:
    """Twelve ranks that would meet each other."""
    fields = ("rank", "world_size", "local_rank", "local_world_size")
    assert [tuple(rank["detected"][field] for field in fields) for rank in ranks] == TWELVE
    (place,) = {tuple(rank["detected"][field] for field in ("master_addr", "master_port")) for rank in ranks}
    assert place[0] == "n1" and 20000 <= place[1] < 30000


def test_as_a_job_file_has_it(hosts: Hosts, tmp_path: Path, system_program: SystemPrograms) -> None:
    """That of an example, with the tiles of Aurora's nodes: each rank has another, of another GPU."""
    job = job_with("hydra", hosts, tmp_path, system_program)
    job = job._replace(site=msgspec.structs.replace(job.site, node=Site.load("aurora").node))
    elsewhere: dict[str, Any] = {"setup": [], "queue": None, "account": None, "directives": {}}
    spec = msgspec.structs.replace(JobSpec.load(JOB_FILE), command=PROBE, **elsewhere)
    ended = job.run("nothing", spec)
    assert ended.code == 0, ended.output
    ranks = job.ranks()
    one_job(ranks)
    assert [rank["detected"]["node_rank"] for rank in ranks] == [0] * 6 + [1] * 6
    assert {rank["environ"]["ZE_AFFINITY_MASK"] for rank in ranks} == {"0,2,4,6,8,10"}
    assert [rank["detected"]["device"] for rank in ranks] == [*range(6), *range(6)]
    logs = sorted(path.name for path in (ended.run_dir / "logs" / "0.0").glob("*.log"))
    assert logs == [f"rank-{rank:05d}.log" for rank in range(12)]


def test_as_it_is_typed(hosts: Hosts, tmp_path: Path, system_program: SystemPrograms) -> None:
    """In a job that is not castoff's, where mpiexec alone says who a rank is."""
    job = job_with("hydra", hosts, tmp_path, system_program)
    there = [*map(str, job.site.launcher_args), "-hosts", "n1,n2"]
    ended = job.run_words("nothing", 2, job.site.mpiexec, "-n", "12", "-ppn", "6", *there, *PROBE)
    assert ended.code == 0, ended.output
    one_job(job.ranks())
    assert {rank["detected"]["launcher"] for rank in job.ranks()} == {"hydra"}


# --- A rank that fails --------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", others_long([0, 4], [4]))
def test_a_rank_that_fails_ends_the_job_at_once(failing: int, job: Job) -> None:
    """On the first host, and on another: its record and its code, whatever the others and mpiexec say."""
    ended = job.run(f"fail {failing} 7")
    assert ended.code == 7, ended.output
    failure = ended.record("failure")
    host = HOSTS[[node for node, count in enumerate(COUNTS) for _ in range(count)][failing]]
    assert (failure["rank"], failure["code"], failure["host"]) == (failing, 7, host)
    assert f"castoff: rank {failing} on {host} failed first: exit code 7" in ended.output
    assert ended.record("ending")["ending"] == "failed"
    assert job.hosts.run("n1", ["pgrep", "-af", "probe.py"]).stdout == ""  # on any host: all are seen


# --- A host that cannot be reached --------------------------------------------------------------------

REMEDIES = {
    "hydra": "HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=WRAPPER",
    "intelmpi": "I_MPI_HYDRA_BOOTSTRAP=ssh I_MPI_HYDRA_BOOTSTRAP_EXEC=WRAPPER",
    "openmpi": "OMPI_MCA_plm_rsh_agent=WRAPPER",
}


def test_a_host_that_does_not_answer(job: Job) -> None:
    """mpiexec waits for it, where ssh is closed between nodes: the job says so, and ends after a while."""
    remote = Path(str(job.site.launcher_args[-1]))
    reached = remote.rename(remote.with_name("reached"))
    over = remote.with_name("over")
    waits = f"exec >/dev/null 2>&1; until [ -e {over} ]; do sleep 0.1; done; exit 255"
    remote.write_text(f'#!/bin/sh\ncase " $* " in *" n3 "*) {waits} ;; esac\nexec {reached} "$@"\n')
    remote.chmod(0o755)
    spec = JobSpec.of({**SEVEN, "command": ["sleep", "600"], "launcher": {"timeout": "2s"}})
    try:
        ended = job.run("nothing", spec)
    finally:
        over.touch()
    assert ended.code == 1, ended.output
    assert (ended.record("ending")["ending"], ended.record("ending")["code"]) == ("failed", 1)
    first, last = (line for line in ended.output.splitlines() if "not started: " in line)
    assert "n3 (ranks 5, 6)" in first and "n3 (ranks 5, 6)" in last
    assert REMEDIES[job.site.launcher] in ended.output

    def left() -> str:
        return job.hosts.run("n1", ["pgrep", "-xaf", "sleep 600"]).stdout

    patience.until(lambda: not left(), "ranks that have started are ended, too")
