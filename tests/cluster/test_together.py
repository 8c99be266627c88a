"""On a real Slurm: members of an array that share jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from castoff.launcher.runs.run import RunDirectory
from tests.patience import until

from .desk import Desk
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

PROGRAM = """
import os, signal, sys, time

member, rank = int(os.environ["CASTOFF_ARRAY_INDEX"]), os.environ["RANK"]
names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")

def note(event):
    words = [event, member, os.environ["CASTOFF_ATTEMPT"], rank, os.uname().nodename, time.monotonic()]
    words += [os.environ.get(name, "-") for name in names]
    with open(sys.argv[1], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

note("begin")
time.sleep(0.2 + member % 5 / 5)
while int(os.path.basename(os.readlink(os.environ["GATE"])) if "GATE" in os.environ else 999) <= member:
    time.sleep(0.02)
if member % 10 == 3:
    sys.exit(5)
if member % 10 == 7 and rank == "0":
    os.kill(os.getpid(), signal.SIGKILL)
if os.environ.get("HANGS") == str(member):
    time.sleep(100_000)
note("end")
"""


class Event(NamedTuple):
    """A line of the program's: a rank begins or ends."""

    event: str
    member: int
    attempt: int
    rank: int
    host: str
    time: float
    address: str
    port: int
    size: int
    devices: str


@pytest.fixture(scope="module")
def desk(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = Desk(slurm, tmp_path_factory.mktemp("desk"))
    (desk.folder / "program.py").write_text(PROGRAM)
    return desk


def submit(desk: Desk, name: str, count: int, **fields: Any) -> RunDirectory:
    together = fields.pop("together", {"nodes": 4, "per_node": 2})
    job = {
        "name": name,
        "command": [sys.executable, "program.py", f"{name}.events"],
        "ranks_per_node": 1,
        "cores_per_rank": 1,
        "walltime": "10m",
        "array": {"count": count, "together": together},
        **fields,
    }
    (desk.folder / f"{name}.json").write_text(json.dumps(job))
    return desk.submit_file(f"{name}.json")


def events(desk: Desk, name: str) -> list[Event]:
    path = desk.folder / f"{name}.events"
    lines = path.read_text().splitlines() if path.exists() else []
    kinds = (str, int, int, int, str, float, str, int, int, str)
    return [Event(*(kind(word) for kind, word in zip(kinds, line.split(), strict=True))) for line in lines]


def endings(desk: Desk, run: RunDirectory) -> dict[int, str]:
    """How each member has ended, once all have."""
    answer = json.loads(desk.castoff("wait", run.id, "--json").output)
    return {member["member"]: member["ending"] for member in answer["members"]}


def expected(member: int) -> str:
    return "failed" if member % 10 in (3, 7) else "done"


def the_dispatcher(run: RunDirectory) -> psutil.Process:
    """The first of a job's scripts, which Slurm runs from its spool."""

    def found() -> psutil.Process | None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words, environ = process.cmdline(), process.environ()
                if environ.get("CASTOFF_RUN_DIR") == str(run.path) and words[-1].endswith("slurm_script"):
                    return process
        return None

    process: psutil.Process = until(found, f"the dispatcher of {run.id}")
    return process


class TestTogether:
    def test_each_member_is_a_run_of_its_own(self, desk: Desk) -> None:
        """Three ranks on two hosts each: numbering, rendezvous, logs, endings."""
        together = {"members": 2}
        run = submit(desk, "own", 10, nodes=2, ranks_per_node=None, ranks=3, together=together)
        assert endings(desk, run) == {member: expected(member) for member in range(10)}
        begun = [event for event in events(desk, "own") if event.event == "begin"]
        by_member = defaultdict(list)
        for event in begun:
            by_member[event.member].append(event)
        for member, ranks in by_member.items():
            assert sorted(event.rank for event in ranks) == [0, 1, 2]
            assert {event.size for event in ranks} == {3}
            assert len({(event.address, event.port) for event in ranks}) == 1
            assert len({event.host for event in ranks}) == 2, member
        assert len({line.partition("_")[0] for line in desk.over(run, members=5)}) == 1  # an array of five
        assert "rank 0" in desk.castoff("logs", run.id, "--member", "7").output

    @pytest.mark.parametrize("per_node", [1, 2])
    def test_every_ending_is_right_when_a_host_is_lost(
        self, per_node: int, desk: Desk, slurm: SlurmCluster
    ) -> None:
        """Members fail, die and hang, one is cancelled, and a host goes: the others never notice."""
        name = f"hard-{per_node}"
        try:
            run = submit(
                desk,
                name,
                48,
                together={"nodes": 4, "per_node": per_node},
                ranks_per_node=2,
                env={"HANGS": "30"},
                restart={"hang": "10s"},
                requeue={"max": 2},
            )
            until(lambda: len(events(desk, name)) > 40, "the first members")
            assert desk.castoff("cancel", f"{run.id}:45").output == f"{run.id}:45: cancelled\n"
            slurm.set_down("n3")
            found = endings(desk, run)
        finally:
            slurm.resume()
        special = {30: "failed", 45: "cancelled"}
        assert found == {member: special.get(member, expected(member)) for member in range(48)}
        ended = {(event.member, event.rank) for event in events(desk, name) if event.event == "end"}
        good = [member for member, ending in found.items() if ending == "done"]
        assert {(member, rank) for member in good for rank in (0, 1)} <= ended, (
            "a rank was lost, and nobody saw"
        )
        endings_of = [*run.path.glob("attempts/[0-9]*/ending.json")]
        done = [path.parent.name.partition(".")[0] for path in endings_of if '"done"' in path.read_text()]
        assert len(done) == len({*done}), "a member ran again after it was done"
        assert "has lost n3" in (run.log_folder / "shared-0.log").read_text()

    def test_members_that_run_side_by_side_share_nothing(self, desk: Desk) -> None:
        run = submit(desk, "apart", 24, devices_per_rank=2)
        assert endings(desk, run) == {member: expected(member) for member in range(24)}
        running: dict[int, Event] = {}
        most = 0
        for event in sorted(events(desk, "apart"), key=lambda event: event.time):
            beside = [other for other in running.values() if other.host == event.host]
            if event.event == "end" or event.member in running:
                running.pop(event.member)
                continue
            # One that failed has left no line: its place is taken by the next.
            beside = [other for other in beside if expected(other.member) == "done"]
            assert all(other.port != event.port for other in beside)
            assert all({*other.devices.split(",")}.isdisjoint(event.devices.split(",")) for other in beside)
            assert len(event.devices.split(",")) == 2
            running[event.member] = event
            most = max(most, len(running))
        assert most >= 4

    def test_after_its_dispatcher_was_killed_no_member_is_lost_and_none_runs_twice(self, desk: Desk) -> None:
        gate = desk.folder / "gate"
        """Links to the number of the first member that may not end yet: none is killed between the end of
        its program and its record, and such a one would run again.
        """

        def let(members: int) -> None:
            gate.with_suffix(".new").symlink_to(str(members))
            gate.with_suffix(".new").replace(gate)

        let(0)
        run, cut = submit(desk, "killed", 24, env={"GATE": str(gate)}), set[str]()

        def held(members: int) -> set[str]:
            """The attempts that wait at the gate, if they are as many as the job has slots."""
            begun = [event for event in events(desk, "killed") if event.member >= members]
            left = {f"{event.member}.{event.attempt}" for event in begun} - cut
            return left if len(left) == 8 else set()

        for members in (0, 12):
            let(members)
            cut |= until(lambda members=members: held(members), "members in all slots")  # type: ignore[misc]
            os.kill(the_dispatcher(run).pid, signal.SIGKILL)
            assert "running" not in endings(desk, run).values()
            let(members + 12)
            answer = desk.castoff("resubmit", run.id)
            assert answer.code == 0, answer.errors
        again = {member: expected(member) for member in range(24)}
        assert endings(desk, run) == again
        ended = [event.member for event in events(desk, "killed") if event.event == "end"]
        assert len(ended) == len({*ended}) == sum(ending == "done" for ending in again.values())

    def test_a_script_without_castoff_runs_all_members(self, desk: Desk) -> None:
        """Rendered, and sent by hand."""
        run = submit(desk, "first", 1)
        endings(desk, run)
        answer = desk.castoff("render", "first.json", "--site", "slurm", "--set", "array.count=9")
        script = desk.folder / "alone.sh"
        script.write_text(answer.output)
        job = desk.slurm("sbatch", "--parsable", str(script))
        alone = RunDirectory(Path(desk.folder / f"castoff-{job}"))
        until(alone.path.exists, "its directory")
        assert endings(desk, alone) == {member: expected(member) for member in range(9)}
