"""The castoff on a machine, called with messages alone."""

from __future__ import annotations

import hashlib
import io
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from castoff.launcher import clock
from castoff.launcher.process.locks import locked
from castoff.launcher.remote import answering, messages
from castoff.launcher.remote.answering import StillUnderWay, serve
from castoff.launcher.remote.code_store import Store
from castoff.launcher.remote.messages import Code, Failed, File, Hello, Lacking, Message, NamesOf
from castoff.launcher.runs.directory import draft_of
from castoff.launcher.runs.run import LOCK
from tests.clock import Clock

from ..fake_slurm import OnSlurm


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
    assert "this castoff does not know the message" in failed.message


@pytest.mark.parametrize("has_run", [False, True])
def test_a_submission_that_is_under_way_is_waited_for(
    has_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it still writes a draft, or has made the run directory and waits for the scheduler's answer."""
    run = OnSlurm(tmp_path, job=None).run.path if has_run else tmp_path / "run"
    (folder := run if has_run else draft_of(run)).mkdir(exist_ok=True)
    Clock(monkeypatch)
    with ExitStack() as submits:
        submits.enter_context(locked(folder / LOCK))
        with pytest.raises(StillUnderWay, match="is still submitting it; call the same command again"):
            answering._await_other_submission(run)
        monkeypatch.setattr(clock, "sleep", lambda _: submits.close())
        answering._await_other_submission(run)


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
