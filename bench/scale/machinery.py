"""What a script does with the answers of many hosts: its own shell functions, fed with made-up files.

The functions are those of a rendered script of Slurm with spare hosts, preflight and hang detection. What
would reach other hosts, the launcher and the scheduler, is replaced by functions that copy made-up answers.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from castoff import JobSpec, Site, plan, render
from castoff.launcher.runs.script import head_of

EACH = 12
"""Ranks on each host."""

BAD = 100
"""One of so many hosts does not answer, is set aside, or has ranks that differ."""


class Time(NamedTuple):
    """Seconds of a step."""

    wall: float
    cpu: float


_ANSWERED = '{"host": "%s", "name": "%s", "time": 1790000000, "problem": ""}'

_FAKES = r"""
castoff_scheduler_hosts() { cat "$MADE/hosts"; }
castoff_job=12 CASTOFF_ATTEMPT=0 castoff_launcher=$$ castoff_code=1
castoff_run_on() { # those that do not answer with all others do not answer later
  if [[ $2 != *.host-* ]]; then cat "$MADE/answers" >>"$castoff_answers"; fi
}
castoff_know_first_host() { :; }
"""

STEPS = {
    "preflight: all hosts fit": "castoff_find_hosts; castoff_enough_hosts",
    "preflight: 1 % do not answer": "castoff_find_hosts; castoff_enough_hosts || :",
    "restart: 1 % set aside": (
        "castoff_find_hosts; castoff_set_aside_words >words; castoff_suspect_host; castoff_over_since=-99"
        " castoff_suspect=; castoff_await_fence"
    ),
    "ranks that have not started": "castoff_unstarted >words",
    "ranks that have ended, of a launcher by ssh": "castoff_check_ended",
    "hang: the ranks' answers compared": "castoff_collect_stacks; castoff_compare_stacks >words",
}
"""The lines of each step, whose functions the script calls."""


def _plan_of(hosts: int, *, by_ssh: bool) -> str:
    spare = max(1, hosts // BAD)
    fields = {"command": ["x"], "nodes": hosts - spare, "ranks_per_node": EACH, "walltime": "1h"}
    restart = {"max": 3, "spare_nodes": spare, "hang": "15m"}
    spec = JobSpec.of({**fields, "restart": restart, "preflight": True})
    return render(plan(spec, Site.load("pbs" if by_ssh else "slurm")))


def _functions(script: str) -> str:
    """The script's functions and the variables that they work on."""
    head = head_of(script)
    assigned = head.partition("\ncastoff_nodes=")[2].partition("\nexport CASTOFF_ARRAY_COUNT=")[0]
    below = script.removeprefix(head).replace("\nreadonly -f ", "\n: ")
    return f"{below}\ncastoff_nodes={assigned}\n"


def _made(folder: Path, hosts: int, step: str) -> None:
    """Write the answers of all hosts, and the records of the attempt."""
    names = [f"nid{number:06d}.hostmgmt.cluster.example" for number in range(hosts)]
    bad = {name for number, name in enumerate(names) if number % BAD == BAD - 1}
    partly = bad if "1 %" in step else set()
    attempt, logs = folder / "attempts" / "0.0", folder / "logs" / "0.0"
    for made in (attempt / "ended", logs / "stacks", folder / "set-aside"):
        made.mkdir(parents=True)
    (folder / "hosts").write_text("".join(f"{name}\n" for name in names))
    (attempt / "hosts").write_text("".join(f"{name}\n" for name in names[: hosts - max(1, hosts // BAD)]))
    (attempt / "start.json").write_text('{"job": "12"}')
    lines = [f"srun: error: {name}: task {at}: Exited with exit code 1" for at, name in enumerate(names)]
    (logs / "hosts.log").write_text("".join(f"{line}\n" for line in (lines if partly else [])))
    if "compared" in step:
        answers = _stacks(names[: hosts - max(1, hosts // BAD)])
        for number in range(0, hosts, 2):
            first = number * EACH
            ended = "".join(f"{rank} 1790000000\n" for rank in range(first, first + EACH // 4))
            (attempt / "ended" / f"ranks-{number}").write_text(ended)
    else:
        answers = [
            f"1790000000 {line}"
            for name in names
            if name not in partly
            for line in (_ANSWERED % (name, name.partition(".")[0]), f"answered {name}")
        ]
    (folder / "answers").write_text("".join(f"{line}\n" for line in answers))
    if step.startswith("restart"):
        (folder / "answers").write_text("".join(f"{line}\n" for line in answers))
        for name in bad:
            record = (
                f'{{"host": "{name}", "reason": "it does not answer", "attempt": 0, "job": "12", "time": 1}}'
            )
            (folder / "set-aside" / f"{name}.json").write_text(record)
        failure = '{"rank": 7, "host": "nid000000", "code": 137, "signal": "SIGKILL", "log": "x", "time": 1}'
        (attempt / "failure.json").write_text(failure)
    for number in range(hosts):
        if "started" in step and number % BAD:
            (logs / f"node-{number:05d}.log").touch()
        if "by ssh" in step and number:
            (attempt / "ended" / f"all-{number}").touch()
    if "by ssh" in step:
        (attempt / "ended" / "0").touch()


def _stacks(names: list[str]) -> list[str]:
    lines = []
    for node, name in enumerate(names):
        for local in range(EACH // 4 if node % 2 == 0 else 0, EACH):
            place = "read (data.py:7)" if (node, local) == (3, 5) else "all_reduce (distributed.py:2810)"
            lines.append(f"1790000000 {node * EACH + local}\t{name}\tS\t{place}")
        lines.append(f"1790000000 answered {name}")
    return lines


_ALONE = """
castoff_job_hosts() { seq -f nid%06g "$castoff_job_nodes"; }
castoff_job_end_time() { :; }
castoff_find_run_dir() { :; }
castoff_guard_dispatcher() { :; }
"""

_MEMBER = """\
folder=$CASTOFF_RUN_DIR/attempts/$CASTOFF_SLOT_MEMBER.0
mkdir "$folder"
echo '{"ending": "done", "code": 0, "time": 1790000000}' >"$folder/ending.json"
"""
"""Stands in for a member's script, which would take a tenth of a second."""


def dispatched(folder: Path, members: int, slots: int = 64) -> Time:
    """What it takes to run so many members that do nothing in one job, some side by side."""
    shared = {"count": members, "together": {"nodes": slots, "per_node": 1}}
    spec = JobSpec.of({"command": ["x"], "walltime": "1h", "array": shared})
    script = render(plan(spec, Site.load("slurm")))
    (folder / "job.sh").write_text(_MEMBER)
    env = {"SLURM_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0", "CASTOFF_ARRAY_COUNT": str(members)}
    env |= {"PATH": os.environ["PATH"], "HOME": str(folder), "SLURM_SUBMIT_DIR": str(folder)}
    lines = script.partition("\ncastoff_together=")[2].partition("\n")[0]
    text = f"{_functions(script)}castoff_together={lines}\n{_ALONE}castoff_dispatch sh\n"
    took = _run("together", text, folder, {**env, "CASTOFF_RUN_DIR": str(folder)})
    if (ended := sum(1 for _ in folder.glob("attempts/*.0/ending.json"))) != members:
        raise SystemExit(f"together: {ended} of {members} members have ended")
    return took


def took(folder: Path, hosts: int, step: str) -> Time:
    """What a step takes with the answers of so many hosts."""
    _made(folder, hosts, step)
    functions = _functions(_plan_of(hosts, by_ssh="by ssh" in step))
    attempt = folder / "attempts" / "0.0"
    env = {
        **{"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(folder), "MADE": str(folder)},
        **{"CASTOFF_RUN_DIR": str(folder), "CASTOFF_ATTEMPT_DIR": str(attempt), "CASTOFF_ARRAY_INDEX": "0"},
        **{
            "CASTOFF_LOG_DIR": str(folder / "logs" / "0.0"),
            "CASTOFF_FAILURE_FILE": f"{attempt}/failure.json",
        },
        **{
            "CASTOFF_STACK_DIR": str(folder / "logs" / "0.0" / "stacks"),
            "castoff_first_log": "node-00000.log",
        },
        **{"castoff_all_ended": "", "castoff_local_stacks": "none", "castoff_restarts_done": "1"},
    }
    return _run(step, f"{functions}{_FAKES}{STEPS[step]}\n", folder, env)


def _run(name: str, text: str, folder: Path, env: dict[str, str]) -> Time:
    """Run lines of bash."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    shell = ["bash", "-euo", "pipefail"]
    done = subprocess.run(shell, input=text, env=env, cwd=folder, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return Time(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
