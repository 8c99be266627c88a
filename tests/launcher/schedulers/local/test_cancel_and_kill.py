"""Ending a run on the local scheduler, by asking and by force: nothing is left, nothing is guessed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

import psutil
import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local import processes
from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.run import LOCK, RunDirectory
from castoff.launcher.schedulers.local import control
from castoff.launcher.schedulers.local.control import cancel
from castoff.launcher.submission.cancel import end
from castoff.launcher.submission.resubmit import resubmit

from ...conftest import DAEMON, STUBBORN, Castoff, LocalJobs

Until = Callable[..., None]

CLOSING = """
import os, time
open(f"here.{os.environ['RANK']}", "w").close()
os.closerange(3, 256)
time.sleep(600)
"""


def abandon(
    jobs: LocalJobs, run: RunDirectory, spared: Sequence[psutil.Process] = ()
) -> list[psutil.Process]:
    """Kill all that was started for a run but its ranks, which are returned, and those `spared`.

    A rank is known by its parent: what it runs may just be changing, and has no words and no variables then.
    """
    scheduler = jobs.scheduler(run)
    family = {one: words(one) for one in [scheduler, *scheduler.children(recursive=True)]}
    reapers = {one for one in family if "castoff-orphan-reaper" in family[one]}
    started = [one.children() for one in family if "launch" in family[one]]
    ranks = [rank for rank in itertools.chain(*started) if rank not in reapers]
    theirs = {one for rank in ranks for one in (rank, *rank.children(recursive=True))}
    others = [one for one in family if one not in theirs and one not in spared]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: nobody sees the others die
        for process in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    psutil.wait_procs(others)
    return ranks


def words(process: psutil.Process) -> list[str]:
    """Its command line; none if it has gone."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def lives(process: psutil.Process) -> bool:
    """Whether it does, not counting the dead whom nobody has buried."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class TestCancel:
    def test_running(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit("--ranks-per-node", "2", sh="touch here.$RANK; sleep 600")
        until(lambda: len(list(jobs.folder.glob("here.*"))) == 2)
        answer = castoff("cancel", run.path, "--json")
        assert json.loads(answer.stdout) == {"id": run.id, "state": "ended", "ending": "cancelled"}
        assert jobs.nothing_left(run)
        assert jobs.wait(run)["code"] == 143
        again = castoff("cancel", run.path)
        assert (again.returncode, again.stdout) == (0, f"{run.id}: ended already, cancelled\n")

    def test_ignoring_term(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit(sh=STUBBORN)
        until((jobs.folder / "here").exists)
        assert castoff("cancel", run.path).stdout == f"{run.id}: ended, cancelled\n"
        assert jobs.nothing_left(run)

    def test_daemons_are_ended_too(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        program = DAEMON.format(then="time.sleep(600)")
        run = jobs.submit("--", sys.executable, "-c", program)
        until((jobs.folder / "daemon").exists)
        until((jobs.folder / "daemon").read_text)
        daemon = psutil.Process(int((jobs.folder / "daemon").read_text()))
        assert castoff("cancel", run.path).stdout == f"{run.id}: ended, cancelled\n"
        assert jobs.nothing_left(run) and not daemon.is_running()

    def test_one_that_ends_well_when_asked_was_cancelled(
        self, castoff: Castoff, jobs: LocalJobs, until: Until
    ) -> None:
        run = jobs.submit(sh="trap 'exit 0' TERM; touch here; while :; do sleep 0.05; done")
        until((jobs.folder / "here").exists)
        assert castoff("cancel", run.path).stdout == f"{run.id}: ended, cancelled\n"
        assert jobs.wait(run)["code"] == 143

    def test_several_at_once_or_none(self, castoff: Castoff, jobs: LocalJobs) -> None:
        runs = [jobs.submit("--name", f"n{number}", sh="sleep 600") for number in range(2)]
        wrong = castoff("cancel", "n0", "nothing", "nobody")
        assert wrong.returncode == 1 and len(wrong.stderr.splitlines()) == 2
        assert all(map(is_alive, runs))
        answer = castoff("cancel", "n0", "n1", "n0")
        assert answer.stdout == "".join(f"{run.id}: ended, cancelled\n" for run in runs)
        assert all(jobs.nothing_left(run) for run in runs)

    def test_in_its_setup(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        job = jobs.job("setup: ['touch here', 'while :; do sleep 0.1; done']\ncommand: [true]\n")
        run = jobs.submit(job)
        until((jobs.folder / "here").exists)
        assert castoff("cancel", run.path).stdout == f"{run.id}: ended, cancelled\n"
        assert jobs.nothing_left(run)


class TestKilled:
    def script(self, jobs: LocalJobs, run: RunDirectory) -> psutil.Process:
        (script,) = [one for one in jobs.scheduler(run).children() if str(run.script) in one.cmdline()]
        return script

    def test_the_script_alone(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit("--ranks-per-node", "2", sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        self.script(jobs, run).kill()
        info = jobs.wait(run)
        assert (info["state"], info["ending"], info["code"]) == ("ended", "failed", 137)
        assert "its script was killed by signal 9" in castoff("status", run.path).stdout
        until(lambda: jobs.nothing_left(run))

    def test_one_rank(self, castoff: Castoff, jobs: LocalJobs) -> None:
        run = jobs.submit(
            "--ranks-per-node", "2", sh='[ $RANK = 1 ] && kill -9 $$; echo "rank 0 here"; sleep 600'
        )
        info = jobs.wait(run)
        assert (info["ending"], info["code"]) == ("failed", 137)
        failure = info["members"][0]["attempts"][0]["failure"]
        assert (failure["rank"], failure["code"], failure["signal"]) == (1, 137, "SIGKILL")
        assert "rank 1 on " in castoff("status", run.path).stdout

    @pytest.mark.parametrize("attempts", [0, 1])
    def test_everything(self, castoff: Castoff, jobs: LocalJobs, until: Until, attempts: int) -> None:
        """Nobody could write a last word, so nobody guesses one."""
        after = [] if attempts else ["--set", "after.afterok=[first]"]
        jobs.submit("--name", "first", sh="sleep 600")
        run = jobs.submit(*after, "--ranks-per-node", "2", sh="touch here; sleep 600")
        if attempts:
            until((jobs.folder / "here").exists)
        assert jobs.status(run)["state"] == ("running" if attempts else "pending")
        jobs.kill_everything(run)
        assert jobs.nothing_left(run)
        info = jobs.status(run)
        assert (info["state"], info["ending"], info["code"]) == ("unknown", "unknown", None)
        assert len(info["members"][0]["attempts"]) == attempts
        assert "castoff does not guess" in castoff("status", run.path).stdout
        answer = castoff("wait", run.path)
        assert answer.returncode == 1
        assert answer.stdout.startswith(
            f"{run.id}: unknown: its scheduler is gone and no ending was recorded"
        )
        answer = castoff("cancel", run.path)
        assert (answer.returncode, answer.stdout) == (0, f"{run.id}: unknown already\n")

    def test_the_scheduler_alone(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        """The script goes on, as its lock says, and writes its own ending, which then counts."""
        run = jobs.submit(sh="touch here; while [ ! -e go ]; do sleep 0.05; done; exit 4")
        until((jobs.folder / "here").exists)
        scheduler = jobs.scheduler(run)
        scheduler.kill()
        until(lambda: not scheduler.is_running())
        assert jobs.status(run)["state"] == "running"
        (jobs.folder / "go").touch()
        info = jobs.wait(run)
        assert (info["state"], info["ending"], info["code"]) == ("ended", "failed", 4)
        until(lambda: jobs.nothing_left(run))

    def test_cancelling_without_a_scheduler(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit("--set", "array={count: 2, max_concurrent: 1}", sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        scheduler = jobs.scheduler(run)
        scheduler.kill()
        until(lambda: not scheduler.is_running())
        answer = castoff("cancel", run.path)
        until(lambda: jobs.nothing_left(run))  # what is killed, or asked to end, may take a moment to be gone
        assert answer.stdout == f"{run.id}: unknown\n"  # of one member: nobody says that it was cancelled
        info = jobs.status(run)
        assert [member["ending"] for member in info["members"]] == ["cancelled", "unknown"]

    def test_a_rank_that_ends_before_its_script_gets_the_signal_was_cancelled(
        self, jobs: LocalJobs, until: Until, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = jobs.submit(sh="touch here; exec sleep 600")
        until((jobs.folder / "here").exists)
        scheduler = jobs.scheduler(run)
        scheduler.kill()
        until(lambda: not scheduler.is_running())

        def rank_first(left: Callable[[], list[psutil.Process]], _: float) -> bool:
            for process in left():
                if "sleep" in words(process)[:1]:
                    process.terminate()
            until(lambda: not left())
            return True

        monkeypatch.setattr(processes, "end_all", rank_first)
        cancel(run)
        info = jobs.status(run)
        assert (info["ending"], info["code"]) == ("cancelled", 143)

    @pytest.mark.parametrize(
        "program",
        [
            "touch here.$RANK; exec sleep 600",
            "touch here.$RANK; exec sh -c 'trap : TERM; while :; do sleep 0.1; done'",
            [sys.executable, "-c", CLOSING],  # has no lock
        ],
    )
    def test_everything_but_the_ranks(
        self, jobs: LocalJobs, until: Until, monkeypatch: pytest.MonkeyPatch, program: str | list[str]
    ) -> None:
        """What lives keeps its run from being free; it is found, and ended by whoever cancels the run.

        Also where the machine is so busy that one look takes longer than ranks have for TERM and for KILL.
        """
        monkeypatch.setattr(control, "KILL_AFTER", 0.1)
        monkeypatch.setattr(processes, "_POLL", 0.4)
        words = ["--", "sh", "-c", program] if isinstance(program, str) else ["--", *program]
        run = jobs.submit("--ranks-per-node", "2", *words)
        until(lambda: len(list(jobs.folder.glob("here.*"))) == 2)
        ranks = abandon(jobs, run)
        info = jobs.status(run)
        assert info["state"] == "running" and "castoff cancel" in info["reason"]
        with pytest.raises(CastoffError, match="still running"):
            resubmit(run)
        (ended,) = end([run])
        assert ended.asked and ended.problem is None and not ended.is_active
        assert len(ranks) == 2 and not any(map(lives, ranks))
        info = jobs.status(run)
        assert (info["state"], info["ending"], info["code"]) == ("ended", "cancelled", 143)
        assert "its scheduler was killed" in info["members"][0]["attempts"][0]["reason"]

    def test_an_ending_that_ranks_outlive(self, jobs: LocalJobs, until: Until) -> None:
        """Their script has seen their launcher die, and ended; nobody has seen to them."""
        run = jobs.submit(sh="touch here; exec sleep 600")
        until((jobs.folder / "here").exists)
        script = self.script(jobs, run)
        abandon(jobs, run, spared=[script])
        until((run.path / "attempts" / "0.0" / "ending.json").exists)
        until(lambda: not lives(script))
        assert jobs.status(run)["state"] == "running"
        (ended,) = end([run])
        assert ended.problem is None and not ended.is_active
        assert (jobs.status(run)["ending"], jobs.nothing_left(run)) == ("failed", True)

    def test_one_member_s_ranks(self, jobs: LocalJobs, until: Until) -> None:
        program = "touch here.$CASTOFF_ARRAY_INDEX; exec sleep 600"
        run = jobs.submit("--set", "array={count: 2, max_concurrent: 2}", sh=program)
        until(lambda: len(list(jobs.folder.glob("here.*"))) == 2)
        abandon(jobs, run)
        cancel(run, 1)
        assert [one["ending"] for one in jobs.status(run)["members"]] == [None, "cancelled"]
        (left,) = jobs.processes(run)
        assert left.environ()["CASTOFF_LOCAL_INDEX"] == "0"
        cancel(run)

    def test_a_shell_with_the_run_s_variables_is_none_of_its_ranks(
        self, jobs: LocalJobs, until: Until
    ) -> None:
        """Nor is whoever only looks at its lock."""
        run = jobs.submit(sh="touch here; exec sleep 600")
        until((jobs.folder / "here").exists)
        (rank,) = abandon(jobs, run)
        info = {**os.environ, "CASTOFF_RUN_DIR": str(run.path), "CASTOFF_LOCAL_INDEX": "0"}
        with (run.path / LOCK).open() as lock:
            shell = subprocess.Popen(["sleep", "600"], env=info, pass_fds=[lock.fileno()])
        try:
            cancel(run)
            assert not lives(rank) and shell.poll() is None
        finally:
            shell.kill()
            shell.wait()

    def test_the_scheduler_is_asked_to_end(self, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit(sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        jobs.scheduler(run).terminate()
        assert jobs.wait(run)["ending"] == "cancelled"
        until(lambda: jobs.nothing_left(run))
