"""Starting ranks in this process, or in a process of their own that a test may signal or kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import psutil
import pytest

from castoff.launcher.launchers.local.start import StartRequest, start_ranks
from tests import patience

# Signals may be ignored in whatever runs the tests; a launcher keeps those ignored.
_DRIVER = """
import json, os, signal, sys
from pathlib import Path
from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local import processes, supervision
from castoff.launcher.launchers.local.start import StartRequest, start_ranks
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
fields = json.loads(sys.argv[1])
supervision._ECHO = fields.pop("echo", supervision._ECHO)
processes.GRACE = supervision.GRACE = fields.pop("grace", processes.GRACE)
for name in ("workdir", "log_dir", "failure_file"):
    fields[name] = fields[name] and Path(fields[name])
request = StartRequest(environment=dict(os.environ), **fields)
try:
    code = start_ranks(request, output=sys.stdout.buffer, messages=sys.stderr)
except CastoffError as error:
    sys.exit(f"{error.exit_code}: {error}")
sys.exit(code)
"""


class Outcome(NamedTuple):
    code: int
    output: str
    messages: str


def request(command: list[str], ranks: int = 2, **fields: Any) -> StartRequest:
    defaults: dict[str, Any] = dict.fromkeys(StartRequest._fields) | StartRequest._field_defaults
    environment = {"PATH": os.environ["PATH"], **fields.pop("environment", {})}
    defaults |= {"command": command, "ranks": ranks, "environment": environment}
    defaults["job_id"] = str(os.getpid())
    return StartRequest(**(defaults | fields))


@pytest.fixture
def run(for_real: None) -> Callable[..., Outcome]:
    """Start ranks in this process."""

    def start(command: list[str], ranks: int = 2, **fields: Any) -> Outcome:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile("w+") as messages:
            code = start_ranks(request(command, ranks, **fields), output=output, messages=messages)
            output.seek(0)
            messages.seek(0)
            return Outcome(code, output.read().decode("utf-8", "replace"), messages.read())

    return start


@pytest.fixture
def spawn(for_real: None) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start ranks in a process of their own; whatever of it is left is killed at the end.

    `echo`: seconds within which a repeated signal is a copy; `grace`: those between TERM and KILL.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], ranks: int = 2, **options: Any) -> subprocess.Popen[bytes]:
        fields = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in request(command, ranks)._asdict().items()
            if name != "environment"
        }
        for name in [name for name in options if name in fields]:
            value = options.pop(name)
            fields[name] = str(value) if isinstance(value, Path) else value
        fields |= {name: options.pop(name) for name in ("echo", "grace") if name in options}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        driver = [sys.executable, "-c", _DRIVER, json.dumps(fields)]
        process = cast("subprocess.Popen[bytes]", subprocess.Popen(driver, **options))
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            family = psutil.Process(process.pid)
            for one in [*family.children(recursive=True), family]:
                one.send_signal(signal.SIGKILL)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()


def finish(process: subprocess.Popen[bytes]) -> Outcome:
    """The end of a launcher that `spawn` started."""
    output, messages = process.communicate(timeout=patience.SECONDS)
    return Outcome(process.returncode, (output or b"").decode("utf-8", "replace"), (messages or b"").decode())


def gone(pid: int) -> bool:
    """Whether no living process has this id."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pids(folder: Path, count: int) -> dict[str, int]:
    """The process ids in the files of `folder`, as soon as there are `count`."""

    def texts() -> dict[str, str]:
        return {path.name: path.read_text().strip() for path in folder.iterdir()}

    patience.until(lambda: len([text for text in texts().values() if text]) >= count)
    return {name: int(text) for name, text in texts().items()}


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", program, *map(str, arguments)]


def shell(program: str, *arguments: object) -> list[str]:
    return ["/bin/sh", "-c", program, "sh", *map(str, arguments)]


Run = Callable[..., Outcome]
Spawn = Callable[..., "subprocess.Popen[bytes]"]
