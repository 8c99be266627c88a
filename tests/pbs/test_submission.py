"""castoff on PBS: what is sent and how often, what it waits for, how it ends, and how it goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from castoff.launcher.runs.run import RunDirectory
from tests.cluster.desk import Desk
from tests.patience import until
from tests.records import submission_of

from .cluster import PbsCluster


class PbsDesk(Desk):
    """A desk at a PBS."""

    def endings(self, run: RunDirectory, member: int = 0) -> list[str]:
        """The endings of a member's attempts."""
        return [one["ending"] for one in self.status(run)["members"][member]["attempts"]]


@pytest.fixture
def desk(pbs: PbsCluster, tmp_path: Path) -> PbsDesk:
    return PbsDesk(pbs, tmp_path / "desk")


AGAIN = "[ $CASTOFF_ATTEMPT -ge {} ] || echo resume >$CASTOFF_OUTCOME_FILE"


class TestSubmission:
    def test_a_job_file(self, desk: PbsDesk) -> None:
        """Ranks, environment, secrets, logs, records."""
        job = desk.folder / "job.yaml"
        job.write_text(
            """
name: filed
command: [sh, -c, 'echo rank $RANK of $WORLD_SIZE: $TOKEN, $MINE, ${THEIRS-nothing}']
ranks_per_node: 2
walltime: 5m
env: {MINE: it's mine}
env_from: [TOKEN]
"""
        )
        answer = desk.castoff("submit", job, "--site", "pbs", env={"TOKEN": "s3cret", "THEIRS": "x"})
        assert answer.code == 0, answer.errors
        (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/filed-*"))
        assert f"job         {run.job} (pbs)\n" in answer.output
        assert desk.castoff("wait", "filed").output == f"{run.id}: done\n"
        said = [(run.log_folder / "0.0" / f"rank-{rank:05}.log").read_text() for rank in range(2)]
        assert said == [f"rank {rank} of 2: s3cret, it's mine, nothing\n" for rank in range(2)]
        assert run.script.read_text() == desk.castoff("render", job, "--site", "pbs").output
        until(run.script_log().exists, "the script's log")

    def test_a_batch_script(self, desk: PbsDesk) -> None:
        """It is the job that qsub would have made of it."""
        job = desk.folder / "job.yaml"
        job.write_text(
            """
name: batch.pbs
walltime: 5m
directives: {pbs: {select: "1:ncpus=2:mpiprocs=2"}}
script: |
  #!/bin/bash
  cat "$PBS_NODEFILE" > nodes
  echo "out $PBS_JOBNAME ${RANK-no rank}"
  echo err >&2
  exit 3
"""
        )
        assert desk.castoff("submit", job, "--site", "pbs").code == 0
        (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/batch.pbs-*"))
        assert desk.castoff("wait", "batch.pbs").output.startswith(f"{run.id}: failed")
        assert len((desk.folder / "nodes").read_text().split()) == 2
        number = str(run.job).partition(".")[0]
        out, errors = (desk.folder / f"batch.pbs.{kind}{number}" for kind in "oe")
        until(lambda: out.exists() and errors.exists(), "what it wrote")
        assert (out.read_text(), errors.read_text()) == ("out batch.pbs no rank\n", "err\n")
        assert (run.log_folder / "0.0" / "rank-00000.log").read_text() == "out batch.pbs no rank\nerr\n"

    def test_what_pbs_refuses(self, desk: PbsDesk) -> None:
        """In its own words; nothing was started, and the run says so."""
        answer = desk.castoff("submit", "--site", "pbs", "--queue", "none-such", "--", "true")
        assert answer.code == 1 and "Unknown queue" in answer.errors, answer.errors
        (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/*"))
        now = desk.status(run)
        assert (now["state"], now["ending"]) == ("ended", "failed") and "Unknown queue" in now["reason"]

    def test_a_driver_that_reaches_all_hosts(self, desk: PbsDesk) -> None:
        """pbs_tmrsh's workers write into the job's own log."""
        script = desk.folder / "drive.sh"
        worker = f"hostname >>{desk.folder}/workers"
        script.write_text(
            'echo "$CASTOFF_HOSTS" "${RANK-no rank}"\nwhile read -r host <&3; do\n'
            f"  pbs_tmrsh \"$host\" /bin/bash -c '{worker}'\n"
            'done 3<"$CASTOFF_HOST_FILE"\n'
        )
        torn = 'teardown=["echo $CASTOFF_OUTCOME >torn"]'
        words = ["--nodes", "2", "--set", "launcher.driver=true", "--set", torn]
        run = desk.submit(*words, command=["bash", str(script)])
        assert desk.castoff("wait", run.id).code == 0, desk.castoff("logs", run.id).output
        said = (run.log_folder / "0.0" / "rank-00000.log").read_text()
        hosts, _, rest = said.partition(" ")
        assert rest == "no rank\n" and len({*hosts.split(",")}) == 2
        assert (desk.folder / "workers").read_text().split() == hosts.split(",")
        assert (desk.folder / "torn").read_text() == "done\n"

    def test_a_resource_of_chunks_among_directives(self, desk: PbsDesk) -> None:
        """PBS's own words, and what to write instead."""
        answer = desk.castoff("submit", "--site", "pbs", "--set", "directives.naccelerators=1", "--", "true")
        assert answer.code == 1 and "resource is: naccelerators\n" in answer.errors, answer.errors
        assert "naccelerators is a resource of chunks: write it under select" in answer.errors

    def test_a_launch_has_the_devices_of_its_chunks(self, desk: PbsDesk) -> None:
        """As qstat reports them to the job itself; each node of the site has more."""
        node = "{devices: [4], device_variable: CUDA_VISIBLE_DEVICES, source: x, date: 2026-11-28}"
        site = desk.folder / ".castoff" / "sites" / "gpus.yaml"
        site.parent.mkdir(parents=True)
        site.write_text(f"extends: pbs\ndescription: x\nnode: {node}\n")
        castoff = Path(sys.executable).with_name("castoff")
        program = "launch --site gpus --set walltime=5m -- sh -c 'echo $WORLD_SIZE'"
        job = desk.folder / "job.sh"
        job.write_text(f"cd {desk.folder}\n{castoff} {program} >said 2>errors; mv said ended\n")
        answer = desk.run("qsub", "-l", "select=1:ncpus=2:ngpus=2", job)
        assert answer.code == 0, answer.errors
        until((desk.folder / "ended").exists, "the end of the launch")
        assert (desk.folder / "ended").read_text() == "2\n", (desk.folder / "errors").read_text()

    def test_an_array(self, desk: PbsDesk) -> None:
        run = desk.submit("--set", "array={count: 3, max_concurrent: 2}", sh="exit $CASTOFF_ARRAY_INDEX")
        assert str(run.job).partition("[]")[1] == "[]"
        assert desk.castoff("wait", run.id).code in (1, 2)
        members = desk.status(run)["members"]
        reported = [(one["ending"], one["attempts"][0]["code"]) for one in members]
        assert reported == [("done", 0), ("failed", 1), ("failed", 2)]
        again = desk.castoff("resubmit", run.id)
        assert again.code == 0, again.errors
        assert f"job         {run.job} (pbs)\n" in again.output
        assert desk.castoff("wait", run.id).code in (1, 2)
        assert [len(one["attempts"]) for one in desk.status(run)["members"]] == [1, 2, 2]

    def test_an_array_with_parameters(self, desk: PbsDesk) -> None:
        """A copy that resumes a member, and a resubmission, have the same values."""
        parameters = "array.parameters={a: ['$x', 1e-3], b: [0, 1]}"
        words = ["--set", parameters, "--set", 'env.A="{a}"', "--set", "requeue.max=1", "--walltime", "5m"]
        again = "[ $CASTOFF_ATTEMPT != 0 ] || echo resume >$CASTOFF_OUTCOME_FILE"
        run = desk.submit(*words, "--name", "grid", sh=f'echo "$A"; cat "$CASTOFF_PARAMETERS"; {again}')
        assert desk.castoff("wait", run.id).output == f"{run.id}: done\n"
        logs = [(run.log_folder / f"1.{attempt}" / "rank-00000.log").read_text() for attempt in (0, 1)]
        assert logs == ['$x\n{"a": "$x", "b": 1}\n'] * 2
        begun = desk.castoff("resubmit", "grid", "a=.001,b=0", "--include-done", "--json")
        assert json.loads(begun.output)["attempts"] == {"2": 2}, begun.errors
        assert desk.castoff("wait", run.id).output == f"{run.id}: done\n"
        assert (run.log_folder / "2.2" / "rank-00000.log").read_text() == '1e-3\n{"a": 1e-3, "b": 0}\n'

    def test_an_array_of_any_numbers(self, desk: PbsDesk) -> None:
        """PBS counts them from 0, since it takes only one range."""
        array = 'array={indices: "1,3-4,9-13:2"}'
        run = desk.submit("--set", array, sh="echo $CASTOFF_ARRAY_INDEX; [ $CASTOFF_ARRAY_INDEX != 9 ]")
        assert desk.castoff("wait", run.id).code == 1
        endings = {one["member"]: one["ending"] for one in desk.status(run)["members"]}
        assert endings == {1: "done", 3: "done", 4: "done", 9: "failed", 11: "done", 13: "done"}
        assert "13" in (run.log_folder / "13.0" / "rank-00000.log").read_text()
        again = desk.castoff("resubmit", run.id, "--include-done", "--member", "9", "--member", "13")
        assert again.code == 0 and "attempts    9.1, 13.1" in again.output, again.errors
        assert desk.castoff("wait", run.id).code == 1
        assert [one["ending"] for one in desk.status(run)["members"]] == [*endings.values()]

    def test_an_array_of_any_numbers_resumes_and_is_cancelled(self, desk: PbsDesk) -> None:
        array = ["--set", 'array={indices: "2,5,9"}', "--set", "requeue.max=1", "--walltime", "5m"]
        again = "[ $CASTOFF_ARRAY_INDEX != 5 ] || { [ $CASTOFF_ATTEMPT = 1 ] && sleep 600; }"
        run = desk.submit(*array, sh=f"{again} || echo resume >$CASTOFF_OUTCOME_FILE")
        until((run.path / "attempts" / "5.1" / "start.json").exists, "the second attempt of 5")
        assert desk.castoff("cancel", run.id).code == 0
        desk.until(run, state="ended")
        assert [desk.endings(run, place)[-1] for place in range(3)] == ["done", "cancelled", "done"]

    def test_an_array_that_is_cancelled(self, desk: PbsDesk) -> None:
        """Those of its members that waited have not failed."""
        run = desk.submit("--set", "array={count: 3, max_concurrent: 1}", sh="sleep 600")
        until((run.path / "attempts/0.0/rank.sh").exists, "its start")
        answer = desk.castoff("cancel", run.id)
        assert answer.output == f"{run.id}: ended, cancelled\n", answer.errors
        assert [one["ending"] for one in desk.status(run)["members"]] == 3 * ["cancelled"]

    def test_an_array_of_one(self, desk: PbsDesk) -> None:
        run = desk.submit("--set", "array={count: 1}", sh="exit $CASTOFF_ARRAY_INDEX")
        assert "[" not in str(run.job)
        assert desk.castoff("wait", run.id).output == f"{run.id}: done\n"

    def test_a_script_submitted_without_castoff(self, desk: PbsDesk) -> None:
        desk.castoff("render", "--site", "pbs", "-o", "job.sh", "--", "sleep", "600")
        answer = desk.run("qsub", "job.sh")
        assert answer.code == 0, answer.errors
        run = RunDirectory(desk.folder / f"castoff-{answer.output.strip()}")
        until((run.path / "attempts/0.0/rank.sh").exists, "its start")
        assert desk.status(run)["state"] == "running"
        assert desk.castoff("cancel", run.path).output == f"{run.id}: ended, cancelled\n"


class TestExactlyOnce:
    def lossy_qsub(self, desk: PbsDesk, line: str) -> dict[str, str]:
        """A qsub that is not the real one's equal."""
        real = desk.run("sh", "-c", "command -v qsub").output.strip()
        folder = desk.folder / "bin"
        folder.mkdir()
        (folder / "qsub").write_text(f"#!/bin/sh\nreal={real}\n{line}\n")
        (folder / "qsub").chmod(0o755)
        path = desk.run("sh", "-c", "echo $PATH").output.strip()
        return {"PATH": f"{folder}:{path}"}

    def test_an_answer_that_was_lost(self, desk: PbsDesk) -> None:
        """The job is found by its script, and adopted."""
        env = self.lossy_qsub(desk, '$real "$@" >/dev/null; echo "qsub: End of File" >&2; exit 1')
        answer = desk.castoff("submit", "--site", "pbs", "--name", "lost", "--", "true", env=env)
        assert answer.code == 0, answer.errors
        (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/lost-*"))
        assert run.job and desk.castoff("wait", "lost").output == f"{run.id}: done\n"

    def test_a_job_that_never_was(self, desk: PbsDesk) -> None:
        env = self.lossy_qsub(desk, 'echo "qsub: End of File" >&2; exit 1')
        answer = desk.castoff("submit", "--site", "pbs", "--name", "never", "--", "true", env=env)
        assert answer.code == 1 and "the queue, queried twice, has no such job" in answer.errors
        assert desk.castoff("resubmit", "never").code == 0
        assert desk.castoff("wait", "never").code == 0

    def test_killed_after_qsub(self, desk: PbsDesk) -> None:
        env = self.lossy_qsub(desk, '$real "$@" >/dev/null; touch sent; kill -KILL $PPID')
        process = desk.start("castoff", "submit", "--site", "pbs", "--name", "killed", "--", "true", env=env)
        desk.end(process)
        (run,) = map(RunDirectory, desk.folder.glob("castoff-runs/killed-*"))
        assert (desk.folder / "sent").exists() and run.job is None
        desk.until(run, state="ended", ending="done")
        assert run.job is not None


class TestDependencies:
    def test_on_runs(self, desk: PbsDesk) -> None:
        desk.submit("--name", "first", sh="until [ -e go ]; do sleep 0.1; done; exit 3")
        good = desk.submit("--name", "good", "--set", "after={afterany: [first]}")
        bad = desk.submit("--name", "bad", "--set", "after={afterok: [first]}")
        assert "it waits for another job" in desk.status(good)["reason"]
        (desk.folder / "go").touch()
        assert desk.castoff("wait", "first").code == 3
        assert desk.castoff("wait", "good").code == 0
        now = desk.until(bad, state="ended", ending="cancelled")
        assert "its condition can no longer be met" in now["members"][0]["attempts"][0]["reason"]
        late = desk.castoff("submit", "--site", "pbs", "--set", "after={afterok: [first]}", "--", "true")
        assert late.code == 1 and "is over, and can no longer meet afterok" in late.errors
        over = desk.submit("--set", "after={afterok: [good]}")
        assert desk.castoff("wait", over.id).code == 0


class TestAttributes:
    def test_the_scripts_stand_beside_what_the_job_waits_for(self, desk: PbsDesk) -> None:
        """Where qsub's own -W has one attribute, the script's others count all the same; for copies, too."""
        group = desk.run("id", "-gn").output.strip()
        desk.submit("--name", "first", sh="until [ -e go ]; do sleep 0.1; done")
        words = (
            "--set",
            f"directives.W='umask=027,group_list={group}'",
            "--set",
            "after={afterany: [first]}",
        )
        going = ("--walltime", "5m", "--set", "requeue={max: 1}")
        run = desk.submit(*words, *going, sh=AGAIN.format(1))
        shown = desk.run("qstat", "-f", "-w", str(run.job)).output
        (desk.folder / "go").touch()
        assert (
            f"group_list = {group}\n" in shown and "umask = 27\n" in shown and "depend = afterany:" in shown
        )
        assert desk.castoff("wait", run.id).output == f"{run.id}: done\n"
        assert desk.endings(run) == ["resume", "done"]


class TestEndings:
    def test_walltime(self, desk: PbsDesk) -> None:
        run = desk.submit("--walltime", "5s", "--set", "grace=1s", sh="trap '' TERM; sleep 600")
        now = desk.until(run, state="ended")
        assert (now["ending"], now["code"]) == ("walltime", 143)

    def test_cancelled(self, desk: PbsDesk) -> None:
        waits = desk.submit("--name", "held", "--set", "directives.h=true")
        runs = desk.submit("--name", "runs", sh="sleep 600")
        until((runs.path / "attempts/0.0/rank.sh").exists, "its start")
        array = desk.submit("--name", "array", "--set", "directives.h=true", "--set", "array.count=2")
        for held in (waits, array):
            assert "it is held (Hold_Types u); `qrls" in desk.status(held)["reason"]
        assert desk.castoff("cancel", "array").output == f"{array.id}: ended, cancelled\n"
        answer = desk.castoff("cancel", "held", "runs")
        assert answer.output == f"{waits.id}: ended, cancelled\n{runs.id}: ended, cancelled\n", answer.errors

    def test_without_a_history(self, pbs: PbsCluster, desk: PbsDesk) -> None:
        done = desk.submit(sh="exit 5")
        runs = desk.submit("--name", "runs", sh="sleep 600")
        until((runs.path / "attempts/0.0/rank.sh").exists, "its start")
        with pbs.without_history():
            answer = desk.castoff("cancel", "runs")
            assert answer.output == f"{runs.id}: ended, cancelled\n", answer.errors
            assert desk.status(runs)["ending"] == "cancelled"
            assert desk.castoff("wait", done.id).code == 5


class TestGoingOn:
    @pytest.mark.parametrize("how", ["copy", "chain"])
    def test_until_it_is_done(self, desk: PbsDesk, how: str) -> None:
        """And what is left of a chain goes."""
        going = ("--walltime", "5m", "--set", f"requeue={{max: 3, how: {how}}}")
        run = desk.submit(*going, sh=AGAIN.format(2))
        assert desk.castoff("wait", run.id).output == f"{run.id}: done\n"
        assert desk.endings(run) == ["resume", "resume", "done"]
        jobs = {json.loads(path.read_text())["job"] for path in run.path.glob("attempts/*/start.json")}
        assert len(jobs) == 3

    @pytest.mark.long
    @pytest.mark.parametrize("how", ["copy", "chain"])
    def test_a_program_that_only_writes_checkpoints(self, desk: PbsDesk, how: str) -> None:
        """It is killed at the walltime again and again, until two attempts in a row wrote none."""
        going = ("--walltime", "12s", "--set", "grace=10s", "--set", f"requeue={{max: 9, how: {how}}}")
        run = desk.submit(*going, sh="[ $CASTOFF_ATTEMPT -gt 0 ] || touch model.ckpt; exec sleep 1000")
        answer = desk.castoff("wait", run.id)
        assert answer.code in (75, 137, 143), answer.errors
        assert desk.endings(run) == ["resume", "resume", "walltime"]
        assert "not requeued: no progress in two attempts in a row" in desk.castoff("status", run.id).output

    def test_a_server_that_hangs_just_then(self, desk: PbsDesk, pbs: PbsCluster) -> None:
        """The copy waits since the job began."""
        program = "[ $CASTOFF_ATTEMPT = 0 ] || exit 0; touch runs; until [ -e go ]; do sleep 0.1; done; "
        run = desk.submit("--walltime", "5m", "--set", "requeue={max: 1}", sh=program + AGAIN.format(1))
        until((desk.folder / "runs").exists, "its start")
        with pbs.stopped_server():
            (desk.folder / "go").touch()
            until((run.path / "attempts/0.0/ending.json").exists, "its end")
        assert desk.castoff("wait", run.id).output == f"{run.id}: done\n"
        assert desk.endings(run) == ["resume", "done"]

    def test_a_copy_that_is_not_needed(self, desk: PbsDesk) -> None:
        """It goes with the job, whether that was done or failed."""
        for code in (0, 3):
            run = desk.submit("--walltime", "5m", "--set", "requeue={max: 1}", sh=f"exit {code}")
            assert desk.castoff("wait", run.id).code == code
            until(lambda of=run.id: of not in desk.run("qstat", "-f", "-w").output, "the copy's end")  # type: ignore[misc]
            assert len(desk.endings(run)) == 1
        assert desk.castoff("resubmit", run.id).code == 0

    def test_a_path_with_quotes(self, desk: PbsDesk) -> None:
        folder = desk.folder / "o'b\"rien's 50%27"
        folder.mkdir()
        going = ("--walltime", "5m", "--set", "requeue={max: 1}")
        run = desk.submit(*going, sh=AGAIN.format(1), env={"CASTOFF_RUNS_DIR": str(folder)})
        assert run.path.parent == folder
        assert desk.castoff("wait", run.path).code == 0
        assert desk.endings(run) == ["resume", "done"]

    def test_a_chain_that_fails(self, desk: PbsDesk) -> None:
        """Its later jobs do not begin, though the one before them did not exit with 0."""
        going = ("--walltime", "5m", "--set", "requeue={max: 2, how: chain}")
        run = desk.submit(*going, sh="exit 3")
        assert desk.castoff("wait", run.id).code == 3
        last = submission_of(run).sends[-1].job
        until(lambda: str(last) not in desk.run("qstat").output, "the end of the chain")
        assert desk.endings(run) == ["failed"]

    def test_too_often(self, desk: PbsDesk) -> None:
        run = desk.submit("--walltime", "5m", "--set", "requeue={max: 1}", sh=AGAIN.format(9))
        assert desk.castoff("wait", run.id).code == 75
        assert desk.endings(run) == ["resume", "walltime"]
        assert desk.castoff("resubmit", run.id).code == 0
        assert desk.castoff("wait", run.id).code == 75
        assert desk.endings(run) == ["resume", "walltime", "resume", "walltime"]

    def test_a_member_alone(self, desk: PbsDesk) -> None:
        going = ("--walltime", "5m", "--set", "requeue={max: 2}", "--set", "array={count: 3}")
        run = desk.submit(*going, sh=f"[ $CASTOFF_ARRAY_INDEX != 1 ] || {AGAIN.format(1)}")
        assert desk.castoff("wait", run.id).output == f"{run.id}: done\n"
        reported = [len(one["attempts"]) for one in desk.status(run)["members"]]
        assert reported == [1, 2, 1]

    def test_stopped_and_cancelled(self, desk: PbsDesk) -> None:
        program = "until [ -e $CASTOFF_STOP_FILE ]; do sleep 0.1; done; echo resume >$CASTOFF_OUTCOME_FILE"
        run = desk.submit("--walltime", "5m", "--set", "requeue={max: 2}", sh=program)
        until((run.path / "attempts/0.0/rank.sh").exists, "its start")
        answer = desk.castoff("stop", "--wait", run.id)
        assert answer.output == f"{run.id}: asked to stop; ended, resume\n", answer.errors
        assert desk.castoff("resubmit", run.id).code == 0
        until((run.path / "attempts/0.1/rank.sh").exists, "its second start")
        assert desk.castoff("cancel", run.id).output == f"{run.id}: ended, cancelled\n"
