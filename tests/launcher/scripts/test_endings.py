"""How a script's job ends: failures, signals, stopping early, going on. Under every launcher."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from castoff.launcher.text.failure import failure_words
from tests.cases import others_long
from tests.mounts import mount_small, with_mounts

from .conftest import Benches
from .harness import Bench

KINDS = others_long(["local", "hydra", "openmpi", "pals", "srun"], ("pals", "srun"))


@pytest.mark.parametrize("kind", KINDS)
def test_one_failing_rank_ends_the_job_with_its_code(kind: str, bench: Benches) -> None:
    here = bench(kind)
    ended = here.run(ranks_per_node=3, env={"PROBE": "fail 1 3"})
    assert ended.code == 3, ended.output
    assert ended.ending == ("failed", 3)
    failure = ended.record("failure")
    assert (failure["rank"], failure["code"], failure["signal"]) == (1, 3, None)
    assert failure["host"] and failure["time"] <= time.time()
    assert "rank 1" in ended.output and "was here" in ended.output
    if kind != "local":
        assert failure["log"] == "rank-00001.log"
        assert f"castoff: {failure_words(failure)}; see " in ended.output, "in the words of a status"


@pytest.mark.parametrize("kind", ["local", "srun"])
def test_a_disk_that_is_full_at_the_end(kind: str, bench: Benches, tmp_path: Path) -> None:
    """What the ranks wrote last is lost, though none of them may have noticed."""

    def test() -> None:
        here = bench(kind)
        mount_small(here.folder, "size=400k")
        fill = "cat /dev/zero >fill; for line in 1 2 3; do echo lost; done"
        ended = here.run(ranks_per_node=2, command=["sh", "-c", f"{{ {fill}; }} 2>/dev/null; exit 0"])
        assert (ended.code, ended.ending) == (74, ("failed", 74)), ended.output
        assert "No space left on the disk of the run directory" in ended.record("ending")["reason"]

    with_mounts(tmp_path, test)


@pytest.mark.parametrize(("kind", "found"), [("hydra", "openmpi"), ("pals", "hydra"), ("openmpi", "hydra")])
def test_another_mpiexec_than_the_sites(kind: str, found: str, bench: Benches) -> None:
    """As one that a conda environment has put first on PATH."""
    here, other = bench(kind), bench(found)
    program = other.site.mpiexec
    assert program is not None
    flags = ["-ppn", "1"] if found == "openmpi" else ["--no-such-flag"]
    here.site = msgspec.structs.replace(here.site, mpiexec=program, launcher_args=flags)
    ended = here.run(ranks_per_node=1)
    assert ended.code != 0
    assert f"launcher is {program}, which is {found}, and the site's is {kind}." in ended.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_killed_by_a_signal(kind: str, bench: Benches) -> None:
    ended = bench(kind).run(ranks_per_node=2, env={"PROBE": "segv 1"})
    assert ended.code == 139, ended.output
    failure = ended.record("failure")
    assert (failure["rank"], failure["code"], failure["signal"]) == (1, 139, "SIGSEGV")


def test_the_first_failure_stays_the_first(bench: Benches) -> None:
    here = bench("srun")
    start = "SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=$rank SLURM_LOCALID=$rank"
    here.stub(
        "srun",
        "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\n"
        f'for rank in 2 0 1; do env {start} "$@"; done\nexit 9\n',
    )
    ended = here.run(ranks_per_node=3, command=["sh", "-c", "exit $((RANK + 20))"])
    assert (ended.code, ended.record("failure")["rank"]) == (22, 2)


@pytest.mark.parametrize("kind", ["srun", "pals"])
def test_a_launcher_that_does_not_report_lost_ranks(kind: str, bench: Benches) -> None:
    """srun of 22.05 exits 0 when the node of its ranks goes down as they begin."""
    here = bench(kind)
    here.stub({"srun": "srun", "pals": "mpiexec"}[kind], "#!/bin/sh\n")
    ended = here.run()
    assert ended.ending == ("cancelled", 143) and ended.code == 143, ended.output
    assert f"{kind} exited with 0, but rank 0 did not end: its node was lost" in ended.output


@pytest.mark.parametrize("kind", ["srun", "local"])
def test_a_trap_of_setups_for_the_end_does_not_replace_the_record(kind: str, bench: Benches) -> None:
    """As one that removes what setup has made, and hands on the code that it was given."""
    setup = ["trap 'code=$?; echo \"setup'\\''s own, $code\"; exit $code' EXIT"]
    ended = bench(kind).run(command=["sh", "-c", "exit 3"], setup=setup)
    assert ended.ending == ("failed", 3), ended.output
    assert ended.code == 3 and "setup's own, 3" in ended.output


@pytest.mark.parametrize(("code", "name"), [(255, None), (130, "SIGINT")])
def test_codes_and_signals(code: int, name: str | None, bench: Benches) -> None:
    ended = bench("srun").run(command=["sh", "-c", f"exit {code}"])
    assert (ended.code, ended.record("failure")["signal"]) == (code, name)


def test_a_program_that_is_not_there(bench: Benches) -> None:
    ended = bench("hydra").run(ranks_per_node=2, command=["no-such-program"])
    assert ended.ending == ("failed", 127)
    assert "no-such-program: not found" in ended.output
    failed = (ended.run_dir / "attempts" / "0.0" / "failure.json").read_text()
    log = (
        ended.run_dir / "logs" / "0.0" / json.loads(failed)["log"]
    ).read_text()  # the other may be killed first
    assert "castoff: no no-such-program on this job's PATH (/" in log
    assert "): have setup activate its environment, or set the field python\n" in log


def test_a_program_that_calls_one_that_is_not_there(bench: Benches) -> None:
    ended = bench("srun").run(ranks_per_node=1, command=["sh", "-c", "no-such-program"])
    assert ended.ending == ("failed", 127) and "PATH" not in ended.output


@pytest.mark.parametrize("kind", KINDS)
def test_usr2_asks_to_stop_and_term_reaches_the_ranks(kind: str, bench: Benches) -> None:
    running = bench(kind).start(ranks_per_node=2, env={"PROBE": "wait done"})
    running.wait_for("ready", 2)
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 2)  # so USR2 killed nobody
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert ended.code == 0, ended.output
    assert ended.ending == ("done", 0)
    assert not (ended.run_dir / "attempts" / "0.0" / "failure.json").exists()


def test_a_trap_of_setups_does_not_keep_a_job_from_being_stopped(bench: Benches) -> None:
    running = bench("srun").start(
        ranks_per_node=2, env={"PROBE": "wait done"}, setup=["trap 'echo no' USR2", "trap '' TERM"]
    )
    running.wait_for("ready", 2)
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 2)
    running.process.send_signal(signal.SIGTERM)
    assert running.end().ending == ("done", 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_script_at_a_terminal_is_ended_like_any_other(number: signal.Signals, bench: Benches) -> None:
    running = bench("local").start(ranks_per_node=2, env={"PROBE": "wait done"})
    running.wait_for("ready", 2)
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 2)
    running.process.send_signal(number)
    assert running.end().ending == ("done", 0)


def test_signals_one_upon_the_other_lose_no_code(bench: Benches) -> None:
    running = bench("srun").start(ranks_per_node=2, env={"PROBE": "wait done"})
    running.wait_for("ready", 2)
    for _ in range(30):
        running.process.send_signal(signal.SIGUSR2)
        time.sleep(0.01)
    running.process.send_signal(signal.SIGTERM)
    assert running.end().ending == ("done", 0)


def test_what_is_cancelled_is_not_started_again(bench: Benches) -> None:
    here = bench("pals")
    running = here.start(nodes=1, ranks_per_node=1, requeue={"max": 3}, env={"PROBE": "wait resume"})
    running.wait_for("ready", 1)
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 1)
    running.process.send_signal(signal.SIGTERM)
    assert running.end().ending == ("cancelled", 143)
    assert here.calls("qdel") == [["8.head"]]


def test_ranks_that_leave_on_term_without_a_word_were_cancelled(bench: Benches) -> None:
    here = bench("srun")
    here.stub(
        "program",
        "#!/bin/sh\ntrap 'exit 0' TERM\n: >\"$PROBE_FOLDER/ready-0\"\nwhile :; do sleep 0.1; done\n",
    )
    running = here.start(command=["program"])
    running.wait_for("ready", 1)
    running.process.terminate()
    assert running.end().ending == ("cancelled", 143)


def test_term_during_setup(bench: Benches) -> None:
    here = bench("srun")
    running = here.start(setup=[': >"$PROBE_FOLDER/ready-0"', "while :; do sleep 0.1; done"])
    running.wait_for("ready", 1)
    running.process.terminate()
    ended = running.end()
    assert ended.ending == ("cancelled", 143)
    assert here.calls("srun") == []


@pytest.mark.parametrize(("kind", "asks"), [("srun", "squeue"), ("pals", "date")])
def test_term_in_the_first_moment(kind: str, asks: str, bench: Benches) -> None:
    """While the script still finds out when its walltime ends: nobody could call that a failure."""
    here = bench(kind)
    here.stub(
        asks,
        '#!/bin/bash\ncd "$PROBE_FOLDER"\n'
        '[ -s "${CASTOFF_ATTEMPT_DIR-}/start.json" ] && mkdir ready-0 2>/dev/null &&\n'
        '  until [ -e go ]; do sleep 0.1; done\n[ "${0##*/}" = squeue ] || exec /bin/date "$@"\n',
    )
    running = here.start(ranks_per_node=1, walltime="30m")
    running.wait_for("ready", 1)
    running.process.terminate()
    (here.seen / "go").touch()
    ended = running.end()
    assert (ended.code, ended.ending) == (143, ("cancelled", 143)), ended.output
    assert here.ranks() == []


def test_a_term_at_the_walltime_is_not_a_cancellation(bench: Benches) -> None:
    """PBS sends TERM at the walltime."""
    running = bench("pals").start(walltime="5m", ranks_per_node=1, env={"PROBE": "wait resume"})
    running.wait_for("ready", 1)
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 1)
    running.process.send_signal(signal.SIGTERM)
    assert running.end().ending == ("cancelled", 143)
    late = bench("hydra", folder="late").start(walltime="14s", grace="1s", env={"PROBE": "wait resume"})
    late.wait_for("ready", 1)
    late.process.send_signal(signal.SIGUSR2)
    late.wait_for("stopping", 1)
    late.process.send_signal(signal.SIGTERM)
    assert late.end().ending == ("walltime", 75)


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ["hydra", "local", "srun"])
def test_the_script_asks_to_stop_before_the_walltime(kind: str, bench: Benches) -> None:
    """On Slurm too, whose signal may be late."""
    env = {"PROBE": "stop", "SLURM_JOB_END_TIME": str(int(time.time()) + 64800)}
    ended = bench(kind).run(walltime="18h", grace="64798s", env=env)
    assert ended.ending == ("walltime", 75), ended.output
    assert ended.code == 75


def test_a_script_that_nobody_ends_holds_its_walltime(bench: Benches) -> None:
    """On this machine, where somebody started it by hand."""
    ended = bench("local").run(walltime="2s", grace="1s", command=["sleep", "600"])
    assert (ended.code, ended.ending) == (143, ("walltime", 143)), ended.output


@pytest.mark.long
def test_the_deadline_comes_from_slurm(bench: Benches) -> None:
    here = bench("srun")
    assert here.run(walltime="30m", env={"SLURM_JOB_END_TIME": "1900000000"}).code == 0
    assert here.ranks()[0]["environ"]["CASTOFF_DEADLINE"] == "1900000000"
    assert here.ranks()[0]["environ"]["CASTOFF_GRACE"] == "120"
    older = bench("srun", folder="older")
    assert older.run(env={"STUB_END": "2030-03-17T17:46:40", "TZ": "UTC"}).code == 0
    assert older.ranks()[0]["environ"]["CASTOFF_DEADLINE"] == "1900000000"
    assert older.calls("squeue")[-1] == ["--noheader", "--job", "12", "--format", "%e"]


@pytest.mark.everyday("answer2")
@pytest.mark.parametrize("answer", [{}, {"STUB_END": "N/A"}, {"STUB_SQUEUE_CODE": "1"}])
def test_an_unknown_deadline_is_none(answer: dict[str, str], bench: Benches) -> None:
    """An empty answer must not be read as last midnight, which would stop the job at once."""
    here = bench("srun")
    assert here.run(walltime="30m", env=answer).code == 0
    assert here.ranks()[0]["environ"]["CASTOFF_DEADLINE"] == ""


@pytest.mark.long
def test_slurm_starts_it_again_up_to_the_count(bench: Benches) -> None:
    here = bench("srun")
    asked = {"requeue": {"max": 2}, "env": {"PROBE": "outcome resume"}}
    codes = []
    for restarts in range(3):
        ended = here.run(
            requeue={"max": 2}, env={"PROBE": "outcome resume", "SLURM_RESTART_COUNT": str(restarts)}
        )
        codes.append((ended.code, ended.record("ending", f"0.{restarts}")["ending"]))
    assert codes == [(0, "resume"), (0, "resume"), (75, "walltime")], asked
    assert here.calls("scontrol").count(["requeue", "12"]) == 2
    assert "requeue.max (2) is used up" in ended.output


def test_a_member_of_a_slurm_array_is_started_again_alone(bench: Benches) -> None:
    here = bench("srun")
    here.array_index = 4
    ended = here.run(array={"count": 8}, requeue={"max": 1}, env={"PROBE": "outcome resume"})
    assert (ended.code, ended.record("ending", "4.0")["ending"]) == (0, "resume")
    assert ["requeue", "12_4"] in here.calls("scontrol")
    assert here.calls("squeue")[-1][2] == "12_4"


def test_pbs_is_given_a_copy_that_carries_the_count_on(bench: Benches) -> None:
    here = bench("pals", folder="a, 'folder'")
    (here.folder / "inner").mkdir()
    ended = here.run(
        requeue={"max": 1}, inherit=["LANG"], workdir="inner", ranks_per_node=1,
        env={"PROBE": "outcome resume"},
    )  # fmt: skip
    assert (ended.code, ended.ending) == (75, ("resume", 75)), ended.output
    (call,) = here.calls("qsub")
    names = "CASTOFF_RUN_DIR,CASTOFF_ATTEMPT,CASTOFF_FIRST_ATTEMPT,CASTOFF_FOLLOWS,LANG"
    assert call[:4] == ["-v", names, "-W", "depend=afternotok:7.head"]
    assert call[4:] == ["-o", f"{ended.run_dir}/logs/job-0.log", f"{ended.run_dir}/job.sh"]
    # qsub takes values from its environment, so a comma in the path does not split them; it takes no quotes.
    reported = json.loads((here.seen.parent / "qsub.json").read_text())
    path = "%" + str(ended.run_dir).replace("'", "%27")
    assert reported.pop("cwd") == str(here.folder)
    assert reported == {"CASTOFF_RUN_DIR": path, "CASTOFF_ATTEMPT": "1", "CASTOFF_FOLLOWS": "7.head"}

    again = here.run(
        requeue={"max": 1}, inherit=["LANG"], workdir="inner", ranks_per_node=1,
        env={"PROBE": "outcome resume", **reported},
    )  # fmt: skip
    assert (again.code, again.record("ending", "0.1")["ending"]) == (75, "walltime")
    assert len(here.calls("qsub")) == 1


@pytest.mark.parametrize(("kind", "refusal"), [("pals", "STUB_QSUB_CODE"), ("srun", "STUB_SCONTROL_CODE")])
def test_a_refused_requeue_is_reported(kind: str, refusal: str, bench: Benches) -> None:
    here = bench(kind)
    here.stub("scontrol", "#!/bin/sh\n[ $1 = show ] && echo x0 && exit\necho it is disabled\nexit 1\n")
    ended = here.run(
        ranks_per_node=1, requeue={"max": 1}, grace="1s", env={"PROBE": "outcome resume", refusal: "1"}
    )
    assert ended.ending == ("walltime", 75)
    assert "not requeued: the scheduler did not requeue it" in ended.output


@pytest.mark.long
@pytest.mark.parametrize("reported", ["$$", "$PPID $$", "$$ $PPID $script", "$script $PPID $$"])
def test_slurm_may_end_scontrol_with_the_job_that_it_queues_again(reported: str, bench: Benches) -> None:
    """Its TERM goes to all processes of the job, whether scontrol has its answer or not."""
    here = bench("srun")
    script = 'read -r _ _ _ script _ <"/proc/$PPID/stat"'  # its own parent is timeout
    show = '[ "$1" = show ] && echo x0 && exit'
    here.stub("scontrol", f"#!/bin/sh\n{show}\n{script}\nkill -s TERM {reported}\nsleep 5\n")
    ended = here.run(ranks_per_node=1, requeue={"max": 1}, env={"PROBE": "outcome resume"})
    assert ended.ending == ("resume", 0)


HANGS = ': >"$PROBE_FOLDER/hangs-$$"; exec sleep 1000'
"""What a program does whose answer never comes, once it has said so to `ENDS_WHAT_HANGS`."""

ENDS_WHAT_HANGS = f"""#!/bin/bash
[[ " $* " == *\\ @(scontrol|squeue)\\ * ]] || exec {shutil.which("timeout")} "$@"
until [[ $1 == s[cq]* ]]; do shift; done
"$@" &
while builtin kill -0 $! 2>/dev/null; do
  if [[ -e $PROBE_FOLDER/hangs-$! ]]; then builtin kill $! && exit 124; fi
  sleep 0.1
done
wait $!
"""
"""A timeout that ends no program of Slurm's, however slow the machine is, but those that hang."""


class TestSlurmDoesNotAnswer:
    """At the moment at which a script wants its job started again."""

    AWAY = "echo Unexpected message received >&2; exit 1"
    ASKED: ClassVar[dict[str, Any]] = {
        "ranks_per_node": 1,
        "requeue": {"max": 1},
        "env": {"PROBE": "outcome resume"},
    }

    def here(self, bench: Benches, requeue: str, squeue: str) -> Bench:
        """Where each of the two programs knows by `$n` how often it was called before."""
        here = bench("srun")
        count = 'n=0; while ! mkdir "$PROBE_FOLDER/${0##*/}-$n" 2>/dev/null; do n=$((n + 1)); done'
        show = '[ "$1" = show ] && echo x0 && exit'
        here.stub("scontrol", f"#!/bin/bash\n{show}\n{count}\n{requeue}\n")
        here.stub("squeue", f"#!/bin/bash\n[[ $* == *State* ]] || exit 0\n{count}\n{squeue}\n")
        return here

    def requeues(self, here: Bench) -> int:
        return len([*here.seen.glob("scontrol-*")])

    def test_it_is_asked_again_once_slurm_still_runs_the_job(self, bench: Benches) -> None:
        here = self.here(
            bench, f"((n)) || {{ {self.AWAY}; }}", f"((n)) || {{ {self.AWAY}; }}; echo 'RUNNING  0 '"
        )
        ended = here.run(**self.ASKED)
        assert (ended.code, ended.ending) == (0, ("resume", 0)), ended.output
        assert self.requeues(here) == 2
        assert "castoff: scontrol requeue 12: Unexpected message received\n" in ended.output

    @pytest.mark.parametrize(("state", "requeues"), [("RUNNING 0", 2), ("PENDING 0", 1)])
    def test_nor_end(self, state: str, requeues: int, bench: Benches) -> None:
        """What hangs with slurmctld is ended, and has not answered."""
        here = self.here(bench, f"((n > 1)) || {{ {HANGS}; }}", f"((n)) || {{ {HANGS}; }}; echo '{state}'")
        here.stub("timeout", ENDS_WHAT_HANGS)
        ended = here.run(**{**self.ASKED, "requeue": {"max": 1, "on": ["stop"]}})
        assert (ended.code, ended.ending) == (0, ("resume", 0)), ended.output
        assert self.requeues(here) == 1 + requeues  # scontrol update comes first
        assert "castoff: scontrol requeue 12: no answer (exit code 124)\n" in ended.output

    @pytest.mark.parametrize("state", ["PENDING 0", "RUNNING 1"])
    def test_but_not_where_it_has_happened(self, state: str, bench: Benches) -> None:
        """A second request would end the next attempt."""
        here = self.here(bench, self.AWAY, f"echo '{state}'")
        assert here.run(**self.ASKED).ending == ("resume", 0)
        assert self.requeues(here) == 1

    def test_until_the_grace_period_is_over(self, bench: Benches) -> None:
        here = self.here(bench, self.AWAY, self.AWAY)
        ended = here.run(**self.ASKED, walltime="1h", grace="1s")
        assert (ended.code, ended.ending) == (75, ("walltime", 75)), ended.output
        assert self.requeues(here) == 1

    def test_or_somebody_asks_it_to_stop(self, bench: Benches) -> None:
        here = self.here(bench, self.AWAY, f': >"$CASTOFF_RUN_DIR/stop"; {self.AWAY}')
        assert here.run(**self.ASKED).ending == ("resume", 75)
        assert self.requeues(here) == 1

    def test_or_ends_it(self, bench: Benches) -> None:
        """Whether to queue it again or not: Slurm knows."""
        waits = 'until [ -e "$PROBE_FOLDER/go" ]; do sleep 0.1; done'
        here = self.here(bench, self.AWAY, f': >"$PROBE_FOLDER/ready-0"; {waits}; {self.AWAY}')
        running = here.start(**self.ASKED)
        running.wait_for("ready", 1)
        running.process.terminate()
        (here.seen / "go").touch()
        assert running.end().ending == ("resume", 0)
        assert self.requeues(here) == 1


def test_nobody_starts_a_lone_local_script_again(bench: Benches) -> None:
    ended = bench("local").run(requeue={"max": 1}, env={"PROBE": "outcome resume"})
    assert ended.ending == ("walltime", 75)
    assert not (ended.run_dir / "attempts" / "0.0" / "requeue").exists()


@pytest.mark.long
def test_the_programs_word_counts_more_than_the_launchers_code(bench: Benches) -> None:
    here = bench("srun")
    real = (here.bin / "srun").read_text()
    (here.bin / "srun").write_text(real.replace("sys.exit(main())", "main(); sys.exit(7)"))
    assert here.run(env={"PROBE": "outcome done"}).ending == ("done", 0)
    silent = bench("srun", folder="silent")
    (silent.bin / "srun").write_text(real.replace("sys.exit(main())", "main(); sys.exit(7)"))
    assert silent.run().ending == ("failed", 7)


def test_many_ranks_leave_few_logs(bench: Benches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above 256 ranks: one log a node, and that of a rank that failed."""
    monkeypatch.setattr("castoff.launcher.planning.planner.PER_RANK_FILES", 2)
    here = bench("hydra")
    temporary = here.seen.parent / "tmp"
    temporary.mkdir()
    ended = here.run(ranks_per_node=3, env={"PROBE": "fail 1 3", "TMPDIR": str(temporary)})
    assert ended.code == 3, ended.output
    logs = ended.run_dir / "logs" / "0.0"
    assert sorted(path.name for path in logs.glob("*.log")) == ["node-00000.log", "rank-00001.log"]
    assert (logs / "rank-00001.log").read_text() == "rank 1 was here\n"
    assert ended.record("failure")["log"] == "rank-00001.log"
    assert "rank 0 was here" in ended.output and "rank 1 was here" in ended.output
    assert list(temporary.glob("castoff*")) == []


def test_a_child_of_the_script_records_no_ending(bench: Benches) -> None:
    """bash lets a child that is killed as it begins run the script's EXIT trap (seen with bash 5.2)."""
    trap = 'eval "$(trap -p EXIT | sed "s/^trap -- .//; s/. EXIT$//")"'
    setup = [f"({trap})", 'test ! -e "$CASTOFF_ATTEMPT_DIR/ending.json"']
    ended = bench("local").run(command=["true"], setup=setup)
    assert ended.ending == ("done", 0), ended.output


@pytest.mark.everyday("nothing-0")
@pytest.mark.parametrize(("probe", "code"), [("nothing", 0), ("fail 1 3", 3)])
def test_what_setup_started_ends_after_the_ranks(probe: str, code: int, bench: Benches) -> None:
    """Copper: whatever becomes of the ranks, and without a say in the job's code."""
    here = bench("pals")
    here.stub("stop_copper.sh", '#!/bin/sh\nls "$PROBE_FOLDER" >"$PROBE_FOLDER/stopped"\nexit 9\n')
    for name in ("module", "launch_copper.sh"):
        here.stub(name, '#!/bin/sh\necho "$0 $*" >>"$PROBE_FOLDER/launched"\n')
    reported = {"PROBE": probe, "VIRTUAL_ENV": "/venv", "USER": "me", "PYTHONPATH": "/mine"}
    ended = here.run(ranks_per_node=2, options=["copper"], setup=["echo set up"], env=reported)
    assert ended.code == code, ended.output
    launched = [line.rpartition("/")[2] for line in (here.seen / "launched").read_text().splitlines()]
    assert launched == ["module load copper", "launch_copper.sh "]
    assert {"rank-0.json", "rank-1.json"} <= set((here.seen / "stopped").read_text().split())
    for rank in here.ranks():
        first, mine = rank["environ"]["PYTHONPATH"].split(":")
        assert first.startswith("/tmp/me/copper/") and first.endswith("/site-packages") and mine == "/mine"


def test_a_setup_that_fails_starts_nothing(bench: Benches) -> None:
    here = bench("pals")
    here.stub("module", "#!/bin/sh\n")
    here.stub("launch_copper.sh", "#!/bin/sh\nexit 4\n")
    ended = here.run(ranks_per_node=1, options=["copper"], env={})
    assert (ended.code, ended.ending) == (4, ("failed", 4))
    assert here.ranks() == []


@pytest.mark.parametrize("line", ["exit 0", "kill -s USR1 $$"])
def test_what_failed_has_no_code_0(line: str, bench: Benches) -> None:
    """bash runs the EXIT trap with 0 also when a signal ends the script.

    Its scheduler is told the same as castoff's record: other jobs may wait for this one's success.
    """
    here = bench("srun")
    ended = here.run(setup=[line])
    assert ended.code != 0 and ended.ending == ("failed", 1), ended.output
    assert here.ranks() == []
