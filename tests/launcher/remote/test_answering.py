"""The castoff on a machine, called with messages alone."""

from __future__ import annotations

import hashlib
import io
import struct
from pathlib import Path

import pytest

from castoff.launcher.remote import messages
from castoff.launcher.remote.answering import serve
from castoff.launcher.remote.code_store import Store
from castoff.launcher.remote.messages import Code, Failed, File, Hello, Lacking, Message, NamesOf


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


def test_code_that_finds_no_room_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what follows it would be taken for the rest of it."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "train.py")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Store, "take", full)
    contents = [b"x" * 300_000, b"y"]
    files = [
        File(b"%d.py" % number, 0o644, len(text), hashlib.sha256(text).digest())
        for number, text in enumerate(contents)
    ]
    sent = io.BytesIO()
    messages.write(sent, Code("project", "abc", files))
    sent.write(b"".join(contents))
    messages.write(sent, NamesOf("nothing"))
    code, (_, lacking, failed, other) = answers(sent.getvalue())
    assert code == 0 and isinstance(lacking, Lacking) and lacking.numbers == [0, 1]
    assert isinstance(failed, Failed) and failed.message == "train.py: No space left on device"
    assert isinstance(other, Failed) and other.message.startswith("nothing: no such run")
