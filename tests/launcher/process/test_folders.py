"""Folders that castoff makes are the user's own, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from castoff.launcher.process.files import make_folders
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from tests.command_line import Castoff


@pytest.fixture
def open_umask() -> Iterator[None]:
    """As where a project is everybody's first group, and more so."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_each_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o777)
    make_folders(tmp_path / "there" / "a" / "b", 0o755)
    make_folders(tmp_path / "there" / "a" / "b" / "c" / "d")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.rglob("*"))]
    assert modes == [0o777, 0o755, 0o755, 0o700, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_folders(tmp_path / "file" / "a")


@pytest.mark.usefixtures("open_umask", "shared_group")
def test_what_castoff_writes_below_the_home_it_believes(
    castoff: Castoff, fresh_home: Path, tmp_path: Path
) -> None:
    assert castoff("on", "add", "lab", "me@lab.example.org", "--dir", "/scratch/me").returncode == 0
    assert castoff("trust", tmp_path).returncode == 0
    Index.of(os.environ).add(RunDirectory(tmp_path), "toy")
    made = [path for path in fresh_home.rglob("*") if path.is_dir()]
    assert len(made) > 3 and {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    assert castoff("on", "list").stdout.startswith("name") and castoff("trust").stdout
