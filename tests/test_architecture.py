"""Which module may use which, and that nothing heavy is imported where it is not needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import patience

CHECKOUT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "submitit", "numpy", "psutil", "rich"}
LOADED = "print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def python(*words: str, cwd: Path) -> str:
    """What a Python of its own prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What is imported


@pytest.mark.parametrize(
    ("does", "allowed"),
    [
        ("import launcher", set()),
        ("import launcher.ranks", set()),
        ("import launcher.cli.main", {"click"}),
        ("from launcher import JobSpec, Site, plan, render", {"msgspec", "yaml", "jinja2", "click"}),
        ("from launcher import submit", {"msgspec", "yaml", "jinja2", "click", "psutil"}),
    ],
)
def test_imports_nothing_heavy(does: str, allowed: set[str], tmp_path: Path) -> None:
    loaded = set(python("-c", f"import sys; {does}; {LOADED}", cwd=tmp_path).split())
    assert "launcher" in loaded
    third_parties = HEAVY | {"msgspec", "yaml", "jinja2", "click", "hostlist"}
    assert loaded & third_parties - allowed == set()


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["render", "--help"],
        ["render", str(CHECKOUT / "examples" / "digits.yaml"), "--site", "aurora"],
        ["render", "--site", "slurm", "--", "python", "train.py"],
        ["submit", str(CHECKOUT / "examples" / "digits.yaml"), "--site", "aurora", "--dry-run"],
        ["launch", "-n", "1", "--", "true"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-1:]),
)
def test_commands_load_neither_torch_nor_submitit(words: list[str], tmp_path: Path) -> None:
    # Standard error, because the command owns standard output.
    code = f"""
import atexit, sys
from launcher.cli.main import main
atexit.register(lambda: print("loaded:", *sorted(sys.modules), file=sys.stderr))
main({words!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].removeprefix("loaded: ").split())
    assert "launcher.cli.main" in loaded
    assert not loaded & {"torch", "submitit", "trainers", "numpy"}


def test_ranks_need_only_the_standard_library(tmp_path: Path) -> None:
    code = f"import sys; sys.path.append({str(CHECKOUT)!r}); import launcher.ranks; {LOADED}"
    loaded = python("-S", "-I", "-c", code, cwd=tmp_path).split()
    assert "launcher" in loaded
    assert set(loaded) - {"launcher"} <= sys.stdlib_module_names | {"__main__"}


# Which module may use which


def modules(package: str) -> dict[str, Path]:
    """Every module of a package by its dotted name."""
    found = {}
    for path in sorted((CHECKOUT / package).rglob("*.py")):
        parts = path.relative_to(CHECKOUT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


LAUNCHER, TRAINERS = modules("launcher"), modules("trainers")


def imports(path: Path, *, everywhere: bool) -> Iterator[str]:
    """Dotted names that a module imports; without `everywhere`, only those of its own loading.

    `if TYPE_CHECKING:` and `if __name__ == "__main__":` are uses but no part of its loading.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        late = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(node, ast.If) and re.search("TYPE_CHECKING|__main__", ast.unparse(node.test)):
            late = True
        if everywhere or not late:
            nodes.extend(ast.iter_child_nodes(node))
        elif isinstance(node, ast.If):
            nodes.extend(node.orelse)


def uses(name: str, *, everywhere: bool = True) -> set[str]:
    """Modules of castoff that a module uses."""
    known = {**LAUNCHER, **TRAINERS}
    found = set(imports(known[name], everywhere=everywhere))
    return {other for other in found if other in known} - {name}


def test_launcher_knows_neither_trainers_nor_torch() -> None:
    wrong = [
        f"{name} imports {used}"
        for name, path in LAUNCHER.items()
        for used in imports(path, everywhere=True)
        if used.partition(".")[0] in ("trainers", "torch")
    ]
    assert wrong == []


def test_trainers_know_only_ranks_of_launcher() -> None:
    wrong = [
        f"{name} imports {used}"
        for name, path in TRAINERS.items()
        for used in imports(path, everywhere=True)
        if used.partition(".")[0] == "launcher" and used.split(".")[:2] != ["launcher", "ranks"]
    ]
    assert wrong == []


def test_no_module_of_launcher_needs_itself() -> None:
    graph = {name: uses(name, everywhere=False) for name in LAUNCHER}
    done: set[str] = set()

    def follow(name: str, behind: list[str]) -> None:
        assert name not in behind, " imports ".join([*behind[behind.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name]):
                follow(other, [*behind, name])
            done.add(name)

    for name in graph:
        follow(name, [])


FLOORS = (
    ("cli", "executors"),
    ("logs", "submission"),
    ("status", "planning"),
    ("schedulers",),
    ("runs", "launchers"),
    ("config", "ranks"),
    ("trust",),
    ("quoting",),
    ("errors",),
)
"""The rooms of launcher, floor by floor: a room uses what lies below it, and nothing beside or above it."""

BELOW = {
    room: {other for floor in FLOORS[number + 1 :] for other in floor}
    for number, floor in enumerate(FLOORS)
    for room in floor
}


def room_of(name: str) -> str:
    """The room of a module of launcher; launcher itself, which loads late, is none."""
    return name.removeprefix("launcher").removeprefix(".").partition(".")[0]


def test_arrows_point_down() -> None:
    wrong = [
        f"{name} uses {used}"
        for name in LAUNCHER
        if name != "launcher"
        for used in sorted(uses(name))
        if used.startswith("launcher.")
        and room_of(used) != room_of(name)
        and room_of(used) not in BELOW[room_of(name)]
    ]
    assert wrong == []


SCHEDULERS = tuple(
    sorted(path.name for path in (CHECKOUT / "launcher/schedulers").iterdir() if path.is_dir())
)
MAY_NAME_THEM = ("launcher.schedulers.registry", "launcher.launchers", "launcher.ranks")
"""The one table of schedulers; one launcher is called as castoff's own scheduler is."""

OF_OUR_OWN = {"local"}
"""castoff's own scheduler is no stranger to those who watch and end what runs here."""


def scheduler_names() -> tuple[str, ...]:
    """Those of the registry."""
    from launcher.schedulers.registry import NAMES

    return NAMES


def test_a_scheduler_is_known_in_its_folder_alone() -> None:
    """Elsewhere no code is of one scheduler, and none compares with its name or keeps a table of them."""
    names = {name for name in SCHEDULERS if name != "__pycache__"}
    assert names == set(scheduler_names())
    wrong = []
    for name, path in LAUNCHER.items():
        home = name.split(".")[2] if name.startswith("launcher.schedulers.") else ""
        if home not in names:
            wrong += [
                f"{name} imports {used}"
                for used in sorted(uses(name))
                if used.startswith(tuple(f"launcher.schedulers.{one}" for one in names - OF_OUR_OWN))
            ]
        if home in names or name.startswith(MAY_NAME_THEM):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wrong += [
            f"{path.relative_to(CHECKOUT)}:{node.lineno} says {node.value!r}"
            for part in tree.body
            if not (isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "LauncherName")
            for node in ast.walk(part)
            if isinstance(node, ast.Constant) and node.value in names | {one.encode() for one in names}
        ]
    assert wrong == []
