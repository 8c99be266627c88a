"""`castoff render … | ssh … qsub`: a script on standard input, with nothing of castoff on the other side."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import patience

from .conftest import Benches
from .harness import CASTOFF, PROBE

SSH = """#!/bin/sh
# Stands for ssh: another environment, another folder, and only the command's text gets there.
[ "$1" = aurora.example ] || exit 255
cd "$REMOTE_HOME" && exec env -i PATH="$REMOTE_PATH" HOME="$REMOTE_HOME" sh -c "$2"
"""

QSUB = """#!/bin/sh
# Stands for qsub without arguments: spools its standard input, says the id, and runs it as PBS would.
[ $# -eq 0 ] || exit 1
cat >"$HOME/spooled"
echo 7.head
. "$HOME/told"
export PBS_O_WORKDIR="$PWD"
cd "$HOME" && exec bash "$HOME/spooled" >"$HOME/output" 2>&1
"""


@pytest.mark.long
def test_from_a_laptop(bench: Benches, tmp_path: Path) -> None:
    here = bench("pals")
    laptop, home = tmp_path / "laptop", tmp_path / "home"
    for folder in (laptop / "bin", home):
        folder.mkdir(parents=True)
    here.stub("qsub", QSUB)
    (laptop / "bin" / "ssh").write_text(SSH)
    (laptop / "bin" / "ssh").chmod(0o755)
    reported = {**here.allocation(2), "PATH": os.environ["PATH"]}
    lines = [f"export {name}='{value}'\n" for name, value in reported.items() if name != "PATH"]
    (home / "told").write_text("".join(lines))
    job = {"command": PROBE, "nodes": 2, "ranks_per_node": 2, "account": "p", "walltime": "30m"}
    (laptop / "job.yaml").write_text(json.dumps({**job, "directives": {"filesystems": "home"}}))
    line = f"{CASTOFF} render job.yaml --site aurora | ssh aurora.example 'cd {here.folder} && qsub'"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=laptop,
        env={
            **os.environ,
            "PATH": f"{laptop / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "REMOTE_HOME": str(home),
            "REMOTE_PATH": f"{here.bin}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
    )
    output = (home / "output").read_text()
    assert (done.returncode, done.stdout) == (0, "7.head\n"), done.stderr + output
    assert here.run_dir().name == "castoff-7.head"
    ending = json.loads((here.run_dir() / "attempts" / "0.0" / "ending.json").read_text())
    assert ending["ending"] == "done", output
    assert [rank["detected"]["world_size"] for rank in here.ranks()] == [4, 4, 4, 4]
    assert (here.run_dir() / "job.sh").read_text() == (home / "spooled").read_text()
