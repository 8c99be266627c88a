"""Runs schedulers' commands: their environment, their time limit, and their output."""

from __future__ import annotations

import codecs
import io
import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from castoff.launcher.ranks import is_stale
from castoff.launcher.schedulers.page import Page, Unreadable
from castoff.launcher.schedulers.variables import command_prefixes, machine_variables

Read = TypeVar("Read")
"""The result of parsing a command's output."""

_PREFIXES = ("PMI_", "PMIX_", "TORCHELASTIC_", "CASTOFF_")
"""Of variables about the job that this process is part of, whatever its scheduler."""

SETTINGS = ("CASTOFF_RUNS_DIR", "CASTOFF_SITE")
"""The CASTOFF_* variables that users set; all others belong to a job."""


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without variables that would change a scheduler's command, or make a job take itself
    for another.

    SBATCH_PARTITION in the environment wins over `#SBATCH --partition` (sbatch(1), input environment
    variables), and a job that is submitted from inside another would take the other's SLURM_ARRAY_TASK_ID
    or RANK for its own.
    """
    kept, dropped = (*SETTINGS, *machine_variables()), (*_PREFIXES, *command_prefixes())
    return {
        name: value
        for name, value in environ.items()
        if name in kept or not (is_stale(name) or name.startswith(dropped))
    }


PATIENCE = 30.0
"""Seconds to wait for an answer; a busy scheduler may need that long."""


LONGEST_PAGE = 512 << 20
"""The most bytes of an answer that is read in parts: enough for a queue of two million jobs."""

LONGEST_ANSWER = 128 << 20
"""The most bytes of an answer that is kept in memory: enough for a list of 50,000 nodes."""

_BEGINNING = 1 << 16
"""The number of bytes of an answer that are kept for an error message."""

_LONGEST_COMPLAINT = 1 << 20
"""The number of bytes of standard error that are kept."""

VERSION_PATIENCE = 5.0
"""Seconds to wait for a program's version."""


class SchedulerUnreachable(Exception):
    """A scheduler's command gave no answer; the text says why. `lasting`: it is useless to ask again from
    this host.
    """

    def __init__(self, why: str, *, lasting: bool = False):
        super().__init__(why)
        self.lasting = lasting


class Answering:
    """A running command, and the beginning of its output. The command may never end."""

    def __init__(self, process: subprocess.Popen[bytes], most: int):
        """Keep at most `most` bytes of the command's output."""
        self.output = bytearray()
        self.errors = bytearray()
        self._process = process
        self._open = [(process.stdout, self.output, most), (process.stderr, self.errors, _LONGEST_COMPLAINT)]

    def wait(self, seconds: float | None) -> None:
        """Wait until the command has ended and no process has its streams open; raises as `parts`."""
        for _ in self.parts(seconds):
            pass

    def parts(self, seconds: float | None) -> Iterator[bytes]:
        """Yield all of the command's output, until it has ended and no process has its streams open.

        Raises:
            subprocess.TimeoutExpired: the command takes longer; `parts` may be called again.
        """
        give_up = None if seconds is None else time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for stream, kept, most in self._open:
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, (stream, kept, most))
            while selector.get_map():
                left = None if give_up is None else give_up - time.monotonic()
                if left is not None and left <= 0:
                    raise subprocess.TimeoutExpired(self._process.args, seconds or 0.0)
                for key, _ in selector.select(left):
                    stream, kept, most = key.data
                    data = os.read(key.fd, 1 << 16)
                    kept += data[: most - len(kept)]
                    if data and kept is self.output:
                        yield data
                    if not data:
                        selector.unregister(stream)
                        stream.close()
                        self._open.remove(key.data)
        self._process.wait(None if give_up is None else max(0.1, give_up - time.monotonic()))


def answer_of(argv: list[str], patience: float, environ: Mapping[str, str]) -> str:
    """Run a command and return its output.

    Raises:
        SchedulerUnreachable: the command is not on PATH, fails, or takes too long.
    """
    done = run_to_end(argv, patience, environ)
    if done.returncode:
        raise SchedulerUnreachable(failure_of(done))
    return done.stdout


def failure_of(done: subprocess.CompletedProcess[str]) -> str:
    """Describe how a command failed, with the command's message."""
    lines = [" ".join(line.split()) for line in (done.stderr.strip() or done.stdout.strip()).splitlines()]
    # qstat repeats one sentence for each of its jobs.
    message = " ".join(dict.fromkeys(filter(None, lines))) or "without a message"
    message = message.encode("utf-8", "replace").decode()
    return f"{Path(done.args[0]).name} failed with exit code {done.returncode}: {message[:500]}"


def parsed_answer(
    argv: list[str], patience: float, environ: Mapping[str, str], read: Callable[[Page], Read]
) -> Read:
    """Run a command and return its output as parsed by `read`; raises the same errors as `answer_of`."""
    done, parsed = read_to_end(argv, patience, environ, read)
    if done.returncode:
        raise SchedulerUnreachable(failure_of(done))
    return parsed


def run_to_end(
    argv: list[str], patience: float, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a scheduler's command to its end and keep all of its output; raises as `read_to_end`."""
    done, text = read_to_end(argv, patience, environ, "".join, most=LONGEST_ANSWER)
    return subprocess.CompletedProcess(done.args, done.returncode, text, done.stderr)


def read_to_end(
    argv: list[str],
    patience: float,
    environ: Mapping[str, str],
    read: Callable[[Page], Read],
    *,
    most: int | None = None,
) -> tuple[subprocess.CompletedProcess[str], Read]:
    """Run a scheduler's command to its end, while `read` parses its output as it arrives.

    Return the command's result, with the beginning of its output, and the result of `read`, which means
    nothing if the command failed. `most`: the number of bytes that the command may print (default:
    `LONGEST_PAGE`).

    Raises:
        SchedulerUnreachable: the command is not on PATH, takes too long, or prints too much.
    """
    process = _start(argv, environ)
    answering = Answering(process, _BEGINNING)
    page = _decoded(answering.parts(patience), LONGEST_PAGE if most is None else most)
    with process:
        try:
            parsed = read(page)
            for _ in page:  # the rest of the output, which `read` did not need
                pass
        except subprocess.TimeoutExpired:
            raise SchedulerUnreachable(f"{argv[0]} gave no answer within {patience:g} s") from None
        except Unreadable as why:
            raise SchedulerUnreachable(f"{argv[0]} printed {why}, which is too long to read") from None
        finally:
            if process.returncode is None:
                process.kill()
    output, errors = (
        "".join(_decoded(iter([bytes(text)]), len(text))) for text in (answering.output, answering.errors)
    )
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors), parsed


def _start(argv: list[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command; raises as `read_to_end`."""
    import shutil

    program = shutil.which(argv[0], path=environ.get("PATH", ""))
    if program is None:
        raise SchedulerUnreachable(
            f"{argv[0]} is not on PATH here; ask on a login node of the machine", lasting=True
        )
    try:
        return subprocess.Popen(
            [program, *argv[1:]],
            # castoff parses messages in English, and times in seconds since the epoch.
            env={**command_environment(environ), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise SchedulerUnreachable(f"{argv[0]} cannot be run: {error.strerror}") from None


def _decoded(parts: Iterator[bytes], most: int) -> Page:
    """Decode at most `most` bytes; all kinds of line ends become newlines, as in text files that Python
    reads.

    Raises:
        Unreadable: there are more bytes.
    """
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder("utf-8")("surrogateescape"), translate=True
    )
    length = 0
    for part in parts:
        length += len(part)
        if length > most:
            raise Unreadable(f"more than {most >> 20} MiB")
        yield decoder.decode(part)
    yield decoder.decode(b"", final=True)


def ssh_command(host: str, program: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the ssh command that runs a program on a host; ssh passes one line to a shell on it."""
    return ["ssh", "-t" if terminal else "-T", "--", host, shlex.join(program)]


def version_of(program: str, environ: Mapping[str, str]) -> str:
    """Return what a program prints for --version, in lower case; empty if the program fails."""
    try:
        done = run_to_end([program, "--version"], VERSION_PATIENCE, environ)
    except SchedulerUnreachable:
        return ""
    return "" if done.returncode else f"{done.stdout}{done.stderr}".lower()
