"""Jobs with a spare host, on which hosts and ranks fail: the same scenes on Slurm and on PBS."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.patience import until

from .base import Cluster
from .jobs import Submitted

SHAPE: dict[str, Any] = {"nodes": 2, "ranks_per_node": 2}

_SAYS = 'echo "rank $RANK on $(hostname)"; : >"$PROBE_FOLDER/ready-$CASTOFF_ATTEMPT-$RANK"; '


def submitted(
    cluster: Cluster, folder: Path, lines: str, *, requeue: dict[str, int] | None = None, **restart: Any
) -> Submitted:
    """A job of two hosts and a spare one, whose ranks run these lines of shell."""
    restart = {"max": 3, "spare_nodes": 1, "progress": "none", **restart}
    fields: dict[str, Any] = {"requeue": requeue} if requeue else {}
    command = ["sh", "-c", _SAYS + lines]
    return Submitted(cluster, folder, command=command, restart=restart, **fields, **SHAPE)


def hosts(job: Submitted, attempt: int) -> list[str]:
    """Where an attempt's ranks ran, by its own list."""
    return (job.run_dir / "attempts" / f"0.{attempt}" / "hosts").read_text().split()


def allocated(job: Submitted) -> list[str]:
    """All that the job was given, in its order, with those that its first attempt could not use."""
    return (job.run_dir / "attempts" / "0.0" / "candidates").read_text().split()


def set_aside(job: Submitted) -> dict[str, str]:
    """The hosts that the job no longer uses, each with why."""
    records = [json.loads(path.read_text()) for path in (job.run_dir / "set-aside").glob("*.json")]
    return {record["host"]: record["reason"] for record in records}


_COPY = """\
import os, pathlib, signal, sys, time
rank, folder = os.environ["RANK"], pathlib.Path(os.environ["PROBE_FOLDER"])
print(os.getppid(), "wave" in sys.modules, flush=True)
folder.joinpath("ready-" + rank).touch()
if os.environ["CASTOFF_ATTEMPT"] == "0":
    while rank != "1" or len([*folder.glob("ready-*")]) < 4:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def ranks_begin_again_as_copies_of_the_same_processes(cluster: Cluster, folder: Path) -> None:
    fields: dict[str, Any] = {"command": [sys.executable, "-c", _COPY], "launcher": {"preload": ["wave"]}}
    job = Submitted(cluster, folder, restart={"max": 1, "progress": "none"}, **fields, **SHAPE)
    assert job.ending("0.1") == ("done", 0), job.output()
    assert job.ending() == ("failed", 137) and job.record("failure")["rank"] == 1
    logs = [sorted((job.run_dir / "logs" / attempt).glob("rank-*.log")) for attempt in ("0.0", "0.1")]
    seen = [[log.read_text().splitlines()[0].split() for log in of_attempt] for of_attempt in logs]
    agents = [parent for parent, _ in seen[0]]
    assert seen[0] == seen[1] and {copied for _, copied in seen[0]} == {"True"}, seen
    assert agents[:2] == [agents[0]] * 2 and agents[2:] == [agents[2]] * 2 and agents[0] != agents[2]


def a_host_whose_ranks_die_twice_is_replaced(cluster: Cluster, folder: Path) -> None:
    lines = '[ "$CASTOFF_ATTEMPT" -ge 2 ] || { [ "$RANK" -eq 1 ] && kill -s KILL $$; exec sleep 1000; }'
    job = submitted(cluster, folder, lines)
    assert job.ending("0.2") == ("done", 0), job.output()
    assert [job.ending(f"0.{attempt}") for attempt in (0, 1)] == [("failed", 137)] * 2
    first, second, third = allocated(job)
    assert [hosts(job, attempt) for attempt in (0, 1, 2)] == [[first, second]] * 2 + [[second, third]]
    assert set_aside(job) == {first: "ranks there were the first to fail, by a signal, twice"}
    logs = [job.run_dir / "logs" / "0.2" / f"rank-0000{rank}.log" for rank in range(4)]
    assert [log.read_text().split()[-1].split(".")[0] for log in logs] == [second, second, third, third]


def hosts_that_are_not_fit_get_no_rank(cluster: Cluster, folder: Path, full: str, lost: str) -> None:
    with full_shared_memory(cluster, full), no_route(cluster, lost):
        job = submitted(cluster, folder, "true", spare_nodes=2)
        assert job.ending() == ("done", 0), job.output()
    assert {*hosts(job, 0)} == {*allocated(job)} - {full, lost}
    why = set_aside(job)
    assert "/dev/shm has" in why[full] and "are needed" in why[full]
    assert why[lost] == f"it does not reach {allocated(job)[0]}, the job's first host"


def too_few_hosts_end_the_job(cluster: Cluster, folder: Path, host: str) -> None:
    check = f'[ "$(hostname | cut -d. -f1)" = {host} ]'
    job = Submitted(
        cluster, folder, command=["true"], restart={"max": 1, "spare_nodes": 1}, preflight=[check], **SHAPE
    )
    assert job.ending() == ("node-failure", 1), job.output()
    assert "2 hosts are needed, and 1 of the job's are fit" in job.record("ending")["reason"]


def a_host_that_is_cut_off_is_replaced(cluster: Cluster, folder: Path, host: str) -> None:
    """Its ranks wait for ever, as do those that wait for them."""
    lines = '[ "$CASTOFF_ATTEMPT" -ge 1 ] || exec sleep 1000'
    job = submitted(cluster, folder, lines, hang="9s")  # longer than an mpiexec takes to end
    job.wait_for("ready-0", 4)
    assert host in hosts(job, 0)
    cluster.down(host)
    assert job.ending("0.1") == ("done", 0), job.output()
    assert host not in hosts(job, 1) and host in set_aside(job)
    assert job.record("failure")["reason"] == "hang" and job.record("failure")["host"] == host
    over = (job.run_dir / "attempts" / "0.0" / "fence").stat().st_mtime
    assert job.record("start", "0.1")["time"] >= int(over) + 9, (
        "its ranks may not have seen that they are over"
    )


def a_host_whose_daemon_is_gone_is_replaced(
    cluster: Cluster, folder: Path, host: str, kill: Callable[[str], None]
) -> str:
    """Its ranks live on, so nothing is amiss before another one fails. Returns why it is set aside."""
    lines = '[ "$CASTOFF_ATTEMPT" -ge 1 ] || { until [ -e "$PROBE_FOLDER/go" ]; do sleep 0.2; done; exit 9; }'
    job = submitted(cluster, folder, lines)
    job.wait_for("ready-0", 4)
    kill(host)
    (job.seen / "go").touch()
    assert job.ending("0.1") == ("done", 0), job.output()
    assert host in hosts(job, 0) and host not in hosts(job, 1)
    (why,) = set_aside(job).items()
    assert why[0] == host and why[1].startswith("it does not answer")
    return why[1]


ALONE = """\
echo $$ >"$PROBE_FOLDER/pid-$CASTOFF_ATTEMPT-$RANK"
: >"$PROBE_FOLDER/ready-$CASTOFF_ATTEMPT-$RANK"
[ "$CASTOFF_ATTEMPT" -ge 1 ] || exec sleep 1000
for file in "$PROBE_FOLDER"/pid-0-*; do
  ! kill -0 "$(cat "$file")" || echo "${file##*/} beside $RANK" >>"$PROBE_FOLDER/beside"
done
"""


def no_two_attempts_run_at_once(
    cluster: Cluster, folder: Path, lose: Callable[[str], None], **fields: Any
) -> Submitted:
    """`lose` makes the scheduler start it again, and leaves the ranks alone. All hosts share process ids."""
    again: dict[str, Any] = {"requeue": {"max": 1}, "walltime": "10m", **fields}
    job = Submitted(cluster, folder, command=["sh", "-c", ALONE], **again, **SHAPE)
    job.wait_for("ready-0", 4)
    lose(hosts(job, 0)[0])
    assert job.ending("0.1") == ("done", 0), job.output()
    assert not (job.seen / "beside").exists(), (job.seen / "beside").read_text()
    return job


def a_host_that_is_given_up_is_replaced(
    cluster: Cluster, folder: Path, host: str, give_up: Callable[[str], None]
) -> None:
    """The scheduler has given it up before any rank, or castoff, has noticed."""
    job = submitted(cluster, folder, '[ "$CASTOFF_ATTEMPT" -ge 1 ] || exec sleep 1000')
    job.wait_for("ready-0", 4)
    assert host in hosts(job, 0)
    cluster.down(host)
    give_up(host)
    assert job.ending("0.1") == ("done", 0), job.output()
    assert [*set_aside(job)] == [host] and host not in hosts(job, 1)


def a_host_that_is_lost_when_a_rank_fails_is_replaced(
    cluster: Cluster, folder: Path, host: str, give_up: Callable[[str], None]
) -> None:
    """The launcher waits for it, castoff not so long; the scheduler gives it up during the next attempt."""
    until_there = 'until_there() { until [ -e "$PROBE_FOLDER/$1" ]; do sleep 0.2; done; }'
    first = '[ "$RANK" -ne 0 ] || { until_there go; exit 9; }; exec sleep 1000'
    lines = f'{until_there}; [ "$CASTOFF_ATTEMPT" -ge 1 ] || {{ {first}; }}; until_there finish'
    job = submitted(cluster, folder, lines)
    job.wait_for("ready-0", 4)
    assert host in hosts(job, 0)
    cluster.down(host)
    (job.seen / "go").touch()
    job.wait_for("ready-1", 4)
    assert [*set_aside(job)] == [host] and host not in hosts(job, 1)
    give_up(host)
    (job.seen / "finish").touch()
    assert job.ending("0.1") == ("done", 0), job.output()


@contextlib.contextmanager
def full_shared_memory(cluster: Cluster, host: str) -> Iterator[None]:
    """A /dev/shm with next to no room on one host."""
    answer = cluster.run(host, ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/dev/shm"])
    assert answer.returncode == 0, answer.stderr
    try:
        yield
    finally:
        until(lambda: cluster.run(host, ["umount", "/dev/shm"]).returncode == 0, "umount /dev/shm")


@contextlib.contextmanager
def no_route(cluster: Cluster, host: str) -> Iterator[None]:
    """The scheduler reaches the host, but its ranks meet nobody."""
    ports = ["to", "10.77.0.0/24", "ipproto", "tcp", "dport", "20000-29999"]
    answer = cluster.run(host, ["ip", "rule", "add", "priority", "10", *ports, "unreachable"])
    assert answer.returncode == 0, answer.stderr
    try:
        yield
    finally:
        cluster.run(host, ["ip", "rule", "delete", "priority", "10"])
