"""Which module may use which, and that nothing heavy is imported where it is not needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import patience
from tests.as_on_a_mac import is_only_linux

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
        ("import castoff", set()),
        ("import castoff.launcher.ranks", set()),
        ("import castoff.launcher.cli.main", {"click"}),
        ("from castoff import JobSpec, Site, plan, render", {"msgspec", "yaml"}),
        ("from castoff import submit", {"msgspec", "yaml", "psutil"}),
    ],
)
def test_imports_nothing_heavy(does: str, allowed: set[str], tmp_path: Path) -> None:
    loaded = set(python("-c", f"import sys; {does}; {LOADED}", cwd=tmp_path).split())
    assert "castoff" in loaded
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
from castoff.launcher.cli.main import main
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
    assert "castoff.launcher.cli.main" in loaded
    assert not loaded & {"torch", "submitit", "castoff.trainers", "numpy"}
    if words[0] == "launch":  # which each member of each job starts anew
        assert not loaded & {"msgspec", "yaml"}


def test_ranks_need_only_the_standard_library(tmp_path: Path) -> None:
    code = f"import sys; sys.path.append({str(CHECKOUT)!r}); import castoff.launcher.ranks; {LOADED}"
    loaded = python("-S", "-I", "-c", code, cwd=tmp_path).split()
    assert "castoff" in loaded
    assert set(loaded) - {"castoff"} <= sys.stdlib_module_names | {"__main__"}


# Which module may use which


def modules(package: str) -> dict[str, Path]:
    """Every module of a package of castoff's by its dotted name."""
    found = {}
    for path in sorted((CHECKOUT / package).rglob("*.py")):
        parts = ("castoff", *path.relative_to(CHECKOUT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


LAUNCHER, TRAINERS = modules("launcher"), modules("trainers")
RUN_BY_PATH = "launcher/launchers/preload"
"""Its files are run by a job's own Python, without the rest of castoff: each knows only those beside it."""


@cache
def parsed(path: Path) -> ast.Module:
    """A module's syntax tree, which several tests walk."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, *, everywhere: bool) -> list[str]:
    """Dotted names that a module imports; without `everywhere`, only those of its own loading.

    `if TYPE_CHECKING:` and `if __name__ == "__main__":` are uses but no part of its loading.
    """
    found: list[str] = []
    nodes: list[ast.AST] = [parsed(path)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            beside = path.parent.relative_to(CHECKOUT).as_posix() == RUN_BY_PATH
            assert node.level in (0, beside), f"{path}:{node.lineno}: write the whole name"
            assert node.module is not None
            module = f"castoff.{RUN_BY_PATH.replace('/', '.')}.{node.module}" if node.level else node.module
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
        late = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(node, ast.If) and re.search("TYPE_CHECKING|__main__", ast.unparse(node.test)):
            late = True
        if everywhere or not late:
            nodes.extend(ast.iter_child_nodes(node))
        elif isinstance(node, ast.If):
            nodes.extend(node.orelse)
    return found


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
        if used.startswith("castoff.trainers") or used.partition(".")[0] == "torch"
    ]
    assert wrong == []


SHARED = ("castoff.launcher.ranks", "castoff.launcher.typed", "castoff.launcher.process.locks")
"""What `trainers` may use, too."""


def test_trainers_know_only_three_rooms_of_launcher() -> None:
    wrong = [
        f"{name} imports {used}"
        for name, path in TRAINERS.items()
        for used in imports(path, everywhere=True)
        if used.startswith("castoff.launcher") and not used.startswith(SHARED)
    ]
    assert wrong == []


def test_no_module_needs_itself() -> None:
    _no_circle({name: uses(name, everywhere=False) for name in [*LAUNCHER, *TRAINERS]})


def test_no_module_knows_those_that_know_it() -> None:
    """Nor by types or by what it imports late: each can be read with those below it alone."""
    _no_circle({name: uses(name) for name in [*LAUNCHER, *TRAINERS]})


ONLY_IN_JOBS = (
    *("castoff.launcher.launchers.local", "castoff.launcher.launchers.preload"),
    *("castoff.launcher.schedulers.local", "castoff.launcher.executors", "castoff.launcher.diagnosis"),
)
"""Rooms that start and end processes of jobs, which takes Linux; or that look at it."""


def test_what_only_linux_has_is_guarded() -> None:
    """A Mac plans, renders, imports, and works with runs of other machines."""
    wrong = [
        f"{path.relative_to(CHECKOUT)}:{node.lineno}: {ast.unparse(node)}"
        for name, path in LAUNCHER.items()
        if not name.startswith(ONLY_IN_JOBS)
        for node in _only_linux(parsed(path), guarded=False)
    ]
    assert wrong == []


def test_no_module_takes_linux_to_be_loaded() -> None:
    """`castoff launch` explains itself on a Mac, too."""
    loaded = {name for name in LAUNCHER if name.startswith("castoff.launcher.cli.")}
    following = [*loaded]
    while following:
        new = uses(following.pop(), everywhere=False) - loaded
        loaded |= new
        following += new
    wrong = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name in sorted(loaded & {*LAUNCHER})
        for node in _only_linux(parsed(LAUNCHER[name]), guarded=False, late=False)
    ]
    assert wrong == []


def _only_linux(node: ast.AST, *, guarded: bool, late: bool = True) -> Iterator[ast.expr | ast.ImportFrom]:
    """What of a tree only Linux has, outside of what looks whether it has it; `late`: in functions, too."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if not late:
            return
        text = ast.unparse(node)
        guarded = (
            guarded or "hasattr(" in text or re.search(r"except .*(OSError|AttributeError)", text) is not None
        )
    if guarded:
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if is_only_linux(node.value.id, node.attr):
            yield node
    elif isinstance(node, ast.ImportFrom):
        if any(is_only_linux((node.module or "").lstrip("_"), alias.name) for alias in node.names):
            yield node
    elif isinstance(node, ast.Constant) and re.match(r"'/(proc|sys)/", ast.unparse(node)):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _only_linux(child, guarded=guarded, late=late)


def _no_circle(graph: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def follow(name: str, behind: list[str]) -> None:
        assert name not in behind, " imports ".join([*behind[behind.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name]):
                follow(other, [*behind, name])
            done.add(name)

    for name in graph:
        follow(name, [])


FLOORS = {
    "launcher": (
        ("cli",),
        ("agents", "diagnosis", "importing", "notify", "remote", "report", "screen", "siting", "stacks"),
        ("executors",),
        ("api",),
        ("history", "interactive"),
        ("logs", "submission"),
        ("preflight", "status"),
        ("planning",),
        ("schedulers",),
        ("runs", "launchers"),
        ("config", "ranks"),
        ("trust", "typed"),
        ("process", "text"),
        ("clock", "errors"),
    ),
    "trainers": (
        ("dpo", "export", "gnn", "resumable", "sedd"),
        ("program",),
        ("ddp",),
        ("assembly",),
        ("checks", "reporting"),
        ("evaluation",),
        ("checkpointing",),
        ("optimization",),
        ("data",),
        ("task",),
        ("distributed",),
        ("configuration",),
        ("files",),
    ),
}
"""The rooms of a package, floor by floor: a room uses what lies below it, and nothing beside or above it."""


def room_of(name: str) -> str:
    """The room of a module; that of a package itself, which loads late, is none."""
    return ".".join(name.split(".")[2:3])


@pytest.mark.parametrize("package", FLOORS)
def test_every_room_has_a_floor(package: str) -> None:
    rooms = {room_of(name) for name in (LAUNCHER if package == "launcher" else TRAINERS)} - {""}
    assert rooms == {room for floor in FLOORS[package] for room in floor}


@pytest.mark.parametrize("package", FLOORS)
def test_arrows_point_down(package: str) -> None:
    floor_of = {room: number for number, floor in enumerate(FLOORS[package]) for room in floor}
    wrong = [
        f"{name} uses {used}"
        for name in (LAUNCHER if package == "launcher" else TRAINERS)
        if room_of(name)
        for used in sorted(uses(name))
        if used.startswith(f"castoff.{package}.")
        and room_of(used) != room_of(name)
        and floor_of[room_of(used)] <= floor_of[room_of(name)]
    ]
    assert wrong == []


WINDOWS = FLOORS["launcher"][1]
"""Rooms that only `cli` knows."""

WITHOUT = """
import importlib, sys
from importlib.abc import MetaPathFinder

class Removed(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("castoff.launcher.{window}"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Removed())
for name in {rest!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name.rpartition(".")[2])
"""

ITS_VERBS = {
    **dict.fromkeys(WINDOWS, frozenset()),
    "remote": {"elsewhere", "on", "submit_elsewhere", "watch_elsewhere"},
    "report": {"report", "results"},
}
"""The modules of cli that need a window as soon as they are loaded."""


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_can_be_removed(window: str, tmp_path: Path) -> None:
    """All other rooms are loaded without it, and each verb that is none of its own."""
    apart = (
        f"castoff.launcher.{window}",
        "castoff.launcher.launchers.preload",
        "castoff.launcher.ranks.__main__",
    )
    programs = ("local_scheduler", "folder_probe", "installer")
    rest = [name for name in LAUNCHER if not name.startswith(apart) and not name.endswith(programs)]
    lost = python("-c", WITHOUT.format(window=window, rest=rest), cwd=tmp_path).split()
    assert set(lost) == ITS_VERBS[window]


SCHEDULERS = tuple(
    sorted(path.name for path in (CHECKOUT / "launcher/schedulers").iterdir() if path.is_dir())
)
MAY_NAME_THEM = (
    "castoff.launcher.schedulers.registry",
    "castoff.launcher.launchers",
    "castoff.launcher.ranks",
)
"""The one table of schedulers; one launcher is called as castoff's own scheduler is."""

OF_OUR_OWN = {"local"}
"""castoff's own scheduler is no stranger to those who watch and end what runs here."""


def scheduler_names() -> tuple[str, ...]:
    """Those of the registry."""
    from castoff.launcher.schedulers.registry import NAMES

    return NAMES


def test_a_scheduler_is_known_in_its_folder_alone() -> None:
    """Elsewhere no code is of one scheduler, and none compares with its name or keeps a table of them."""
    names = {name for name in SCHEDULERS if name != "__pycache__"}
    assert names == set(scheduler_names())
    wrong = []
    for name, path in LAUNCHER.items():
        home = name.split(".")[3] if name.startswith("castoff.launcher.schedulers.") else ""
        if home not in names and name != MAY_NAME_THEM[0]:
            wrong += [
                f"{name} imports {used}"
                for used in sorted(uses(name))
                if used.startswith(tuple(f"castoff.launcher.schedulers.{one}" for one in names - OF_OUR_OWN))
            ]
        if home in names or name.startswith(MAY_NAME_THEM):
            continue
        wrong += says(path, names)
    assert wrong == []


LAUNCHERS_MAY_BE_NAMED = ("castoff.launcher.launchers", "castoff.launcher.ranks")
"""Their room, and where the variables are known by which each of them tells ranks who they are."""


def test_a_launcher_is_known_in_its_room_alone() -> None:
    """Elsewhere none compares with its name; a scheduler lists those that start ranks inside its jobs."""
    from castoff.launcher.launchers.commands import LAUNCHERS

    names: set[str] = {name for name in LAUNCHERS if name not in scheduler_names()}
    assert names >= {"srun", "openmpi"}
    wrong: list[str] = []
    for name, path in LAUNCHER.items():
        if not name.startswith(LAUNCHERS_MAY_BE_NAMED):
            wrong += says(path, names)
    assert wrong == []


def says(path: Path, names: set[str]) -> Iterator[str]:
    """Where a module holds one of these names as a text, except where it lists launchers."""
    tree = parsed(path)
    wanted = names | {one.encode() for one in names}
    lists = (one for one in ast.walk(tree) if isinstance(one, ast.Assign))
    listing = [one for one in lists if ast.unparse(one.targets[0]) in ("LauncherName", "launchers")]
    listed = {node for assigned in listing for node in ast.walk(assigned)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in wanted and node not in listed:
            yield f"{path.relative_to(CHECKOUT)}:{node.lineno} says {node.value!r}"
