"""Arrays of many members and logs of many gigabytes, made up on disk, and the commands that read them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from castoff import JobSpec, Site, plan, render
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import encode
from castoff.launcher.runs.run import RunDirectory

JOB = 4711
FAILED, RUNNING, PENDING, MEASURED = 20, 50, 33, 10
"""One member of so many failed, runs, is pending, or reported metrics."""

_SQUEUE = """#!/bin/sh
cat "$HOME/queue"
"""
_SACCT = """#!/bin/sh
cat "$HOME/history"
"""


_SCANCEL = """#!/bin/sh
: >"$HOME/queue"
sed -i 's/RUNNING\\(.*\\)Unknown/CANCELLED\\11790000000/' "$HOME/history"
"""


def make_array(home: Path, members: int) -> RunDirectory:
    """An array of Slurm: its run directory, as castoff and the scripts leave it, and Slurm's answers."""
    fields = {"command": ["python", "train.py"], "name": "sweep", "ranks_per_node": 1, "walltime": "1h"}
    array = {"array": {"count": members}} if members > 1 else {}
    decided = plan(JobSpec.of({**fields, **array}), Site.load("slurm"))
    run = RunDirectory(home / "castoff-runs" / "sweep-20261120-000000-abcd")
    run.path.mkdir(mode=0o700, parents=True)
    begin = int(time.time()) - 1000
    count = members if members > 1 else None
    send = {"job": str(JOB), "offset": 0, "count": count, "time": begin}
    submission = {
        "scheduler": "slurm",
        "directory": str(home),
        "time": begin,
        "job": str(JOB),
        "sends": [send],
    }
    run.path.joinpath("plan.json").write_text(encode(decided))
    run.script.write_text(render(decided))
    run.path.joinpath("submission.json").write_text(json.dumps(submission))
    queue, history = [], []
    for folder in ("attempts", "logs"):
        (run.path / folder).mkdir()
    for member in range(members):
        job = f"{JOB}_{member}" if count else str(JOB)
        task, where = (str(member) if count else "N/A"), f"N/A|{run.script}"
        if member % PENDING == PENDING - 1:
            queue.append(f"{JOB}|{task}|PENDING|Priority|{begin}|N/A|{where}")
            continue
        running = member % RUNNING == RUNNING - 1
        _make_member(
            run, member, begin, "running" if running else "failed" if member % FAILED == 7 else "done"
        )
        if running:
            queue.append(f"{JOB}|{task}|RUNNING|None|{begin}|{begin + 5}|{where}")
            history.append(f"{job}|RUNNING|0:0|{begin}|{begin + 5}|Unknown|sbatch {run.script}")
        else:
            history.append(f"{job}|COMPLETED|0:0|{begin}|{begin + 5}|{begin + 700}|sbatch {run.script}")
    (home / "queue").write_text("".join(f"{line}\n" for line in queue))
    (home / "history").write_text("".join(f"{line}\n" for line in history))
    (home / "bin").mkdir(exist_ok=True)
    for name, text in {"squeue": _SQUEUE, "sacct": _SACCT, "scancel": _SCANCEL}.items():
        (home / "bin" / name).write_text(text)
        (home / "bin" / name).chmod(0o755)
    Index.of({"HOME": str(home)}).add(run, "sweep")
    return run


def _make_member(run: RunDirectory, member: int, begin: int, state: str) -> None:
    attempt, logs = (run.path / folder / f"{member}.0" for folder in ("attempts", "logs"))
    files = {attempt / "start.json": {"job": str(JOB), "host": f"nid{member:06d}", "time": begin + 5}}
    code = 3 if state == "failed" else 0
    if state != "running":
        files[attempt / "ending.json"] = {"ending": state, "code": code, "time": begin + 700}
    if code:
        failure = {"rank": 0, "host": "n", "code": code, "log": "rank-00000.log", "time": begin + 699}
        files[attempt / "failure.json"] = failure
    attempt.mkdir()
    logs.mkdir()
    for path, record in files.items():
        path.write_text(json.dumps(record))
    if member % MEASURED == 0:
        report = {"step": 1, "time": begin + 100, "loss": member / 7}
        (attempt / "metrics.jsonl").write_text(json.dumps(report) + "\n")
    (run.log_folder / f"job-{member}.log").write_text("castoff: begins\n")
    (logs / "rank-00000.log").write_text("epoch 1\nValueError: nan\n" if code else "epoch 1\n")


def make_failure(run: RunDirectory, size: int) -> None:
    """Let a run's only member have failed, with logs of so many bytes, of which the disk stores the ends."""
    attempt = run.path / "attempts" / "0.0"
    attempt.joinpath("ending.json").write_text('{"ending": "failed", "code": 3, "time": 1790000000}')
    failure = {"rank": 0, "host": "n", "code": 3, "log": "rank-00000.log", "time": 1_790_000_000}
    attempt.joinpath("failure.json").write_text(json.dumps(failure))
    lines = b"".join(b"step %07d loss 0.123456\n" % step for step in range(400_000))
    for log in (run.script_log(0), run.log_folder / "0.0" / "rank-00000.log"):
        with log.open("wb") as file:
            if size:
                file.truncate(size - len(lines))  # a hole, whose bytes are 0
                file.seek(0, os.SEEK_END)
                file.write(lines)


def environment(home: Path) -> dict[str, str]:
    """What commands find: a home of their own, and the scheduler of files."""
    return {"PATH": f"{home}/bin:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
