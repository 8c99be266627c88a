"""Programs that know none of castoff's files, when their time is over; and signals before that."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from typing import Any

import pytest

from castoff.launcher.planning.render import template_folder
from tests.cases import others_long

from .conftest import Benches
from .harness import Bench, Ended

NEARLY_OVER = "#!/bin/sh\ndate -d '+29 seconds' +%Y-%m-%dT%H:%M:%S\n"
"""A squeue by which the job is about to be ended, as soon as its ranks run."""

SLEEPS = ["sh", "-c", "exec sleep 1000"]
ENDED = r"still running \d+ s before the walltime, so castoff ended it"
CHECKPOINT = ["mkdir -p out && echo weights >out/model_7.ckpt"]
"""Written in setup, for no time decides then whether a program comes so far."""


def runs_out(
    here: Bench,
    start: int = 0,
    setup: list[str] | None = None,
    steps: str = "echo 12.batch",
    state: str = "RUNNING",
    **fields: Any,
) -> Ended:
    """A job on Slurm that has little time left; it was started again `start` times.

    `steps`: what squeue does that is asked for the steps of the job.
    """
    asked = f'case "$*" in *--steps*) {steps}; exit ;; *%T*) echo {state}; exit ;; esac\n'
    here.stub("squeue", NEARLY_OVER.replace("\n", f"\n{asked}", 1))
    given: dict[str, Any] = {
        "command": SLEEPS,
        "requeue": {"max": 9},
        "walltime": "1h",
        "setup": setup or [],
        **fields,
    }
    return here.run(ranks_per_node=2, env={"SLURM_RESTART_COUNT": str(start)}, **given)


def reason(ended: Ended, attempt: int = 0) -> tuple[str, str | None]:
    record = ended.record("ending", f"0.{attempt}")
    return record["ending"], record.get("reason")


class TestWalltime:
    def test_a_program_that_writes_checkpoints_is_requeued(self, bench: Benches) -> None:
        here = bench("srun")
        for start in range(3):
            ended = runs_out(here, start, CHECKPOINT)
            assert ended.code == 0, ended.output
            ending, why = reason(ended, start)
            assert ending == "resume"
            assert why and re.fullmatch(f"{ENDED}; new checkpoint: out/model_7.ckpt", why), why
        assert here.calls("scontrol").count(["requeue", "12"]) == 3

    @pytest.mark.long
    def test_not_a_second_time_without_progress(self, bench: Benches) -> None:
        here = bench("srun")
        ending, why = reason(runs_out(here))
        assert ending == "resume"
        assert why and re.fullmatch(f"{ENDED}; no new checkpoint was found", why), why
        ended = runs_out(here, 1)
        ending, why = reason(ended, 1)
        assert ending == "walltime" and ended.code != 0, ended.output
        assert why and re.match(f"{ENDED}; not requeued: no progress in two attempts in a row", why), why
        assert here.calls("scontrol").count(["requeue", "12"]) == 1

    @pytest.mark.long
    def test_what_lies_in_another_run_is_no_progress(self, bench: Benches) -> None:
        here = bench("srun")
        other = "runs/other-20261129-101500-1f2e"
        setup = [f"mkdir -p {other} runs/castoff-7; touch {other}/model.pt runs/castoff-7/model.pt"]
        endings = [reason(runs_out(here, start, setup), start)[0] for start in range(2)]
        assert endings == ["resume", "walltime"]

    @pytest.mark.long
    @pytest.mark.parametrize(("own", "endings"), [("", "walltime"), ("own.pt", "resume")])
    def test_nor_what_another_job_writes_beside_it(self, own: str, endings: str, bench: Benches) -> None:
        """It does so while this run waits, too."""
        here = bench("srun")
        for start in range(3):
            if start:
                record = here.run_dir() / "attempts" / f"0.{start - 1}" / "ending.json"
                os.utime(record, (0, time.time() - 100))
                os.utime(here.folder / f"step{start}.pt", (0, time.time() - 50))
            ended = runs_out(here, start, [f"touch step{start + 1}.pt {own}"])
        ending, why = reason(ended, 2)
        assert ending == endings, why
        if not own:
            words = (
                "another job writes step3.pt, which also changed while this run waited: see requeue.progress"
            )
            assert why and words in why

    @pytest.mark.long
    def test_what_the_program_reports_counts_alone(self, bench: Benches) -> None:
        """A checkpoint that is written again and again is none then."""
        here = bench("srun")
        reports = [*CHECKPOINT, 'echo 5 >"$CASTOFF_PROGRESS_FILE"']
        endings = [reason(runs_out(here, start, reports), start)[0] for start in range(3)]
        assert endings == ["resume", "resume", "walltime"]

    @pytest.mark.long
    def test_a_path_is_looked_up_where_the_ranks_run(self, bench: Benches) -> None:
        here = bench("srun")
        (here.folder / "below").mkdir()
        requeue = {"max": 9, "progress": "state"}
        setup = ["touch below/state"]
        given: dict[str, Any] = {"requeue": requeue, "workdir": "below"}
        assert [reason(runs_out(here, start, setup, **given), start)[0] for start in range(3)] == [
            "resume"
        ] * 3

    @pytest.mark.long
    def test_requeues_are_counted(self, bench: Benches) -> None:
        here = bench("srun")
        found = [
            reason(runs_out(here, start, requeue={"max": 2, "progress": "none"}), start) for start in range(3)
        ]
        assert [ending for ending, _ in found] == ["resume", "resume", "walltime"]
        assert all(why and re.fullmatch(ENDED, why) for _, why in found[:2]), found
        last = f"{ENDED}; not requeued: requeue.max \\(2\\) is used up"
        assert re.fullmatch(last, found[2][1] or ""), found

    @pytest.mark.everyday("1")
    @pytest.mark.parametrize("nodes", [1, 2])
    def test_what_has_ended_in_order_is_not_awaited(self, nodes: int, bench: Benches) -> None:
        here = bench("srun")
        ended = runs_out(here, nodes=nodes)
        assert reason(ended)[0] == "resume", ended.output
        again = runs_out(here, 1, nodes=nodes)
        assert "attempt 1 begins" in again.output and "may still run" not in again.output

    @pytest.mark.everyday("said0")
    @pytest.mark.parametrize("said", [{"steps": "exit 1"}, {"state": "COMPLETING"}])
    def test_what_slurm_may_still_run_is_awaited(self, said: dict[str, Any], bench: Benches) -> None:
        """Where it does not answer, and where it has lost a node, whose step it then takes for gone."""
        here = bench("srun")
        ended = runs_out(here, nodes=2, **said)
        assert (ended.run_dir / "attempts" / "0.0" / "fence").read_text() == "over\n"

    def test_a_longer_time_limit_counts(self, bench: Benches) -> None:
        """The job's own end is looked up again before the ranks are ended."""
        here = bench("srun")
        later = f"#!/bin/sh\n[ -e ../asked ] && echo 2100-01-01T00:00:00 && exit\n: >../asked\n{NEARLY_OVER}"
        here.stub("squeue", later)
        command = ["sh", "-c", "until [ -e ../asked ]; do sleep 0.1; done; sleep 1"]
        ended = here.run(ranks_per_node=1, command=command, walltime="1h", requeue={"max": 1})
        assert ended.ending == ("done", 0), ended.output

    @pytest.mark.parametrize("kind", others_long(["pals", "hydra", "openmpi"], ["pals"]))
    def test_on_pbs_the_copy_is_due(self, kind: str, bench: Benches) -> None:
        here = bench(kind)
        given: dict[str, Any] = {"walltime": "6s", "grace": "4s", "requeue": {"max": 2}, "setup": CHECKPOINT}
        ended = here.run(ranks_per_node=2, command=SLEEPS, **given)
        assert ended.ending == ("resume", 75), ended.output
        assert here.calls("qdel") == []

    @pytest.mark.long
    def test_on_pbs_a_copy_follows_a_job_that_left_no_ending(self, bench: Benches) -> None:
        """As where PBS killed it at the walltime; not if it was killed before, nor twice without progress."""
        here = bench("pals")
        ended = here.run(ranks_per_node=1, command=["true"], requeue={"max": 9})
        attempts, run_dir = ended.run_dir / "attempts", str(ended.run_dir)
        (attempts / "0.0" / "ending.json").unlink()
        record = json.loads((attempts / "0.0" / "start.json").read_text())
        (attempts / "0.0" / "start.json").write_text(json.dumps(record | {"job": "6.head"}) + "\n")
        env = {"CASTOFF_RUN_DIR": run_dir, "CASTOFF_ATTEMPT": "1", "CASTOFF_FOLLOWS": "6.head"}
        again: dict[str, Any] = {"ranks_per_node": 1, "command": ["true"], "requeue": {"max": 9}}
        assert "has ended: it was killed" in here.run(env=env, **again).output
        (attempts / "0.0" / "stop").touch()
        assert here.run(env=env, **again).record("ending", "0.1")["ending"] == "done"
        (attempts / "0.1").rename(run_dir + "/away")
        (attempts / "0.0" / "follower").unlink()
        (attempts / "0.0" / "stale").write_text("1\n")
        (attempts / "0.-1").mkdir()
        (attempts / "0.-1" / "stale").write_text("1\n")
        assert "does not begin: no progress in two attempts in a row" in here.run(env=env, **again).output

    def test_where_it_is_not_asked_for(self, bench: Benches) -> None:
        here = bench("srun")
        here.stub("squeue", "#!/bin/sh\ndate -d '+9 seconds' +%Y-%m-%dT%H:%M:%S\n")
        started = here.start(
            ranks_per_node=1,
            command=["sh", "-c", ': >"$PROBE_FOLDER/ready-$RANK"; exec sleep 1000'],
            requeue={"max": 1, "on": ["stop"]},
            walltime="1h",
        )
        started.wait_for("ready", 1)
        started.process.terminate()
        assert reason(started.end()) == ("walltime", "not requeued: requeue.on does not name walltime")

    def test_a_stop_that_is_not_to_be_requeued(self, bench: Benches) -> None:
        given: dict[str, Any] = {
            "requeue": {"max": 1, "on": ["walltime"]},
            "env": {"PROBE": "outcome resume"},
        }
        ended = bench("srun").run(ranks_per_node=1, **given)
        assert reason(ended) == ("walltime", "not requeued: requeue.on does not name stop")


@pytest.mark.long
@pytest.mark.parametrize(("left", "ending"), [(None, "node-failure"), ("cancelled", "preempted")])
def test_slurm_itself_does_not_start_it_for_ever(left: str | None, ending: str, bench: Benches) -> None:
    """As after preemptions and lost nodes, of which the script learns nothing but that it begins again."""
    here = bench("srun")
    for start in range(2):
        ended = here.run(
            ranks_per_node=1, command=["true"], requeue={"max": 9}, env={"SLURM_RESTART_COUNT": str(start)}
        )
        record = ended.run_dir / "attempts" / f"0.{start}" / "ending.json"
        assert ended.code == 0, ended.output
        if left is None:
            record.unlink()
        else:
            record.write_text(json.dumps({"ending": left, "code": 143, "time": 1}) + "\n")
    ended = here.run(ranks_per_node=1, command=["true"], requeue={"max": 9}, env={"SLURM_RESTART_COUNT": "2"})
    found, why = reason(ended, 2)
    assert (found, ended.code) == (ending, 1), ended.output
    assert why and why.startswith("not started again: no progress in two attempts in a row")


HANDLES = """
import os, signal, subprocess, sys, time
assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL, "Lightning installs no handler then"
def stop(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(0)
worker = subprocess.Popen(["sleep", "1000"])
try:
    signal.signal(signal.SIGUSR1, stop)
    time.sleep(1000)
finally:
    print("worker:", worker.poll(), flush=True)
    worker.kill()
"""
"""A program that ends itself on USR1, with a worker that would die of it."""


OWN_TRAP = """
castoff_chosen_number=$(kill -l USR1)
coproc bash -c 'trap : USR1; echo; read -r _'
read -r _ <&"${COPROC[0]}"
trap : USR1
if castoff_handles "$COPROC_PID"; then echo program; fi
if castoff_handles $$; then echo shell; fi
"""
"""What forks has the traps of its parent until it becomes the program."""


class TestSignal:
    def test_a_shell_that_is_not_yet_the_program_does_not_count(self) -> None:
        functions = (template_folder() / "machinery" / "signal.sh").read_text()
        ended = subprocess.run(["bash", "-c", functions + OWN_TRAP], capture_output=True, text=True)
        assert (ended.stdout, ended.stderr) == ("program\n", "")

    @pytest.mark.everyday("True-srun")
    @pytest.mark.parametrize(
        "kind", others_long(["srun", "hydra", "openmpi", "pals", "local"], ["srun", "hydra", "local"])
    )
    @pytest.mark.parametrize("wrapped", others_long([False, True], [True]))
    def test_reaches_the_program_that_handles_it_alone(
        self, kind: str, wrapped: bool, bench: Benches
    ) -> None:
        here = bench(kind)
        (here.folder / "handles.py").write_text(HANDLES)
        command = ["python3", "handles.py"]
        if wrapped:
            command = ["bash", "-c", "python3 handles.py; exit $?"]
        here.stub("squeue", "#!/bin/sh\ndate -d '+601 seconds' +%Y-%m-%dT%H:%M:%S\n")
        given: dict[str, Any] = {
            "walltime": "601s",
            "signal": "SIGUSR1@10m",
            "requeue": {"max": 1},
            "setup": CHECKPOINT,
        }
        ended = here.run(ranks_per_node=2, command=command, **given)
        logs = [(ended.run_dir / "logs" / "0.0" / f"rank-0000{rank}.log").read_text() for rank in (0, 1)]
        said = [[line for line in log.splitlines() if "so it is not sent" not in line] for log in logs]
        assert said == [["got SIGUSR1", "worker: None"]] * 2, ended.output  # a slow start gets it later
        said_why = "ended after SIGUSR1; new checkpoint: out/model_7.ckpt"
        if kind == "local":  # alone, it has no scheduler that would start it again
            assert reason(ended) == (
                "walltime",
                f"{said_why}; not requeued: the scheduler did not requeue it",
            )
        else:
            assert reason(ended) == ("resume", said_why), ended.output

    @pytest.mark.parametrize("kind", ["srun", "local"])
    def test_ends_nothing_that_does_not_handle_it(self, kind: str, bench: Benches) -> None:
        here = bench(kind)
        here.stub("squeue", "#!/bin/sh\ndate -d '+600 seconds' +%Y-%m-%dT%H:%M:%S\n")
        log = '"$CASTOFF_LOG_DIR"/rank-00000.log "$CASTOFF_RUN_DIR/../output"'
        says = f"until grep -qs 'SIGUSR1, so it is not sent' {log}; do sleep 0.1; done"
        command = ["sh", "-c", says]
        started = here.start(ranks_per_node=1, command=command, walltime="600s", signal="USR1@599")
        if kind == "local":
            lines = iter(started.process.stdout or ())
            output = next(line for line in lines if "so it is not sent" in line)
            (here.folder / "output").write_text(output)
        assert started.end().ending == ("done", 0)

    @pytest.mark.long
    def test_under_torchrun_the_ranks_get_it(self, bench: Benches) -> None:
        """And torchrun itself does not, which would end all of them."""
        here = bench("srun")
        (here.folder / "handles.py").write_text(HANDLES)
        here.stub("squeue", "#!/bin/sh\ndate -d '+601 seconds' +%Y-%m-%dT%H:%M:%S\n")
        given: dict[str, Any] = {"launcher": {"torchrun": True}, "walltime": "601s", "signal": "USR1@600"}
        ended = here.run(ranks_per_node=2, command=["python3", "handles.py"], **given)
        log = (ended.run_dir / "logs" / "0.0" / "node-00000.log").read_text()
        assert log.count("got SIGUSR1") == 2 and log.count("worker: None") == 2, log
        assert ended.ending == ("done", 0), ended.output
