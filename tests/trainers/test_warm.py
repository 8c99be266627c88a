"""Ranks that are forked from a warm process."""

from __future__ import annotations

import socket
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
