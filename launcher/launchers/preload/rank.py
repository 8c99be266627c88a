"""The process that represents a rank: it passes its files and settings to the rank's program, forwards
signals, and ends as the program does.
"""

import errno
import os
import resource
import select
import sys
import time

from .messages import MOST_FILES, peer_user, receive, send, unix_socket

TYPE_CHECKING = False  # `typing` would cost each rank some time
if TYPE_CHECKING:
    import signal as _signal
    from _socket import socket
    from collections.abc import Sequence
    from typing import Any, NoReturn
else:
    import _signal  # `signal` would cost each rank some time

APPEARS = 60.0
"""Seconds to wait for the node's agent to appear: a launcher starts the agent just before the ranks."""
READY = 900
"""Seconds to wait until the agent has imported all modules. A plain start would need the same time."""
_POLL = 0.02

_KEPT = frozenset(
    {
        *(_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGXFSZ),
        *(_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGTRAP, _signal.SIGSYS),
        *(_signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU, _signal.SIGWINCH),
    }
)
"""Signals that this process handles itself; it forwards all others to the program."""
_ALL = _signal.valid_signals()


class PlainStart(Exception):
    """The command has to be started without the agent; the text says why."""

    def __init__(self, reason: str, aloud: bool = True):
        super().__init__(reason)
        self.aloud = aloud
        """Whether to report the reason to the user."""


def main(agent: str, gone: str, command: "Sequence[str]") -> "NoReturn":
    """Have an agent run the command.

    `agent`: the agent's address, with @ for the NUL of an abstract address. `gone`: a file that exists once
    no agent will appear any more; "" if there is no
    such file.
    """
    try:
        connection = _greeted(f"\0{agent[1:]}" if agent[0] == "@" else agent, gone)
        program = _handed_over(connection, command)
    except PlainStart as plain:
        if plain.aloud:
            _report(f"{plain}; this rank starts without preload")
        _become(command)
    except (OSError, EOFError, ValueError) as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            _report(f"the node's preload ended ({error or 'no answer'}); this rank starts without preload")
        _become(command)
    _name_after(program)
    _end_as(_waited_for(connection, program))


def _name_after(program: int) -> None:
    """Name this process after the process that runs its program (proc(5), comm: 15 characters)."""
    try:
        file = os.open("/proc/self/comm", os.O_WRONLY)
    except OSError:  # the name only helps others to find the program
        return
    os.write(file, f"castoff:{program}".encode())
    os.close(file)


def _report(text: str) -> None:
    os.write(2, f"castoff: preload: {text}\n".encode("utf-8", "replace"))


def _greeted(address: str, gone: str) -> "socket":
    """Return a connection to an agent that has imported all modules and runs the same Python."""
    connection = _connected(address, gone)
    if peer_user(connection) != os.geteuid():
        raise PlainStart("another user has this job's address")
    waiter = select.poll()
    waiter.register(connection, select.POLLIN)
    if not waiter.poll(READY * 1000):
        raise PlainStart(f"the imports have taken more than {READY} s")
    (python, reason, aloud), _ = receive(connection)
    if reason is not None:
        raise PlainStart(reason, aloud)
    if python != [sys.version, sys.executable]:
        raise PlainStart(f"this rank's Python is {sys.executable}, and not {python[1]}")
    return connection


def _connected(address: str, gone: str) -> "socket":
    deadline = time.monotonic() + APPEARS
    while True:
        connection = unix_socket()
        try:
            connection.connect(address)
        except OSError as error:
            if error.errno not in (errno.ECONNREFUSED, errno.ENOENT, errno.EAGAIN):
                raise
            if time.monotonic() > deadline or (gone and os.path.exists(gone)):
                hint = f" (see {os.path.dirname(gone)}/preload.log)" if gone else ""
                aloud = os.environ.get("LOCAL_RANK", "0") == "0"
                raise PlainStart(f"no process imports modules for this node's ranks{hint}", aloud) from error
        else:
            return connection
        time.sleep(_POLL)


def _handed_over(connection: "socket", command: "Sequence[str]") -> int:
    """Send the agent what the program needs from this process; return the id of the process that runs the
    program.
    """
    files = [file for file in _open_files() if file != connection.fileno()]
    if len(files) > MOST_FILES:
        raise PlainStart(f"this rank inherits {len(files)} open files")
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _ALL - _KEPT)
    try:
        send(connection, _own(command, files, mask), files)
        (program, reason, aloud), _ = receive(connection)
    except BaseException:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        raise
    if reason is not None:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        raise PlainStart(reason, aloud)
    assert isinstance(program, int)
    return program


def _open_files() -> list[int]:
    files = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                files.append(int(name))
        except OSError:  # the file that listed the folder
            continue
    return sorted(files)


def _own(command: "Sequence[str]", files: "Sequence[int]", mask: "Any") -> dict[str, "Any"]:
    """Return what a program would inherit if this process executed it."""
    os.umask(umask := os.umask(0o077))
    ignored = [number for number in _ALL if _signal.getsignal(number) == _signal.SIG_IGN]
    return {
        "command": [*map(os.fsencode, command)],
        "folder": os.getcwdb(),
        "environment": [*os.environb.items()],
        "files": [*files],
        "umask": umask,
        "limits": limits(),
        "cores": sorted(os.sched_getaffinity(0)),
        "ignored": [int(number) for number in ignored if number not in (_signal.SIGPIPE, _signal.SIGXFSZ)],
        "blocked": [int(number) for number in mask],
        "devices": usable_devices(),
        "memory": memory_policy(),
    }


def limits() -> "dict[int, tuple[int, int]]":
    """Return this process's soft and hard limits, by the numbers of the limits."""
    numbers = {number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}
    return {number: resource.getrlimit(number) for number in numbers}


_DEVICES = (
    ("/dev", ("nvidia", "kfd", "accel")),
    ("/dev/nvidia-caps", ("nvidia-cap",)),  # parts of one NVIDIA device (MIG)
    ("/dev/dri", ("render",)),
)


def usable_devices() -> list[str]:
    """Return the device files that this process may open: if Slurm limits them, those of its control
    group.
    """
    usable = []
    for folder, begins in _DEVICES:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        paths = [f"{folder}/{name}" for name in names if name.startswith(begins)]
        usable += [path for path in paths if os.access(path, os.R_OK | os.W_OK)]
    return sorted(usable)


def memory_policy() -> bytes:
    """Return this process's NUMA memory policy, as numactl or srun has set it."""
    try:
        file = os.open("/proc/self/numa_maps", os.O_RDONLY)
    except OSError:  # a kernel without NUMA
        return b""
    try:
        words = os.read(file, 256).split(None, 2)
    finally:
        os.close(file)
    return words[1] if len(words) > 1 else b""


def _waited_for(connection: "socket", program: int) -> int:
    """Wait for the program to end, and forward signals to it; return its end as `os.waitpid` reports it."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    _signal.set_wakeup_fd(writing)
    for number in _ALL - _KEPT:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            try:
                _signal.signal(number, lambda *_: None)
            except (OSError, ValueError):  # glibc reserves some signals
                continue
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
    waiter = select.poll()
    waiter.register(reading, select.POLLIN)
    waiter.register(connection, select.POLLIN)
    while True:
        ready = [file for file, _ in waiter.poll()]
        if reading in ready:
            for received in os.read(reading, 4096):
                _pass_on(program, received)
        if connection.fileno() in ready:
            try:
                (status, _, _), _ = receive(connection)
            except (EOFError, OSError):
                _report("the node's preload was ended, and this rank with it")
                return int(_signal.SIGKILL)
            return int(status)


def _pass_on(program: int, number: int) -> None:
    try:
        os.kill(program, number)
    except ProcessLookupError:  # the program has ended, and the agent will report how
        pass


def _end_as(status: int) -> "NoReturn":
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written its own core file
        if number != _signal.SIGKILL:
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def _become(command: "Sequence[str]") -> "NoReturn":
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores these from its start
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execvp(command[0], [*command])
    except OSError as error:
        os.write(2, f"castoff: {command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127 if error.errno == errno.ENOENT else 126)
