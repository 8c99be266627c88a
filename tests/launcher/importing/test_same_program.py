"""The program of an imported script gets the words and variables that the script itself gives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.importing.imported import nested
from launcher.importing.script import read_script
from launcher.quoting import shell_word
from tests import patience

from .scripts_of_tests import NAMES, text_of

PROGRAM = """#!{python}
import json, os, sys
if "torch.distributed.run" in sys.argv:
    os.execvp("torchrun", ["torchrun", *sys.argv[sys.argv.index("torch.distributed.run") + 1 :]])
if os.environ.get("WRITE"):
    seen = {{name: os.environ.get(name) for name in os.environ["WATCHED"].split()}}
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    with open(os.environ["WRITE"], "a") as out:
        out.write(json.dumps([sys.argv[1:], seen, os.getcwd(), text]) + "\\n")
"""

LAUNCHER = """#!{python}
import os, sys
sys.path.insert(0, {checkout!r})
from launcher.launchers.foreign.lines import read
launch = read([os.path.basename(sys.argv[0]), *sys.argv[1:]])
if launch.program[0] == "hostname":
    print("10.0.0.1")
    raise SystemExit
os.environ |= {{"SLURM_PROCID": "3", "RANK": "3"}}
os.environ |= launch.asked.env
os.execvp(launch.program[0], launch.program)
"""

WRAPPER = """#!{python}
import os, re, sys
sys.path.insert(0, {checkout!r})
from launcher.importing.distributed import distributed
from launcher.importing.contained import container
from launcher.importing.programs import Reader
name = os.path.basename(sys.argv[0])
words = [name, *("'" + word.replace("'", "'\\\\''") + "'" for word in sys.argv[1:])]
words[1:2] = sys.argv[1:2]
inside = container(words, Reader({{}}, {{}}, str)) or distributed(words, Reader({{}}, {{}}, str))
os.environ |= inside.asked.env | inside.asked.fields.get("container.env", {{}})
os.environ["LOCAL_RANK"] = "1"
os.execvp("bash", ["bash", "-c", 'exec "$@"'.replace('"$@"', " ".join(inside.words))])
"""

SILENT = ("module", "conda")

WATCHED = "NCCL_DEBUG DATA LOGLEVEL WANDB_MODE SEED MODE OUT CMD"

RANK = {"SLURM_PROCID": "3", "LOCAL_RANK": "1", "RANK": "3"}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Programs by the names that scripts call, which write down what they are given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    checkout = str(Path(__file__).resolve().parents[3])
    kinds = {PROGRAM: ["python"], LAUNCHER: ["srun", "mpiexec", "mpirun", "flux"]}
    kinds[WRAPPER] = ["torchrun", "accelerate", "apptainer"]
    for text, names in kinds.items():
        for name in names:
            (folder / name).write_text(text.format(python=sys.executable, checkout=checkout))
    for name in SILENT:
        (folder / name).write_text("#!/bin/sh\n")
    (folder / "scontrol").write_text("#!/bin/sh\nprintf 'a\\nb\\n'\n")
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


def run(text: str, programs: Path, folder: Path, **more: str) -> list[Any]:
    """What the last program wrote that a script started, which runs in a folder."""
    folder.mkdir()
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "activate").touch()
    (folder / "one.txt").touch()
    (folder / "nodes").write_text("a\nb\n")
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": "/home/me",
        "HOSTTYPE": "x86",
        "EXTRA": "more words",
    }
    env |= {"SCRATCH": "/scratch/me", "SLURM_SUBMIT_DIR": str(folder), "PBS_O_WORKDIR": str(folder)}
    env |= {"SLURM_PROCID": "0", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "4"}
    env |= {
        "PBS_NODEFILE": str(folder / "nodes"),
        "WRITE": str(folder / "written"),
        "WATCHED": WATCHED,
        **more,
    }
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-c", text],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert (folder / "written").exists(), done.stderr
    last: list[Any] = json.loads((folder / "written").read_text().splitlines()[-1])
    last[2] = os.path.relpath(last[2], folder)
    return last


def as_castoff_runs(fields: dict[str, Any]) -> str:
    """What castoff's script does of it: setup, variables, and then the program in each rank."""
    env = {**fields.get("env", {}), **fields.get("container", {}).get("env", {}), **RANK}
    lines = ["set -e", *fields.get("setup", []), 'cd "$SLURM_SUBMIT_DIR"']
    lines += [f"cd {shell_word(fields['workdir'])}"] if "workdir" in fields else []
    lines += [f"export {name}={shell_word(value)}" for name, value in env.items()]
    return "\n".join([*lines, "exec " + " ".join(map(shell_word, fields["command"])), ""])


@pytest.mark.parametrize("name", NAMES)
def test_the_program_gets_the_same(name: str, programs: Path, tmp_path: Path) -> None:
    script = text_of(name).replace("/projects/demo", str(tmp_path))
    handed_on = {"WANDB_MODE": "offline", "DATA": "/data"}  # by directives
    theirs = {key: value for key, value in handed_on.items() if f"{key}={value}" in script}
    fields = nested(read_script(script).fields)
    expected = run(script, programs, tmp_path / "theirs", **theirs)
    found = run(as_castoff_runs(fields), programs, tmp_path / "ours")
    for one in (expected, found):
        one[0] = [
            word.replace(str(tmp_path / "theirs"), "").replace(str(tmp_path / "ours"), "") for word in one[0]
        ]
        one[0] = [word for word in one[0] if word != "-u"]  # castoff sets PYTHONUNBUFFERED
    # What a script does not export, castoff may: it does no harm.
    found[1] = {key: value for key, value in found[1].items() if expected[1][key] is not None}
    expected[1] = {key: value for key, value in expected[1].items() if value is not None}
    assert found == expected
