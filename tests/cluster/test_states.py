"""What castoff says of runs on a real Slurm: waiting, held, cancelled, out of time, preempted, lost.

All that takes long is submitted at once, each run on a node of its own; every test then looks at its own.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.history.attempts import hosts
from castoff.launcher.history.use import samples_of
from castoff.launcher.runs.run import RunDirectory
from tests.launcher.conftest import processes_of
from tests.patience import until
from tests.records import submission_of

from .desk import Desk
from .slurm import SlurmCluster

STUBBORN = "trap '' TERM; touch begun.$CASTOFF_ATTEMPT; while :; do sleep 0.2; done"
WILLING = "touch begun.$CASTOFF_ATTEMPT; sleep 600"


class Watched(Desk):
    """A desk, and what castoff says there."""

    def __init__(self, cluster: SlurmCluster, folder: Path):
        super().__init__(cluster, folder)
        here = str(Path(sys.executable).parent)  # also before any test has begun
        self.environ["PATH"] = f"{here}:{self.environ['PATH']}"

    def begun(self, attempt: int = 0) -> None:
        """Until the program has begun."""
        until((self.folder / f"begun.{attempt}").exists, f"attempt {attempt} in {self.folder}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def out_of_time(slurm: SlurmCluster, folder: Path) -> tuple[Watched, RunDirectory]:
    """A run that Slurm ends after its minute, whatever it does; submitted before all others."""
    desk = Watched(slurm, folder / "time")
    return desk, desk.submit("--walltime", "1m", "--set", "grace=5s", sh=STUBBORN)


@pytest.fixture
def desk(slurm: SlurmCluster, tmp_path: Path, out_of_time: object) -> Watched:
    return Watched(slurm, tmp_path / "desk")


class TestWaiting:
    def test_the_pending_reason_is_reported(self, desk: Watched) -> None:
        first = desk.submit("--set", "directives.hold=true", "--name", "first")
        second = desk.submit("--set", "directives.begin=now+1hour", "--name", "second")
        third = desk.submit("--set", "after={afterok: [second]}", "--name", "third")
        held = desk.status(first)
        assert (held["state"], held["ending"], held["code"]) == ("pending", None, None)
        assert held["reason"] == f"it is held (JobHeldUser); `scontrol release {first.job}` releases it"
        later = desk.status(second)
        assert later["reason"] == "its begin time has not come (BeginTime)"
        assert 3000 < later["members"][0]["expected_start"] - time.time() < 3700
        assert "\nstarts     at about 20" in desk.castoff("status", "second").output
        assert held["members"][0]["expected_start"] is None
        assert desk.status(third)["reason"] == "it waits for another job (Dependency)"
        assert "it is held (JobHeldUser)" in desk.castoff("status", "first").output
        desk.slurm("scontrol", "release", str(first.job))
        answer = desk.castoff("wait", "first")
        assert (answer.code, answer.output) == (0, f"{first.id}: done\n")
        # All of what waits goes with one word, and what waits for it says so before.
        assert desk.castoff("cancel", "second").output == f"{second.id}: ended, cancelled\n"
        reason = "what it waits for can never happen (DependencyNeverSatisfied)"
        desk.until(third, state="pending", reason=reason)
        answer = desk.castoff("wait", "third")
        left = f"`castoff cancel {third.id}` takes it out of the queue"
        assert (answer.code, answer.output) == (1, f"{third.id}: never begins: {reason}; {left}\n")
        answer = desk.castoff("logs", "-f", "third")
        assert answer.code == 1
        assert answer.errors.splitlines()[-1] == f"castoff: {third.id}: never begins: {reason}; {left}"
        assert desk.castoff("stop", "third").output == f"{third.id}: asked to stop; pending\n"
        answer = desk.castoff("cancel", "third", "second")
        assert answer.output == f"{third.id}: ended, cancelled\n{second.id}: ended already, cancelled\n"
        reported = desk.status(third)
        assert (reported["state"], reported["code"], reported["job"]) == ("ended", 143, third.job)
        word = json.loads((third.path / "attempts/0.0/scheduler.json").read_text())
        assert (word["ending"], word["state"], word["job"]) == ("cancelled", "CANCELLED", third.job)

    def test_a_job_that_is_followed_from_its_submission(self, desk: Watched) -> None:
        """Why it waits, its output once it begins, and its code."""
        words = ("--site", "slurm", "--set", "directives.begin=now+3seconds", "--", "sh", "-c")
        answer = desk.castoff("submit", "-f", *words, "echo hello; exit 5")
        run = answer.output.splitlines()[0].split()[1]
        first, *_, last = answer.errors.splitlines()
        assert first.startswith(f"castoff: {run} has not begun: its begin time has not come (BeginTime)")
        assert "[0] hello" in answer.output.splitlines()
        assert last.startswith(f"castoff: {run}: failed; rank 0 on ") and answer.code == 5

    def test_members_of_an_array(self, desk: Watched) -> None:
        """Each has a state of its own, also those that are cancelled alone, and in the queue."""
        run = desk.submit(
            *("--set", "array={count: 6, max_concurrent: 2}"),
            sh="[ $CASTOFF_ARRAY_INDEX = 0 ] && exit 3; touch begun.$CASTOFF_ARRAY_INDEX; sleep 600",
        )
        for member in (1, 2):
            desk.begun(member)
        desk.slurm("scancel", f"{run.job}_4")
        desk.slurm("scontrol", "hold", f"{run.job}_5")
        now = desk.status(run)
        states = [member["ending"] or member["state"] for member in now["members"]]
        assert states == ["failed", "running", "running", "pending", "cancelled", "pending"]
        assert (
            now["members"][3]["reason"]
            == "the allowed number of its array's members already run (JobArrayTaskLimit)"
        )
        assert now["state"] == "running" and "holds it (JobHeldAdmin)" in now["reason"]
        answer = desk.castoff("clean", run.path, "--yes")
        assert answer.code == 1 and "is running; castoff cancel" in answer.errors
        assert desk.castoff("cancel", run.path).output == f"{run.id}: ended, failed\n"
        now = desk.status(run)
        assert now["members"][0]["attempts"][0]["code"] == 3
        assert [member["ending"] for member in now["members"]] == ["failed"] + 5 * ["cancelled"]
        assert str(run.job) not in desk.slurm("squeue", "-h", "-o", "%F").split()


class TestEnded:
    def test_cancelled_while_it_runs(self, desk: Watched) -> None:
        run = desk.submit("--name", "sleeper", sh=WILLING)
        desk.begun()
        assert desk.status(run)["state"] == "running"
        assert desk.castoff("cancel", "sleeper").output == f"{run.id}: ended, cancelled\n"
        now = desk.status(run)
        assert (now["code"], now["members"][0]["attempts"][0]["ending"]) == (143, "cancelled")
        assert now["members"][0]["attempts"][0]["host"] in ("n1", "n2", "n3", "n4")
        assert str(run.job) not in desk.slurm("squeue", "-h", "-o", "%A").split()

    def test_a_script_that_was_killed(self, desk: Watched) -> None:
        """With nobody left to write an ending: by Slurm's, and accounting's, word."""
        run = desk.submit(sh=WILLING)
        desk.begun()
        scripts = [one for one in processes_of(run) if one.cmdline()[-1].endswith("/slurm_script")]
        min(scripts, key=lambda one: one.create_time()).kill()  # others are its subshells
        now = desk.until(run, state="ended")
        assert (now["ending"], now["code"]) == ("failed", 137)

    def test_out_of_memory(self, slurm: SlurmCluster, desk: Watched) -> None:
        if not slurm.limits_memory:
            pytest.skip("only root can make the control groups that limit memory")
        program = "bytearray(400_000_000).count(1)"
        again = ["--set", "restart={max: 1, progress: none}"]
        words = ["--site", "slurm", "--set", "memory=100M", *again, "--name", "greedy"]
        assert desk.castoff("submit", *words, "--", sys.executable, "-c", program).code == 0
        answer = desk.castoff("wait", "greedy")
        shown = desk.castoff("status", "greedy").output
        assert (answer.code, answer.output.split()[1]) == (137, "out-of-memory:"), shown
        assert "it used more memory than it had" in shown
        assert shown.count("killed by SIGKILL, out of memory") == 2, shown

    def test_the_first_rank_to_fail(self, desk: Watched) -> None:
        """It is over at once, and told of first."""
        program = "import os, time; os.environ['RANK'] != '1' or int('one'); time.sleep(86400)"
        words = ["--site", "slurm", "--ranks-per-node", "2", "--nodes", "2", "--name", "raises"]
        answer = desk.castoff("submit", *words, "--", sys.executable, "-c", program)
        assert answer.code == 0, answer.errors
        assert desk.castoff("wait", "raises").code == 1
        (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/*"))
        failed = json.loads((run.path / "attempts/0.0/failure.json").read_text())
        assert failed["rank"] == 1
        shown = desk.castoff("logs", "raises").output
        assert shown.startswith(f"--- rank 1 on {failed['host']} failed first: exit code 1 ---\nTraceback ")
        assert shown.index("ValueError: invalid literal") < 300

    def test_what_its_processes_used(self, desk: Watched) -> None:
        burns = (
            "import json, os, time\nheld = b'1' * (90 << 20)\n"
            "while time.process_time() < 0.5: pass\ntime.sleep(2)\n"
            "use = '{CASTOFF_ATTEMPT_DIR}/use/node-0000{NODE_RANK}.jsonl'.format(**os.environ)\n"
            "lines = lambda: open(use) if os.path.exists(use) else ['{}']\n"
            "while max(json.loads(line).get('mem', 0) for line in lines()) < 90 << 20: time.sleep(0.2)"
        )
        ask = (
            "from castoff import Run; from castoff.launcher.history.usage import usages; "
            "run = Run.find('burns'); "
            "[used] = usages(run, run.status()).values(); "
            "print(used.cpu_seconds > 1, used.memory > 180 << 20, used.memory_requested >> 20, used.cpus)"
        )
        words = ["--nodes", "2", "--name", "burns", "--set", "memory=300M"]
        run = desk.submit(*words, command=[sys.executable, "-c", burns])
        desk.until(run, state="ended", ending="done")
        until(lambda: desk.run(sys.executable, "-c", ask).output == "True True 600 2\n", "Slurm's accounting")
        nodes = samples_of(run, 0, 0)
        assert [one.node.host for one in nodes] == [one.host for one in hosts(run, 0, 0)]
        assert all(max(sample.mem for sample in one.samples) > 90 << 20 for one in nodes)
        assert "CPUs, memory " in desk.castoff("status", "burns").output


class TestLost:
    """Slurm ends a start of its own accord; each on a node that no other test uses meanwhile."""

    def test_preempted_and_started_again(self, desk: Watched) -> None:
        run = desk.submit(
            *("--set", "requeue.max=1", "--walltime", "10m", "--set", "directives.nodelist=n4"),
            *("--set", "exclusive=true", "--name", "low"),
            sh="touch begun.$CASTOFF_ATTEMPT; [ $CASTOFF_ATTEMPT = 1 ] || sleep 600",
        )
        desk.begun()
        more = ["--queue", "urgent", "--set", "directives.nodelist=n4", "--set", "exclusive=true"]
        urgent = desk.submit("--name", "high", *more, sh="until [ -e go ]; do sleep 0.1; done")
        until(lambda: len(list((run.path / "attempts").iterdir())) == 1, "one attempt")
        until((urgent.path / "attempts/0.0/start.json").exists, "the urgent one")
        now = desk.until(run, state="pending")
        first = now["members"][0]["attempts"][0]
        assert (first["ending"], now["ending"]) == ("preempted", None)
        (desk.folder / "go").touch()
        answer = desk.castoff("wait", "low", "high")
        assert answer.code == 0, answer.output
        first, second = desk.status(run)["members"][0]["attempts"]
        assert (first["ending"], second["ending"], second["reason"]) == ("preempted", "done", None)
        # Accounting's word on a start that was over before it had heard of it may come late, or never.
        lost = "Slurm ended it, or lost its nodes, and requeued it"
        assert first["reason"] in ("Slurm gave its nodes to another job", lost)

    def test_a_node_that_fails(self, slurm: SlurmCluster, desk: Watched) -> None:
        """The end of a run that may not be started again, and a pause for one that may."""
        there = ["--set", "directives.nodelist=n3", "--walltime", "10m"]
        program = "touch $CASTOFF_RUN_DIR/begun; [ $CASTOFF_ATTEMPT = 1 ] || sleep 600"
        once = desk.submit(*there, "--name", "once", sh=program)
        twice = desk.submit(*there, "--name", "twice", "--set", "requeue.max=1", sh=program)
        for run in (once, twice):  # an srun that still starts its task ends with an error number of Slurm's
            until((run.path / "begun").exists, "its program")
        slurm.set_down("n3")
        now = desk.until(once, state="ended")
        assert (now["ending"], now["code"]) in (("node-failure", 1), ("node-failure", 143))
        assert now["members"][0]["attempts"][0]["reason"] == "one of its nodes went down"
        slurm.resume()
        assert desk.castoff("wait", "twice").output == f"{twice.id}: done\n"
        reported = [one["ending"] for one in desk.status(twice)["members"][0]["attempts"]]
        assert reported == ["node-failure", "done"]


def test_a_script_submitted_without_castoff_is_watched_and_cancelled(desk: Watched) -> None:
    answer = desk.castoff("render", "--site", "slurm", "--", "sh", "-c", WILLING)
    (desk.folder / "mine.sh").write_text(answer.output)
    job = desk.slurm("sbatch", "--parsable", "mine.sh")
    desk.begun()
    run = RunDirectory(desk.folder / f"castoff-{job}")
    assert desk.status(run)["state"] == "running"
    reported = (run.script).read_text()
    run.script.write_text(reported + "# changed\n")
    answer = desk.castoff("cancel", run.path)
    assert answer.code == 1 and f"scancel {job}" in answer.errors
    run.script.write_text(reported)
    assert desk.castoff("cancel", run.path).output == f"{run.id}: ended, cancelled\n"
    assert desk.status(run)["code"] == 143


class TestSlurmIsSilent:
    def test_a_run_is_still_watched_while_slurm_does_not_answer(self, desk: Watched) -> None:
        run = desk.submit("--name", "quiet", sh="until [ -e go ]; do sleep 0.1; done")
        failing = desk.program("squeue", '[ -e $HOME/silent ] && exit 1; exec /usr/bin/squeue "$@"\n')
        failing["HOME"] = str(desk.folder)
        until((run.path / "attempts/0.0/start.json").exists, "its start")
        (desk.folder / "silent").touch()
        now = desk.status(run, **failing)
        assert (now["state"], now["unsettled"]) == ("unknown", True)
        assert now["reason"] == (
            "Slurm could not be reached: squeue failed with exit code 1: without a message; "
            "according to its records, it began and has not ended"
        )
        answer = desk.castoff("wait", "quiet", "--timeout", "1", env=failing)
        assert answer.code == 124
        answer = desk.castoff("cancel", "quiet", env=failing)
        assert answer.code == 1 and "Slurm could not be reached; the run is still active" in answer.errors
        (desk.folder / "go").touch()  # its own record is enough
        assert desk.castoff("wait", "quiet", env=failing).output == f"{run.id}: done\n"

    def test_without_accounting(self, slurm: SlurmCluster, desk: Watched) -> None:
        """squeue and the run's own records are enough; where they are not, it is asked again later."""
        run = desk.submit("--name", "gone", sh=WILLING)
        desk.begun()
        forgetful = desk.program("squeue", "exit 0\n")
        with slurm.without_accounting():
            assert desk.castoff("cancel", "gone").output == f"{run.id}: ended, cancelled\n"
            assert desk.status(run, **forgetful)["ending"] == "cancelled"
            (run.path / "attempts/0.0/scheduler.json").unlink()
            (run.path / "attempts/0.0/ending.json").unlink()
            (run.path / "cancelled.json").unlink()
            now = desk.status(run, **forgetful)
            assert (now["state"], now["unsettled"]) == ("unknown", False)
            assert now["reason"].startswith(f"Slurm no longer knows job {run.job}")
        desk.until(run, env=forgetful, state="ended", ending="cancelled", code=143)

    def test_slow_accounting(self, slurm: SlurmCluster, desk: Watched) -> None:
        run = desk.submit("--name", "slow", sh="until [ -e go ]; do sleep 0.1; done; kill -9 $$")
        (desk.folder / "go").touch()
        answer = desk.castoff("wait", "slow")
        assert answer.code == 137 and answer.output.startswith(f"{run.id}: failed: rank 0 on ")
        (run.path / "attempts/0.0/scheduler.json").unlink(missing_ok=True)
        with slurm.slow_accounting():
            now = desk.status(run)
            assert (now["ending"], now["code"]) == ("failed", 137)


class TestManyRuns:
    @pytest.mark.parametrize("count", [1000])
    def test_are_asked_for_at_once(self, desk: Watched, count: int) -> None:
        asked = desk.folder / "asked"
        env = {}
        for name in ("squeue", "sacct"):
            env = desk.program(name, f'echo {name} >>{asked}; exec {shutil.which(name)} "$@"\n')
        first = desk.submit("--name", "first", "--set", "directives.hold=true")
        where = first.path.parent
        for number in range(1, count):
            path = where / f"first-20261120-000000-{number:04x}"
            shutil.copytree(first.path, path)
            record = json.loads((path / "submission.json").read_text())
            if number % 2:  # of which nothing is known any more
                record["sends"][0]["job"] = record["job"] = str(900000 + number)
            (path / "submission.json").write_text(json.dumps(record))
        answer = desk.castoff("list", "--scan", where, "--json", env=env)
        assert answer.code == 0, answer.errors
        rows = [json.loads(line) for line in answer.output.splitlines()]
        assert len(rows) == count
        assert {row["state"] for row in rows} == {"pending", "unknown"}
        assert sorted(asked.read_text().split()) == ["sacct", "squeue"]
        asked.unlink()
        assert desk.castoff("list", env=env).code == 0
        assert sorted(asked.read_text().split()) == ["sacct", "squeue"]
        assert desk.castoff("cancel", first.path).code == 0


class TestUnclear:
    """A send without an answer, as a castoff submit leaves it that was killed."""

    def forget(self, run: RunDirectory, **more: Any) -> None:
        record = json.loads((run.path / "submission.json").read_text())
        record["job"] = record["sends"][0]["job"] = None
        record["sends"][0].update(more)
        (run.path / "submission.json").write_text(json.dumps(record))

    def test_a_job_that_arrived_is_adopted(self, desk: Watched) -> None:
        run = desk.submit("--name", "arrived", sh=WILLING)
        job = run.job
        self.forget(run)
        now = desk.status(run)
        assert now["job"] == run.job == submission_of(run).sends[0].job == job
        desk.begun()
        assert desk.castoff("cancel", "arrived").code == 0
        self.forget(run)
        silent = desk.program("squeue", "exit 0\n")  # it has forgotten it, but its own records have not
        assert desk.status(run, **silent)["ending"] == "cancelled"
        assert run.job == job

    def test_one_that_did_not_is_sent_again(self, desk: Watched) -> None:
        run = desk.submit("--name", "lost", "--set", "directives.hold=true")
        assert desk.castoff("cancel", "lost").code == 0
        shutil.rmtree(run.path / "attempts")
        (run.path / "attempts").mkdir()
        self.forget(run, unclear="Socket timed out")
        run.script.write_text(run.script.read_text().replace("--hold", "--comment=x"))
        moved = RunDirectory(run.path.with_name(f"{run.id}x"))  # no job of Slurm's is called so
        run.path.rename(moved.path)
        unasked = (moved.path / "submission.json").read_text()
        now = desk.status(moved)
        assert (now["state"], now["unsettled"]) == ("unknown", True)
        assert now["reason"].startswith("there was no answer")
        assert submission_of(moved).sends[0].asked
        # As if never asked: on a slow machine the second time could come late enough to be believed.
        (moved.path / "submission.json").write_text(unasked)
        assert desk.castoff("clean", moved.path, "--yes").code == 1
        answer = desk.castoff("wait", moved.path)
        assert answer.code == 1 and answer.output.startswith(f"{moved.id}: failed: it could not be ")
        now = desk.status(moved)
        assert (now["state"], now["ending"]) == ("ended", "failed")
        assert now["reason"] == (
            "it could not be submitted: there was no answer: Socket timed out; "
            "the queue, queried twice, has no such job"
        )
        assert desk.castoff("resubmit", moved.path).code == 0
        assert desk.castoff("wait", moved.path).output == f"{moved.id}: done\n"


def test_out_of_time(out_of_time: tuple[Watched, RunDirectory]) -> None:
    """Its script is killed before it can say so."""
    desk, run = out_of_time
    desk.begun()
    now = desk.until(run, state="ended")
    assert (now["ending"], now["code"]) == ("walltime", 143)
