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
        ("import launcher.cli", {"click"}),
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
from launcher.cli import main
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
    assert "launcher.cli" in loaded
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


ARROWS = {
    # What everything stands on
    "errors": set(),
    "hostlist": {"errors"},
    "quantities": set(),
    "quoting": {"errors"},
    # Job file and site
    "document": {"errors"},
    "synonyms": {"errors", "quantities", "quoting"},
    "structure": {"document", "errors", "quoting", "synonyms"},
    "spec": {"document", "errors", "quantities", "structure"},
    "site": {"document", "errors", "quantities", "spec", "structure"},
    # Decisions
    "binding": {"quantities", "site"},
    "starters": {"quantities", "site", "spec"},
    "containers": {"site", "spec"},
    "staging": {"spec"},
}
"""The lower rooms, and what each may use; whoever adds an arrow here changes docs/architecture.md."""


PURE = [
    *(
        "spec",
        "binding",
        "starters",
        "directives",
        "given_directives",
        "binding_by_hand",
        "limits",
        "containers",
        "staging",
        "allocation",
        "planning",
        "rendering",
    ),
]
"""What decides before submission, and does nothing."""


@pytest.mark.parametrize("room", ARROWS)
def test_lower_rooms_use_only_what_lies_below(room: str) -> None:
    used = {other.removeprefix("launcher.") for other in uses(f"launcher.{room}")} - {"launcher"}
    assert used <= ARROWS[room]


@pytest.mark.parametrize(
    ("rooms", "forbidden"),
    [
        # Before submission nothing runs a scheduler, reads a run or starts a process.
        (
            PURE,
            [
                *("submission", "resubmission", "foreground", "runs", "watch", "local", "schedulers"),
                *("commands", "cli"),
            ],
        ),
        # Below the command line nothing knows of it.
        (
            [name.removeprefix("launcher.") for name in LAUNCHER if not re.search(r"\.(cli|commands)", name)],
            ["commands", "cli"],
        ),
        # Ranks start in the job: they know of no plan.
        (
            [name.removeprefix("launcher.") for name in LAUNCHER if name.startswith("launcher.rank")],
            ["spec", "site", "planning", "rendering", "submission", "runs", "watch", "local"],
        ),
    ],
    ids=["pure before submission", "nothing knows the command line", "ranks know no plan"],
)
def test_arrows_point_one_way(rooms: list[str], forbidden: list[str]) -> None:
    wrong = [
        f"launcher.{room} uses {used}"
        for room in rooms
        if f"launcher.{room}" in LAUNCHER
        for used in sorted(uses(f"launcher.{room}"))
        if used.removeprefix("launcher.").partition(".")[0] in forbidden
    ]
    assert wrong == []


@pytest.mark.parametrize("room", PURE)
def test_rooms_before_submission_start_nothing(room: str) -> None:
    used = {name.partition(".")[0] for name in imports(LAUNCHER[f"launcher.{room}"], everywhere=True)}
    assert not used & {"subprocess", "socket", "time", "datetime", "random", "secrets", "multiprocessing"}
