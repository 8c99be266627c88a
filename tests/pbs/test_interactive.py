"""castoff shell and castoff alloc on PBS; what has no ssh here goes by a program that does the same."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.cluster import HEAD
from tests.cluster.desk import Desk
from tests.patience import until

from . import openpbs
from .cluster import PbsCluster

pytestmark = pytest.mark.costly

WAITS = "touch here.$RANK; until [ -e go ]; do sleep 0.1; done"


@pytest.fixture
def desk(pbs: PbsCluster, tmp_path: Path) -> Desk:
    made = Desk(pbs, tmp_path / "desk")
    (made.folder / "bin").mkdir()
    pbs.hosts.remote_shell(made.folder / "bin" / "ssh")
    made.environ["PATH"] = f"{made.folder}/bin:{made.environ['PATH']}"
    return made


def test_a_command_beside_a_rank(desk: Desk) -> None:
    """By ssh from the head node; its code is ours."""
    run = desk.submit("--nodes", "2", "--ranks-per-node", "2", "--set", "env={MINE: it's}", sh=WAITS)
    until(lambda: len(list(desk.folder.glob("here.*"))) == 4)
    hosts = (run.path / "attempts" / "0.0" / "hosts").read_text().split()
    says = ["sh", "-c", 'echo "$RANK $LOCAL_RANK $MINE $(hostname) $PWD $PBS_JOBID"; exit 6']
    for rank, host in ((0, hosts[0]), (3, hosts[1])):
        answer = desk.castoff("shell", run.id, "--rank", str(rank), "--", *says)
        expected = f"{rank} {rank % 2} it's {host} {desk.folder} {run.job}\n"
        assert (answer.code, answer.output) == (6, expected), answer.errors
    assert desk.status(run)["state"] == "running"
    closed = desk.program("ssh", "echo 'Permission denied' >&2; exit 255")
    answer = desk.castoff("shell", run.id, "--", "true", env=closed)
    assert answer.code == 255
    assert answer.errors.startswith("Permission denied\ncastoff: ssh exits with code 255 if it cannot reach")
    (desk.folder / "go").touch()
    assert desk.until(run, state="ended")["ending"] == "done"


def test_the_stacks_of_a_run(desk: Desk) -> None:
    """By ssh from the head node; a host that cannot be reached is named, and the run continues."""
    (desk.folder / "stuck.py").write_text("import time\ndef stuck():\n    time.sleep(600)\nstuck()\n")
    command = [sys.executable, "-S", "stuck.py"]
    run = desk.submit("--nodes", "2", "--ranks-per-node", "2", command=command)
    until(lambda: "ranks 0-3 on " in desk.castoff("stacks", run.id).output)
    answer = desk.castoff("stacks", run.id)
    assert (answer.code, answer.errors) == (0, "")
    assert answer.output.startswith(f"{run.id}: 4 ranks on 2 hosts at ") and "    stuck (" in answer.output
    closed = desk.program("ssh", "echo 'Permission denied' >&2; exit 255")
    answer = desk.castoff("stacks", run.id, env=closed)
    hosts = (run.path / "attempts" / "0.0" / "hosts").read_text().split()
    assert answer.code == 1
    assert answer.errors == (
        f"castoff: {', '.join(hosts)}: no answer: ssh exited with code 255: Permission denied\n"
    )
    assert desk.status(run)["state"] == "running"
    desk.castoff("cancel", run.id)
    desk.until(run, state="ended")


class Allocations:
    """Interactive jobs, which the double has not; tests/launcher/cli/test_alloc.py tries them without PBS."""

    def test_a_command_in_it(self, desk: Desk) -> None:
        """Without a terminal of ours; its launches have all hosts, and its code is ours."""
        job = desk.folder / "job.yaml"
        job.write_text(
            "name: both\nnodes: 2\nranks_per_node: 2\nsetup: [export FROM_SETUP=yes]\nenv_from: [TOKEN]\n"
            "command: [sh, -c, 'touch \"rank.$RANK.$FROM_SETUP.$TOKEN\"']\n"
        )
        inner = "castoff launch job.yaml && exit 9"
        answer = desk.castoff("alloc", job, "--site", "pbs", "--", "sh", "-c", inner, env={"TOKEN": "a,b c"})
        assert answer.code == 9, answer.output + answer.errors
        names = sorted(path.name for path in desk.folder.glob("rank.*"))
        assert names == [f"rank.{rank}.yes.a,b c" for rank in range(4)]

    def test_ctrl_c_while_it_waits(self, desk: Desk, pbs: PbsCluster) -> None:
        full = desk.submit("--nodes", "4", "--set", "exclusive=true", sh=WAITS)
        desk.until(full, state="running")
        words = ["alloc", "--site", "pbs", "--nodes", "4", "--set", "exclusive=true", "--name", "waits"]
        process = desk.start("castoff", *words, "--", "true")
        waiting = ["qselect", "-N", "waits"]
        until(lambda: pbs.run(HEAD, waiting).stdout.strip())
        until(lambda: any("qsub" in one.name() for one in pbs.hosts.inside(process).children(recursive=True)))
        pbs.hosts.inside(process).send_signal(signal.SIGINT)
        answer = desk.end(process)
        assert answer.code == 130, answer.output + answer.errors
        assert "is being deleted" in answer.output
        assert "castoff: the request was withdrawn: PBS gave no hosts\n" in answer.errors
        until(lambda: not pbs.run(HEAD, waiting).stdout.strip())
        (desk.folder / "go").touch()
        desk.until(full, state="ended")


if openpbs.installation() is not None:

    class TestAllocations(Allocations):
        """On OpenPBS."""
