"""python -m docs.pictures.record: run the commands of the pictures, and keep what they print.

In a folder of its own and on a terminal, as a reader would. `docs.pictures` then draws from what is kept.
"""

from __future__ import annotations

import json
import os
import pty
import sys
import tempfile
from pathlib import Path
from typing import Any

from docs.pictures.recorded import ATTEMPTS, COLUMNS, FOLDER, SESSION

ROWS = 60

FILES = {
    "job.yaml": """\
name: hello
command: [python, hello.py]
nodes: 2
ranks_per_node: 4
walltime: 10m
account: MyProject
queue: debug
directives: {pbs: {filesystems: "home:flare"}}
setup:
  - module load frameworks
""",
    "hello.py": """\
import os

print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
""",
}

COMMANDS = (
    "cat job.yaml",
    "castoff submit -f job.yaml --site local --nodes 1 --set 'setup=[]'",
    "castoff status hello",
)


STEPS = """\
name: steps
command: [sh, steps.sh]
walltime: 10m
restart: {max: 1}
"""
PROGRAM = """\
echo $CASTOFF_ATTEMPT >"$CASTOFF_PROGRESS_FILE"; sleep 2
case $CASTOFF_ATTEMPT in
  0) exit 1 ;;
  1) until [ -e "$CASTOFF_STOP_FILE" ]; do sleep 0.1; done; echo resume >"$CASTOFF_OUTCOME_FILE" ;;
esac
"""
"""Fails, is started again in the same job, is asked to stop, and resumes in a job of its own."""

ENDS = (
    "castoff submit job.yaml --site local >/dev/null",
    "until [ -e castoff-runs/*/attempts/0.1/start.json ]; do sleep 0.1; done; sleep 3; castoff stop steps",
    "castoff wait steps; castoff resubmit steps >/dev/null; castoff wait steps",
)


def attempts() -> dict[str, Any]:
    """The status of a run with a restart, a stop and a resubmission."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.yaml").write_text(STEPS, encoding="utf-8")
        Path(folder, "steps.sh").write_text(PROGRAM, encoding="utf-8")
        for line in ENDS:
            _on_a_terminal(f"{{ {line}; }} || true", folder)
        status: dict[str, Any] = json.loads(_on_a_terminal("castoff status steps --json", folder))
        return status


def record() -> list[tuple[str, str]]:
    """Each command and what the terminal was sent, escapes included.

    Raises:
        SystemExit: a command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        return [(command, _on_a_terminal(command, folder)) for command in COMMANDS]


def _on_a_terminal(command: str, folder: str) -> str:
    read = bytearray()

    def keep(descriptor: int) -> bytes:
        part = os.read(descriptor, 4096)
        read.extend(part)
        return b" " if part else b""  # what pty.spawn shows of it

    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "XDG_STATE_HOME": f"{folder}/state", "TERM": "xterm-256color", "PAGER": "cat"}
    words = " ".join(f"{name}={value}" for name, value in own.items())
    line = f"stty cols {COLUMNS} rows {ROWS}; cd {folder}; export {words}; {command}"
    if code := os.waitstatus_to_exitcode(pty.spawn(["bash", "-c", line], keep)):
        raise SystemExit(f"{command} exited with {code}:\n{read.decode()}")
    return read.decode().replace("\r\n", "\n").replace(folder, "~/project")


if __name__ == "__main__":
    for name, made in {SESSION: record(), ATTEMPTS: attempts()}.items():
        (FOLDER / name).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
