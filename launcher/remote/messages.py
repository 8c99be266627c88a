"""The messages between a laptop and a machine's castoff, in frames over one ssh connection.

A frame is the length of a message in four bytes, then the message in MessagePack. After the machine has sent
`Lacking`, the laptop sends the contents of these files without frames, since both sides know the sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO, TypeAlias

import msgspec

PROTOCOL = 4
"""The protocol's version; increase it with every change that makes old and new sides incompatible.
"""

CHUNK = 1 << 18
"""Bytes of a file that are read and sent in one piece."""

_LONGEST = 1 << 26
"""Limit of a message's size in bytes; a list of 20,000 files takes a tenth of it."""

LONGEST_ANSWER = 1 << 22
"""Limit of the size of a message from the machine, in bytes: decoded, it may take fifty times the memory."""

_LENGTH = struct.Struct(">I")


class Hello(msgspec.Struct, tag=True):
    """From the machine: the greeting, its first message."""

    protocol: int
    version: str
    python: str
    folder: str
    """The entry's folder, as an absolute path."""
    site: dict[str, Any] | None = None
    """The profile that the machine's castoff chooses."""
    site_name: str = ""
    site_why: str = ""
    """The reason for this choice, or why there is no profile."""
    site_note: str | None = None
    """A hint for the user if the profile does not describe the machine."""


class File(msgspec.Struct, array_like=True):
    """A file or a link of the code; its name is bytes, as on disk."""

    name: bytes
    mode: int
    size: int
    digest: bytes
    """SHA-256 of the content; empty for a link."""
    target: bytes | None = None
    """The target of a link; None for a file."""


class Code(msgspec.Struct, tag=True):
    """From the laptop: the list of all files of the code that jobs are submitted with."""

    project: str
    name: str
    """The name of the code's folder, which identifies the code."""
    files: list[File]
    folder: bytes = b"."
    """The folder to submit jobs from, relative to the code's folder."""
    about: bytes = b""
    """The runs' code.json: commit, branch, differences from the commit."""
    diff: bytes | None = None
    """The runs' code.diff."""


class Lacking(msgspec.Struct, tag=True):
    """From the machine: indices in `Code.files` of the files that have to be sent."""

    numbers: list[int]


class Stored(msgspec.Struct, tag=True):
    """From the machine: the code is complete in this folder."""

    folder: str
    note: str | None = None


class OrderedJob(msgspec.Struct):
    """A job of an `Order`."""

    fields: bytes
    """The job's fields, as JSON."""
    templates: bytes | None
    """The job's folder of templates, relative to the code's folder."""
    script: str
    """SHA-256 of the script that was rendered on the laptop."""
    variables: dict[str, bytes]
    """Values of the variables in `env_from`."""
    code: int = 0
    """The number of its code among those that were sent before."""


class OrderedGroup(msgspec.Struct):
    """What makes the jobs of an `Order` a group."""

    name: str
    file: str
    """The path of its file, on the laptop."""
    selection: list[str]
    """The options that selected some of the file's jobs."""
    command: str
    """The command line that continues the submission."""


class Order(msgspec.Struct, tag=True):
    """From the laptop: a job, or the jobs of a group, each to submit once."""

    run: str
    """The run's id, or the group's, which the laptop has chosen."""
    site: bytes
    """The profile's fields, as JSON."""
    jobs: list[OrderedJob]
    group: OrderedGroup | None = None
    runs_dir: str | None = None
    earlier: list[str] = []
    """Ids of runs whose submission the machine did not confirm; the answer lists those that exist."""


class Submitted(msgspec.Struct, tag=True):
    """From the machine: the run that was made for an `Order`."""

    run: str
    job: str | None
    directory: str
    scheduler: str
    code: str | None
    snapshot: str | None
    node_hours: float | None
    was_there: bool = False
    """Whether an earlier command had submitted this run already."""
    note: str | None = None
    earlier: dict[str, str | None] = {}
    """The runs of `Order.earlier` that exist, with the scheduler's job ids."""


class Grouped(msgspec.Struct, tag=True):
    """From the machine: the runs of a group, by the names of their jobs, in the order of submission."""

    group: str
    jobs: dict[str, Submitted]


class Failed(msgspec.Struct, tag=True):
    """From the machine: an error in place of an answer."""

    message: str
    exit_code: int
    is_final: bool = True
    """False if the laptop may send the same message again."""


class NamesOf(msgspec.Struct, tag=True):
    """From the laptop: a question for the variables that a run, or the runs of a group, take from their
    submitter's environment.
    """

    run: str


class Names(msgspec.Struct, tag=True):
    """From the machine: the names of these variables."""

    names: list[str]


class Wanted(msgspec.Struct, tag=True):
    """From the laptop: a question for the results of a run, or of the runs of a group."""

    run: str
    """The run or the group; perhaps with members, as in `sweep:3`."""
    selectors: list[str]
    """The parameters of members, as `lr=1e-3`."""
    patterns: list[str]
    """Which files; empty: all that are wanted by default."""


Size = Annotated[int, msgspec.Meta(ge=0)]


class Result(msgspec.Struct, array_like=True):
    """A file of a run."""

    name: bytes
    """Its path in the run's folder on the laptop."""
    size: Size
    mtime: int
    """Its time of change, in nanoseconds."""
    mode: int


class LeftOut(msgspec.Struct, array_like=True):
    """A file that is not sent."""

    name: bytes
    size: Size
    why: str


class Results(msgspec.Struct):
    """The results of a run."""

    run: str
    files: Size
    """How many `Files` list."""
    left_out: list[LeftOut]
    unmatched: list[str]
    """The patterns that match no file."""


class Listed(msgspec.Struct, tag=True):
    """From the machine: the answer to `Wanted`. The runs' `Files` follow."""

    name: str
    """The id of the run or the group."""
    is_group: bool
    runs: list[Results]


class Files(msgspec.Struct, tag=True):
    """From the machine: some files of a run of `Listed`, at most `MOST_LISTED`."""

    files: list[Result]


MOST_LISTED = 4000
"""The largest number of files in a message."""


class Item(msgspec.Struct, array_like=True):
    """A file to send: the number of its run in `Listed`, and its own in the run's `Files`."""

    run: int
    number: int
    offset: Size = 0
    """The number of bytes that the laptop has."""
    digest: bytes = b""
    """SHA-256 of these bytes; if the machine's differ, it sends the file from its beginning."""


class Send(msgspec.Struct, tag=True):
    """From the laptop: which of the listed files to send. For each, `Part`s and a `Whole`, or an `Unread`
    follow.
    """

    items: list[Item]


class Part(msgspec.Struct, tag=True):
    """From the machine: a part of a file."""

    at: int
    """Its offset."""
    data: bytes


class Whole(msgspec.Struct, tag=True):
    """From the machine: the last part of a file, which may be empty."""

    at: int
    data: bytes
    digest: bytes
    """SHA-256 of the whole file."""
    mtime: int
    """Its time of change when it was opened."""


class Unread(msgspec.Struct, tag=True):
    """From the machine: a file cannot be read."""

    why: str


Message: TypeAlias = (
    Hello
    | Code
    | Lacking
    | Stored
    | Order
    | Submitted
    | Grouped
    | Failed
    | NamesOf
    | Names
    | Wanted
    | Listed
    | Files
    | Send
    | Part
    | Whole
    | Unread
)

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_encoder = msgspec.msgpack.Encoder()


class ConnectionLost(Exception):
    """The other side closed the stream within a message or a file."""


class UnexpectedMessage(ConnectionLost):
    """The other side sent something other than the expected message."""


def write(stream: BinaryIO, message: Message) -> None:
    """Send a message.

    Raises:
        OSError: the other side has closed the stream.
    """
    text = _encoder.encode(message)
    stream.write(_LENGTH.pack(len(text)) + text)
    stream.flush()


def read(stream: BinaryIO, longest: int = _LONGEST) -> Message | None:
    """Read the next message, of at most `longest` bytes; None if the other side has closed the stream.

    Raises:
        ConnectionLost: the stream ended within a message.
        UnexpectedMessage: the data is not a message of this protocol.
    """
    head = b"".join(_at_most(stream, _LENGTH.size))
    if not head:
        return None
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    if length > longest:
        raise UnexpectedMessage("the data is not a message of castoff")
    text = b"".join(_at_most(stream, length))
    if len(head) < _LENGTH.size or len(text) < length:
        raise ConnectionLost("the last message is incomplete")
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnexpectedMessage(f"this castoff does not know the message: {error}") from error


def read_content(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the content of a file of this size, in parts.

    Raises:
        ConnectionLost: the stream ended within the file.
    """
    for part in _at_most(stream, size):
        size -= len(part)
        yield part
    if size:
        raise ConnectionLost("the code did not arrive completely")


def _at_most(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes in parts, or fewer if the stream ends."""
    while size and (part := stream.read(min(size, CHUNK))):
        size -= len(part)
        yield part
