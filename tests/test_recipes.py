"""CONTRIBUTING.md's recipes name the files that a change takes: all of them, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
MACHINERY = "templates/machinery"
"""There each scheduler and each launcher has what is under its name."""
OPTIONAL = ("allocation", "accounting", "beside")
"""Modules that a scheduler needs only for shells in its jobs, and for what jobs used."""
FURTHER = {"pbs": ["attributes", "requested", "select"]}
"""Modules for what one scheduler alone has: PBS's chunks and -W."""


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


@pytest.mark.parametrize("name", ["slurm", "pbs", "flux"])
def test_a_schedulers_recipe_names_what_one_has(name: str) -> None:
    named = {file.replace("NAME", name) for file in files_of(recipe("scheduler"))}
    there = {file for file in owned(name) if not file.startswith(f"{MACHINERY}/launchers/")}
    assert there - {f"launcher/schedulers/{name}/{module}.py" for module in FURTHER.get(name, [])} <= named
    optional = {f"launcher/schedulers/{name}/{module}.py" for module in OPTIONAL} if name == "flux" else set()
    assert all((CHECKOUT / file).exists() for file in named - optional)


def test_a_scheduler_takes_thirteen_files() -> None:
    optional = tuple(f"/{module}.py" for module in OPTIONAL)
    always = [file for file in files_of(recipe("scheduler")) if not file.endswith(optional)]
    assert len(always) == len({*always}) == 13
    assert recipe("scheduler").startswith("**A scheduler** takes 13 files")


def test_a_job_field_takes_two_or_three() -> None:
    """For a scheduler the type and its directive; for the script the type, the plan and the head."""
    named = [*files_of(recipe("job field"))]
    assert named[:2] == ["launcher/config/job.py", "launcher/schedulers/NAME/directives.py"]
    assert {"launcher/runs/plan.py", "templates/head.sh.j2"} <= {*named}
    lists = {
        "launcher/schedulers/slurm/sbatch_directives.py": "HANDLES",
        "launcher/runs/plan.py": "OF_EVERY_SCRIPT",
    }
    for file, name in lists.items():
        assert re.search(rf"^{name} = ", (CHECKOUT / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert f"`{name}`" in recipe("job field")


@pytest.mark.parametrize("what", ["scheduler", "launcher", "job field", "directive", "site"])
def test_what_a_recipe_names_is_there(what: str) -> None:
    for file in files_of(recipe(what)):
        found = [path for name in ("slurm", "srun") for path in CHECKOUT.glob(file.replace("NAME", name))]
        assert found or "/" not in file, f"A {what}: {file} is not there"
