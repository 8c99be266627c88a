"""Restarts in the same job: after which failures, how often, with which records. Under every launcher."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.cases import others_long
from tests.patience import until

from .conftest import Benches
from .harness import Bench, Ended
from .machine import part

KINDS = others_long(["local", "hydra", "openmpi", "pals", "srun"], ("local", "srun"))


def program(lines: str) -> list[str]:
    """A program of shell: `fails CODE` ends rank 1, after which the others wait to be ended."""
    fails = 'fails() { [ "$RANK" -eq 1 ] && exit "$1"; exec sleep 1000; }'
    return ["sh", "-c", f"{fails}; {lines}"]


REPORTS = 'echo "$CASTOFF_ATTEMPT" >"$CASTOFF_PROGRESS_FILE"; '


def run(bench: Bench, lines: str, restart: dict[str, Any], **fields: Any) -> Ended:
    return bench.run(ranks_per_node=2, command=program(lines), restart=restart, **fields)


def endings(ended: Ended) -> list[str]:
    attempts = sorted((ended.run_dir / "attempts").iterdir(), key=lambda path: int(path.suffix[1:]))
    return [ended.record("ending", path.name)["ending"] for path in attempts]


def reason(ended: Ended, attempt: int) -> str:
    found: str = ended.record("ending", f"0.{attempt}")["reason"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_attempt_begins_in_the_same_job(kind: str, bench: Benches) -> None:
    ended = run(bench(kind), '[ "$CASTOFF_ATTEMPT" -gt 0 ] || fails 7', {"max": 3})
    assert (ended.code, endings(ended)) == (0, ["failed", "done"]), ended.output
    first, second = ended.record("ending"), ended.record("start", "0.1")
    assert (first["code"], first["restart"]) == (7, True)
    assert (second["job"], second["restart"]) == (ended.record("start")["job"], 1)
    assert "restart" not in ended.record("start") and "restart" not in ended.record("ending", "0.1")
    assert "failed first: exit code 7; attempt 1 begins (restart 1 of 3)" in ended.output
    assert not {"Terminated", "Killed"} & {*ended.output.splitlines()}, "the shell says so, too"
    assert ended.record("failure")["rank"] == 1
    assert {path.name for path in (ended.run_dir / "logs").iterdir()} >= {"0.0", "0.1"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_without_restarts_names_the_same_files(kind: str, bench: Benches) -> None:
    """So that a program that reports its progress runs with and without them."""
    lines = 'echo 1 >"$CASTOFF_PROGRESS_FILE"; echo stack >"$CASTOFF_STACK_DIR/rank-0000$RANK.txt"'
    ended = bench(kind).run(ranks_per_node=2, command=program(lines))
    assert ended.ending == ("done", 0), ended.output
    assert (ended.run_dir / "attempts" / "0.0" / "progress").read_text() == "1\n"
    assert (ended.run_dir / "logs" / "0.0" / "stacks" / "rank-00001.txt").exists()


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_has_a_rendezvous_of_its_own(kind: str, bench: Benches) -> None:
    says = '[ "$RANK" -ne 1 ] || echo "port $MASTER_PORT"; '
    ended = run(bench(kind), f'{says} [ "$CASTOFF_ATTEMPT" -gt 0 ] || fails 7', {"max": 1})
    logs = [ended.run_dir / "logs" / attempt / "rank-00001.log" for attempt in ("0.0", "0.1")]
    first, second = (log.read_text().split("port ")[1].split()[0] for log in logs)
    assert first != second


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", KINDS)
def test_restarts_end_with_their_number(kind: str, bench: Benches) -> None:
    ended = run(bench(kind), f"{REPORTS} fails 7", {"max": 2})
    assert (ended.code, endings(ended)) == (7, ["failed"] * 3), ended.output
    assert "restart.max (2) is used up" in reason(ended, 2)
    assert "restart" not in ended.record("ending", "0.2")


class TestProgress:
    def test_a_program_that_reports_none_gets_one_restart(self, bench: Benches) -> None:
        ended = run(bench("local"), "fails 7", {"max": 5})
        assert endings(ended) == ["failed"] * 2
        assert "the program reports no progress (CASTOFF_PROGRESS_FILE, CASTOFF_METRICS_FILE)" in reason(
            ended, 1
        )

    def test_none_may_be_asked_for(self, bench: Benches) -> None:
        ended = run(bench("local"), "fails 7", {"max": 2, "progress": "none"})
        assert endings(ended) == ["failed"] * 3

    @pytest.mark.long
    def test_two_attempts_without_any_are_the_end(self, bench: Benches) -> None:
        values = 'set -- 8 9.5 9.5 3 77; shift "$CASTOFF_ATTEMPT"; echo "$1" >"$CASTOFF_PROGRESS_FILE"; '
        ended = run(bench("local"), f"{values} fails 7", {"max": 9})
        assert endings(ended) == ["failed"] * 4
        assert "two attempts in a row failed without progress beyond 9.5" in reason(ended, 3)

    @pytest.mark.long
    def test_a_step_of_the_metrics_counts_as_well(self, bench: Benches) -> None:
        line = r'"{\"time\": 9e99, \"step\": $step, \"val/step\": 9999}"'
        steps = f'for step in 1 "$1" 2; do echo {line}; done >>"$CASTOFF_METRICS_FILE"; '
        lines = f'set -- 8 9e1 9e1 3 777; shift "$CASTOFF_ATTEMPT"; [ "$RANK" -ne 1 ] || {steps}'
        ended = run(bench("local"), f"{lines} fails 7", {"max": 9})
        assert endings(ended) == ["failed"] * 4
        assert "two attempts in a row failed without progress beyond 9e1" in reason(ended, 3)

    @pytest.mark.everyday("-")
    @pytest.mark.parametrize("word", ["", "nan", "1;touch x", "$(touch x)", "x" * 100_000, "-", "1 2"])
    def test_what_is_no_number_is_none(self, word: str, bench: Benches) -> None:
        ended = run(bench("local"), f"echo '{word}' >\"$CASTOFF_PROGRESS_FILE\"; fails 7", {"max": 5})
        assert endings(ended) == ["failed"] * 2
        assert not list(ended.run_dir.parent.rglob("x"))

    @pytest.mark.long
    def test_a_checkpoint_shows_it(self, bench: Benches) -> None:
        lines = '[ "$CASTOFF_ATTEMPT" -gt 1 ] || touch ckpt/latest; fails 7'
        here = bench("local")
        (here.folder / "ckpt").mkdir()
        ended = run(here, lines, {"max": 9, "progress": "ckpt"})
        assert endings(ended) == ["failed"] * 4


class TestNever:
    @pytest.mark.parametrize(("never", "code"), [(None, 2), (None, 127), ([3, 77], 77)])
    def test_after_such_a_code(self, never: list[int] | None, code: int, bench: Benches) -> None:
        ended = run(bench("local"), f"fails {code}", {"max": 3, "never": never})
        assert (ended.code, endings(ended)) == (code, ["failed"])
        assert f"exit code {code} is among restart.never" in reason(ended, 0)

    @pytest.mark.long
    def test_after_a_success(self, bench: Benches) -> None:
        assert endings(run(bench("srun"), "true", {"max": 3})) == ["done"]

    @pytest.mark.everyday("local")
    @pytest.mark.parametrize("kind", ["local", "srun"])
    def test_after_a_cancellation(self, kind: str, bench: Benches) -> None:
        here = bench(kind)
        lines = ': >"$PROBE_FOLDER/ready-$RANK"; exec sleep 1000'
        started = here.start(ranks_per_node=2, command=program(lines), restart={"max": 3})
        started.wait_for("ready", 2)
        started.process.send_signal(signal.SIGTERM)
        ended = started.end()
        assert endings(ended) == ["cancelled"], ended.output

    def test_after_a_stop_that_somebody_asked_for(self, bench: Benches) -> None:
        lines = '[ "$RANK" -ne 1 ] || : >"$CASTOFF_RUN_DIR/stop"; fails 7'
        ended = run(bench("srun"), lines, {"max": 3})
        assert endings(ended) == ["failed"] and reason(ended, 0).endswith("castoff stop was called")
        assert "castoff: not started again: castoff stop was called" in ended.output

    @pytest.mark.long
    def test_a_stop_reaches_an_attempt_that_who_asked_did_not_see(self, bench: Benches) -> None:
        here = bench("srun")
        stop = 'case "$*" in *attempts/0.1*) : >"$CASTOFF_RUN_DIR/stop" ;; esac'
        here.stub("mkdir", f'#!/bin/sh\n{stop}\nexec /bin/mkdir "$@"\n')
        lines = '[ "$CASTOFF_ATTEMPT" -gt 0 ] || fails 7; [ ! -e "$CASTOFF_STOP_FILE" ] || '
        ended = run(here, lines + 'echo resume >"$CASTOFF_OUTCOME_FILE"', {"max": 3})
        assert endings(ended) == ["failed", "resume"], ended.output

    def test_when_less_than_grace_is_left(self, bench: Benches) -> None:
        here = bench("srun")
        here.env["SLURM_JOB_END_TIME"] = str(int(time.time()) + 60)
        ended = run(here, "fails 7", {"max": 3}, walltime="30m")
        assert endings(ended) == ["failed"] and "grace is 120 s" in reason(ended, 0)


class TestRequeue:
    def test_takes_over_where_restarts_end(self, bench: Benches) -> None:
        here = bench("srun")
        ended = run(here, f"{REPORTS} fails 7", {"max": 1}, requeue={"max": 1})
        assert endings(ended) == ["failed", "resume"], ended.output
        assert ["requeue", "12"] in here.calls("scontrol")
        assert "restart.max (1) is used up" in reason(ended, 1)

    @pytest.mark.long
    def test_by_a_chain_of_which_this_is_the_last_job(self, bench: Benches) -> None:
        fields: dict[str, Any] = {"restart": {"max": 1}, "requeue": {"max": 1, "how": "chain"}}
        here = bench("pals")
        first = run(here, f"{REPORTS} fails 7", **fields)
        record = first.run_dir / "attempts" / "0.1" / "ending.json"
        record.write_text('{"ending": "resume", "code": 75, "time": 1}\n')
        again = {"CASTOFF_CHAIN": "1", "CASTOFF_RUN_DIR": str(first.run_dir)}
        ended = run(here, f"{REPORTS} fails 7", **fields, env=again)
        assert (ended.code, endings(ended)) == (7, ["failed", "resume", "failed", "failed"]), ended.output
        assert "castoff: not requeued: requeue.max (1) is used up" in ended.output
        assert "stopped early" not in ended.output

    @pytest.mark.long
    def test_counts_jobs_and_not_attempts(self, bench: Benches) -> None:
        here = bench("srun")
        fields: dict[str, Any] = {"restart": {"max": 2}, "requeue": {"max": 1}}
        run(here, f"{REPORTS} fails 7", **fields)
        again = {"SLURM_RESTART_COUNT": "1", "CASTOFF_RUN_DIR": str(here.run_dir())}
        ended = run(here, f"{REPORTS} fails 7", **fields, env=again)
        assert endings(ended) == ["failed", "failed", "resume", "failed", "failed", "failed"], ended.output
        assert here.calls("scontrol").count(["requeue", "12"]) == 1

    @pytest.mark.long
    def test_does_not_follow_a_crash_loop(self, bench: Benches) -> None:
        here = bench("srun")
        ended = run(here, "fails 7", {"max": 5}, requeue={"max": 3})
        assert endings(ended) == ["failed", "failed"]
        assert not [words for words in here.calls("scontrol") if words[0] == "requeue"]

    @pytest.mark.long
    def test_a_copy_follows_the_last_attempt(self, bench: Benches) -> None:
        """PBS: it was submitted as the first attempt began, and its record moves on with the attempts."""
        here = bench("pals")
        ended = run(here, f"{REPORTS} fails 7", {"max": 1}, requeue={"max": 1}, queue="capacity")
        assert endings(ended) == ["failed", "resume"], ended.output
        assert not (ended.run_dir / "attempts" / "0.0" / "next.json").exists()
        assert ended.record("next", "0.1")["job"] == "8.head"


TORCHRUN = """#!/bin/sh
until [ "$1" = --no-python ]; do shift; done
shift
export RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none
[ "$CASTOFF_ATTEMPT" = 0 ] || exec "$@"
"$@" &
until [ -s "$PROBE_FOLDER/rank" ]; do sleep 0.02; done
exit 7
"""
"""A python that knows torchrun alone, which ends before its rank does."""


@pytest.mark.long
def test_what_torchrun_leaves_is_ended_before_the_next_attempt(bench: Benches) -> None:
    here = bench("srun")
    here.stub("python", TORCHRUN)
    program = here.folder / "program.sh"  # torchrun would read its words as templates
    program.write_text(
        "rank=$PROBE_FOLDER/rank\n"
        '[ "$CASTOFF_ATTEMPT" != 0 ] || { echo "$$" >"$rank"; exec sleep 1000; }\n'
        '! grep -qs sleep "/proc/$(cat "$rank")/cmdline"\n'  # that of a zombie is empty
    )
    ended = here.run(command=["sh", str(program)], launcher={"torchrun": True}, restart={"max": 1})
    assert endings(ended) == ["failed", "done"], ended.output


def still_until(here: Bench, *events: str) -> Bench:
    """Have the job's clock stand still until these files exist: only then may it find a hang."""
    there = " && ".join(f'[ -e "{event}" ]' for event in events)
    reads = f'[ "$*" != +%s ] || {{ {there}; }} || set -- -d @{int(time.time())} +%s'
    here.stub("date", f'#!/bin/sh\n{reads}\nexec /bin/date "$@"\n')
    return here


def stuck_ranks(count: int) -> list[str]:
    return [f"$PROBE_FOLDER/stuck-{rank}" for rank in range(count)]


SAYS_STUCK = ': >"$PROBE_FOLDER/stuck-$RANK"; '


STUCK = """
import faulthandler, os, signal, sys, time
rank = int(os.environ["RANK"])
file = open(os.environ["CASTOFF_STACK_DIR"] + f"/rank-{rank:05d}.txt", "w")
faulthandler.register(signal.SIGQUIT, file=file)
def wait_for_the_others(): open(os.environ["PROBE_FOLDER"] + f"/stuck-{rank}", "w"), time.sleep(1000)
def read_data(): open(os.environ["PROBE_FOLDER"] + f"/stuck-{rank}", "w"), time.sleep(1000)
if os.environ["CASTOFF_ATTEMPT"] == "0":
    read_data() if rank == 1 else wait_for_the_others()
"""


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", KINDS)
def test_a_hang_ends_the_attempt_and_names_the_rank_that_differs(
    kind: str, bench: Benches, tmp_path: Path
) -> None:
    stuck = tmp_path / "stuck.py"
    stuck.write_text(STUCK)
    ended = still_until(bench(kind), *stuck_ranks(3)).run(
        ranks_per_node=3, command=[sys.executable, str(stuck)], restart={"max": 1, "hang": "1s"}
    )
    assert endings(ended) == ["failed", "done"], ended.output
    failure = ended.record("failure")
    assert (failure["rank"], failure["reason"]) == (1, "hang")
    place = "is at read_data (stuck.py:7), and 2 of 3 are at wait_for_the_others (stuck.py:6)"
    assert place in reason(ended, 0)
    stack = ended.run_dir / "logs" / "0.0" / "stacks" / "rank-00001.txt"
    assert "read_data" in stack.read_text()


WRAPPED = """
case "$RANK" in
  0) exec "$0" "$1" ;;
  1) timeout 1000 "$0" "$1" with-worker; true ;;
  2) "$0" "$1" with-worker; true ;;
  3) timeout 1000 "$0" -c "import sys, time; open(sys.argv[1], 'w'); time.sleep(1000)" "$PROBE_FOLDER/stuck-3"
     true ;;
esac
"""

ASKED = """#!/bin/sh
readlink "/proc/$3/exe" | grep -q python && ! tr '\\000' ' ' <"/proc/$3/cmdline" | grep -q stuck.py || exit 1
printf '%s\\n' 'Thread 1 (idle): "MainThread"' '    in_no_handler (other.py:3)'
"""
"""A py-spy, for the rank that does not handle QUIT alone."""


@pytest.mark.long
def test_behind_a_wrapper_the_program_is_asked(bench: Benches, tmp_path: Path) -> None:
    """timeout would pass QUIT on to all; a forked worker has its parent's handler and its open file."""
    stuck = tmp_path / "stuck.py"
    stuck.write_text(STUCK.replace("if os", "if sys.argv[1:] and not os.fork(): time.sleep(1000)\nif os"))
    here = still_until(bench("local"), *stuck_ranks(4))
    here.stub("py-spy", ASKED)
    command = ["sh", "-c", f'[ "$CASTOFF_ATTEMPT" = 0 ] || exit 0; {WRAPPED}', sys.executable, str(stuck)]
    ended = here.run(ranks_per_node=4, command=command, restart={"max": 1, "hang": "1s"})
    assert endings(ended) == ["failed", "done"], ended.output
    lines = (ended.run_dir / "attempts" / "0.0" / "stacks").read_text().splitlines()
    waits = "wait_for_the_others (stuck.py:6)"
    places = [waits, "read_data (stuck.py:7)", waits, "in_no_handler (other.py:3)"]
    assert [line.split("\t")[3] for line in sorted(lines)] == places, lines
    for name in ("rank-00001.txt", "rank-00002.txt"):
        written = (ended.run_dir / "logs" / "0.0" / "stacks" / name).read_text()
        assert written.count("Current thread") == 1, written


TWO_RANKS = """#!/bin/sh
until [ "$1" = --no-python ]; do shift; done
shift
for RANK in 0 1; do
  RANK=$RANK LOCAL_RANK=$RANK TORCHELASTIC_RUN_ID=none "$@" &
done
wait
"""
"""A python that knows torchrun alone."""


@pytest.mark.long
def test_torchrun_itself_is_none_of_its_ranks(bench: Benches, tmp_path: Path) -> None:
    """It has a RANK of its own where castoff starts it on this machine."""
    stuck = tmp_path / "stuck.py"
    stuck.write_text(STUCK)
    here = still_until(bench("local"), *stuck_ranks(2))
    here.stub("python", TWO_RANKS)
    fields: dict[str, Any] = {"ranks_per_node": 2, "launcher": {"torchrun": True}}
    ended = here.run(command=[sys.executable, str(stuck)], restart={"max": 1, "hang": "1s"}, **fields)
    assert endings(ended) == ["failed", "done"], ended.output
    place = "is at read_data (stuck.py:7), and 1 of 2 is at wait_for_the_others (stuck.py:6)"
    assert place in reason(ended, 0), ended.output


@pytest.mark.long
def test_of_two_ranks_that_differ_both_places_are_named(bench: Benches, tmp_path: Path) -> None:
    stuck = tmp_path / "stuck.py"
    stuck.write_text(STUCK)
    here = still_until(bench("local"), *stuck_ranks(2))
    command = [sys.executable, str(stuck)]
    ended = here.run(ranks_per_node=2, command=command, restart={"max": 1, "hang": "1s"})
    place = "is at read_data (stuck.py:7), and 1 of 2 is at wait_for_the_others (stuck.py:6)"
    assert place in reason(ended, 0), ended.output


def test_a_stopped_rank_is_the_one_that_hangs(bench: Benches) -> None:
    hangs = f'{SAYS_STUCK}[ "$RANK" -ne 1 ] || kill -s STOP $$; exec sleep 1000'
    here = still_until(bench("local"), *stuck_ranks(2))
    ended = run(here, f'[ "$CASTOFF_ATTEMPT" -gt 0 ] || {{ {hangs}; }}', {"max": 1, "hang": "1s"})
    assert endings(ended) == ["failed", "done"], ended.output
    assert "rank 1 on " in reason(ended, 0) and "is in state T" in reason(ended, 0)


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_has_ended_well_is_not_missing(kind: str, bench: Benches) -> None:
    lines = f'[ "$CASTOFF_ATTEMPT" -gt 0 ] || [ "$RANK" -eq 0 ] || {{ {SAYS_STUCK}exec sleep 1000; }}'
    here = still_until(bench(kind), "$PROBE_FOLDER/stuck-1", "$CASTOFF_ATTEMPT_DIR/ended/0")
    ended = run(here, lines, {"max": 1, "hang": "1s"})
    assert endings(ended) == ["failed", "done"], ended.output
    assert ended.record("failure")["rank"] == 1
    where = "(waits for a time to pass|is at an unknown place)"  # a kernel may hide it
    words = (
        rf"rank 1 on \S+ {where}.*; rank 0 has ended well, after \d+ s; with py-spy on the PATH of the job"
    )
    assert re.search(words, reason(ended, 0)), reason(ended, 0)


@pytest.mark.long
def test_a_host_that_is_asked_alone_knows_its_ranks(bench: Benches) -> None:
    """Since the launcher starts nothing on lists with the other host."""
    here = still_until(three_hosts(bench), *stuck_ranks(2))
    ended = here.run(
        nodes=2,
        ranks_per_node=1,
        command=program(f"{SAYS_STUCK}exec sleep 1000"),
        restart={"hang": "1s"},
        env={"STUB_DOWN_NODE": "x0"},
    )
    assert "rank 0 on x0 gave no sign of itself, and 1 others did" in reason(ended, 0), ended.output


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("futex_wait_queue_me", "waits for another thread (futex_wait_queue_me)"),
        (
            "poll_schedule_timeout.constprop.0",
            "waits for other processes (poll_schedule_timeout.constprop.0)",
        ),
        ("ep_poll", "waits for other processes (ep_poll)"),
        ("rpc_wait_bit_killable", "waits for the file system (rpc_wait_bit_killable)"),
        ("folio_wait_bit_common", "waits for the file system (folio_wait_bit_common)"),
        ("0", ""),
        ("new_in_linux_9", ""),
    ],
)
def test_a_wait_in_the_kernel_in_words(function: str, words: str) -> None:
    machinery = (Path(__file__).parents[3] / "templates" / "machinery" / "hang.sh").read_text()
    (own,) = re.findall(r"^castoff_waits_for\(\) .*?^}\n", machinery, re.M | re.S)
    answer = subprocess.run(
        ["sh", "-c", f'{own}\ncat() {{ echo "$0"; }}\ncastoff_waits_for 7', function],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == words


@pytest.mark.long
def test_a_host_whose_ranks_have_ended_well_is_kept(bench: Benches) -> None:
    here = still_until(three_hosts(bench), "$PROBE_FOLDER/stuck-1", "$CASTOFF_ATTEMPT_DIR/ended/0")
    hangs = f"{SAYS_STUCK}kill -s STOP $$; exec sleep 1000"
    lines = f'[ "$CASTOFF_ATTEMPT" -gt 0 ] || [ "$RANK" -eq 0 ] || {{ {hangs}; }}'
    restart = {**SPARE, "hang": "1s"}
    ended = here.run(nodes=2, ranks_per_node=1, command=program(lines), restart=restart)
    assert endings(ended) == ["failed", "done"], ended.output
    assert [path.name for path in (ended.run_dir / "set-aside").iterdir()] == ["x1.json"]


@pytest.mark.long
def test_a_hang_is_no_failed_rank(bench: Benches) -> None:
    """Also where an mpiexec waits for a rank that is stopped."""
    lines = f'trap "" TERM; {SAYS_STUCK}[ "$RANK" -ne 1 ] || kill -s STOP $$; while :; do sleep 1000; done'
    ended = run(still_until(bench("hydra"), *stuck_ranks(2)), lines, {"hang": "1s"})
    assert endings(ended) == ["failed"] and "is in state T" in reason(ended, 0)
    assert "a rank has failed" not in ended.output


WATCHED = """
clock=0
date() { echo "$clock"; }
read() { # a second passes
  clock=$((clock + 1))
  if ((clock <= 6)); then
    echo "$clock" >"$CASTOFF_PROGRESS_FILE"
  elif ((clock <= 12)); then
    echo "$clock" >>"$CASTOFF_LOG_DIR/rank-00000.log"
  fi
}
castoff_end_hang() { echo "a hang at $clock s"; }
castoff_hang=2 castoff_launcher=$$
castoff_await_hang
"""
"""Progress for 6 s, output for 6 s, then nothing."""


def test_output_and_progress_are_signs_of_life(tmp_path: Path) -> None:
    places = {
        "CASTOFF_LOG_DIR": str(tmp_path / "logs"),
        **{f"CASTOFF_{name}_FILE": str(tmp_path / name) for name in ("PROGRESS", "METRICS", "FAILURE")},
    }
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank-00000.log").touch()
    watch = ["bash", "-c", part("hang", "hang", "reported_progress") + WATCHED]
    answer = subprocess.run(watch, env={**os.environ, **places}, capture_output=True, text=True, check=True)
    assert (answer.stdout, answer.stderr) == ("a hang at 14 s\n", "")


@pytest.mark.everyday("hydra")
@pytest.mark.parametrize("kind", ["srun", "pals", "hydra"])
def test_a_check_of_the_jobs_own_names_the_host(kind: str, bench: Benches) -> None:
    ended = bench(kind).run(ranks_per_node=2, preflight=["echo no scratch here; exit 3"])
    assert endings(ended) == ["node-failure"], ended.output
    assert "echo no scratch here; exit 3 failed with code 3: no scratch here" in reason(ended, 0)
    assert "1 hosts are needed" in reason(ended, 0) and not list(ended.run_dir.rglob("rank-*.log"))


def test_a_check_that_prints_nothing_is_named_alone(bench: Benches) -> None:
    ended = bench("srun").run(preflight=["test -d /no/such"])
    assert re.search(r"test -d /no/such failed with code 1$", ended.output, re.MULTILINE)


@pytest.mark.everyday("srun")
@pytest.mark.parametrize("kind", ["srun", "pals", "hydra", "openmpi"])
def test_fit_hosts_get_ranks(kind: str, bench: Benches) -> None:
    here = bench(kind)
    assert endings(here.run(ranks_per_node=2, preflight=True)) == ["done"]
    assert len(here.ranks()) == 2


@pytest.mark.long
def test_nothing_starts_beside_a_process_that_does_not_die(bench: Benches, tmp_path: Path) -> None:
    group = Path("/sys/fs/cgroup/freezer", f"castoff-{uuid.uuid4().hex}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no processes can be frozen here: {error}")
    pid = tmp_path / "pid"
    lines = (
        f"if [ $RANK -eq 1 ]; then echo $$ >{pid}; exec sleep 1000; fi; "
        f"until [ -s {pid} ]; do sleep 0.1; done; "
        f"cat {pid} >{group}/cgroup.procs; echo FROZEN >{group}/freezer.state; exit 7"
    )
    here = bench("local")
    started = here.start(ranks_per_node=2, command=program(lines), restart={"max": 3, "progress": "none"})
    try:
        until(lambda: list(tmp_path.rglob("ending.json")), "an ending")
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "cgroup.procs").read_text(), "the end of what was frozen")
        group.rmdir()
    ended = started.end()
    assert endings(ended) == ["node-failure"], ended.output
    assert (
        reason(ended, 0) == f"KILL does not end what it left on this host: process {pid.read_text().strip()}"
    )


def three_hosts(bench: Benches) -> Bench:
    """A faked Slurm whose hosts have names of their own, and all the address of this one."""
    here = bench("srun")
    here.stub("hostname", '#!/bin/sh\n[ "$1" = -I ] && echo 127.0.0.1 || echo "${SLURMD_NODENAME:-x0}"\n')
    here.stub("getent", '#!/bin/sh\necho "127.0.0.1 STREAM $2"\n')
    return here


SPARE: dict[str, Any] = {"max": 3, "spare_nodes": 1, "progress": "none"}


def test_a_spare_host_takes_the_place_of_one_that_is_not_fit(bench: Benches) -> None:
    here = three_hosts(bench)
    check = '[ "$(hostname)" != x1 ] || { echo "its disk is full"; exit 5; }'
    ended = here.run(nodes=2, ranks_per_node=1, restart=SPARE, preflight=[check])
    assert endings(ended) == ["done"], ended.output
    assert (ended.run_dir / "attempts" / "0.0" / "hosts").read_text() == "x0\nx2\n"
    record = json.loads((ended.run_dir / "set-aside" / "x1.json").read_text())
    assert (record["host"], record["attempt"], record["job"]) == ("x1", 0, "12")
    assert record["reason"].endswith("failed with code 5: its disk is full")


@pytest.mark.long
def test_a_host_that_slurm_has_taken_out_of_the_job_costs_no_other_host(bench: Benches) -> None:
    """srun then starts nothing on a list with that host, and no host answers."""
    here = three_hosts(bench)
    ended = here.run(nodes=2, ranks_per_node=1, restart=SPARE, env={"STUB_DOWN_NODE": "x1"})
    assert endings(ended) == ["done"], ended.output
    assert (ended.run_dir / "attempts" / "0.0" / "hosts").read_text() == "x0\nx2\n"
    assert [path.name for path in (ended.run_dir / "set-aside").iterdir()] == ["x1.json"]


def test_no_shared_member_starts_while_slurm_does_not_answer(bench: Benches) -> None:
    """Those that run are lost; the others do not follow them."""
    here = three_hosts(bench)
    lost, asked = here.folder / "lost", here.folder / "asked"
    answers = f'[ ! -e "{lost}" ] || {{ echo >>"{asked}"; [ "$(grep -c "" "{asked}")" -gt 3 ]; }}'
    here.stub("squeue", f"#!/bin/sh\n{answers} && echo RUNNING x0,x1,x2\n")
    (here.bin / "real").mkdir()
    (here.bin / "srun").rename(here.bin / "real" / "srun")  # it goes by its name
    fails = f'*castoff-guard*) ;; *) [ -e "{lost}" ] || {{ : >"{lost}"; exit 1; }} ;;'
    here.stub("srun", f'#!/bin/sh\ncase "$*" in {fails} esac\nexec {here.bin}/real/srun "$@"\n')
    array = {"count": 3, "together": {"nodes": 3}}
    ended = here.run(nodes=3, ranks_per_node=1, command=["true"], array=array, shell="/bin/bash")
    found = [ended.record("ending", f"{member}.0")["ending"] for member in range(3)]
    assert found == ["node-failure", "done", "done"], ended.output


class TestGuard:
    """The program that other hosts of a job with spares run, should the script's host be lost."""

    def looks(
        self,
        bench: Benches,
        nodes: str,
        steps: str,
        requeue: dict[str, int] | None = None,
        fence: str = "live",
        ending: str = "",
        code: int = 0,
        *,
        shared: bool = False,
    ) -> tuple[Ended, str]:
        """What it does where Slurm says so of the job; it looks ten times."""
        here = three_hosts(bench)
        fields: dict[str, Any] = {"requeue": requeue} if requeue else {}
        array: dict[str, Any] = {"array": {"count": 1, "together": {"nodes": 2}}, "shell": "/bin/bash"}
        shape = array if shared else {"restart": SPARE}
        ended = here.run(nodes=2, ranks_per_node=1, env={"SLURMD_NODENAME": "x0"}, **shape, **fields)
        assert ended.record("ending")["ending"] == "done", ended.output
        (ended.run_dir / "attempts" / "0.0" / "ending.json").unlink()
        attempt = ended.run_dir / "attempts" / (".shared-12.0.0" if shared else "0.0")
        if ending:
            (attempt / "ending.json").write_text(f'{{"ending": "{ending}", "code": 1}}')
        (attempt / "fence").write_text(f"{fence}\n")
        asked = f'case "$*" in *--steps*) printf "%s\\n" "{steps}" ;; *) echo "RUNNING {nodes}" ;; esac\n'
        counted = f'echo >>"{attempt}/looks"; [ "$(grep -c "" "{attempt}/looks")" -le 200 ]'
        here.stub("squeue", f"#!/bin/sh\n{asked}")
        here.stub("sleep", f"#!/bin/sh\n{counted}\n")
        said = attempt / "said"
        asks = f'{{ echo "$*" >>"{said}"; exit {code}; }}'
        here.stub("scontrol", f'#!/bin/sh\n[ "$1" != requeue ] || {asks}\necho "$3" | tr , "\\n"\n')
        here.stub("scancel", f'#!/bin/sh\necho "scancel $*" >>"{said}"\n')
        environ = {
            **os.environ,
            "PATH": f"{here.bin}:{os.environ['PATH']}",
            "CASTOFF_ATTEMPT_DIR": str(attempt),
        }
        subprocess.run(["sh", attempt / "guard.sh", "3"], env=environ, check=True, stdin=subprocess.DEVNULL)
        return ended, said.read_text() if said.exists() else ""

    def test_a_job_whose_script_is_lost_is_ended(self, bench: Benches) -> None:
        ended, said = self.looks(bench, "x1,x2", "12.batch batch\n12.1 castoff-guard")
        assert said == "scancel 12\n"
        assert endings(ended) == ["node-failure"]
        assert reason(ended, 0) == "x0, the host of the job's script, was lost"
        assert (ended.run_dir / "attempts" / "0.0" / "fence").read_text() == "over\n"

    def test_members_that_run_without_a_dispatcher_are_ended(self, bench: Benches) -> None:
        """Nobody would record how they end."""
        ended, said = self.looks(bench, "x1,x2", "12.4 sh", shared=True)
        assert said == "scancel 12\n"
        assert ended.record("ending")["ending"] == "node-failure"
        assert (ended.run_dir / "attempts" / "0.0" / "fence").read_text() == "over\n"

    @pytest.mark.long
    def test_or_requeued(self, bench: Benches) -> None:
        ended, said = self.looks(bench, "x1,x2", "12.batch batch", {"max": 1})
        assert said == "requeue 12\n"
        assert not (ended.run_dir / "attempts" / "0.0" / "ending.json").exists()

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("ending", "does"), [("node-failure", "requeue 12\n"), ("failed", "scancel 12\n")]
    )
    def test_a_script_that_is_cut_off_may_have_recorded_an_ending(
        self, ending: str, does: str, bench: Benches
    ) -> None:
        """Slurm does not hear of it, and the job would be running without a script all the same."""
        found = self.looks(bench, "x1,x2", "12.batch batch", {"max": 1}, "over", ending)
        assert found[1] == does

    @pytest.mark.long
    def test_a_requeue_without_an_answer_is_not_refused(self, bench: Benches) -> None:
        """As where timeout ended scontrol: a job that may be requeued already is not cancelled."""
        _, said = self.looks(bench, "x1,x2", "12.batch batch", {"max": 1}, code=124)
        assert {*said.splitlines()} == {"requeue 12"}

    @pytest.mark.long
    def test_a_guard_of_an_earlier_attempt_leaves_the_next_alone(self, bench: Benches) -> None:
        assert self.looks(bench, "x1,x2", "12.batch batch", {"max": 1}, fence="next")[1] == ""

    @pytest.mark.long
    @pytest.mark.parametrize(("nodes", "steps"), [("x0,x1,x2", "12.batch batch"), ("x1,x2", "12.4 sh")])
    def test_one_with_a_script_or_somebody_at_work_is_left_alone(
        self, nodes: str, steps: str, bench: Benches
    ) -> None:
        assert self.looks(bench, nodes, steps)[1] == ""


@pytest.mark.long
def test_a_requeued_job_looks_anew_at_hosts_that_were_set_aside(bench: Benches, tmp_path: Path) -> None:
    here = three_hosts(bench)
    check = f'[ -e {tmp_path}/well ] || [ "$(hostname)" = x0 ]'
    fields: dict[str, Any] = {"nodes": 2, "ranks_per_node": 1, "preflight": [check], "restart": SPARE}
    ended = here.run(**fields, requeue={"max": 1})
    assert endings(ended) == ["resume"], ended.output
    (tmp_path / "well").touch()
    again = {"SLURM_RESTART_COUNT": "1", "CASTOFF_RUN_DIR": str(here.run_dir())}
    ended = here.run(**fields, requeue={"max": 1}, env=again)
    assert endings(ended) == ["resume", "done"], ended.output


@pytest.mark.long
def test_a_host_with_a_stopped_rank_is_replaced(bench: Benches) -> None:
    here = still_until(three_hosts(bench), *stuck_ranks(2))
    hangs = f'{SAYS_STUCK}[ "$RANK" -ne 1 ] || kill -s STOP $$; exec sleep 1000'
    lines = f'[ "$CASTOFF_ATTEMPT" -gt 0 ] || {{ {hangs}; }}'
    restart = {**SPARE, "hang": "1s"}
    ended = here.run(nodes=2, ranks_per_node=1, command=program(lines), restart=restart)
    assert endings(ended) == ["failed", "done"], ended.output
    assert "rank 1 on x1 is in state T" in reason(ended, 0)
    record = json.loads((ended.run_dir / "set-aside" / "x1.json").read_text())
    assert record["reason"].startswith("it hung: rank 1 on x1 is in state T")
    assert "failed first" not in ended.output


@pytest.mark.long
def test_a_host_that_comes_back_ends_its_ranks(bench: Benches) -> None:
    """They are of an attempt that was given up with it, and the next one may be running."""
    here = three_hosts(bench)
    lines = '[ "$CASTOFF_ATTEMPT" -ge 1 ] || { : >"$PROBE_FOLDER/ready-$RANK"; exec sleep 1000; }'
    started = here.start(nodes=2, ranks_per_node=1, command=program(lines), restart=SPARE)
    started.wait_for("ready", 2)
    (here.run_dir() / "attempts" / "0.0" / "fence").write_text("over\n")
    ended = started.end()
    assert endings(ended) == ["failed", "done"], ended.output


@pytest.mark.parametrize("kind", others_long(["local", "hydra", "openmpi"], ("local",)))
def test_what_imports_serves_all_attempts(kind: str, bench: Benches, tmp_path: Path) -> None:
    script = tmp_path / "fails_once.py"
    script.write_text(
        "import os\n"
        "print('copy of', os.getppid())\n"
        "if os.environ['CASTOFF_ATTEMPT'] == '0':\n"
        "    os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else os.read(os.pipe()[0], 1)\n"
    )
    ended = bench(kind).run(
        ranks_per_node=2,
        command=[sys.executable, str(script)],
        restart={"max": 1},
        launcher={"preload": ["json"]},
    )
    assert endings(ended) == ["failed", "done"], ended.output
    logs = [ended.run_dir / "logs" / attempt / "rank-00001.log" for attempt in ("0.0", "0.1")]
    first, second = (log.read_text() for log in logs)
    assert first == second and "copy of" in first
    assert "rank 1 on" in ended.output and "failed first: killed by SIGKILL; attempt 1 begins" in ended.output


def test_the_failure_is_shown_before_what_follows_from_it(bench: Benches) -> None:
    ended = run(bench("srun"), "fails 7", {"max": 1, "never": [7]})
    shown = ended.output
    assert -1 < shown.find("failed first") < shown.find("not started again"), shown
    assert shown.count("failed first") == 1
