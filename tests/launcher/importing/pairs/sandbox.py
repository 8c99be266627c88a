"""The sandbox from outside: a root that holds stand-ins and prepared files, and scripts to be run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.launcher.importing.pairs import stand_ins
from tests.patience import SECONDS

HOME = "/home/u"
SUBMIT = f"{HOME}/project"
RUN_DIR = "/runs/run"
COMPARED = (HOME, "/scratch", "/data", "/tmp")
"""What scripts may write to, and people keep."""

PLACES = (*COMPARED, "/runs", "/spool", "/var/tmp", "/dev/shm")
"""What is writable, new for each script."""


class Execution(NamedTuple):
    """A script to be run."""

    program: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    output: str
    error: str
    files: Mapping[str, str]
    """Besides those that are always there."""


class Ran(NamedTuple):
    """What came of it."""

    code: int | None
    starts: list[dict[str, Any]]
    """Of stand-ins, in their order."""
    tree: dict[str, str]
    error: str
    """Why it says nothing."""


def run(executions: Sequence[Execution]) -> list[Ran]:
    """Run scripts one after the other, each in file systems of its own."""
    requests = [
        {
            "argv": [one.program, list(one.argv)],
            "env": dict(one.env),
            "cwd": one.cwd,
            "streams": [one.output, one.error],
            "files": {**stand_ins.PREPARED, **one.files},
            "compared": COMPARED,
            "programs": [name for name in one.files if name.startswith("/spool/job")],
            "limit": SECONDS,
        }
        for one in executions
    ]
    user = ["--map-root-user"] if os.geteuid() else []
    with tempfile.TemporaryDirectory(prefix="pairs-") as root:
        asked = {
            "root": root,
            "binds": [sys.base_prefix],
            "files": stand_ins.SYSTEM,
            "places": PLACES,
            "requests": requests,
        }
        inside = Path(__file__).with_name("namespaces.py")
        words = ["unshare", *user, "--mount", "--net", "--pid", "--fork", "--kill-child"]
        done = subprocess.run(
            [*words, stand_ins.PYTHON, "-SE", str(inside)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0 and not done.stderr, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(executions)
    return [Ran(one.get("code"), one.get("starts", []), one.get("tree", {}), one["error"]) for one in results]
