"""A process that has imported torch and forks ranks from itself: a fresh interpreter takes seconds.

`python -m tests.trainers.warm SOCKET` answers each connection with a new process. The connection
brings what to run, and then tells the pid and, when it is over, the exit code. What the module of a function
imports, as torch_geometric, which takes seconds too, is imported before the first of its ranks is forked.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import importlib
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

IMPORTED = (
    "torch",
    "torch._dynamo",
    "numpy.random",
    "psutil",
    "pytest",
    "hypothesis",
    "castoff.trainers.ddp",
)
"""What ranks need, some of it only when the first optimizer is made."""


class Job(NamedTuple):
    """What a rank runs, and where what it says goes."""

    function: Path
    """Pickled, with its arguments."""
    module: str
    """The function's own: what it imports is imported once for all ranks that run something of it."""
    answer: Path
    log: Path
    environ: dict[str, str]
    folder: str


def perform(function: Path, answer: Path) -> None:
    """Run a pickled function on this rank, and keep what it gives."""
    import torch

    torch.set_num_threads(1)
    with function.open("rb") as file:
        called, arguments = pickle.load(file)
    given = called(*arguments)
    with answer.open("wb") as file:
        pickle.dump(given, file)


class ForkedRank:
    """A process of the warm server; as much of subprocess.Popen as the tests use."""

    def __init__(self, job: Job):
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server())
        self._connection.sendall(pickle.dumps(job))
        self._connection.shutdown(socket.SHUT_WR)
        with self._connection.makefile("rb", buffering=0) as line:  # the exit code may be there already
            self.pid = int(line.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        try:
            return self.wait(0.001)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                given = self._connection.recv(100)
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"rank of pid {self.pid}", timeout or 0) from None
            self.returncode = int(given)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To it alone, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


TEST_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone-{os.getpid()}")
"""What all test processes of a test run have in common."""


@cache
def _server(test_run: str = TEST_RUN) -> str:
    """The address of this test run's server: its first user starts it, and it ends with its last."""
    folder = Path(tempfile.gettempdir(), f"castoff-ranks-{test_run}")
    while True:
        with suppress(FileNotFoundError):  # the last user of a server has just ended, and the folder with it
            return _join(folder)


def _join(folder: Path) -> str:
    folder.mkdir(mode=0o700, exist_ok=True)
    address = folder / "socket"
    users = os.open(folder / "users", os.O_WRONLY | os.O_CREAT)  # open, thus locked, until this process ends
    fcntl.flock(users, fcntl.LOCK_SH)
    with (folder / "starting").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not address.exists():
            _start_server(address)
    return str(address)


def _start_server(address: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, "-m", __name__, str(address)]
    pid = os.posix_spawn(sys.executable, words, environ)  # a Popen would be missed when it outlives this
    while not address.exists():
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the server of warm ranks did not start"
        time.sleep(0.01)


def _become(job: Job) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    faulthandler.enable()  # else a crash leaves an empty log
    os.environ.clear()
    os.environ.update(job.environ)
    os.chdir(job.folder)
    perform(job.function, job.answer)


class _Server(socketserver.UnixStreamServer):
    def __init__(self, address: str):
        super().__init__(address, socketserver.BaseRequestHandler)
        self._ranks: list[tuple[multiprocessing.process.BaseProcess, Any]] = []
        """Those that run, each with the connection of whoever asked for it."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Fork the rank that is asked for, with what the ranks of a test module all need imported before."""
        with request.makefile("rb") as asked:
            job: Job = pickle.loads(asked.read())
        if job.module not in sys.modules:
            with suppress(BaseException):  # the rank says what is wrong with it
                importlib.import_module(job.module)
            gc.freeze()
        rank = multiprocessing.get_context("fork").Process(target=_become, args=(job,))
        rank.start()
        request.sendall(f"{rank.pid}\n".encode())
        self._ranks.append((rank, request))
        self.report()  # its end, if that came too soon for its signal to find it

    def report(self, *_: object) -> None:
        """Tell who asked for them the exit codes of ranks that have ended."""
        for entry in [*self._ranks]:
            rank, connection = entry
            if rank.exitcode is not None and entry in self._ranks:
                self._ranks.remove(entry)
                with suppress(OSError), connection:  # nobody may be left who waits
                    connection.sendall(f"{rank.exitcode}\n".encode())

    def service_actions(self) -> None:
        """End with the last test process that uses it, however that ends."""
        super().service_actions()
        folder = Path(str(self.server_address)).parent
        with (folder / "users").open() as users, suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
            raise SystemExit


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # else the first collection of each rank copies all pages that these lie on
    draft = f"{sys.argv[1]}.draft"
    with _Server(draft) as server:
        signal.signal(signal.SIGCHLD, server.report)
        Path(draft).rename(sys.argv[1])  # whoever sees it may connect
        server.serve_forever()
