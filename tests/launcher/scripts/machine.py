"""What a script's machinery writes for the nodes, without the job round it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from castoff import Plan, render
from castoff.launcher.planning.conditions import Conditions, chosen
from castoff.launcher.planning.machinery import FEATURES
from castoff.launcher.planning.render import template_folder
from castoff.launcher.runs.script import head_of

FOLDER = template_folder() / "machinery"


def known_parts() -> set[str]:
    """The names of all files of the machinery."""
    return {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.sh")}


def part(name: str, *features: str) -> str:
    """The lines of a file that a script with these features has, and with every function that it may call."""

    def included(what: str) -> tuple[str, str]:
        return what, (FOLDER / f"{what}.sh").read_text()

    return chosen(*included(name), Conditions(FEATURES, set(features), None, included))


def below(script: str) -> str:
    """The machinery of a script."""
    return script.removeprefix(head_of(script))


def values(script: str) -> str:
    """The lines of a script's head that assign what the machinery works on."""
    assigned = head_of(script).partition("\ncastoff_nodes=")[2].partition("\nexport CASTOFF_ARRAY_COUNT=")[0]
    return f"castoff_nodes={assigned}\n"


def written(decided: Plan, name: str, folder: Path) -> Path:
    """The program of that name, as the job's script would write it into the folder of its attempt."""
    script = render(decided)
    lines = [below(script), values(script), f"castoff_write_{name}"]
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        env={"CASTOFF_ATTEMPT_DIR": str(folder), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    return folder / f"{name}.sh"


def inner(script: str) -> dict[str, str]:
    """The here-documents of a script by their marks: what runs in sh, RANK as each rank's parent."""
    found = re.findall(r"<<'CASTOFF_(\w+)'\n(.*?\n)CASTOFF_\1\n", script, re.DOTALL)
    return dict(found)
