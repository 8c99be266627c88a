"""Ranks that are forked from a warm process."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from . import warm


def test_a_rank_that_has_ended_before_its_pid_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = "socket"  # a whole path can be too long for one
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as asked:
                asked.read()
                connection.sendall(b"123\n-9\n")

        threading.Thread(target=answer, daemon=True).start()
        monkeypatch.setattr(warm, "_server", lambda: address)
        rank = warm.ForkedRank(warm.Job(tmp_path, __name__, tmp_path, tmp_path, {}, str(tmp_path)))
        assert (rank.pid, rank.wait(), rank.poll()) == (123, -9, -9)


def test_test_processes_share_a_server() -> None:
    prints_the_address = "import sys; from tests.trainers import warm; print(warm._server(sys.argv[1]))"
    words = [sys.executable, "-c", prints_the_address, warm.TEST_RUN]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    mine = warm._server()
    assert subprocess.check_output(words, env=environ, text=True).strip() == mine
    assert Path(mine).is_socket()  # that the other has ended does not end it


def test_the_server_ends_with_its_last_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("ranks")
    folder.mkdir()
    with warm._Server(str(folder / "socket")) as server:
        with (folder / "users").open("w") as user:
            fcntl.flock(user, fcntl.LOCK_SH)
            server.service_actions()
        with pytest.raises(SystemExit):
            server.service_actions()
    assert not folder.exists()
