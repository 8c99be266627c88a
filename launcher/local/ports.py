"""A rendezvous port for one job on this host that no other start on it chooses meanwhile.

The port itself must stay unbound, because torch binds it later. So a start holds a *name* that
stands for the port, for as long as it lives. On Linux the name is an abstract Unix socket: it
belongs to the network namespace, exactly as ports do, so users, containers and jobs with different
temporary folders see the same ones; it vanishes with its holder and is no file anybody could
replace by a link. Elsewhere it is a locked file in a folder of the user's own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from launcher.errors import CastoffError

LOWEST_PORT = 20000
PORTS = 10000


class PortReservation:
    """A port that no other start on this host chooses until `close`."""

    def __init__(self, port: int, release: Callable[[], None]):
        self.port = port
        """A TCP port that was free when it was chosen and that nothing here has bound."""
        self._release = release

    def close(self) -> None:
        """Let others choose this port again."""
        self._release()

    def __enter__(self) -> PortReservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def first_port(job_id: str) -> int:
    """The port that `job_id` stands for, before any is found to be taken."""
    return LOWEST_PORT + zlib.crc32(os.fsencode(job_id)) % PORTS


def reserve_port(job_id: str) -> PortReservation:
    """Reserve a free port: the one that `job_id` stands for, or the next that can be had.

    Raises:
        CastoffError: every port of the range is taken, or the folder of reservations is unsafe.
    """
    reserve = _hold_name if sys.platform == "linux" else _hold_file
    wanted = first_port(job_id) - LOWEST_PORT
    for step in range(PORTS):
        port = LOWEST_PORT + (wanted + step) % PORTS
        release = reserve(port)
        if release is None:
            continue
        if _is_free(port):
            return PortReservation(port, release)
        release()
    raise CastoffError(
        f"every port of {LOWEST_PORT}-{LOWEST_PORT + PORTS - 1} on this host is taken; "
        "`ss -tlnp` shows by whom"
    )


def reserve_given_port(port: int) -> PortReservation:
    """Reserve a port that somebody has chosen, for other hosts know it already.

    Raises:
        CastoffError: another start has it, or a program uses it.
    """
    reserve = _hold_name if sys.platform == "linux" else _hold_file
    release = reserve(port)
    if release is not None:
        if _is_free(port):
            return PortReservation(port, release)
        release()
    raise CastoffError(
        f"port {port} is taken on this host (`ss -tlnp` shows by whom); give all hosts another one"
    )


def _is_free(port: int) -> bool:
    """Whether torch could bind `port` now, on every address as its store does.

    Without SO_REUSEADDR, so that a port whose last connections still linger counts as taken.
    """
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # this host has no IPv6
            continue
        with probe:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:  # IPv6 is there, but switched off
                    continue
                return False
    return True


def _hold_name(port: int) -> Callable[[], None] | None:
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        holder.bind(f"\0castoff-port-{port}")
    except OSError as error:
        holder.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return holder.close


def _hold_file(port: int, parent: Path | None = None) -> Callable[[], None] | None:
    import tempfile  # not needed on Linux

    folder = _own_folder(parent or Path(tempfile.gettempdir()))
    # The file is left behind: to remove it while another start waits for its lock would let two
    # starts hold "the same" file.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        holder = os.open(folder / f"port-{port}", flags, 0o600)
    except OSError as error:
        raise CastoffError(f"cannot reserve port {port}: {error}") from error
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(holder)
        return None
    return lambda: os.close(holder)


def _own_folder(parent: Path) -> Path:
    """A 0700 folder of this user's in `parent`, which others may write to as well."""
    folder = parent / f"castoff-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise CastoffError(f"cannot reserve a port: {error}") from error
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not private or found.st_uid != os.getuid():
        raise CastoffError(
            f"{folder} is not a folder of yours that only you can enter; castoff keeps its port "
            "reservations there. Remove it, or set TMPDIR to a folder of your own"
        )
    return folder
