"""The local scheduler with real jobs: time, arrays, dependencies, requeues, starts."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from castoff.launcher.launchers.local.processes import allowed_cores, shares
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.local import control
from tests.cases import others_long

from ...conftest import DAEMON, STUBBORN, Castoff, LocalJobs

Until = Callable[..., None]


def ending(info: dict[str, Any], member: int = 0) -> list[str | None]:
    """The endings of a member's attempts."""
    return [attempt["ending"] for attempt in info["members"][member]["attempts"]]


class TestTerminal:
    def test_a_run_survives_its_terminal(self, jobs: LocalJobs, until: Until) -> None:
        """As a window that is closed: the shell's session loses its terminal, and all get SIGHUP."""
        program = "touch here; read -r _ <go; echo on"
        os.mkfifo(jobs.folder / "go")
        words = ["castoff", "submit", "--site", "local", "--", "sh", "-c", program]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(jobs.folder)
            os.environ["SUBMIT"] = "window"
            os.execvp("sh", ["sh", "-c", '"$@"; sleep 600', "sh", *words])
        until((jobs.folder / "here").exists)
        (run,) = jobs.runs()
        assert psutil.Process(pid).terminal() is not None
        assert {process.terminal() for process in jobs.processes(run)} == {None}
        os.close(terminal)
        os.kill(pid, signal.SIGHUP)
        os.waitpid(pid, 0)
        (jobs.folder / "go").write_text("\n")
        assert jobs.wait(run)["ending"] == "done"
        assert jobs.log(run) == "[0] on"

    def test_signals_that_the_submitter_ignores_reach_the_program(self, jobs: LocalJobs) -> None:
        program = (
            "import signal; heard = [signal.getsignal(number) for number in (3, 10, 12)];"
            "print(*heard, signal.getsignal(2) is signal.default_int_handler)"
        )
        words = ["castoff", "submit", "--site", "local", "--", sys.executable, "-c", program]
        shell = ["sh", "-c", "trap '' HUP USR1 USR2; exec \"$@\"", "sh", *words]
        subprocess.run(shell, cwd=jobs.folder, check=True, capture_output=True)
        (run,) = jobs.runs()
        jobs.wait(run)
        assert jobs.log(run) == "[0] 0 0 0 True"


class TestEnvironment:
    @pytest.mark.parametrize(
        ("inherit", "seen"), [("", "mine-too"), ("none", "-"), ("[MINE]", "mine-"), ("all", "mine-too")]
    )
    def test_inherit(self, jobs: LocalJobs, inherit: str, seen: str) -> None:
        words = ["--set", f"inherit={inherit}"] if inherit else []
        info = {"MINE": "mine", "OTHER": "too", "CASTOFF_DEVICE": "7", "SLURM_PROCID": "3", "RANK": "9"}
        run = jobs.submit(
            *words, "--ranks-per-node", "2", env=info, sh='echo "$MINE-$OTHER" $RANK ${SLURM_PROCID-}'
        )
        jobs.wait(run)
        assert sorted(jobs.log(run).splitlines()) == [f"[0] {seen} 0", f"[1] {seen} 1"]

    @pytest.mark.parametrize(("inherit", "seen"), [("none", " "), ("[MINE]", " "), ("all", "function rc")])
    def test_what_bash_reads_as_it_starts(self, jobs: LocalJobs, inherit: str, seen: str) -> None:
        """Functions of the submitter, and what it names as BASH_ENV."""
        rc = jobs.folder / "rc"
        rc.write_text("CAME=rc\n")
        info = {"BASH_FUNC_mine%%": "() {  echo mine; }", "BASH_ENV": str(rc), "MINE": "mine"}
        setup = "setup: ['export SEEN=\"$(type -t mine || :) ${CAME-}\"']"
        file = jobs.job(f"command: [sh, -c, 'echo \"$SEEN\"']\n{setup}\n")
        run = jobs.submit("--set", f"inherit={inherit}", file, env=info)
        jobs.wait(run)
        assert jobs.log(run) == f"[0] {seen}"

    def test_workdir_python_setup_and_env(self, jobs: LocalJobs, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "python").write_text('#!/bin/sh\necho "mine: $*"\n')
        (tmp_path / "bin" / "python").chmod(0o755)
        (tmp_path / "work").mkdir()
        run = jobs.submit(
            jobs.job(
                f'command: [sh, -c, \'python "$A" "$B"; pwd\']\npython: {tmp_path}/bin/python\n'
                f"workdir: {tmp_path}/work\nsetup: ['export A=setup B=setup', 'cd /']\nenv: {{B: \"e  v\"}}\n"
            )
        )
        assert jobs.wait(run)["ending"] == "done"
        assert jobs.log(run).splitlines() == ["[0] mine: setup e  v", f"[0] {tmp_path}/work"]

    def test_a_job_that_submits(self, castoff: Castoff, jobs: LocalJobs) -> None:
        inner = "castoff submit --site local --name inner -- sh -c 'echo $CASTOFF_ATTEMPT $CASTOFF_RUN_DIR'"
        there = {"CASTOFF_RUNS_DIR": str(jobs.folder / "there"), "CASTOFF_ARRAY_OFFSET": "7"}
        outer = jobs.submit("--name", "outer", sh=f"{inner} && castoff wait inner", env=there)
        assert jobs.wait(outer)["ending"] == "done"
        (run,) = [run for run in jobs.runs() if run.id.startswith("inner")]
        assert run.path.parent == outer.path.parent == jobs.folder / "there"
        assert jobs.wait(run)["ending"] == "done"
        assert jobs.log(run) == f"[0] 0 {run.path}"


class TestArray:
    def test_at_most_so_many_at_once(self, jobs: LocalJobs, until: Until) -> None:
        program = (
            "on=on.$CASTOFF_ARRAY_INDEX; mkdir $on; while [ ! -e go ]; do sleep 0.05; done; "
            "set -- on.*; echo $#; rmdir $on; echo of $CASTOFF_ARRAY_COUNT"
        )
        run = jobs.submit("--set", "array={count: 3, max_concurrent: 1}", sh=program)
        until((jobs.folder / "on.0").exists)
        control.cancel(run, 2)  # heard in a later turn of the scheduler than the one that began the first
        until((run.path / "attempts" / "2.0" / "ending.json").exists)
        states = [member["state"] for member in jobs.status(run)["members"]]
        assert states == ["running", "pending", "ended"] and not run.script_log(1).exists()
        (jobs.folder / "go").touch()
        assert [one["ending"] for one in jobs.wait(run)["members"]] == ["done", "done", "cancelled"]
        assert {jobs.log(run, member) for member in range(2)} == {"[0] 1\n[0] of 3"}

    def test_as_many_as_fit_into_the_cores(self, jobs: LocalJobs) -> None:
        """Each needs all of them, so one runs after the other."""
        cores = len(allowed_cores())
        program = "mkdir on || exit 3; sleep 0.1; rmdir on"
        ranks = ["--ranks-per-node", "1", "--cores-per-rank", str(cores)]
        run = jobs.submit("--set", "array.count=3", *ranks, sh=program)
        assert jobs.wait(run)["ending"] == "done"

    def test_members_beside_each_other_have_cores_of_their_own(self, jobs: LocalJobs) -> None:
        cores = len(allowed_cores())
        width = len(shares(cores, 1)[0]) or cores
        program = "import os; print(*os.sched_getaffinity(0))"
        run = jobs.submit("--set", f"array.count={cores}", "--", sys.executable, "-c", program)
        assert jobs.wait(run)["ending"] == "done"
        seen = [jobs.log(run, member) for member in range(cores)]
        assert {*map(len, map(str.split, seen))} == {1 + width}  # the rank's number before them

    @pytest.mark.skipif(len(allowed_cores()) < 2, reason="a member has a core")
    def test_members_beside_each_other_have_devices_of_their_own(
        self, jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of four devices, each of two members has two; of three, one member after the other has two."""
        program = (
            "touch at-$CASTOFF_ARRAY_INDEX; until [ -e at-$BESIDE ]; do sleep 0.02; done; "
            "echo $CUDA_VISIBLE_DEVICES $CASTOFF_DEVICE"
        )
        fields = ["--set", "array.count=2", "--set", "devices_per_rank=2", "--set", "cores_per_rank=1"]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
        run = jobs.submit(*fields, sh=program.replace("$BESIDE", "$((1 - CASTOFF_ARRAY_INDEX))"))
        assert jobs.wait(run)["ending"] == "done"
        assert {jobs.log(run, member) for member in range(2)} == {"[0] 4,5 0", "[0] 6,7 0"}
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
        run = jobs.submit(*fields, sh=program.replace("$BESIDE", "$CASTOFF_ARRAY_INDEX"))
        assert jobs.wait(run)["ending"] == "done"
        assert {jobs.log(run, member) for member in range(2)} == {"[0] 5,6 0"}

    def test_one_member_fails(self, castoff: Castoff, jobs: LocalJobs) -> None:
        program = 'echo "member $CASTOFF_ARRAY_INDEX"; exit $((CASTOFF_ARRAY_INDEX == 1 ? 7 : 0))'
        run = jobs.submit("--set", "array.count=3", sh=program)
        info = jobs.wait(run)
        assert (info["ending"], info["code"]) == ("failed", 7)
        assert [member["ending"] for member in info["members"]] == ["done", "failed", "done"]
        assert "member 2" in castoff("logs", run.path, "--member", "2").stdout
        first, *_ = castoff("logs", run.path, "--member", "1").stdout.splitlines()
        assert first.startswith("--- rank 0 on ") and first.endswith(" failed first: exit code 7 ---")
        wrong = castoff("logs", run.path, "--member", "3")
        assert wrong.stderr.endswith(": no member 3; members are 0 to 2\n")

    def test_a_member_that_ends_leaves_the_others_alone(self, jobs: LocalJobs, until: Until) -> None:
        """What a running member's setup has put in the background is not the first one's to end."""
        job = jobs.job(
            "array: {count: 2}\nsetup: ['(sleep 30 & echo $! >helper.$CASTOFF_ARRAY_INDEX)']\n"
            "command: [sh, -c, 'test $CASTOFF_ARRAY_INDEX = 0 && exit; "
            "while [ ! -e go ]; do sleep 0.05; done; kill -0 $(cat helper.1) && echo helped']\n"
        )
        run = jobs.submit(job)
        until(lambda: jobs.status(run)["members"][0]["state"] == "ended")
        (jobs.folder / "go").touch()
        assert jobs.wait(run)["ending"] == "done"
        assert jobs.log(run, 1) == "[0] helped"

    def test_cancelling_reaches_members_that_wait(
        self, castoff: Castoff, jobs: LocalJobs, until: Until
    ) -> None:
        run = jobs.submit("--set", "array={count: 3, max_concurrent: 1}", sh="touch here; sleep 60")
        until((jobs.folder / "here").exists)
        assert castoff("cancel", run.path).stdout == f"{run.id}: ended, cancelled\n"
        info = jobs.status(run)
        assert [member["ending"] for member in info["members"]] == ["cancelled"] * 3
        assert [member["attempts"][0]["started"] is None for member in info["members"]] == [False, True, True]
        assert jobs.nothing_left(run)


class TestAfter:
    @pytest.mark.parametrize(
        ("condition", "code", "runs"),
        [
            ("afterok", 0, True),
            ("afterok", 3, False),
            ("afternotok", 3, True),
            ("afternotok", 0, False),
            ("afterany", 3, True),
        ],
    )
    def test_conditions(
        self, castoff: Castoff, jobs: LocalJobs, condition: str, code: int, runs: bool
    ) -> None:
        first = jobs.submit("--name", "first", sh=f"while [ ! -e go ]; do sleep 0.05; done; exit {code}")
        then = jobs.submit("--set", f"after.{condition}=[first]", sh="echo second")
        assert jobs.status(then)["state"] == "pending"
        (jobs.folder / "go").touch()
        info = jobs.wait(then)
        if runs:
            assert info["ending"] == "done" and jobs.log(then) == "[0] second"
            assert jobs.status(first)["state"] == "ended"
        else:
            reason = f"{condition} of {first.id} cannot hold any more"
            assert (info["ending"], info["code"]) == ("cancelled", 143)
            assert info["members"][0]["attempts"][0]["reason"] == reason
            assert reason in castoff("status", then.path).stdout
            assert castoff("logs", then.path).stderr.endswith(f"it has no logs: {reason}\n")

    def test_after_the_start_by_id_and_by_scheduler_id(self, jobs: LocalJobs, until: Until) -> None:
        first = jobs.submit(sh="touch here; sleep 60")
        until((jobs.folder / "here").exists)
        words = ["--set", f"after.after=[{first.id}, {first.job}]"]
        then = jobs.submit(*words, sh="true")
        assert jobs.wait(then)["ending"] == "done"
        assert jobs.status(first)["state"] == "running"

    def test_nobody_knows_how_it_ended(self, jobs: LocalJobs, until: Until) -> None:
        first = jobs.submit("--name", "first", sh="touch here; sleep 60")
        then = jobs.submit("--set", "after.afterok=[first]", sh="true")
        until((jobs.folder / "here").exists)
        jobs.kill_everything(first)
        assert jobs.wait(then)["ending"] == "cancelled"

    def test_cancelled_while_it_waits(self, castoff: Castoff, jobs: LocalJobs) -> None:
        first = jobs.submit("--name", "first", sh="sleep 60")
        then = jobs.submit("--set", "after.afterok=[first]", sh="true")
        assert castoff("cancel", then.path).stdout == f"{then.id}: ended, cancelled\n"
        assert jobs.status(first)["state"] in ("pending", "running")


@pytest.mark.parametrize(("line", "code"), [("exec true", 1), ("exec sh -c 'exit 4'", 4), ("set -n", 1)])
def test_setup_that_ends_the_script_without_its_end(jobs: LocalJobs, line: str, code: int) -> None:
    """The ranks never begin, and the script's own code may say that all is well."""
    info = jobs.wait(jobs.submit("--set", f"setup={json.dumps([line])}", sh="touch here"))
    assert (info["ending"], info["code"]) == ("failed", code)
    assert (
        "before its end, as after `exec` or `set -n` in setup" in info["members"][0]["attempts"][0]["reason"]
    )
    assert not (jobs.folder / "here").exists()


def submitted_in_time(jobs: LocalJobs, on_term: str, made: str = "up") -> RunDirectory:
    """A run that has made a file before its walltime is over, which a slow machine gets longer.

    As it is, once its program handles TERM.
    """
    program = f"trap {shlex.quote(on_term)} TERM; touch up; while :; do sleep 0.05; done"
    for seconds in (2, 8, 32, 128):
        run = jobs.submit("--walltime", f"{seconds}s", "--set", "grace=1s", sh=program)
        jobs.wait(run)
        if (jobs.folder / made).exists():
            break
    return run


class TestWalltime:
    def test_asked_to_stop_then_ended(self, jobs: LocalJobs, until: Until) -> None:
        stopped = '[ ! -e "$CASTOFF_STOP_FILE" ] || touch stopped; trap - TERM; kill $$'
        info = jobs.status(run := submitted_in_time(jobs, stopped, "stopped"))
        attempt = info["members"][0]["attempts"][0]
        assert (info["ending"], info["code"]) == ("walltime", 143)
        assert attempt["failure"] is None
        assert (jobs.folder / "stopped").exists()
        until(lambda: jobs.nothing_left(run))

    @pytest.mark.parametrize("program", others_long(["sleep 600", STUBBORN], ["sleep 600"]))
    def test_it_holds_without_a_scheduler(self, jobs: LocalJobs, until: Until, program: str) -> None:
        """The script ends itself; what takes no notice is killed by its launcher."""
        setup = """setup=["kill -KILL $PPID"]"""
        run = jobs.submit("--walltime", "2s", "--set", "grace=1s", "--set", setup, sh=program)
        info = jobs.wait(run)
        assert (info["state"], info["ending"]) == ("ended", "walltime") and info["code"] in (137, 143)
        assert "castoff_enforce" not in jobs.log(run)
        until(lambda: jobs.nothing_left(run))

    @pytest.mark.long
    def test_one_that_ignores_it_is_killed(self, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit("--walltime", "2s", "--set", "grace=1s", sh=STUBBORN)
        info = jobs.wait(run)
        assert info["ending"] == "walltime" and info["code"] in (137, 143)
        until(lambda: jobs.nothing_left(run))

    def test_one_that_ends_well_when_asked_has_not_finished(self, jobs: LocalJobs) -> None:
        info = jobs.status(submitted_in_time(jobs, "exit 0"))
        assert (info["ending"], info["code"]) == ("walltime", 143)

    def test_a_program_that_writes_done_is_done(self, jobs: LocalJobs) -> None:
        info = jobs.status(submitted_in_time(jobs, 'echo done >"$CASTOFF_OUTCOME_FILE"; exit 0'))
        assert (info["ending"], info["code"]) == ("done", 0)

    def test_time_enough(self, jobs: LocalJobs) -> None:
        info = jobs.wait(jobs.submit("--walltime", "1h", sh="true"))
        assert (info["ending"], info["code"]) == ("done", 0)


class TestRequeue:
    AGAIN = 'echo "attempt $CASTOFF_ATTEMPT"; echo resume >"$CASTOFF_OUTCOME_FILE"'

    def test_again_until_it_is_used_up(self, castoff: Castoff, jobs: LocalJobs) -> None:
        run = jobs.submit("--set", "requeue.max=2", sh=self.AGAIN)
        ended = jobs.wait(run)
        assert (ended["ending"], ended["code"]) == ("walltime", 75)
        assert ending(ended) == ["resume", "resume", "walltime"]
        assert jobs.log(run).splitlines() == ["[0] attempt 0", "[0] attempt 1", "[0] attempt 2"]
        (info,) = json.loads(castoff("logs", run.path, "--attempt", "1", "--json").stdout)["attempts"]
        assert info["ranks"] == [str(run.log_folder / "0.1" / "rank-00000.log")]
        assert castoff("logs", run.path, "--rank", "0", "--attempt", "1").stdout == "attempt 1\n"

    def test_again_then_done(self, jobs: LocalJobs) -> None:
        """Before a member that has not begun yet."""
        program = 'echo "$CASTOFF_ARRAY_INDEX $CASTOFF_ATTEMPT" >>order; [ $CASTOFF_ATTEMPT = 1 ] && exit'
        words = ["--set", "requeue.max=5", "--set", "array={count: 2, max_concurrent: 1}"]
        info = jobs.wait(jobs.submit(*words, sh=f"{program}; {self.AGAIN}"))
        assert (info["ending"], info["code"]) == ("done", 0)
        assert ending(info) == ending(info, 1) == ["resume", "done"]
        assert (jobs.folder / "order").read_text().splitlines() == ["0 0", "0 1", "1 0", "1 1"]

    def test_after_restarts_of_the_same_job(self, jobs: LocalJobs) -> None:
        """They count for restart.max alone, and the scheduler sees to the attempt that is the newest."""
        words = ["restart.max=1", "restart.progress=none", "requeue.max=1"]
        run = jobs.submit(*(word for one in words for word in ("--set", one)), sh="[ $CASTOFF_ATTEMPT = 3 ]")
        info = jobs.wait(run)
        assert (info["ending"], ending(info)) == ("done", ["failed", "resume", "failed", "done"])
        assert [one["restart"] for one in info["members"][0]["attempts"]] == [None, 1, None, 1]
        jobs.until_tidy(run)
        assert all((folder / "settled").exists() for _, _, folder in run.attempts())

    def test_a_script_that_is_killed_after_a_restart(self, jobs: LocalJobs, until: Until) -> None:
        program = "[ $CASTOFF_ATTEMPT = 1 ] && echo $PPID >here && sleep 600; exit 1"
        run = jobs.submit("--set", "restart.max=1", sh=program)
        until((jobs.folder / "here").exists)
        script = jobs.scheduler(run).children()[0]
        script.kill()
        info = jobs.wait(run)
        assert (info["ending"], ending(info)) == ("failed", ["failed", "failed"])
        assert info["members"][0]["attempts"][1]["reason"] == "its script was killed by signal 9"

    def test_without_requeue(self, jobs: LocalJobs) -> None:
        info = jobs.wait(jobs.submit(sh=self.AGAIN))
        assert (info["ending"], info["code"], ending(info)) == ("walltime", 75, ["walltime"])

    def test_a_failure_is_never_started_again(self, jobs: LocalJobs) -> None:
        info = jobs.wait(jobs.submit("--set", "requeue.max=3", sh=f"{self.AGAIN}; exit 5"))
        assert (info["ending"], info["code"], ending(info)) == ("failed", 5, ["failed"])

    def test_killed_at_the_walltime_and_why_not_requeued(self, jobs: LocalJobs) -> None:
        """A program that knows none of castoff's files."""
        words = ["--walltime", "2s", "--set", "grace=1s", "--set", "requeue={max: 1, progress: none}"]
        run = jobs.submit(*words, sh="exec sleep 1000")
        info = jobs.wait(run)
        assert ending(info) == ["resume", "walltime"]
        why = info["reason"]
        ended = r"still running \d s before the walltime, so castoff ended it"
        assert re.fullmatch(rf"{ended}; not requeued: requeue.max \(1\) is used up", why), why
        assert jobs.castoff("wait", run.path).stdout == f"{run.path.name}: walltime: {why}\n"
        assert why[:60] in jobs.castoff("list").stdout

    def test_stopping_early_before_the_walltime(self, jobs: LocalJobs) -> None:
        program = (
            '[ $CASTOFF_ATTEMPT = 1 ] && exit; while [ ! -e "$CASTOFF_STOP_FILE" ]; do sleep 0.05; done; '
            'echo resume >"$CASTOFF_OUTCOME_FILE"'
        )
        words = ["--walltime", "3s", "--set", "grace=2s", "--set", "requeue.max=1"]
        info = jobs.wait(jobs.submit(*words, sh=program))
        assert (info["ending"], ending(info)) == ("done", ["resume", "done"])

    def test_cancelled_programs_do_not_come_back(
        self, castoff: Castoff, jobs: LocalJobs, until: Until
    ) -> None:
        trap = "trap 'echo resume >\"$CASTOFF_OUTCOME_FILE\"; exit 0' TERM"
        program = f"{trap}; touch here; while :; do sleep 0.05; done"
        run = jobs.submit("--set", "requeue.max=3", sh=program)
        until((jobs.folder / "here").exists)
        assert castoff("cancel", run.path).stdout == f"{run.id}: ended, cancelled\n"
        info = jobs.status(run)
        assert (info["ending"], info["code"], ending(info)) == ("cancelled", 143, ["cancelled"])


class TestStart:
    def test_what_is_left_behind_is_ended(self, jobs: LocalJobs, until: Until) -> None:
        program = DAEMON.format(then="")
        job = jobs.job("setup: ['(setsid sleep 600 &)']\ncommand: [x]\n")
        run = jobs.submit(job, "--", sys.executable, "-c", program)
        assert jobs.wait(run)["ending"] == "done"
        until(lambda: jobs.nothing_left(run))
        assert not psutil.pid_exists(int((jobs.folder / "daemon").read_text()))

    def test_the_directory_is_gone_by_then(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path) -> None:
        (tmp_path / "work").mkdir()
        runs = tmp_path / "runs"
        first = jobs.submit(
            "--name", "first", "--runs-dir", runs, sh="while [ ! -e go ]; do sleep 0.05; done"
        )
        words = ["--site", "local", "--json", "--set", "after.afterok=[first]", "--runs-dir", str(runs)]
        answer = castoff("submit", *words, "--", "true", cwd=tmp_path / "work")
        run = RunDirectory(Path(json.loads(answer.stdout)["directory"]))
        (tmp_path / "work").rmdir()
        (tmp_path / "go").touch()
        jobs.wait(first)
        info = jobs.wait(run)
        assert (info["ending"], info["code"]) == ("failed", 126)
        assert "its script could not be started: " in info["members"][0]["attempts"][0]["reason"]
        assert str(tmp_path / "work") in castoff("status", run.path).stdout

    def test_no_such_program(self, castoff: Castoff, jobs: LocalJobs) -> None:
        run = jobs.submit("--", "no-such-program")
        info = jobs.wait(run)
        assert (info["ending"], info["code"]) == ("failed", 127)
        assert "cannot find the program 'no-such-program'" in castoff("logs", run.path).stdout

    def test_setup_that_fails(self, castoff: Castoff, jobs: LocalJobs) -> None:
        lines = [f"echo line {number}" for number in range(9)] + ["no-such-module load x"]
        info = jobs.wait(run := jobs.submit(jobs.job(f"setup: {lines}\ncommand: [true]\n")))
        assert (info["ending"], info["code"]) == ("failed", 127)
        reason = "setup ended the job with code 127, at this line: no-such-module load x"
        shown = castoff("status", run.path).stdout.splitlines()
        place = shown.index(f"           {reason}")
        assert shown[place + 1 : place + 5] == [f"             line {number}" for number in range(5, 9)]
        assert shown[place + 5].endswith(": no-such-module: command not found")
        assert shown[place + 6].startswith("           logs in ")
        (attempt,) = json.loads(castoff("status", run.path, "--json").stdout)["members"][0]["attempts"]
        assert attempt["reason"] == reason and attempt["script_output"][0] == "line 5"
        assert castoff("logs", run.path).stdout.splitlines()[-1] == f"castoff: {reason}"
        followed = castoff("logs", "-f", run.path)
        assert (followed.returncode, followed.stderr) == (127, f"castoff: {run.id}: failed: {reason}\n")

    def test_a_wrong_clock_ends_nothing(self, jobs: LocalJobs, tmp_path: Path) -> None:
        """A clock that is set back a day: the walltime is still the walltime, and no time is negative."""
        fake = tmp_path / "bin" / "date"
        fake.parent.mkdir()
        fake.write_text(
            '#!/bin/sh\n[ -e later ] && exec /bin/date -d "-1 day" "$@"\ntouch later\nexec /bin/date "$@"\n'
        )
        fake.chmod(0o755)
        path = f"{fake.parent}:{os.environ['PATH']}"
        words = ["--walltime", "2s", "--set", "grace=1s"]
        run = jobs.submit(*words, sh="sleep 60", env={"PATH": path})
        info = jobs.wait(run)
        assert info["ending"] == "walltime"
        record = run.path / "attempts" / "0.0" / "ending.json"
        held = json.loads(record.read_text())
        record.write_text(json.dumps({**held, "time": held["time"] - 86400}))
        assert re.search(r"walltime after 0s, began ", jobs.castoff("status", run.path).stdout)
