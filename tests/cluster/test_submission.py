"""castoff submit on a real Slurm: what is sent, how often, and what it waits for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from castoff.launcher.runs.run import RunDirectory
from tests.launcher.scripts.harness import STALE
from tests.patience import until
from tests.records import submission_of

from .desk import Desk
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

REAL_SBATCH = shutil.which("sbatch")


@pytest.fixture
def desk(slurm: SlurmCluster, tmp_path: Path) -> Desk:
    return Desk(slurm, tmp_path / "desk")


def test_a_job_file(desk: Desk) -> None:
    """Its script, as Slurm keeps it, is the one that castoff render shows; ranks, logs, records."""
    job = desk.folder / "job.yaml"
    job.write_text(
        """
name: filed
command: [sh, -c, 'echo rank $RANK of $WORLD_SIZE: $TOKEN, $MINE, ${TERM-no terminal}']
nodes: 2
ranks_per_node: 2
walltime: 5m
env: {MINE: it's mine}
env_from: [TOKEN]
"""
    )
    answer = desk.castoff("submit", job, "--site", "slurm", env={"TOKEN": "s3cret", "TERM": "xterm"})
    assert answer.code == 0, answer.errors
    (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/filed-*"))
    assert f"job         {run.job} (slurm)\n" in answer.output and str(run.job).isdecimal()
    kept = desk.slurm("scontrol", "write", "batch_script", str(run.job), "-")
    assert kept.strip() == desk.castoff("render", job, "--site", "slurm").output.strip()
    assert "s3cret" not in kept
    assert desk.record(run, "ending")["ending"] == "done"
    said = [(run.log_folder / "0.0" / f"rank-{rank:05}.log").read_text() for rank in range(4)]
    assert said == [f"rank {rank} of 4: s3cret, it's mine, no terminal\n" for rank in range(4)]
    assert desk.over(run) == [f"{run.job} COMPLETED"]
    assert submission_of(run).cluster == desk.record(run, "start")["cluster"] == "castoff"
    assert run.script_log().exists() and run.path.stat().st_mode & 0o777 == 0o700


def test_what_the_caller_has_in_its_environment(desk: Desk) -> None:
    """Of all of it only what `inherit` asks for; and sbatch itself heeds the script alone."""
    theirs = {"SBATCH_PARTITION": "none-such", "SBATCH_JOB_NAME": "theirs", "SBATCH_TIMELIMIT": "1"}
    ours = {"CASTOFF_RUN_DIR": "/nowhere", "CASTOFF_ATTEMPT": "7", "CASTOFF_ARRAY_OFFSET": "5"}
    inside = {
        "SLURM_JOB_ID": "99",
        "SLURM_ARRAY_TASK_ID": "1",
        "SLURM_NTASKS": "9",
        "SLURM_EXPORT_ENV": "NIL",
    }
    run = desk.submit(
        *("--name", "clean", "--nodes", "2", "--set", "inherit=all"),
        sh="echo $RANK of $WORLD_SIZE, attempt $CASTOFF_ATTEMPT, ${SBATCH_PARTITION-none}, $KEPT",
        env={**STALE, **theirs, **ours, **inside, "KEPT": "a,b c"},
    )
    assert desk.record(run, "ending")["ending"] == "done"
    said = [(run.log_folder / "0.0" / f"rank-{rank:05}.log").read_text() for rank in range(2)]
    assert said == [f"{rank} of 2, attempt 0, none, a,b c\n" for rank in range(2)]
    assert desk.over(run)
    named = desk.slurm("sacct", "-X", "-n", "-P", "-j", str(run.job), "-o", "JobName,Partition,TimelimitRaw")
    assert named.startswith("clean|main|") and not named.endswith("|1")


def test_an_array_larger_than_slurm_takes(desk: Desk) -> None:
    """In three parts, each waiting for the one before, for no more than three may run at once."""
    log = desk.folder / "log"
    run = desk.submit(
        *("--name", "sweep", "--set", "array.count=20", "--set", "array.max_concurrent=3"),
        sh=f"echo + >>{log}; echo member $CASTOFF_ARRAY_INDEX of $CASTOFF_ARRAY_COUNT; echo - >>{log}",
    )
    sends = submission_of(run).sends
    assert [(send.offset, send.count) for send in sends] == [(0, 8), (8, 8), (16, 4)]
    assert run.job == sends[0].job and len({send.job for send in sends}) == 3
    desk.over(run, 20)
    for member in range(20):
        assert f"member {member} of 20\n" in run.script_log(member).read_text()
        assert desk.record(run, "ending", f"{member}.0")["ending"] == "done"
    at_once = 0
    for sign in log.read_text().split():
        at_once += 1 if sign == "+" else -1
        assert at_once <= 3


def test_parameters_of_an_array_that_slurm_takes_in_parts(desk: Desk) -> None:
    run = desk.submit(
        *("--set", "array.parameters={a: ['$x', 'b c', 1e-3, \"'\"], b: [0, 1, 2]}", "--set", 'env.A="{a}"'),
        *("--set", 'name="grid-{b}"'),
        sh='echo "$A"; cat "$CASTOFF_PARAMETERS"',
    )
    assert [(send.offset, send.count) for send in submission_of(run).sends] == [(0, 8), (8, 4)]
    desk.over(run, 12)
    values = [("$x", '"$x"'), ("b c", '"b c"'), ("1e-3", "1e-3"), ("'", '"\'"')]
    for member in range(12):
        text, scalar = values[member // 3]
        log = (run.log_folder / f"{member}.0" / "rank-00000.log").read_text()
        assert log == f'{text}\n{{"a": {scalar}, "b": {member % 3}}}\n'
    assert desk.castoff("logs", "grid", "a=0.001,b=2", "--rank", "0").output.startswith("1e-3\n")
    begun = desk.castoff("resubmit", "grid", "a=0.001,b=2", "--include-done", "--json")
    assert json.loads(begun.output)["attempts"] == {"8": 1}
    desk.over(run, 13)
    again = (run.log_folder / "8.1" / "rank-00000.log").read_text()
    assert again == '1e-3\n{"a": 1e-3, "b": 2}\n'


def test_slurms_refusal_in_its_own_words(desk: Desk) -> None:
    answer = desk.castoff("submit", "--site", "slurm", "--queue", "none-such", "--", "true")
    assert answer.code == 1 and answer.output == ""
    assert "sbatch: error: Batch job submission failed: Invalid partition name specified\n" in answer.errors
    (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/*"))
    assert f"nothing was started; the script is {run.script}\n" in answer.errors
    assert "Invalid partition name" in str(submission_of(run).error) and run.job is None
    assert desk.accounted(run) == []


def test_a_part_of_an_array_that_slurm_refuses(desk: Desk) -> None:
    """Then nothing of it stays: the user asked for all of them."""
    refusing = desk.program(
        "sbatch",
        f"""[[ ${{CASTOFF_ARRAY_OFFSET-0}} != 8 ]] || {{ echo 'sbatch: error: a limit' >&2; exit 1; }}
exec {REAL_SBATCH} --hold "$@"
""",
    )
    words = ["--site", "slurm", "--set", "array.count=10", "--", "true"]
    answer = desk.castoff("submit", *words, env=refusing)
    assert answer.code == 1 and "sbatch: error: a limit\n" in answer.errors
    (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/*"))
    queue = desk.slurm("squeue", "-h", "-t", "all", "-o", "%T %o").splitlines()
    assert {line.split()[0] for line in queue if str(run.script) in line} == {"CANCELLED"}
    assert submission_of(run).error == "sbatch: error: a limit"


class TestDependencies:
    def test_on_runs_by_name_and_id(self, desk: Desk) -> None:
        prepare = "until [ -e go ]; do sleep 0.1; done; echo prepared >prepared"
        first = desk.submit("--name", "prepare", sh=prepare)
        second = desk.submit("--name", "train", "--set", "after={afterok: [prepare]}", sh="cat prepared")
        third = desk.submit("--set", f"after={{afterany: ['{second.job}']}}", sh="true")
        waits = desk.slurm("squeue", "-h", "-o", "%E", "-j", f"{second.job}")
        assert waits == f"afterok:{first.job}(unfulfilled)"
        assert submission_of(second).after == {"afterok": [str(first.path)]}
        (desk.folder / "go").touch()
        assert desk.over(third) and desk.record(second, "ending")["ending"] == "done"
        log = second.log_folder / "0.0" / "rank-00000.log"
        assert log.read_text() == "prepared\n"

    def test_on_a_run_that_is_over(self, desk: Desk) -> None:
        """What holds is not waited for: Slurm may have forgotten the job. What never will is refused."""
        done, failed = desk.submit("--name", "good"), desk.submit("--name", "bad", sh="exit 3")
        desk.over(done), desk.over(failed)
        after = "after={afterok: [good], afternotok: [bad], afterany: [bad]}"
        run = desk.submit("--set", after)
        assert submission_of(run).after.keys() == {"afterok", "afternotok", "afterany"}
        assert desk.over(run)
        answer = desk.castoff("submit", "--site", "slurm", "--set", "after={afterok: [bad]}", "--", "true")
        assert answer.code == 1
        assert f"after.afterok: {failed.id} is over, and can no longer meet afterok: " in answer.errors

    def test_on_ids_of_runs_that_are_over(self, desk: Desk) -> None:
        """Which stand in the script, but Slurm may have forgotten those jobs."""
        done = desk.submit("--name", "good")
        desk.over(done)
        run = desk.submit("--set", f"after={{afterok: ['{done.job}']}}", "--set", "directives.hold=true")
        assert f"#SBATCH --dependency=afterok:{done.job}\n" in run.script.read_text()
        assert desk.slurm("squeue", "-h", "-o", "%E", "-j", str(run.job)) == "(null)"
        desk.slurm("scancel", str(run.job))

    def test_a_run_may_depend_on_a_script_submitted_without_castoff(self, desk: Desk) -> None:
        desk.castoff("render", "--site", "slurm", "-o", "job.sh", "--", "sleep", "600")
        job = desk.slurm("sbatch", "--parsable", "job.sh")
        until((desk.folder / f"castoff-{job}" / "attempts" / "0.0" / "start.json").exists, "its start")
        run = desk.submit("--set", f"after={{afterany: ['./castoff-{job}']}}")
        waits = desk.slurm("squeue", "-h", "-o", "%E", "-j", str(run.job))
        assert waits == f"afterany:{job}(unfulfilled)"
        desk.slurm("scancel", job)
        assert desk.over(run)

    def test_on_what_can_no_longer_be_when_it_is_submitted_again(self, desk: Desk) -> None:
        """Then nothing of the run has changed."""
        desk.submit("--name", "first", sh="until [ -e go ]; do sleep 0.1; done; exit 3")
        second = desk.submit("--name", "second", "--set", "after={afterok: [first]}")
        assert desk.castoff("cancel", "second").code == 0
        (desk.folder / "go").touch()
        assert desk.castoff("wait", "first").code == 3
        (second.path / "stop").touch()
        before = second.submission()
        answer = desk.castoff("resubmit", "second")
        assert answer.code == 1 and "is over, and can no longer meet afterok" in answer.errors
        assert second.submission() == before and (second.path / "stop").exists()

    def test_on_a_run_that_may_start_again(self, desk: Desk) -> None:
        """Slurm requeues it under the same id, so that what depends on it waits for its end."""
        again = desk.submit(
            *("--name", "again", "--set", "requeue.max=2", "--walltime", "10m"),
            sh='touch ran.$CASTOFF_ATTEMPT; [ -e ran.1 ] || { echo resume >"$CASTOFF_OUTCOME_FILE"; exit; }',
        )
        after = [
            desk.submit("--set", f"after={{{condition}: [again]}}", sh="ls ran.1")
            for condition in ("afterok", "afterany")
        ]
        for run in after:
            assert json.loads(desk.castoff("wait", run.id, "--json").output)["ending"] == "done"
        assert desk.record(again, "ending")["ending"] == "resume", "its first attempt"


class TestResubmission:
    def test_members_that_are_not_done(self, desk: Desk) -> None:
        """Also those of the second part, whose indices are not their numbers."""
        run = desk.submit(
            *("--name", "again", "--set", "array.count=10", "--set", "env_from=[TOKEN]"),
            sh="echo attempt $CASTOFF_ATTEMPT of $CASTOFF_ARRAY_INDEX: $TOKEN; "
            "case $CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT in 3.0|9.0) exit 4;; esac",
            env={"TOKEN": "t"},
        )
        desk.over(run, 10)
        answer = desk.castoff("resubmit", run.id, env={"TOKEN": "t"})
        assert answer.code == 0 and "attempts    3.1, 9.1\n" in answer.output, answer.errors
        desk.over(run, 12)
        for member in (3, 9):
            assert desk.record(run, "ending", f"{member}.1")["ending"] == "done"
            text = run.script_log(member).read_text()
            assert f"attempt 0 of {member}: t\n" in text and f"attempt 1 of {member}: t\n" in text
        answer = desk.castoff("resubmit", run.id)
        assert answer.code == 1 and "it is done; --include-done restarts it" in answer.errors

    def test_of_what_still_runs(self, desk: Desk) -> None:
        run = desk.submit(sh="sleep 600")
        answer = desk.castoff("resubmit", run.id)
        assert answer.code == 1 and f"{run.id}: still running; " in answer.errors
        desk.slurm("scancel", str(run.job))


class TestExactlyOnce:
    """What may go wrong between castoff and the controller starts no job twice, and loses none."""

    @pytest.fixture
    def impatient(self, desk: Desk) -> dict[str, str]:
        """For an sbatch that waits 2 s for its answer rather than 10."""
        settings = desk.slurm("cat", "/etc/slurm/slurm.conf")
        path = desk.folder / "slurm.conf"
        path.write_text(f"{settings}\nMessageTimeout=2\n")
        return {"SLURM_CONF": str(path)}

    def test_a_controller_that_does_not_answer_in_time(
        self, desk: Desk, slurm: SlurmCluster, impatient: dict[str, str]
    ) -> None:
        """sbatch gives up, the controller takes the job all the same, and castoff finds it."""
        slurm.stop_controller()
        try:
            submitting = desk.start("castoff", "submit", "--site", "slurm", "--", "true", env=impatient)
            (path,) = until(lambda: [*desk.folder.glob("castoff-runs/true-*")], "a run directory")
            run = RunDirectory(path)
            until(lambda: "unclear" in run.path.joinpath("submission.json").read_text(), "sbatch's end")
        finally:
            slurm.continue_controller()
        answer = desk.end(submitting)
        assert answer.code == 0 and f"job         {run.job} (slurm)\n" in answer.output, answer.errors
        (send,) = submission_of(run).sends
        assert "Socket timed out" in str(send.unclear) and send.job == run.job
        assert desk.over(run) == [f"{run.job} COMPLETED"]

    def test_castoff_is_killed_when_sbatch_has_done_its_work(self, desk: Desk) -> None:
        killing = desk.program("sbatch", f'{REAL_SBATCH} "$@" >/dev/null\nkill -KILL $PPID\n')
        answer = desk.castoff("submit", "--site", "slurm", "--", "true", env=killing)
        assert answer.code != 0
        (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/*"))
        assert run.job is None
        reported = json.loads(desk.castoff("status", run.id, "--json").output)
        assert reported["job"] == run.job is not None
        assert desk.castoff("resubmit", run.id).code == 1
        assert desk.over(run) == [f"{run.job} COMPLETED"]

    def test_castoff_is_killed_before_sbatch_has_begun(self, desk: Desk) -> None:
        """Nothing is queued: so says the queue, asked twice, and then it may be sent."""
        killing = desk.program("sbatch", "kill -KILL $PPID\n")
        desk.castoff("submit", "--site", "slurm", "--", "true", env=killing)
        (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/*"))
        reported = json.loads(desk.castoff("status", run.id, "--json").output)
        assert (reported["state"], reported["job"]) == ("unknown", None)
        until(lambda: desk.castoff("resubmit", run.id).code == 0, "a resubmission")
        assert desk.over(run) == [f"{run.job} COMPLETED"]
