"""What a script printed, and the reason that it gives for a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.launchers.local import mpi_worlds
from castoff.launcher.launchers.local.lone_rank import HINT
from castoff.launcher.launchers.local.mpi_worlds import MpiWorlds
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus
from castoff.launcher.status.script_output import failure_reason, script_headline, script_output


class TestScriptOutput:
    """What launchers really print, in the log of a script."""

    SRUN = "srun: error: Unable to create step for job 2: Memory required by task is not available\n"
    RESTART = (
        "castoff: attempt 0 failed: the launcher failed with code 1; attempt 1 begins (restart 1 of 1)\n"
    )

    def said(self, folder: Path, log: str, **changes: Any) -> list[str]:
        return script_output(*self.made(folder, log, **changes))

    def made(
        self, folder: Path, log: str, *, attempt: int = 0, rank: str = "", **changes: object
    ) -> tuple[RunDirectory, int, AttemptStatus]:
        run = RunDirectory(folder)
        for number in range(log.count("castoff: attempt ") + 1):
            (folder / "attempts" / f"0.{number}").mkdir(parents=True, exist_ok=True)
        logs = folder / "logs" / f"0.{attempt}"
        logs.mkdir(parents=True)
        (logs / "rank-00000.log").write_text(rank)
        run.script_log().write_text(log)
        facts: dict[str, Any] = {
            "state": "ended",
            "ending": "failed",
            "reason": None,
            "failure": None,
            **changes,
        }
        status = AttemptStatus(
            attempt,
            code=1,
            host="n1",
            started=1.0,
            ended=2.0,
            logs=str(logs),
            **facts,
        )
        return run, 0, status

    @pytest.mark.parametrize(
        ("log", "first"),
        [
            (SRUN, SRUN.strip()),
            ("srun: unrecognized option '--no'\nTry \"srun --help\"\n", "srun: unrecognized option '--no'"),
            (
                f"{'-' * 74}\nThere are not enough slots available\n\n{'-' * 74}\n",
                "There are not enough slots available",
            ),
            (
                "[mpiexec@n1] match_arg (args.c:163): unrecognized argument no\n",
                "[mpiexec@n1] match_arg (args.c:163): unrecognized argument no",
            ),
            ("something new\n", "something new"),
        ],
    )
    def test_the_launchers_own_words_begin(self, tmp_path: Path, log: str, first: str) -> None:
        made = self.made(tmp_path, log)
        assert script_output(*made)[0] == script_headline(*made) == first

    def test_a_headline_is_the_last_line_of_others(self, tmp_path: Path) -> None:
        log = "module load: no such module\ncastoff: the job has 1 node and needs 2\n"
        assert script_headline(*self.made(tmp_path / "a", log)) == "the job has 1 node and needs 2"
        assert script_headline(*self.made(tmp_path / "b", "\n")) is None
        assert script_headline(*self.made(tmp_path / "c", log, reason="it is known")) is None
        assert script_headline(*self.made(tmp_path / "d", log, ending="done")) is None
        long = self.SRUN + "x\n" * (1 << 16)
        assert script_headline(*self.made(tmp_path / "e", long)) == "x"  # no more than its end is read

    @pytest.mark.parametrize(
        ("log", "headline"),
        [
            ("/r/job.sh: line 300: mpiexec: command not found\n", "mpiexec: command not found"),
            (
                "/etc/profile: line 3: x: not found\n/slurm_script: line 29: cd: /gone: No such file\n",
                "cd: /gone: No such file",
            ),
            (
                'mpiexec: Error: unknown option "-f"\ncastoff: this job\'s launcher is /usr/bin/mpiexec\n',
                "this job's launcher is /usr/bin/mpiexec",
            ),
        ],
    )
    def test_the_line_that_ended_the_script(self, tmp_path: Path, log: str, headline: str) -> None:
        run, number, attempt = self.made(tmp_path, log)
        assert script_headline(run, number, attempt) == headline
        members = [MemberStatus(number, "ended", "failed", [attempt])]
        assert failure_reason(run, members, "failed") == headline

    def test_with_the_record_of_a_launcher_that_failed(self, tmp_path: Path) -> None:
        reason = "the launcher failed with code 1; restart.max (1) is used up"
        run, number, attempt = self.made(tmp_path, self.SRUN, reason=reason)
        members = [MemberStatus(number, "ended", "failed", [attempt])]
        assert failure_reason(run, members, "failed") == f"{self.SRUN.strip()}; {reason}"
        assert failure_reason(run, members, "cancelled") is None
        log = f"castoff: cannot find the program 'x'\ncastoff: not started again: {reason}\n"
        run, number, attempt = self.made(tmp_path / "b", log, reason=reason)
        members = [MemberStatus(number, "ended", "failed", [attempt])]
        assert failure_reason(run, members, "failed") == f"cannot find the program 'x'; {reason}"

    def test_each_attempt_has_its_own(self, tmp_path: Path) -> None:
        log = self.SRUN + self.RESTART + "srun: error: something else\n"
        reason = "the launcher failed with code 1"
        assert self.said(tmp_path / "a", log, reason=reason) == [self.SRUN.strip()]
        assert self.said(tmp_path / "b", log, attempt=1, reason=reason) == ["srun: error: something else"]

    def test_of_a_requeued_job(self, tmp_path: Path) -> None:
        """Slurm appends to its log, and a host may have its own slurmstepd."""
        log = f"{self.SRUN}slurmstepd-n1: error: *** JOB 3 ON n1 CANCELLED DUE TO JOB REQUEUE ***\n"
        log += "castoff: attempt 1 begins\nsrun: error: something else\n"
        assert self.said(tmp_path / "a", log)[0] == self.SRUN.strip()
        assert self.said(tmp_path / "b", log, attempt=1) == ["srun: error: something else"]
        assert self.said(tmp_path / "c", log + "castoff: attempt 3 begins\nsrun: late\n", attempt=2) == []

    def test_among_what_ranks_print(self, tmp_path: Path) -> None:
        log = f"epoch 1\n{'-' * 40}\nsrun: error: Task launch for StepId=2.0 failed on node n2: no\nepoch 2\n"
        (line,) = self.said(tmp_path, log, rank="epoch 1\nepoch 2\n")
        assert line.startswith("srun: error: Task launch")

    def test_where_something_else_ended_it(self, tmp_path: Path) -> None:
        assert self.said(tmp_path / "a", self.SRUN, reason="No space left on the disk") == []
        assert self.said(tmp_path / "b", self.SRUN, ending="cancelled") == []

    def test_while_it_waits(self, tmp_path: Path) -> None:
        waits = "castoff: after 20 s these have not started: n2 (rank 1)\n"
        retries = "srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
        running: dict[str, Any] = {"state": "running", "ending": None}
        for name in "abc":
            (tmp_path / name / "attempts" / "0.0").mkdir(parents=True)
        (tmp_path / "a" / "attempts" / "0.0" / "starting").touch()
        (tmp_path / "b" / "attempts" / "0.0" / "starting").touch()
        said = self.said(tmp_path / "a", waits + retries, **running)
        assert said == [waits.removeprefix("castoff: ").strip(), retries.strip()]
        assert self.said(tmp_path / "b", waits + "castoff: after 25 s all have started\n", **running) == []
        assert self.said(tmp_path / "c", waits, **running) == []

    @pytest.mark.parametrize(
        ("log", "shown"),
        [
            ("ready\ncastoff: {alone}\n", True),
            ("castoff: {alone}\nepoch 1\n", False),
            ("castoff: {worlds}\nepoch 1\n", True),
            ("castoff: {worlds}\ncastoff: attempt 0 failed: x; attempt 1 begins (restart 1 of 1)\n", False),
        ],
    )
    def test_while_ranks_do_not_meet(self, tmp_path: Path, log: str, shown: bool) -> None:
        """Until something shows that they do."""
        worlds = MpiWorlds(2, {0: 70}, 0.0)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(mpi_worlds, "mpi_of", lambda pid: "libmpi.so.40")
            texts = {"alone": HINT, "worlds": str(worlds.look(1.0))}
        number = log.count("begins")
        said = self.said(tmp_path, log.format(**texts), attempt=number, state="running", ending=None)
        assert said == [text for text in texts.values() if shown and text in log.format(**texts)]
