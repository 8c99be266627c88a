"""Makes a copy of the agent like its client: session, files, folder, environment, cores, threads."""

import contextlib
import fcntl
import io
import os
import resource
import signal
import socket
import sys

from .rank import limits

TYPE_CHECKING = False  # `typing` would cost each start some time
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any

_PR_SET_PDEATHSIG = 1
_OF_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores from its start."""


class Unfit(Exception):
    """This process cannot run the program as Python itself would; the text says why."""

    def __init__(self, reason: str, aloud: bool = True):
        super().__init__(reason)
        self.aloud = aloud
        """Whether to report the reason to the user: not if Python itself will report it."""


def _die_with(agent: int) -> None:
    """Have the kernel kill this process when the agent ends, for whatever reason."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != agent:
        os.kill(os.getpid(), signal.SIGKILL)


def take_over(
    state: "Mapping[str, Any]", files: "Sequence[int]", connection: socket.socket, agent: int
) -> socket.socket:
    """Replace the agent's session and open files by the client's; return the connection, renumbered above
    the client's files.
    """
    os.setsid()
    _die_with(agent)
    above = max([2, *state["files"]]) + 1
    moved_connection = fcntl.fcntl(connection.detach(), fcntl.F_DUPFD_CLOEXEC, above)
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for file in files]
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (moved_connection, *moved):
            with contextlib.suppress(OSError):  # the file that listed the folder
                os.close(int(name))
    for source, target in zip(moved, state["files"], strict=True):
        os.dup2(source, target)
        os.close(source)
    return socket.socket(fileno=moved_connection)


def adapt(state: "Mapping[str, Any]", environment: "Mapping[bytes, bytes]") -> None:
    """Take over the rest of the client's state. `environment`: the agent's environment at its start.

    Raises:
        Unfit: the kernel does not allow it.
    """
    try:
        os.chdir(state["folder"])
        current = limits()
        for number, wanted in state["limits"].items():
            if wanted != current[number]:
                resource.setrlimit(number, wanted)
        before = os.sched_getaffinity(0)
        if {*state["cores"]} != before:
            os.sched_setaffinity(0, state["cores"])
    except (OSError, ValueError) as error:
        raise Unfit(f"it cannot take over this rank's folder, limits and cores: {error}") from error
    if {*state["cores"]} != os.sched_getaffinity(0):  # the kernel leaves out cores of other control groups
        raise Unfit("this rank may run on cores that the process with the imports may not use")
    os.umask(state["umask"])
    _take_environment(state)
    _take_signals(state)
    _take_streams()
    _take_threads(_threads(environment, len(before)), _threads(os.environb, len(state["cores"])))
    _be_random()
    _be_main_process()


def _take_environment(state: "Mapping[str, Any]") -> None:
    wanted = dict(state["environment"])
    for name in [name for name in os.environb if name not in wanted]:
        del os.environb[name]
    for name, value in wanted.items():
        if os.environb.get(name) != value:
            os.environb[name] = value


def _take_signals(state: "Mapping[str, Any]") -> None:
    """Ignore the signals that the client was started to ignore; handlers set by imports stay."""
    for number in signal.valid_signals() - {*_OF_PYTHON}:
        if number in state["ignored"]:
            signal.signal(number, signal.SIG_IGN)
        elif signal.getsignal(number) == signal.SIG_IGN:
            of_python = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, of_python)
    signal.pthread_sigmask(signal.SIG_SETMASK, state["blocked"])


def _take_streams() -> None:
    """Recreate the standard streams in place, because imported modules may hold them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: Any = getattr(sys, name)
        if stream is None or not _is_open(number):
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
            continue
        buffer = stream.buffer
        raw: Any = io.FileIO(number, "rb" if name == "stdin" else "wb", closefd=False)
        raw.name = f"<{name}>"
        if unbuffered := isinstance(buffer, io.FileIO):
            buffer = raw
        else:
            buffer.__init__(raw)
        encoding, errors, through = stream.encoding, stream.errors, stream.write_through
        lines = (raw.isatty() or number == 2) and not unbuffered
        stream.__init__(buffer, encoding, errors, "\n", lines, through)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _threads(environment: "Mapping[bytes, bytes]", cores: int) -> "tuple[int, int]":
    """Return the numbers of threads of OpenMP and OpenBLAS in a Python with this environment and cores."""
    of_openmp = _first_number(environment.get(b"OMP_NUM_THREADS", b""))
    of_openblas = [
        _first_number(environment.get(name, b"")) for name in (b"OPENBLAS_NUM_THREADS", b"GOTO_NUM_THREADS")
    ]
    return of_openmp or cores, min(
        next((number for number in (*of_openblas, of_openmp) if number), cores), cores
    )


def _first_number(text: bytes) -> int:
    first = text.partition(b",")[0].strip()
    return int(first) if first.isdigit() else 0


def _take_threads(had: "tuple[int, int]", wanted: "tuple[int, int]") -> None:
    torch = sys.modules.get("torch")
    if torch is not None and had[0] != wanted[0]:
        torch.set_num_threads(wanted[0])
    if wanted[1] > 1:  # the agent loaded OpenBLAS with one thread
        _set_openblas_threads(wanted[1])


def _set_openblas_threads(number: int) -> None:
    """Set the number of threads in each loaded copy of OpenBLAS: numpy and scipy each have one."""
    import ctypes

    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        libraries = {line.split(None, 5)[5].strip() for line in maps if "openblas" in line.rpartition("/")[2]}
    for path in libraries:
        library = ctypes.CDLL(path)
        for name in ("openblas_set_num_threads", "openblas_set_num_threads64_"):
            for function in (name, f"scipy_{name}"):
                if hasattr(library, function):
                    getattr(library, function)(number)


def _be_random() -> None:
    """Seed the random generators anew, as in a fresh process; Python itself reseeds `random`."""
    numpy: ModuleType | None = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def _be_main_process() -> None:
    """Correct what `multiprocessing` and `tempfile` remember of the process that imported them."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
        process.current_process().authkey = os.urandom(32)
    temporary: Any = sys.modules.get("tempfile")
    if temporary is not None:
        temporary.tempdir = None
