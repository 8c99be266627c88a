"""CONTRIBUTING.md's recipes name the files that a change takes: all of them, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
MACHINERY = "templates/machinery"
"""There each scheduler and each launcher has what is under its name."""


def recipe(what: str) -> str:
    """What CONTRIBUTING.md says of adding one."""
    text = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^\*\*A {what}\*\*.*?(?=^\*\*A |^## )", text, re.MULTILINE | re.DOTALL)
    return str(found)


def files_of(text: str) -> Iterator[str]:
    """The files outside the tests that a recipe names; bare ones lie in the folder of NAME before them."""
    for item in re.split(r"^\d\. ", text, flags=re.MULTILINE)[1:]:
        folder = ""
        for word in re.findall(r"`([^`\s]+)`", item):
            if word.endswith("/"):
                folder = word if "NAME" in word else folder
                if word == f"{MACHINERY}/":
                    yield word
            elif re.fullmatch(r"[\w/.*-]+\.(py|yaml|md|j2|sh)", word) and not word.startswith("tests/"):
                yield word if "/" in word else folder + word


def is_named(path: Path, name: str) -> bool:
    """Whether a file or a folder that it is in is called by a name."""
    return name in {part.partition(".")[0] for part in path.relative_to(CHECKOUT).parts}


def owned(name: str) -> set[str]:
    """The files of launcher and templates under a scheduler's or a launcher's name."""
    folders = (CHECKOUT / "launcher", CHECKOUT / "templates")
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(CHECKOUT)) for path in found if is_named(path, name) and path.suffix != ".pyc"
    }


@pytest.mark.parametrize("name", ["slurm", "pbs", "flux", "lsf"])
def test_a_scheduler_has_what_its_recipe_names(name: str) -> None:
    """Nothing of it is outside its folder, its templates and its profile."""
    home = f"launcher/schedulers/{name}/"
    named = {file.replace("NAME", name) for file in files_of(recipe("scheduler"))}
    there = {file for file in owned(name) if not file.startswith(f"{MACHINERY}/launchers/")}
    assert {file for file in there if not file.startswith(home)} <= named
    for file in (file for file in named if file.startswith(home)):
        assert [*CHECKOUT.glob(file)], f"{file} is not there"


def test_a_scheduler_is_one_line_beside_its_files() -> None:
    text = (CHECKOUT / "launcher/schedulers/registry.py").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.search(r"slurm|pbs|flux|lsf", line)]
    assert lines == [next(line for line in lines if line.startswith("NAMES = "))]


def test_a_job_field_stands_where_its_recipe_says() -> None:
    """In its declaration, in a row of each scheduler's table, and in the reference; tests derive the rest."""
    rooms = [
        CHECKOUT / "launcher" / room for room in ("config", "planning", "runs", "schedulers", "importing")
    ]
    files = [path for room in rooms for path in room.rglob("*.py")]
    files += [*(CHECKOUT / "docs/reference").glob("*.md"), *(CHECKOUT / "tests/launcher").rglob("*.py")]
    field = re.compile(r"""^    nice: |"nice"|^\| `nice`""", re.MULTILINE)
    found = (path for path in files if field.search(path.read_text(encoding="utf-8")))
    holding = {str(path.relative_to(CHECKOUT)) for path in found}
    tables = {
        f"launcher/schedulers/{name}_directives.py" for name in ("slurm/sbatch", "pbs/qsub", "flux/batch")
    }
    test = {"tests/launcher/schedulers/test_directives.py"}
    instead = {"launcher/schedulers/lsf/scheduler.py"}
    assert holding == {"launcher/config/job.py", "docs/reference/job-file.md"} | tables | test | instead
    assert {"launcher/config/job.py", "launcher/schedulers/slurm/sbatch_directives.py"} <= {
        *files_of(recipe("job field"))
    }


@pytest.mark.parametrize("what", ["scheduler", "launcher", "job field", "directive", "site"])
def test_what_a_recipe_names_is_there(what: str) -> None:
    for file in files_of(recipe(what)):
        found = [path for name in ("slurm", "srun") for path in CHECKOUT.glob(file.replace("NAME", name))]
        assert found or "/" not in file, f"A {what}: {file} is not there"
