"""Removing run directories: whole or not at all, and nothing that lies elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.process.locks import locked
from castoff.launcher.runs import removal
from castoff.launcher.runs.removal import remove, size, sweep
from castoff.launcher.runs.run import LOCK, RunDirectory
from tests.launcher.status.test_watch import Made


@pytest.fixture
def made(tmp_path: Path) -> Made:
    (tmp_path / "runs").mkdir()
    made = Made(tmp_path / "runs")
    made.attempt("0.0", "done")
    (made.run.path / "job.sh").write_text("x" * 1000)
    return made


def left(made: Made) -> list[str]:
    return sorted(path.name for path in made.run.path.parent.iterdir())


def test_nothing_is_left(made: Made) -> None:
    assert size(made.run) > 1000
    remove(made.run)
    assert left(made) == []


def test_links_are_not_followed(made: Made, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "file").write_text("x" * 100_000)
    (made.run.path / "logs").symlink_to(outside)
    (made.run.path / "attempts" / "file").symlink_to(outside / "inner" / "file")
    assert size(made.run) < 10_000
    remove(made.run)
    assert left(made) == [] and (outside / "inner" / "file").stat().st_size == 100_000


def test_a_link_in_its_place_is_refused(made: Made) -> None:
    real = made.run.path.rename(made.run.path.with_name("real"))
    made.run.path.symlink_to(real)
    with pytest.raises(CastoffError, match="is a link to"):
        remove(made.run)
    assert (real / "job.sh").exists()


def test_folders_that_were_protected(made: Made) -> None:
    """Even from their owner, as package managers do; root needs no permission."""
    protected = made.run.path / "logs" / "cache" / "inner"
    protected.mkdir(parents=True)
    (protected / "file").touch()
    protected.chmod(0o500)
    protected.parent.chmod(0o000)
    code = "import sys; from pathlib import Path; from castoff.launcher.runs.removal import *; "
    code += "remove(RunDirectory(Path(sys.argv[1])))"
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", "--"]
    words = [*(drop if os.geteuid() == 0 else []), sys.executable, "-c", code, str(made.run.path)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr, left(made)) == (0, "", [])


def test_a_file_that_is_somewhere_else_too_stays_as_it_is(made: Made, tmp_path: Path) -> None:
    """Environments are made of hard links into a cache."""
    (cached := tmp_path / "cached").touch(mode=0o444)
    inner = made.run.path / "logs" / "env"
    inner.mkdir(parents=True)
    (inner / "file").hardlink_to(cached)
    removal._open_folders(made.run.path)
    assert cached.stat().st_mode & 0o777 == 0o444
    remove(made.run)
    assert left(made) == [] and cached.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_what_belongs_to_somebody_else() -> None:
    """A folder of root's in a user's run, as a container leaves it: said before anything is touched."""
    with tempfile.TemporaryDirectory() as folder:  # which a user may enter, as none of pytest's
        Path(folder).chmod(0o755)
        made = Made(Path(folder))
        theirs = made.run.path / "logs" / "theirs"
        theirs.mkdir(parents=True)
        (theirs / "file").touch()
        for path in (*made.run.path.rglob("*"), made.run.path, Path(folder)):
            if theirs not in (path, *path.parents):
                os.chown(path, 4000, 4000)
        os.seteuid(4000)
        try:
            with pytest.raises(CastoffError) as caught:
                size(made.run)
        finally:
            os.seteuid(0)
        assert str(caught.value) == (
            f"{theirs}: belongs to another user (0), so you cannot remove its contents; ask "
            "them to, or chown it. run was not changed"
        )
        (theirs / "file").unlink()  # an empty one does not hinder
        os.seteuid(4000)
        try:
            size(made.run)
            remove(made.run)
        finally:
            os.seteuid(0)
        assert left(made) == []


def test_what_cannot_be_removed_is_swept_up_later(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.rmtree

    def stuck(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(16, "Device or resource busy", "mounted")

    monkeypatch.setattr(shutil, "rmtree", stuck)
    with pytest.raises(
        CastoffError, match="cannot be removed: mounted: Device or resource busy; once it can"
    ):
        remove(made.run)
    (hidden,) = left(made)
    assert hidden.startswith(".run-") and hidden.endswith(".swept")
    monkeypatch.setattr(shutil, "rmtree", real)
    assert sweep(made.run.path.parent) == []
    assert left(made) == []


def test_only_its_own_leftovers_are_swept_up(made: Made, tmp_path: Path) -> None:
    folder = made.run.path.parent
    (folder / ".file.swept").touch()
    (tmp_path / "outside").mkdir()
    (folder / ".link.swept").symlink_to(tmp_path / "outside")
    (folder / ".old.swept" / "attempts").mkdir(parents=True)
    sweep(folder)
    assert left(made) == [".file.swept", ".link.swept", "run"]
    assert (tmp_path / "outside").exists()


def test_one_that_begins_again_stays(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_PATIENCE", 0.1)
    with locked(made.run.path / LOCK), pytest.raises(CastoffError, match="it is still active"):
        remove(made.run)
    assert left(made) == ["run"]


def test_a_scheduler_that_is_about_to_exit_is_waited_for(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    with (made.run.path / LOCK).open("w") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(held, fcntl.LOCK_UN))
        remove(made.run)
    assert left(made) == []


def test_a_folder_that_may_not_be_written(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(CastoffError, match="/run: cannot be removed: Permission denied"):
        remove(made.run)
    assert left(made) == ["run"]


def test_a_name_as_long_as_names_can_be(made: Made) -> None:
    remove(RunDirectory(made.run.path.rename(made.run.path.with_name("x" * 255))))
    assert left(made) == []
