"""ssh as the user has set it up: what castoff adds, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.ssh import Ssh

ENTRY = Entry(name="far", host="me@far", dir="d")


class Fake:
    """An ssh that prints settings when it is asked for them, and else its words."""

    def __init__(self, folder: Path, settings: str):
        self.home = folder / "home"
        self.home.mkdir()
        program = folder / "ssh"
        program.write_text(
            f'#!/bin/sh\nif [ "$1" = -G ]; then cat {folder}/settings; else printf "%s\\n" "$@"; fi\n'
        )
        program.chmod(0o755)
        (folder / "settings").write_text(settings)
        self.environ = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(self.home)}

    def words(self, **environ: str) -> list[str]:
        process = Ssh(ENTRY, {**self.environ, **environ}).start("true", stdin=None, stdout=subprocess.PIPE)
        return process.communicate()[0].decode().splitlines()


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A short path: a socket's has 107 bytes at the most."""
    with tempfile.TemporaryDirectory(prefix="on-", dir="/tmp") as folder:
        yield Path(folder)


def test_one_connection_is_kept_where_only_the_user_can_look(tmp_path: Path, runtime: Path) -> None:
    words = Fake(tmp_path, "hostname far\n").words(XDG_RUNTIME_DIR=str(runtime))
    assert "ControlMaster=auto" in words and "ControlPersist=10m" in words
    (path,) = [word for word in words if word.startswith("ControlPath=")]
    assert path.startswith(f'ControlPath="{runtime}/castoff/') and len(path) < 107
    assert (runtime / "castoff").stat().st_mode & 0o777 == 0o700
    assert words[-4:] == ["-T", "--", "me@far", "true"]
    assert "ClearAllForwardings=yes" in words and "RemoteCommand=none" in words


def test_the_users_own_settings_win(tmp_path: Path, runtime: Path) -> None:
    settings = "controlpath /mine/%C\nserveraliveinterval 7\nconnecttimeout 3\n"
    words = Fake(tmp_path, settings).words(XDG_RUNTIME_DIR=str(runtime))
    assert not [word for word in words if word.startswith(("Control", "ServerAlive", "ConnectTimeout"))]


def test_a_folder_that_others_can_look_into_is_not_used(tmp_path: Path, runtime: Path) -> None:
    (runtime / "castoff").mkdir()
    (runtime / "castoff").chmod(0o755)
    words = Fake(tmp_path, "").words(XDG_RUNTIME_DIR=str(runtime))
    assert not [word for word in words if str(runtime) in word]


def test_another_route_is_another_connection(tmp_path: Path, runtime: Path) -> None:
    fake = Fake(tmp_path, "port 22\n")
    first = fake.words(XDG_RUNTIME_DIR=str(runtime))
    (tmp_path / "settings").write_text("port 23\n")
    assert first != fake.words(XDG_RUNTIME_DIR=str(runtime))


def test_no_ssh_and_a_host_that_ssh_refuses_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CastoffError, match="ssh: is not on PATH; install OpenSSH's client"):
        Ssh(ENTRY, {**os.environ, "PATH": str(tmp_path)}).start("true", stdin=None, stdout=None)
    fake = Fake(tmp_path, "")
    (tmp_path / "ssh").write_text("#!/bin/sh\necho bad port >&2; exit 255\n")
    with pytest.raises(CastoffError, match="far: ssh cannot use the host 'me@far': bad port"):
        fake.words()
