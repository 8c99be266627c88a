"""What members that share a job cost beyond their time: `python -m bench.together [ROUNDS [MEMBERS]]`.

Members of one second each, sixteen at a time on the four hosts of a Slurm of ours (see tests/cluster),
against a loop in bash of plain sruns, in turn. All CPU time on those hosts is counted, Slurm's daemons' too.
Only root can make the hosts.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from castoff.launcher.runs.run import RunDirectory
from tests.cluster.desk import Desk
from tests.cluster.slurm import SlurmCluster

ROUNDS, MEMBERS = 3, 160
SIDE_BY_SIDE = 16
BAR = 0.1
"""Seconds a member."""

LOOP = """\
#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=4 --cpus-per-task=1 --time=30 --output=loop.out
mkdir -p out
for ((number = 0; number < {count}; number++)); do
  ((number < {most})) || wait -n
  srun --nodes=1 --ntasks=1 --exact --mem=0 --output="out/$number" sleep 1 &
done
wait
"""


class Cost(NamedTuple):
    """Seconds for each member: beyond its own second of wall time, and of CPU time."""

    wall: float
    cpu: float


def idle(run: RunDirectory) -> float:
    """Seconds between a member's end and the next one's start in its slot, by the times of their records."""
    folders_of, gaps = defaultdict(list), []
    for folder in run.path.glob("attempts/[0-9]*"):
        folders_of[(folder / "hosts").read_text()].append(folder)
    for folders in folders_of.values():
        begun, ended = (
            sorted((folder / name).stat().st_mtime for folder in folders)
            for name in ("start.json", "ending.json")
        )
        later = begun[SIDE_BY_SIDE // len(folders_of) :]
        gaps += [begin - end for end, begin in zip(ended, later, strict=False)]
    return statistics.mean(gaps)


def cpu_time(cluster: SlurmCluster) -> float:
    """Seconds of CPU time that the processes of the hosts have taken, with those that are over."""
    first = psutil.Process(cluster.hosts.doors.init)
    total = 0.0
    for process in [first, *first.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def cost(desk: Desk, cluster: SlurmCluster, members: int, submit: Callable[[], str]) -> Cost:
    """What a job takes, from its submission to its end."""
    busy, began = cpu_time(cluster), time.monotonic()
    job = submit()
    while desk.slurm("squeue", "--noheader", "--states=all", "--jobs", job, "--format=%T") != "COMPLETED":
        time.sleep(0.2)
    took = time.monotonic() - began - members / SIDE_BY_SIDE
    return Cost(took / members, (cpu_time(cluster) - busy) / members)


def ours(desk: Desk, members: int, runs: list[RunDirectory]) -> str:
    """Submit members that share a job; note their run."""
    array = ["--set", f"array.count={members}", "--set", "array.together={nodes: 4, per_node: 4}"]
    shape = ["--ranks-per-node", "1", "--set", "cores_per_rank=1", "--walltime", "30m"]
    run = desk.submit("--name", "together", *shape, *array, command=["sleep", "1"])
    runs.append(run)
    submission = run.submission()
    assert submission is not None
    return str(submission.sends[0].job)


def loop(desk: Desk, members: int) -> str:
    """Submit the loop of sruns."""
    (desk.folder / "loop.sh").write_text(LOOP.format(count=members, most=SIDE_BY_SIDE))
    return desk.slurm("sbatch", "--parsable", "loop.sh")


def main(rounds: int, members: int) -> None:
    """Measure, in turn, and print what came out."""
    runs: list[RunDirectory] = []
    with tempfile.TemporaryDirectory() as root:
        cluster = SlurmCluster(Path(root))
        try:
            desk = Desk(cluster, Path(root, "desk"))
            pairs = [
                (
                    cost(desk, cluster, members, lambda: ours(desk, members, runs)),
                    cost(desk, cluster, members, lambda: loop(desk, members)),
                )
                for _ in range(rounds)
            ]
            waits = [*map(idle, runs)]
        finally:
            cluster.close()
    print(
        f"\n{members} members of one second, {SIDE_BY_SIDE} at a time; medians of {rounds} rounds, in ms each"
    )
    for field in Cost._fields:
        mine, other = ([getattr(one, field) * 1e3 for one in side] for side in zip(*pairs, strict=True))
        ratios = [a / b for a, b in zip(mine, other, strict=True)]
        print(
            f"{field:5} {statistics.median(mine):7.1f}, a loop of sruns {statistics.median(other):7.1f},"
            f" ratio {statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(f"idle between members of a slot {statistics.median(waits) * 1e3:7.1f}")
    beyond = statistics.median(mine.wall for mine, _ in pairs)
    print(f"bar for wall time beyond the second {BAR * 1e3:.0f}: {'met' if beyond <= BAR else 'NOT MET'}")


if __name__ == "__main__":
    asked = [*map(int, sys.argv[1:])]
    main(*(asked + [ROUNDS, MEMBERS][len(asked) :]))
