"""The `castoff` command line, as a function and as a process.

A Python of its own takes ten times as long to start as most verbs take to do their work.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from castoff.launcher.cli import main as cli
from tests import patience

COMMAND = Path(sys.executable).parent / "castoff"
"""The console script beside the interpreter that runs the tests."""

_PROCESSES = ("launch", "train")
"""Verbs that need a process of their own: one adopts what its ranks leave behind, one becomes the trainer."""

_HEARD = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


NO_BYTECODE = "export PYTHONDONTWRITEBYTECODE=1"
"""For a shell whose files may not grow: what Python would write of a module would be cut, and stay so."""


class Castoff(Protocol):
    """Runs `castoff` with these words, as a user would."""

    def __call__(
        self,
        *args: str | Path,
        cwd: str | Path | None = None,
        env: Mapping[str, str | None] | None = None,
        input: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """`env` is laid over the test's environment; None as a value removes that variable."""
        ...


def environment(env: Mapping[str, str | None] | None) -> dict[str, str]:
    """The test's environment with `env` laid over it."""
    merged: dict[str, str | None] = {**os.environ, **(env or {})}
    return {name: value for name, value in merged.items() if value is not None}


def start(
    *args: str | Path,
    cwd: str | Path,
    env: Mapping[str, str | None] | None = None,
    input: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    return subprocess.run(
        [str(COMMAND), *map(str, args)],
        cwd=cwd,
        env=environment(env),
        timeout=patience.SECONDS,
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        check=False,
    )


def call(
    *args: str | Path,
    cwd: str | Path,
    env: Mapping[str, str | None] | None = None,
    input: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """The command line in this process, whose environment, directory, streams and handlers are lent to it.

    What it starts gets them, too. An error that the command does not handle is raised here. Verbs that need a
    process of their own get one.
    """
    words = [os.fsdecode(word) for word in args]
    if words and words[0] in _PROCESSES:
        return start(*words, cwd=cwd, env=env, input=input)
    with (
        _Output(1) as output,
        _Output(2) as errors,
        _input(input or ""),
        _lent(environment(env), cwd, [str(COMMAND), *words]),
    ):
        code = _code(words)
    return subprocess.CompletedProcess(["castoff", *words], code, output.text, errors.text)


def starting_in(folder: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> Castoff:
    """`call` or `start`, in a folder that need not be said again."""

    def castoff(
        *args: str | Path,
        cwd: str | Path | None = None,
        env: Mapping[str, str | None] | None = None,
        input: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return run(*args, cwd=cwd or folder, env=env, input=input)

    return castoff


def _code(words: list[str]) -> int:
    """The exit code, which the console script makes of it the same way."""
    try:
        cli.main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


@contextlib.contextmanager
def _lent(environ: Mapping[str, str], cwd: str | Path, argv: list[str]) -> Iterator[None]:
    """The process with these, until it gets its own back."""
    own, folder, words = dict(os.environ), os.open(".", os.O_RDONLY), sys.argv
    handlers = {number: signal.getsignal(number) for number in _HEARD}
    try:
        os.chdir(cwd)
        _become(environ)
        sys.argv = argv
        yield
    finally:
        sys.argv = words
        _become(own)
        os.fchdir(folder)
        os.close(folder)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _become(environ: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)


@contextlib.contextmanager
def _input(text: str) -> Iterator[None]:
    """A file as standard input."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        with _stream(0, file.fileno()):
            yield


class _Output:
    """A pipe as a standard stream, read until the last process that got it is gone, as `subprocess` does."""

    def __init__(self, number: int):
        self.text = ""
        self._number = number
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> _Output:
        read_end, write_end = os.pipe()
        reader = threading.Thread(target=self._read, args=[read_end])
        reader.start()
        self._stack.callback(reader.join)
        self._stack.enter_context(_stream(self._number, write_end))
        os.close(write_end)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _read(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8") as pipe:
            self.text = pipe.read()


@contextlib.contextmanager
def _stream(number: int, descriptor: int) -> Iterator[None]:
    """A standard stream, both its descriptor and what `sys` has for it, that leads to another descriptor."""
    name, mode, errors = (
        ("stdin", "rb", "strict"),
        ("stdout", "wb", "strict"),
        ("stderr", "wb", "backslashreplace"),
    )[number]
    before = getattr(sys, name)
    if number:
        before.flush()
    kept = os.dup(number)
    os.dup2(descriptor, number)
    stream = io.TextIOWrapper(os.fdopen(number, mode, closefd=False), "utf-8", errors)
    setattr(sys, name, stream)
    try:
        yield
    finally:
        setattr(sys, name, before)
        try:
            stream.close()
        finally:
            os.dup2(kept, number)
            os.close(kept)
