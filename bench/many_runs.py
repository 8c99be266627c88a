"""Thousands of run directories, as castoff leaves them, to see how fast they are listed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.planning.planner import plan
from castoff.launcher.planning.render import render
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import encode
from castoff.launcher.runs.run import RunDirectory

NAMES = ("causets", "preprocess", "evaluate", "sweep")
BEGIN = 1_790_000_000


def make_runs(folder: Path, index: Index, count: int) -> list[RunDirectory]:
    """Make `count` runs that are over; every tenth has failed, every hundredth is an array of eight."""
    runs = []
    for number in range(count):
        name = NAMES[number % len(NAMES)]
        members = 8 if number % 100 == 99 else 1
        run = RunDirectory(folder / f"{name}-20261120-{number:06d}-{number:04x}")
        _make(run, name, members, code=3 if number % 10 == 9 else 0, begin=BEGIN + 60 * number)
        index.add(run, name)
        runs.append(run)
    return runs


_FILES: dict[tuple[str, int], tuple[str, str]] = {}
"""Plan and script of each kind of job: the same for all of its runs."""


def _plan_and_script(name: str, members: int) -> tuple[str, str]:
    if (name, members) not in _FILES:
        fields = {"command": ["python", "train.py"], "name": name, "ranks_per_node": 2, "walltime": "1h"}
        array = {"array": {"count": members}} if members > 1 else {}
        decided = plan(JobSpec.of({**fields, **array}), Site.load("local"))
        _FILES[name, members] = encode(decided), render(decided)
    return _FILES[name, members]


def _make(run: RunDirectory, name: str, members: int, *, code: int, begin: int) -> None:
    planned, script = _plan_and_script(name, members)
    job = f"local-{begin % 100_000}"
    submission = {
        "scheduler": "local",
        "directory": "/home/someone/project",
        "after": {},
        "time": begin + 0.25,
        "node_hours": 1.0,
        "job": job,
    }
    files = {
        "job.yaml": f"name: {name}\ncommand: [python, train.py]\n",
        "plan.json": planned,
        "job.sh": script,
        "submission.json": json.dumps(submission, indent=2),
        "local.json": json.dumps({"pid": begin % 100_000, "host": os.uname().nodename}),
        "local.lock": "",
        "logs/scheduler.log": "",
    }
    for member in range(members):
        attempt = f"attempts/{member}.0"
        start = {"job": job, "host": "node7", "time": begin + 1}
        ending = {"ending": "failed" if code else "done", "code": code, "time": begin + 600}
        files[f"{attempt}/start.json"] = json.dumps(start)
        files[f"{attempt}/ending.json"] = json.dumps(ending)
        files[f"{attempt}/settled"] = ""
        if code:
            failure = {"rank": 1, "host": "node7", "code": code, "time": begin + 599.5}
            files[f"{attempt}/failure.json"] = json.dumps(failure)
        files[f"logs/job-{member}.log"] = "[0] epoch 1\n[1] epoch 1\n"
        files[f"logs/{member}.0/rank-00000.log"] = "epoch 1\n"
        files[f"logs/{member}.0/rank-00001.log"] = "epoch 1\n"
    run.path.mkdir(mode=0o700, parents=True)
    for folder in sorted({str(Path(file).parent) for file in files}):
        (run.path / folder).mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (run.path / file).write_text(text)
