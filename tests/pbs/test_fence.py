"""Two attempts of a job never run at once, and what PBS starts is PBS's to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import HEAD, healing
from tests.cluster.jobs import Submitted
from tests.patience import until

from .cluster import PbsCluster

pytestmark = pytest.mark.costly


@pytest.mark.parametrize("lost", ["mom", pytest.param("link", marks=pytest.mark.long)])
def test_a_first_host_that_is_lost_runs_no_two_attempts(pbs: PbsCluster, tmp_path: Path, lost: str) -> None:
    """PBS starts the job again, while the ranks of its first attempt are well."""
    try:
        lose = pbs.kill_mom if lost == "mom" else pbs.down
        healing.no_two_attempts_run_at_once(pbs, tmp_path / lost, lose)
    finally:
        pbs.resume()


_SPARE = {"max": 3, "spare_nodes": 1, "progress": "none"}


@pytest.mark.long
def test_nor_does_one_with_a_spare_host(pbs: PbsCluster, tmp_path: Path) -> None:
    """No host can take the place of the script's own, so PBS starts that job again, too."""
    try:
        healing.no_two_attempts_run_at_once(pbs, tmp_path / "spare", pbs.kill_mom, restart=_SPARE)
    finally:
        pbs.resume()


@pytest.mark.long
def test_nor_does_one_that_is_cut_off_and_knows_it_first(pbs: PbsCluster, tmp_path: Path) -> None:
    """Its script ends the attempt, as no other host answers, and cannot tell PBS, which learns it later."""

    def lose(host: str) -> None:
        with pbs.stopped_server():
            pbs.down(host)
            until(lambda: [*tmp_path.glob("cut/castoff-*/attempts/0.0/ending.json")], "the attempt's end")

    try:
        restart = {**_SPARE, "hang": "9s"}
        job = healing.no_two_attempts_run_at_once(pbs, tmp_path / "cut", lose, restart=restart)
    finally:
        pbs.resume()
    assert job.record("failure")["reason"] == "hang" and job.ending() == ("resume", 75), job.output()
    assert job.record("start")["host"] not in healing.hosts(job, 1)


_ORPHANED = """\
mpiexec=$(pgrep -f "mpiexec.hydra .*/$1/")
kill -STOP "$mpiexec"
port=$(ps -o args= --ppid "$mpiexec" | grep -o 'control-port [^ ]*' | sed -n 1p)
pkill -KILL -f "^[^ ]*hydra_pmi_proxy.*${port:?}"
qsig -s KILL "$2"
"""


def test_pbs_ends_ranks_of_which_no_launcher_knows(pbs: PbsCluster, tmp_path: Path) -> None:
    """Hydra gives ranks sessions of their own, and they outlive its proxies; so PBS has to know them."""
    says = 'echo $$ >"$PROBE_FOLDER/pid-$RANK"; : >"$PROBE_FOLDER/ready-$RANK"; exec sleep 1000'
    job = Submitted(pbs, tmp_path / "orphans", command=["sh", "-c", says], **healing.SHAPE)
    job.wait_for("ready", 4)
    answer = pbs.run(HEAD, ["bash", "-ec", _ORPHANED, "orphaned", job.run_dir.name, job.id])
    assert answer.returncode == 0, answer.stderr
    until(lambda: not alive(pbs, job), "the end of all ranks")


def alive(pbs: PbsCluster, job: Submitted) -> str:
    """The ranks' processes that still run."""
    files = [str(file) for file in job.seen.glob("pid-*")]
    return pbs.run(
        HEAD, ["bash", "-c", 'for one; do ps -o pid= -p "$(cat "$one")"; done', "alive", *files]
    ).stdout


def test_a_launcher_that_waits_for_a_dead_mom_is_ended(pbs: PbsCluster, tmp_path: Path) -> None:
    """All ranks have ended well, but pbs_tmrsh hears of that from nobody."""
    waits = ': >"$PROBE_FOLDER/ready-$RANK"; until [ -e "$PROBE_FOLDER/go" ]; do sleep 0.2; done'
    job = Submitted(pbs, tmp_path / "waits", command=["sh", "-c", waits], **healing.SHAPE)
    job.wait_for("ready", 4)
    try:
        pbs.kill_mom(healing.hosts(job, 0)[1])
        (job.seen / "go").touch()
        assert job.ending() == ("done", 0), job.output()
        assert "waits for a host, so it is ended" in job.output()
    finally:
        pbs.resume()
