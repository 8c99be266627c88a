"""Which tests share a test process, where several run beside each other: pytest-xdist deals out groups.

Its own groups do nothing with pytest 9.2, which has no names of tests any more that could be written on. So a
worker leaves the groups in a file, before the controller deals anything out.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

CLUSTERS = {"slurm": 2, "pbs": 1}
"""Fixtures, each a cluster for a whole test run, and how many test processes have one of their own.

The tests that use them come first: they mostly wait, and what takes longest must not begin last.
"""

_FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def arrange(config: pytest.Config, items: list[pytest.Item], clusters: dict[str, str]) -> None:
    """Put the tests that use a cluster first, then those marked `apart`, and tell the controller the groups.

    `clusters`: the cluster of each test that uses one. Files stay whole, but for what is marked `apart`.
    """
    apart = {item.nodeid for item in items if item.get_closest_marker("apart")}
    groups = {item.nodeid: item.nodeid if item.nodeid in apart else item.path.as_posix() for item in items}
    for name, processes in CLUSTERS.items():
        own = [item for item in items if clusters.get(item.nodeid) == name]
        parts: dict[str, int] = {}  # a file stays whole
        for place, item in enumerate(own):
            part = parts.setdefault(item.path.as_posix(), place * processes // len(own))
            groups[item.nodeid] = f"{name} {part}"
    turns = {name: turn for turn, name in enumerate(CLUSTERS)}
    others = len(turns)
    spread = _spread(items)
    items.sort(
        key=lambda item: (
            turns.get(clusters.get(item.nodeid, ""), others + (item.nodeid not in apart)),
            spread[item.path],
        )
    )
    told = getattr(config, "workerinput", {})
    if told.get("workerid") == "gw0":
        Path(told["groups"]).write_text(json.dumps(groups))


def _spread(items: list[pytest.Item]) -> dict[Path, float]:
    """When each file's turn comes, from 0 to 1, so that each package's tests spread over the whole run.

    Some packages' tests mostly wait and others' mostly compute: together, they keep the cores busy.
    """
    packages: dict[tuple[str, ...], list[Path]] = {}
    files = {item.nodeid.partition("::")[0]: item.path for item in items}
    for name, path in files.items():
        packages.setdefault(Path(name).parts[:2], []).append(path)
    return {path: place / len(own) for own in packages.values() for place, path in enumerate(own)}


def groups_file(config: pytest.Config) -> Path:
    """Where a worker leaves the groups."""
    if _FOLDER not in config.stash:
        config.stash[_FOLDER] = folder = tempfile.TemporaryDirectory(prefix="castoff-groups-")
        config.add_cleanup(folder.cleanup)
    return Path(config.stash[_FOLDER].name) / "groups.json"


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker a group at a time."""

    def __init__(self, config: pytest.Config, log: Any):
        super().__init__(config, log)
        self._groups: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        if not self._groups:
            self._groups = json.loads(groups_file(self.config).read_text())
        return self._groups[nodeid]
