"""What a laptop and the castoff on a machine say to each other: messages in frames, over one ssh command.

A frame is the length of a message in four bytes, then the message in MessagePack. A message that does not
arrive whole has not arrived.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, TypeAlias

import msgspec

PROTOCOL = 1
"""Raised with every change after which the two sides would misunderstand each other."""

CHUNK = 1 << 18
"""Bytes of a file in a message at the most."""

_LONGEST = 1 << 26
"""Bytes of a message: the list of 20,000 files takes a tenth of this."""

LONGEST_ANSWER = 1 << 22
"""Bytes of one from there: a message may take fifty times its size in memory."""

_LENGTH = struct.Struct(">I")


class Hello(msgspec.Struct, tag=True):
    """From there, first: which castoff it is, and where."""

    protocol: int
    version: str
    python: str
    folder: str
    """The entry's folder, absolute."""
    site: dict[str, Any] | None = None
    """The profile that castoff chooses there."""
    site_name: str = ""
    site_why: str = ""
    """Why it does, or why it has none."""
    site_note: str | None = None
    """What the user can do about a profile that knows nothing of the machine."""


class File(msgspec.Struct, array_like=True):
    """A file or a link of the code; names are bytes, as they are on disk."""

    name: bytes
    mode: int
    size: int
    digest: bytes
    """SHA-256 of its content; of a link nothing."""
    target: bytes | None = None
    """Where a link leads."""


class Code(msgspec.Struct, tag=True):
    """From here: the code of a submission, all of it."""

    project: str
    name: str
    """Of its folder there, which says which code it is."""
    files: list[File]


class Lacking(msgspec.Struct, tag=True):
    """From there: the places in `files` whose content has to be sent."""

    numbers: list[int]


class Part(msgspec.Struct, tag=True):
    """From here: a part of a file's content."""

    data: bytes
    is_last: bool


class Stored(msgspec.Struct, tag=True):
    """From there: the code is complete in this folder."""

    folder: str
    note: str | None = None


class Order(msgspec.Struct, tag=True):
    """From here: a job to be submitted once, under the id of a run that was made here."""

    run: str
    job: bytes
    """The job's fields, as JSON."""
    site: bytes
    """The profile's fields, likewise."""
    folder: bytes
    """Where it is submitted from, within the code's folder."""
    templates: bytes | None
    """The job's folder of templates, likewise."""
    script: str
    """SHA-256 of the script that was rendered here."""
    variables: dict[str, bytes]
    """Those of `env_from`."""
    about_code: bytes
    """The run's code.json."""
    diff: bytes | None
    """The run's code.diff."""
    runs_dir: str | None = None


class Submitted(msgspec.Struct, tag=True):
    """From there: what became of a submission."""

    run: str
    job: str | None
    directory: str
    scheduler: str
    code: str | None
    snapshot: str | None
    node_hours: float | None
    was_there: bool = False
    """Whether a submission before had made this run."""
    note: str | None = None


class Failed(msgspec.Struct, tag=True):
    """From there: the answer is an error."""

    message: str
    exit_code: int
    is_final: bool = True
    """Whether that is what became of it; else the same may be asked again."""


class NamesOf(msgspec.Struct, tag=True):
    """From here: which variables does a run take from its submitter's environment?"""

    run: str


class Names(msgspec.Struct, tag=True):
    """From there: these."""

    names: list[str]


class Which(msgspec.Struct, tag=True):
    """From here: which of these runs are there?"""

    runs: list[str]


class Known(msgspec.Struct, tag=True):
    """From there: these, with the scheduler's ids."""

    runs: dict[str, str | None]


class WhatIsUnneeded(msgspec.Struct, tag=True):
    """From here: which folders of code, and which castoffs, does nothing need any more?"""


class Unneeded(msgspec.Struct, tag=True):
    """From there: these, with their sizes."""

    folders: dict[str, int]
    notes: list[str]
    """What stays though no run needs it, and why."""


class Remove(msgspec.Struct, tag=True):
    """From here: remove these, as far as nothing needs them."""

    folders: list[str]


class Removed(msgspec.Struct, tag=True):
    """From there: these are removed."""

    folders: list[str]


Message: TypeAlias = (
    Hello
    | Code
    | Lacking
    | Part
    | Stored
    | Order
    | Submitted
    | Failed
    | NamesOf
    | Names
    | Which
    | Known
    | WhatIsUnneeded
    | Unneeded
    | Remove
    | Removed
)

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_encoder = msgspec.msgpack.Encoder()


class Broken(Exception):
    """The other side has gone in the middle."""


class Unexpected(Broken):
    """The other side is there, and what comes from it is not a message, or not one that was asked for."""


def write(stream: BinaryIO, message: Message) -> None:
    """Send a message.

    Raises:
        OSError: the other side has gone.
    """
    text = _encoder.encode(message)
    stream.write(_LENGTH.pack(len(text)) + text)
    stream.flush()


def read(stream: BinaryIO, longest: int = _LONGEST) -> Message | None:
    """The next message, of at most `longest` bytes; None where the other side has ended in order.

    Raises:
        Broken: it ended within one.
        Unexpected: it is none.
    """
    head = _exactly(stream, _LENGTH.size)
    if not head:
        return None
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    if length > longest:
        raise Unexpected("what arrived is not a message of castoff's")
    text = _exactly(stream, length)
    if len(head) < _LENGTH.size or len(text) < length:
        raise Broken("the last message did not arrive whole")
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unexpected(f"what arrived is not a message that this castoff knows: {error}") from error


def _exactly(stream: BinaryIO, count: int) -> bytes:
    """So many bytes, or fewer where the stream ends."""
    parts = b""
    while len(parts) < count:
        part = stream.read(count - len(parts))
        if not part:
            break
        parts += part
    return parts
