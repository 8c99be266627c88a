"""Messages of a machine that cannot be trusted: each is one, or the connection counts as broken."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.remote.messages import LONGEST_ANSWER, ConnectionLost, Hello, Message, read, write


def framed(text: bytes) -> io.BytesIO:
    return io.BytesIO(struct.pack(">I", len(text)) + text)


def test_a_message_nested_without_end_is_none() -> None:
    stream = io.BytesIO()
    write(stream, Hello(1, "v", "3", "/", site={"bomb": 1}))
    nested = stream.getvalue()[4:].replace(b"bomb\x01", b"bomb" + b"\x91" * 100_000 + b"\x90")
    with pytest.raises(ConnectionLost, match="this castoff does not know the message"):
        read(framed(nested))


def test_an_answer_may_not_be_endless() -> None:
    length = struct.pack(">I", LONGEST_ANSWER + 1)
    with pytest.raises(ConnectionLost, match="not a message of castoff"):
        read(io.BytesIO(length), LONGEST_ANSWER)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_none(text: bytes) -> None:
    try:
        message: Message | None = read(framed(text))
    except ConnectionLost:
        return
    assert message is not None
