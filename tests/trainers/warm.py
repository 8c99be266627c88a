"""A process that has imported torch and forks ranks from itself: a fresh interpreter takes seconds.

`python -m tests.trainers.warm SOCKET` answers each connection with a new process. The connection
brings what to run, and then tells the pid and, when it is over, the exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import multiprocessing
import os
import pickle
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

IMPORTED = ("torch", "torch._dynamo", "numpy.random", "psutil", "pytest", "hypothesis", "trainers.ddp")
"""What ranks need, some of it only when the first optimizer is made."""


class Job(NamedTuple):
    """What a rank runs, and where what it says goes."""

    function: Path
    """Pickled, with its arguments."""
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
                told = self._connection.recv(100)
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"rank of pid {self.pid}", timeout or 0) from None
            self.returncode = int(told)
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


@cache
def _server() -> str:
    """The address of this test run's server, which ends with it."""
    folder = tempfile.TemporaryDirectory(prefix="castoff-ranks-")
    address = Path(folder.name) / "socket"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-m", __name__, str(address)], env=environ)

    def end() -> None:
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    while not address.exists():
        assert process.poll() is None, "the server of warm ranks did not start"
        time.sleep(0.01)
    return str(address)


class _Launcher(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Start what is asked for, and wait for it: this is a fork of the server already."""
        job: Job = pickle.loads(self.rfile.read())
        rank = multiprocessing.get_context("fork").Process(target=_become, args=(job,))
        rank.start()
        self.wfile.write(f"{rank.pid}\n".encode())
        rank.join()
        self.wfile.write(f"{rank.exitcode}\n".encode())


def _become(job: Job) -> None:
    os.setsid()
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.clear()
    os.environ.update(job.environ)
    os.chdir(job.folder)
    perform(job.function, job.answer)


class _Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    def __init__(self, address: Any, handler: Any):
        self._started_by = os.getppid()
        super().__init__(address, handler)

    def service_actions(self) -> None:
        """End with the test run, however that ends."""
        super().service_actions()
        if os.getppid() != self._started_by:
            raise SystemExit(1)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # else the first collection of each rank copies all pages that these lie on
    draft = f"{sys.argv[1]}.draft"
    with _Server(draft, _Launcher) as server:
        Path(draft).rename(sys.argv[1])  # whoever sees it may connect
        server.serve_forever()
