"""Locks on files: who holds them, for how long, and what is said where there are none."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.process.locks import NoLocks, is_locked, locked, take, try_lock


def test_held_as_long_as_its_holder_lives(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with locked(path):
        assert is_locked(path)
        with pytest.raises(BlockingIOError), locked(path, patience=0.05):
            pass
    assert not is_locked(path)


def test_a_look_does_not_disturb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who looks holds the lock for a moment, too."""
    path = tmp_path / "lock"
    path.touch()
    with path.open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(look, fcntl.LOCK_UN))
        with locked(path):
            assert is_locked(path)


@pytest.mark.parametrize("inherited", [True, False])
def test_a_child_holds_what_it_inherits_and_nothing_else(inherited: bool, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    assert try_lock(descriptor, inherited=inherited)
    go, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(go, 1)
        os._exit(0)
    os.close(descriptor)  # this process holds it no longer
    other = os.open(path, os.O_RDWR)
    assert try_lock(other, inherited=inherited) is not inherited
    os.close(end)
    os.waitpid(child, 0)
    assert try_lock(other, inherited=inherited)
    for each in (other, go):
        os.close(each)


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_file_system_without_locks(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, call, refuse)
    with (tmp_path / "lock").open("w") as file, pytest.raises(NoLocks, match="No locks available"):
        try_lock(file.fileno(), inherited=call == "flock")
    if call == "flock":
        with pytest.raises(CastoffError, match="cannot be accessed: No locks available"):
            is_locked(tmp_path / "lock")


def test_other_errors_are_not_taken_for_a_held_lock(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        closed = os.dup(file.fileno())
    os.close(closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        take(closed)
