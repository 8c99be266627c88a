"""Members that share jobs of PBS: their endings, cores, ports and order; what a killed dispatcher leaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.runs.run import RunDirectory
from tests.cluster.desk import Desk
from tests.patience import until

from .cluster import PbsCluster

# Of the first members, all run before one ends; of the others, each waits for the one after it. Every tenth
# fails, and one is killed by a signal; other ranks then wait to be ended.
_PROGRAM = """\
import json, os, pathlib, sys, time
seen, first = pathlib.Path(sys.argv[1]), int(sys.argv[2])
member, rank, ranks, count = (
    int(os.environ[name]) for name in ("CASTOFF_ARRAY_INDEX", "RANK", "WORLD_SIZE", "CASTOFF_ARRAY_COUNT")
)
one = {"member": member, "rank": rank, "host": os.uname().nodename, "began": time.monotonic()}
one |= {"cpus": sorted(os.sched_getaffinity(0)), "port": os.environ["MASTER_PORT"]}
one |= {"job": os.environ["PBS_JOBID"]}
(seen / f"began-{member}").touch()
awaited = range(first) if member < first else [member + 1] if first > 1 and member + 1 < count else []
while not all((seen / f"began-{other}").exists() for other in awaited):
    time.sleep(0.02)
one["ended"] = time.monotonic()
name = f"{member}.{os.environ['CASTOFF_ATTEMPT']}.{rank}"
(seen / f".{name}").write_text(json.dumps(one))
(seen / f".{name}").rename(seen / f"{name}.json")
if member % 10 == 3 or member == 5:
    while len([*seen.glob(f"{member}.*.json")]) < ranks or rank != ranks - 1:
        time.sleep(0.02)
    if member == 5:
        os.kill(os.getpid(), 9)
    sys.exit(5)
"""


class TogetherDesk(Desk):
    """A desk for arrays whose members share jobs."""

    def array(self, count: int, together: str, *words: str, first: int = 1) -> RunDirectory:
        """Submit members that run `_PROGRAM`; `first`: how many of them run at the same time, at first."""
        self.seen.mkdir()
        array = f"array={{count: {count}, together: {together}}}"
        program = [sys.executable, "-ISc", _PROGRAM, str(self.seen), str(first)]
        return self.submit("--walltime", "10m", "--set", array, *words, command=program)

    @property
    def seen(self) -> Path:
        """What the members' ranks record."""
        return self.folder / "seen"

    def ranks(self) -> list[dict[str, Any]]:
        """What each rank saw."""
        return [json.loads(path.read_text()) for path in self.seen.glob("*.json")]

    def endings(self, run: RunDirectory) -> list[list[tuple[str, int]]]:
        """The endings of each member's attempts."""
        found = self.status(run)["members"]
        return [[(one["ending"], one["code"]) for one in member["attempts"]] for member in found]


@pytest.fixture
def desk(pbs: PbsCluster, tmp_path: Path) -> TogetherDesk:
    return TogetherDesk(pbs, tmp_path / "desk")


def expected(count: int) -> list[list[tuple[str, int]]]:
    codes = [137 if member == 5 else 5 if member % 10 == 3 else 0 for member in range(count)]
    return [[("failed" if code else "done", code)] for code in codes]


def beside(found: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Ranks of different members that ran at the same time."""
    for one, other in combinations(found, 2):
        at_once = one["began"] < other["ended"] and other["began"] < one["ended"]
        if one["member"] != other["member"] and at_once:
            yield one, other


def check(desk: TogetherDesk, run: RunDirectory, count: int, ranks: int) -> list[dict[str, Any]]:
    """Check the endings, and that no two members of a job had a core or a port of a host at the same time.

    What PBS lets two jobs share of a host is between the two.
    """
    assert desk.castoff("wait", run.path).code
    assert desk.endings(run) == expected(count)
    found = desk.ranks()
    assert len(found) == count * ranks
    for one, other in beside(found):
        if one["job"] != other["job"]:
            continue
        assert one["port"] != other["port"]
        assert one["host"] != other["host"] or not {*one["cpus"]} & {*other["cpus"]}
    return found


two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two members share a node's cores")


@two_cores
def test_two_members_on_each_of_two_nodes(desk: TogetherDesk) -> None:
    words = ("--set", "cores_per_rank=1")
    run = desk.array(8, "{nodes: 2, per_node: 2}", *words, first=4)
    found = check(desk, run, 8, 1)
    assert len({one["port"] for one in found}) == 8 and len({one["host"] for one in found}) == 2
    first = [one for one in found if one["member"] < 4]
    assert len([*beside(first)]) == 6  # all four
    assert min(one["began"] for one in found if one["member"] >= 4) > min(one["ended"] for one in first)


def test_one_after_the_other(desk: TogetherDesk) -> None:
    found = check(desk, desk.array(6, "job"), 6, 1)
    order = sorted(found, key=lambda one: one["began"])
    assert [one["member"] for one in order] == [*range(6)] and not [*beside(found)]
    assert len({one["host"] for one in found}) == 1


SHAPES = {
    "one rank, two on a node": ("{nodes: 2, per_node: 2}", ["cores_per_rank=1"], 1, 4),
    "two ranks, jobs of three members": ("3", ["ranks_per_node=2"], 2, 1),
    "two nodes, two at once": ("{nodes: 4}", ["nodes=2"], 2, 2),
    "three ranks": ("job", ["ranks_per_node=3"], 3, 1),
}


@pytest.mark.costly
@pytest.mark.everyday("one rank*", "two ranks*")
@pytest.mark.parametrize(("together", "fields", "ranks", "first"), SHAPES.values(), ids=[*SHAPES])
def test_forty_members(desk: TogetherDesk, together: str, fields: list[str], ranks: int, first: int) -> None:
    words = [word for field in fields for word in ("--set", field)]
    check(desk, desk.array(40, together, *words, first=first), 40, ranks)


def dispatchers(run: RunDirectory) -> list[int]:
    """The processes of a run's jobs that are no member's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        names = {line.partition(b"=")[0] for line in environ}
        of_run = f"CASTOFF_RUN_DIR={run.path}".encode() in environ and b"PBS_JOBID" in names
        if of_run and not names & {b"CASTOFF_SLOT_OF", b"CASTOFF_ATTEMPT_DIR"}:
            found.append(int(folder.name))
    return found


def ended(run: RunDirectory) -> int:
    return len([*run.path.glob("attempts/[0-9]*/ending.json")])


def records(run: RunDirectory) -> dict[str, float]:
    """The attempts that are done, each with the time of its record."""
    found = {path.parent.name: path for path in run.path.glob("attempts/[0-9]*/ending.json")}
    return {name: path.stat().st_mtime for name, path in found.items() if '"done"' in path.read_text()}


_KILLED = "until [ -e go ] || [ $CASTOFF_ARRAY_INDEX -lt {} ]; do sleep 0.05; done"


@pytest.mark.costly
@pytest.mark.parametrize("done", [3, *(pytest.param(done, marks=pytest.mark.long) for done in (0, 1, 7))])
def test_a_killed_dispatcher_loses_no_member_and_runs_none_twice(desk: TogetherDesk, done: int) -> None:
    words = ("--walltime", "5m", "--set", "array={count: 8, together: {nodes: 2}}")
    run = desk.submit(*words, sh=_KILLED.format(done))
    until(lambda: ended(run) == done, f"{done} members' ends")
    if done < 8:
        until((run.path / f"attempts/{done}.0").exists, "the start of the next one")
    before = records(run)
    for process in dispatchers(run):
        with contextlib.suppress(ProcessLookupError):  # it has just looked at something
            os.kill(process, signal.SIGKILL)
    desk.until(run, state="ended")
    (desk.folder / "go").touch()
    assert [*before.values()] == [records(run)[name] for name in before] and len(before) == done
    assert desk.castoff("resubmit", run.path).code == 0
    assert desk.castoff("wait", run.path).code == 0
    found = desk.endings(run)
    assert len(found) == 8 and all(one[-1] == ("done", 0) for one in found), found
    assert all(("done", 0) not in one[:-1] for one in found), found
    assert all(len(one) == 1 for one in found[:done]), found


_WAITS = """\
[ $CASTOFF_ARRAY_INDEX -gt 2 ] || until [ -e go ]; do sleep 0.05; done
[ $CASTOFF_ARRAY_INDEX != 1 ] || sleep 1000
"""


@pytest.mark.costly
@pytest.mark.long
def test_no_member_starts_on_a_lost_host(desk: TogetherDesk, pbs: PbsCluster) -> None:
    """A mpiexec may wait for it; the dispatcher sees the loss within a minute."""
    run = desk.submit("--walltime", "5m", "--set", "array={count: 30, together: {nodes: 3}}", sh=_WAITS)
    hosts = [run.path / f"attempts/{member}.0/hosts" for member in range(3)]
    until(lambda: all((run.path / f"attempts/{member}.0/rank.sh").exists() for member in range(3)), "starts")
    until(lambda: all(path.exists() and path.read_text() for path in hosts), "hosts of the first three")
    host = hosts[1].read_text().strip()
    try:
        pbs.kill_mom(host)
        until(lambda: "down" in pbs.state(host), f"{host} down")
        (desk.folder / "go").touch()
        desk.until(run, state="ended")
        found = desk.endings(run)
    finally:
        pbs.resume()
    assert found.pop(1)[0][0] in ("node-failure", "failed") and found == [[("done", 0)]] * 29
    assert f"castoff: the job has lost {host}, so no more" in (run.log_folder / "shared-0.log").read_text()


_BESIDE = """\
folder=$PWD/seen; own=$folder/pid-$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
echo $$ >$own
for file in $folder/pid-$CASTOFF_ARRAY_INDEX.*; do
  [ $file = $own ] || ! kill -0 $(cat $file) || echo "$file beside $own" >>$folder/beside
done
[ $CASTOFF_ATTEMPT -ge 1 ] || [ $CASTOFF_ARRAY_INDEX -gt 2 ] || exec sleep 1000
"""


@pytest.mark.costly
def test_a_job_that_pbs_starts_again_has_one_dispatcher(desk: TogetherDesk, pbs: PbsCluster) -> None:
    """The first one lives on a host that is lost, and knows nothing of the other."""
    desk.seen.mkdir()
    array = "array={count: 6, together: {nodes: 3}}"
    requeue = "requeue={max: 2, on: [node-failure, preempted, stop, walltime]}"
    run = desk.submit("--walltime", "5m", "--set", array, "--set", requeue, sh=_BESIDE)
    until(lambda: len([*desk.seen.glob("pid-*")]) == 3, "the first three")
    try:
        pbs.kill_mom((run.path / "attempts/0.0/hosts").read_text().strip())
        desk.until(run, state="ended")
        found = desk.endings(run)
    finally:
        pbs.resume()
    assert [one[-1] for one in found] == [("done", 0)] * 6, found
    assert not (desk.seen / "beside").exists(), (desk.seen / "beside").read_text()
    said = (run.log_folder / "shared-0.log").read_text()
    assert "members of this job's last start may still run" in said


_RESUMES = """\
[ $CASTOFF_ARRAY_INDEX$CASTOFF_ATTEMPT != 00 ] || {
  until [ -e $CASTOFF_STOP_FILE ]; do sleep 0.05; done
  echo resume >$CASTOFF_OUTCOME_FILE
}
"""


@pytest.mark.costly
@pytest.mark.parametrize("together", ["job", "{members: 3, per_node: 1}"])
def test_copies_of_the_job_run_what_it_left(desk: TogetherDesk, together: str) -> None:
    """Members that have not begun, and one that has; with `members`, one of several jobs of an array."""
    count = 5
    going = ("--walltime", "7s", "--set", "grace=5s", "--set", "requeue={max: 9}")
    array = f"array={{count: {count}, together: {together}}}"
    run = desk.submit(*going, "--set", array, sh=_RESUMES)
    copied = run.path / "attempts"
    until(lambda: [*copied.glob(".shared-*/next.json")], "a copy")
    assert desk.castoff("wait", run.path).output == f"{run.id}: done\n"
    assert desk.endings(run) == [[("resume", 0), ("done", 0)], *[[("done", 0)]] * (count - 1)]
    jobs = [json.loads((copied / name / "start.json").read_text())["job"] for name in ("0.0", "0.1")]
    assert jobs[0] == run.job != jobs[1]
