"""Stands in for a Flux instance, as a real flux-core 0.88.0 behaved: its brokers, not flux run, start ranks.

flux run hands TERM on to them; the second INT within 2 s cancels its job, which then gets TERM and soon KILL;
and where it is killed itself, they go on. One that fails has the others ended.

With STUB_FROZEN, a host, that one's broker does not answer: flux exec then shows nothing of any host, and a
timeout has to kill it.

With STUB_NODES, it has so many hosts. With a file `lost` beside its socket, the broker that started the
script has gone: nobody answers for the parent instance. With a file `down`, only its first host is up.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import patience

ANSWERS = Path(__file__).parents[1] / "answers" / "flux"
ENVIRONMENT = {"FLUX_ENCLOSING_ID": "ƒMU7MvhV"}
HOSTS = ["fx0", "fx1", "fx2"]
KILL_TIMEOUT = 0.5
"""Seconds between TERM and KILL of what is cancelled; by default they are 5."""


class Instance:
    """That of an allocation with three hosts; `uri` goes into FLUX_URI."""

    def __init__(self, folder: Path):
        self.uri = str(folder / "flux.socket")
        self.calls: list[list[str]] = []
        self.ranks: list[subprocess.Popen[bytes]] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.uri)
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._run, args=(client,), daemon=True).start()

    def _run(self, client: socket.socket) -> None:
        with client, client.makefile("r") as said:
            job: dict[str, Any] = json.loads(said.readline())
            self.calls.append(job["options"])
            ranks = [self._start(job, rank) for rank in range(job["size"])]
            self.ranks += ranks
            threading.Thread(target=self._obey, args=(said, ranks), daemon=True).start()
            codes: list[int] = []
            while len(codes) < len(ranks):
                time.sleep(0.02)
                codes = [code for code in (rank.poll() for rank in ranks) if code is not None]
                if any(codes):
                    _send(ranks, signal.SIGTERM)
            with contextlib.suppress(OSError):
                client.sendall(f"{max(128 - code if code < 0 else code for code in codes)}\n".encode())
                client.shutdown(socket.SHUT_RDWR)

    def _start(self, job: dict[str, Any], rank: int) -> subprocess.Popen[bytes]:
        each = -(-job["size"] // job["nodes"])
        own = {"FLUX_TASK_RANK": rank, "FLUX_TASK_LOCAL_ID": rank % each, "FLUX_JOB_SIZE": job["size"]}
        environ = {**job["environ"], **{name: str(value) for name, value in own.items()}}
        environ["FLUX_JOB_NNODES"] = str(job["nodes"])
        return subprocess.Popen(
            job["program"], env=environ, cwd=job["cwd"], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _obey(self, said: Any, ranks: list[subprocess.Popen[bytes]]) -> None:
        with contextlib.suppress(ValueError, OSError):
            for line in said:
                _send(ranks, signal.SIGTERM)
                if line == "cancel\n":
                    time.sleep(KILL_TIMEOUT)
                    _send(ranks, signal.SIGKILL)

    def close(self) -> None:
        """End it with all that it runs."""
        self._server.close()
        _send(self.ranks, signal.SIGKILL)
        for rank in self.ranks:
            rank.wait(patience.SECONDS)


def _send(ranks: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    """To what each has started as well."""
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, number)


@contextlib.contextmanager
def instance(folder: Path) -> Iterator[Instance]:
    """One that ends with the block."""
    made = Instance(folder)
    try:
        yield made
    finally:
        made.close()


def main(words: list[str]) -> int:
    """The command flux."""
    if words[0] == "--parent" and Path(os.environ["FLUX_URI"]).with_name("lost").exists():
        print("flux: ERROR: Unable to connect to Flux: Connection refused", file=sys.stderr)
        return 1
    if words[0] == "--parent":
        print("/")
    elif words == ["getattr", "hostname"]:
        print(os.environ["STUB_HOST"])
    elif words[0] == "getattr":
        print((ANSWERS / "jobid-path.txt").read_text(), end="")
    elif words[:2] == ["resource", "R"]:
        print((ANSWERS / "resource-R.json").read_text(), end="")
    elif words[:2] == ["hostlist", "-F"]:
        print(*[HOSTS.index(host) for host in words[2].split(",")])
    elif words[:2] == ["resource", "list"]:
        print(HOSTS[0] if Path(os.environ["FLUX_URI"]).with_name("down").exists() else ",".join(HOSTS))
    elif words[0] == "hostlist" and words[-1] != "local":
        print(*words[-1].split(","), sep="\n")
    elif words[0] == "hostlist":
        print(*HOSTS[: int(os.environ.get("STUB_NODES", "3"))], sep="\n")
    elif words[0] == "job":
        print({"id": "779167465472", "timeleft": "599"}[words[1]])
    elif words[:2] == ["exec", "--noinput"]:
        return _exec([HOSTS[int(rank)] for rank in words[2].removeprefix("--rank=").split(",")], words[3:])
    elif words[0] == "run":
        return _run(words[1:])
    return 0


def _exec(hosts: list[str], program: list[str]) -> int:
    if os.environ.get("STUB_FROZEN") in hosts:
        return 137
    started = [subprocess.Popen(program, env={**os.environ, "STUB_HOST": host}) for host in hosts]
    return max(one.wait() for one in started)


def _run(words: list[str]) -> int:
    at = next(at for at, word in enumerate(words) if not word.startswith("-"))
    options = dict(word.split("=", 1) for word in words[:at] if "=" in word)
    job = {
        "options": words[:at],
        "program": words[at:],
        "nodes": int(options["--nodes"]),
        "size": int(options["--ntasks"]),
        "environ": dict(os.environ),
        "cwd": str(Path.cwd()),
    }
    with socket.socket(socket.AF_UNIX) as broker:
        broker.connect(os.environ["FLUX_URI"])
        interrupted = [-9.0]

        def on_interrupt(*_: object) -> None:
            again = time.monotonic() - interrupted[0] < 2
            interrupted[0] = time.monotonic()
            if again:
                broker.sendall(b"cancel\n")

        signal.signal(signal.SIGINT, on_interrupt)
        signal.signal(signal.SIGTERM, lambda *_: broker.sendall(b"TERM\n"))
        broker.sendall(json.dumps(job).encode() + b"\n")
        with broker.makefile("r") as said:
            return int(said.readline())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
