"""Each optional extra alone brings what its part of castoff needs.

The environment of the tests has all of them, so a process hides what the extra does not ask for, itself or by
one of its packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement

from tests import patience

pytestmark = pytest.mark.costly

CHECKOUT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

DOES = {
    "torch": "from castoff.trainers import Config, Task, TrainerDDP, initialize_ddp, train",
    "gnn": "import castoff.trainers.gnn.__main__, castoff.trainers.gnn.graphs.dataset, zarr, h5py",
    "sedd": "import castoff.trainers.sedd.__main__, castoff.trainers.sedd.prepare",
    "dpo": "import castoff.trainers.dpo.__main__, castoff.trainers.dpo.samples.pairs, gemmi",
    "tune": "from castoff.trainers import suggested; import optuna",
    "tui": "import castoff.launcher.screen.app",
    "import": "from castoff.launcher.importing.bash import statements; assert statements('a b')",
    "stacks": "import os, sysconfig; assert os.path.exists(sysconfig.get_path('scripts') + '/py-spy')",
    "mcp": "import castoff.launcher.agents.server",
    "tensorboard": "from tensorboard.compat.proto.event_pb2 import Event",
    "wandb": "import wandb",
    "mlflow": "import mlflow",
    "docs": "import sphinx, furo, myst_parser, sphinx_click, sphinx_copybutton, sphinx_design",
}
"""What works with an extra and nothing else, or with one of `BESIDE`."""
BESIDE = {"tune": "torch", "tensorboard": "torch", "wandb": "torch", "mlflow": "torch"}

HIDE = """
import importlib.machinery as machinery
hidden, find = set({hidden!r}), machinery.PathFinder.find_spec
machinery.PathFinder.find_spec = staticmethod(
    lambda name, *rest: None if name.partition(".")[0] in hidden else find(name, *rest))
"""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(texts: list[str], extra: str = "") -> Iterator[str]:
    """The distributions that requirements bring, and theirs."""
    for text in texts:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        yield plain(requirement.name)
        yield from with_theirs(plain(requirement.name), frozenset(requirement.extras))


SEEN: dict[tuple[str, frozenset[str]], list[str]] = {}


def with_theirs(name: str, extras: frozenset[str]) -> list[str]:
    if (name, extras) not in SEEN:
        SEEN[name, extras] = []
        try:
            asked = distribution(name).requires or []
        except PackageNotFoundError:
            return []
        found = [one for extra in ("", *sorted(extras)) for one in needed(asked, extra)]
        SEEN[name, extras] = found
    return SEEN[name, extras]


def closure(texts: list[str]) -> set[str]:
    """All that requirements bring, to the end."""
    found, wanted = set[str](), [*needed(texts)]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += with_theirs(name, frozenset())
    return found


def test_no_extra_is_left_out() -> None:
    assert {*DOES} == {*PROJECT["optional-dependencies"]} - {"dev"}


@pytest.mark.parametrize("extra", DOES)
def test_an_extra_is_enough(extra: str, tmp_path: Path, for_real: None) -> None:
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *extras[extra], *extras.get(BESIDE.get(extra, ""), [])]
    allowed = closure(asked) | {"castoff"}
    hidden = [
        module
        for module, owners in packages_distributions().items()
        if not {plain(owner) for owner in owners} & allowed
    ]
    assert {"pytest", "hypothesis"} <= {*hidden}
    done = subprocess.run(
        [sys.executable, "-c", HIDE.format(hidden=hidden) + DOES[extra]],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
