"""The recorded environments, and short ways to ask what a rank in them is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks import RankEnv

RECORDINGS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((Path(__file__).parents[1] / "environments").glob("*.json"))
}
PLACED = [name for name, recording in RECORDINGS.items() if "expected" in recording]
EACH_RANK = [(name, i) for name in PLACED for i in range(len(RECORDINGS[name]["ranks"]))]
PLACE = ("rank", "world_size", "local_rank", "local_world_size", "node_rank")
TRAP = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


def each_rank(names: Sequence[str] = PLACED) -> Callable[[Callable[[str, int], None]], Callable[[str], None]]:
    """Have a test of a rank try every rank of these recordings; each recording is a case."""

    def of(test: Callable[[str, int], None]) -> Callable[[str], None]:
        def of_each_rank(name: str) -> None:
            for index in range(len(RECORDINGS[name]["ranks"])):
                try:
                    test(name, index)
                except BaseException as error:
                    error.add_note(f"of rank {index} in {name}")
                    raise

        of_each_rank.__name__ = test.__name__
        of_each_rank.__doc__ = test.__doc__
        marked: Callable[[str], None] = pytest.mark.parametrize("name", names)(of_each_rank)
        return marked

    return of


def rank(name: str, index: int = 0) -> dict[str, str]:
    """The recorded variables of one rank."""
    return dict(RECORDINGS[name]["ranks"][index])


def reader(name: str = "") -> Any:
    """A read_file that knows a recording's files, and no others."""
    files = RECORDINGS[name].get("files", {}) if name else {}

    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return str(files[path])

    return read


def detect(environ: dict[str, str], name: str = "") -> RankEnv:
    return RankEnv.detect(environ, read_file=reader(name))


def refusal(environ: dict[str, str], name: str = "") -> str:
    """The message of the error that this environment must end in."""
    with pytest.raises(PlacementError) as error:
        detect(environ, name)
    return str(error.value)


def outcome(environ: dict[str, str], name: str = "") -> tuple[RankEnv | None, str]:
    """The rank found, or the message of the error."""
    try:
        return detect(environ, name), ""
    except PlacementError as error:
        return None, str(error)


def place(me: RankEnv) -> tuple[Any, ...]:
    return tuple(getattr(me, field) for field in PLACE)


def expected_place(name: str, index: int) -> tuple[Any, ...]:
    expected = RECORDINGS[name]["expected"][index]
    return tuple(expected[field] for field in PLACE)


def shim(launcher: str, *where: int | None, **more: str) -> dict[str, str]:
    """What castoff's start block exports: rank, size, local rank, local size, node."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
    reported = {name: str(what) for name, what in zip(names, where, strict=True) if what is not None}
    return {
        "CASTOFF_LAUNCHER": launcher,
        **reported,
        "CASTOFF_RANK": f"{where[0]}/{where[1]}",
        **{"MASTER_ADDR": "outer", "MASTER_PORT": "20007", "CASTOFF_DEVICE": "5"},
        **more,
    }


def shim_of(name: str, index: int, **more: str) -> dict[str, str]:
    """What castoff's start block would export in a recorded rank."""
    launcher = RECORDINGS[name]["launcher"]
    return shim(launcher, *expected_place(name, index), **more)
