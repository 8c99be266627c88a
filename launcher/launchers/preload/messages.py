"""Messages between an agent and its node's clients: values over a Unix socket.

The agent's greeting names the version and path of its Python. A client sends a message only if its own Python
is the same, so that both ends use the same version of `marshal`.
"""

import marshal
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

TYPE_CHECKING = False  # `typing` would cost each rank some time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MOST_FILES = 250
"""The largest number of open files in one message: the kernel's SCM_MAX_FD is 253."""

_HEAD = 8
_LARGEST = 64 * 1024 * 1024
_INT = 4


def unix_socket() -> socket:
    """Return a socket for messages within this node."""
    return socket(AF_UNIX, SOCK_STREAM)


def peer_process(connection: socket) -> int:
    """Return the id of the process at the other end, as the kernel reports it."""
    return int.from_bytes(_peer(connection)[:_INT], _order())


def peer_user(connection: socket) -> int:
    """Return the user id of the process at the other end."""
    return int.from_bytes(_peer(connection)[_INT : 2 * _INT], _order())


def _peer(connection: socket) -> bytes:
    """Return the process, user and group at the other end."""
    from _socket import SO_PEERCRED  # late: on a Mac, `castoff launch` loads this module to refuse

    return connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 3 * _INT)


def send(connection: socket, value: "Any", files: "Sequence[int]" = ()) -> None:
    """Send a value together with open files.

    Raises:
        OSError: nobody reads the message.
    """
    body = marshal.dumps(value)
    data = memoryview(len(body).to_bytes(_HEAD, _order()) + body)
    rights = b"".join(file.to_bytes(_INT, _order()) for file in files)
    sent = connection.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, rights)] if files else [])
    if sent < len(data):
        connection.sendall(data[sent:])


def receive(connection: socket) -> "tuple[Any, list[int]]":
    """Receive the next value, and the open files that were sent with it.

    Raises:
        EOFError: the other end is gone. ValueError: the data is not a message of an agent or a client.
    """
    files: list[int] = []
    head = _exactly(connection, _HEAD, files)
    size = int.from_bytes(head, _order())
    if size > _LARGEST:
        raise ValueError(f"a message of {size} bytes")
    return marshal.loads(_exactly(connection, size, files)), files


def _exactly(connection: socket, size: int, files: list[int]) -> bytes:
    data = b""
    while len(data) < size:
        # Never read beyond this message, so that the next one's files come with its own head.
        part, rights, _, _ = connection.recvmsg(size - len(data), 8 * _INT + MOST_FILES * _INT)
        for level, kind, rights_data in rights:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                places = range(0, len(rights_data) - len(rights_data) % _INT, _INT)
                files += [int.from_bytes(rights_data[place : place + _INT], _order()) for place in places]
        if not part:
            raise EOFError
        data += part
    return data


def _order() -> "Any":
    import sys

    return sys.byteorder
