"""Above 256 ranks, a run's files grow with its hosts. Here more than two ranks count as many."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from castoff import JobSpec, Site, plan
from tests.patience import SECONDS

from .conftest import Benches
from .machine import part, written
from .test_restarts import STUCK, endings, reason, still_until, stuck_ranks

HOSTS, RANKS = 2, 6
EACH = RANKS // HOSTS
TOOLS = ("sh", "mkdir", "tail", "date", "grep", "mv", "rm", "rmdir", "wc", "sleep", "mktemp", "hostname")
"""What rank.sh runs, but for bash, so that nothing guards the ranks when they have ended."""


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("planner", "machinery"):
        monkeypatch.setattr(f"castoff.launcher.planning.{module}.PER_RANK_FILES", 2)


@pytest.fixture(params=["dash", "bash"])
def job(request: pytest.FixtureRequest, tmp_path: Path, many: None) -> Job:
    return Job(tmp_path, request.param)


class Job:
    """The rank.sh of a job on two hosts that have one temporary folder, started as srun starts it."""

    def __init__(self, folder: Path, shell: str):
        self.folder, self.shell = folder, shutil.which(shell) or pytest.skip(f"there is no {shell}")
        for name in ("logs", "ended", "tmp", "bin"):
            (folder / name).mkdir()
        for tool in TOOLS:
            (folder / "bin" / tool).symlink_to(str(shutil.which(tool)))
        fields = {"command": ["x"], "nodes": HOSTS, "ranks_per_node": EACH, "restart": {"hang": "15m"}}
        script = written(plan(JobSpec.of(fields), Site.load("slurm")), "rank", folder)
        text = script.read_text().replace("castoff_local_stacks=''", "castoff_local_stacks='stacks'")
        script.write_text(text.replace("castoff_meeting_names=''", "castoff_meeting_names='localhost'"))

    def run(self, program: str) -> list[str]:
        """The logs, stacks and ends that all ranks leave."""
        ranks = [self._start(rank, program) for rank in range(RANKS)]
        for rank in ranks:
            rank.wait(SECONDS)
        folders = ("logs", "ended", "tmp")
        return sorted(path.name for folder in folders for path in (self.folder / folder).rglob("*"))

    def _start(self, rank: int, program: str) -> subprocess.Popen[bytes]:
        slurm = {"PROCID": rank, "LOCALID": rank % EACH, "NODEID": rank // EACH, "STEP_NUM_TASKS": RANKS}
        here = str(self.folder)
        env = {
            **{f"SLURM_{name}": str(value) for name, value in slurm.items()},
            **{"CASTOFF_ATTEMPT_DIR": here, "CASTOFF_STACK_DIR": f"{here}/logs", "TMPDIR": f"{here}/tmp"},
            **{"CASTOFF_LOG_DIR": f"{here}/logs", "CASTOFF_FAILURE_FILE": f"{here}/failure.json"},
            "PATH": f"{here}/bin",
        }
        return subprocess.Popen([self.shell, f"{here}/rank.sh", "sh", "-c", program, f"{here}/all"], env=env)


TOGETHER = 'echo >>"$0"; until [ "$(wc -l <"$0")" -eq 6 ]; do sleep 0.01; done; '


def test_ranks_that_succeed_leave_a_log_and_a_file_on_each_host(job: Job) -> None:
    says = 'echo stack >"$CASTOFF_STACK_DIR/rank-$(printf %05d "$RANK").txt"'
    assert job.run(TOGETHER + says) == ["0", "all-0", "all-1", "node-00000.log", "node-00001.log"]
    lines = (job.folder / "ended" / "all-1").read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == ["3", "4", "5"]


def test_of_many_failed_ranks_each_host_keeps_one_log(job: Job) -> None:
    found = job.run(TOGETHER + "echo rank $RANK was here; exit 3")
    first = re.findall('"log": "(.*?)"', (job.folder / "failure.json").read_text())
    logs = [name for name in found if name.startswith("rank-") and name not in first]
    assert len({int(name[5:10]) // EACH for name in logs}) == len(logs) <= HOSTS
    assert "was here" in (job.folder / "logs" / first[0]).read_text()
    assert {*found} - {*logs, *first} <= {"failed-0", "failed-1", "node-00000.log", "node-00001.log"}


def test_a_hang_leaves_each_hosts_stacks_in_a_file(bench: Benches, many: None, tmp_path: Path) -> None:
    stuck = tmp_path / "stuck.py"
    stuck.write_text(STUCK)
    here = still_until(bench("srun"), *stuck_ranks(RANKS))
    (tmp_path / "tmp").mkdir()
    here.env["TMPDIR"] = str(tmp_path / "tmp")
    command = [sys.executable, str(stuck)]
    ended = here.run(nodes=HOSTS, ranks_per_node=EACH, command=command, restart={"hang": "1s"})
    assert endings(ended) == ["failed"], ended.output
    place = "is at read_data (stuck.py:7), and 5 of 6 are at wait_for_the_others (stuck.py:6)"
    assert place in reason(ended, 0)
    stacks = ended.run_dir / "logs" / "0.0" / "stacks"
    assert sorted(path.name for path in stacks.iterdir()) == [
        *("node-00000.txt", "node-00001.txt", "rank-00001.txt")
    ]
    of_host, of_rank = ((stacks / name).read_text() for name in ("node-00000.txt", "rank-00001.txt"))
    assert [of_host.count(f"--- rank {rank} ---\n") for rank in range(4)] == [1, 1, 1, 0]
    assert of_rank.count(" in read_data\n") == 1 and of_rank in of_host
    assert [*(tmp_path / "tmp").iterdir()] == []


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_launcher_that_waits_for_a_lost_host_is_ended_once_all_hosts_are_done(
    hosts: int, tmp_path: Path
) -> None:
    (tmp_path / "ended").mkdir()
    for name in ("0", *(f"all-{host}" for host in range(hosts)), "ranks-1"):
        (tmp_path / "ended" / name).touch()
    text = part("start", "by_ssh", "nodes", "many_ranks")
    (checks,) = re.findall(r"^castoff_check_ended\(\) .*?^}\n", text, re.M | re.S)
    lines = "castoff_ended_at=$((SECONDS - 60)) castoff_all_ended= castoff_ranks=6 castoff_nodes=2"
    lines += " castoff_launcher_name=mpiexec\ncastoff_end_launcher() { echo ended; }\ncastoff_check_ended"
    answer = subprocess.run(
        ["bash", "-euc", checks + lines],
        env={**os.environ, "CASTOFF_ATTEMPT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == ("ended\n" if hosts == 2 else "")


def test_torchruns_ranks_share_a_file_too(tmp_path: Path) -> None:
    fields = {"nodes": 40, "ranks_per_node": 8, "launcher": {"torchrun": True}, "restart": {"hang": "15m"}}
    decided = plan(JobSpec.of({"command": ["x"], **fields}), Site.load("slurm"))
    script = written(decided, "torchrun_rank", tmp_path)
    (tmp_path / "ended").mkdir()
    for rank in ("8", "9"):
        env = {"RANK": rank, "NODE_RANK": "1", "CASTOFF_ATTEMPT_DIR": str(tmp_path)}
        env["PATH"] = os.environ["PATH"]
        subprocess.run(["sh", script, "true"], env=env, start_new_session=True, check=True)
    (name,) = (tmp_path / "ended").iterdir()
    assert name.name == "ranks-1"
    assert [line.split()[0] for line in name.read_text().splitlines()] == ["8", "9"]
