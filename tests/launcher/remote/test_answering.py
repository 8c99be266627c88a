"""The castoff on a machine, called with messages alone."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

from castoff.launcher.remote import messages
from castoff.launcher.remote.answering import serve
from castoff.launcher.remote.messages import Failed, Hello, Message


def answers(sent: bytes) -> tuple[int, list[Message]]:
    sink = io.BytesIO()
    code = serve(io.BytesIO(sent), sink, lambda text: text, site="local")
    sink.seek(0)
    found = []
    while (message := messages.read(sink)) is not None:
        found.append(message)
    return code, found


def test_a_message_of_a_newer_castoff_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    newer = b"\x81\xa4type\xa7Unknown"
    code, (hello, failed) = answers(struct.pack(">I", len(newer)) + newer)
    assert isinstance(hello, Hello) and hello.site_name == "local"
    assert code == 1 and isinstance(failed, Failed) and not failed.is_final
    assert "not a message that this castoff knows" in failed.message
