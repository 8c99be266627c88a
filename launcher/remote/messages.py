"""The messages between a laptop and the castoff on a machine, in frames over one ssh command.

A frame is the length of a message in four bytes, then the message in MessagePack. After `Lacking`, the
contents of these files follow without frames, since both sides know their sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, TypeAlias

import msgspec

PROTOCOL = 2
"""Raised with every change after which the two sides would misunderstand each other."""

CHUNK = 1 << 18
"""Bytes of a file that are read and sent at once."""

_LONGEST = 1 << 26
"""Bytes of a message: the list of 20,000 files takes a tenth of this."""

LONGEST_ANSWER = 1 << 22
"""Bytes of a message from the machine: in memory it may take fifty times its size."""

_LENGTH = struct.Struct(">I")


class Hello(msgspec.Struct, tag=True):
    """Machine: the castoff there, its first message."""

    protocol: int
    version: str
    python: str
    folder: str
    """The entry's folder, absolute."""
    site: dict[str, Any] | None = None
    """The profile that castoff chooses there."""
    site_name: str = ""
    site_why: str = ""
    """Why it chooses this profile, or why it has none."""
    site_note: str | None = None
    """What the user can do about a profile that does not describe the machine."""


class File(msgspec.Struct, array_like=True):
    """A file or a link of the code; names are bytes, as they are on disk."""

    name: bytes
    mode: int
    size: int
    digest: bytes
    """SHA-256 of the content; empty for a link."""
    target: bytes | None = None
    """The path in a link."""


class Code(msgspec.Struct, tag=True):
    """Laptop: the list of all files of the code that a job is submitted with."""

    project: str
    name: str
    """The name of its folder, which says which code it is."""
    files: list[File]


class Lacking(msgspec.Struct, tag=True):
    """Machine: the indices in `Code.files` of files whose contents have to be sent."""

    numbers: list[int]


class Stored(msgspec.Struct, tag=True):
    """Machine: the code is complete in this folder."""

    folder: str
    note: str | None = None


class Order(msgspec.Struct, tag=True):
    """Laptop: a job to be submitted once, under a run id that the laptop has made."""

    run: str
    job: bytes
    """The job's fields, as JSON."""
    site: bytes
    """The profile's fields, as JSON."""
    folder: bytes
    """The folder that the job is submitted from, relative to the code's."""
    templates: bytes | None
    """The job's folder of templates, relative to the code's."""
    script: str
    """SHA-256 of the script that was rendered on the laptop."""
    variables: dict[str, bytes]
    """The variables of `env_from`."""
    about_code: bytes
    """The run's code.json."""
    diff: bytes | None
    """The run's code.diff."""
    runs_dir: str | None = None
    earlier: list[str] = []
    """Runs whose submission was never answered: which of them are there?"""


class Submitted(msgspec.Struct, tag=True):
    """Machine: the run that an `Order` has led to."""

    run: str
    job: str | None
    directory: str
    scheduler: str
    code: str | None
    snapshot: str | None
    node_hours: float | None
    was_there: bool = False
    """Whether an earlier submission had made this run."""
    note: str | None = None
    earlier: dict[str, str | None] = {}
    """Those of `Order.earlier` that are there, with the scheduler's ids."""


class Failed(msgspec.Struct, tag=True):
    """Machine: an error in place of an answer."""

    message: str
    exit_code: int
    is_final: bool = True
    """False if the same message may be sent again."""


class NamesOf(msgspec.Struct, tag=True):
    """Laptop: which variables does a run take from its submitter's environment?"""

    run: str


class Names(msgspec.Struct, tag=True):
    """Machine: the names of the variables."""

    names: list[str]


Message: TypeAlias = Hello | Code | Lacking | Stored | Order | Submitted | Failed | NamesOf | Names

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_encoder = msgspec.msgpack.Encoder()


class ConnectionLost(Exception):
    """The other side has gone in the middle of a message or of a file."""


class UnexpectedMessage(ConnectionLost):
    """The other side is there, but sends something else than the message that was asked for."""


def write(stream: BinaryIO, message: Message) -> None:
    """Send a message.

    Raises:
        OSError: the other side has gone.
    """
    text = _encoder.encode(message)
    stream.write(_LENGTH.pack(len(text)) + text)
    stream.flush()


def read(stream: BinaryIO, longest: int = _LONGEST) -> Message | None:
    """The next message, of at most `longest` bytes; None if the other side has ended the stream.

    Raises:
        ConnectionLost: the stream ended within a message.
        UnexpectedMessage: there is something else in the stream.
    """
    head = b"".join(_at_most(stream, _LENGTH.size))
    if not head:
        return None
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    if length > longest:
        raise UnexpectedMessage("what arrived is not a message of castoff's")
    text = b"".join(_at_most(stream, length))
    if len(head) < _LENGTH.size or len(text) < length:
        raise ConnectionLost("the last message did not arrive whole")
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnexpectedMessage(f"what arrived is not a message that this castoff knows: {error}") from error


def read_content(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The content of a file of this size, in parts.

    Raises:
        ConnectionLost: the stream ended before.
    """
    for part in _at_most(stream, size):
        size -= len(part)
        yield part
    if size:
        raise ConnectionLost("the code did not arrive whole")


def _at_most(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The next `size` bytes in parts, or fewer if the stream ends."""
    while size and (part := stream.read(min(size, CHUNK))):
        size -= len(part)
        yield part
