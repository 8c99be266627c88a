"""How a scheduler's own commands are run: in which environment, and for how long."""

from __future__ import annotations

import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.ranks import is_stale

_PREFIXES = (
    # What Slurm's commands take for options, and the job that this process is part of.
    *("SBATCH_", "SLURM_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "PBS_"),
    *("PMI_", "PMIX_", "TORCHELASTIC_", "CASTOFF_"),
)

SETTINGS = ("CASTOFF_RUNS_DIR", "CASTOFF_SITE")
"""The user's own variables; every other CASTOFF_* belongs to some job."""

_KEPT = frozenset(
    {
        *SETTINGS,
        # Where the scheduler is and who may use it, which is the site's matter.
        *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"),
        *("PBS_CONF_FILE", "PBS_EXEC", "PBS_DEFAULT", "PBS_SERVER"),
    }
)


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what would change a scheduler's command, or make a job take itself for another one.

    SBATCH_PARTITION in the environment wins over `#SBATCH --partition` (sbatch(1), input environment
    variables), and a job that is submitted from inside another would take its SLURM_ARRAY_TASK_ID or
    its RANK for its own.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT or not (is_stale(name) or name.startswith(_PREFIXES))
    }


PATIENCE = 30.0
"""Seconds for an answer: what a busy scheduler may take."""


LONGEST_ANSWER = 128 << 20
"""Bytes of an answer that are read: a queue of half a million jobs takes so much."""

_LONGEST_COMPLAINT = 1 << 20
"""Bytes of standard error that are kept."""

VERSION_PATIENCE = 5.0
"""Seconds that a program gets to say its version."""


class SchedulerUnreachable(Exception):
    """A command that gave no answer; the text says why."""

    def __init__(self, why: str, *, lasting: bool = False):
        super().__init__(why)
        self.lasting = lasting


class Answering:
    """A command that runs, and the beginning of what it prints: it may never end."""

    def __init__(self, process: subprocess.Popen[bytes], most: int):
        """Keep at most so many bytes of its output."""
        self.output = bytearray()
        self.errors = bytearray()
        self.is_cut = False
        """Whether there was more output than is kept."""
        self._process = process
        self._open = [(process.stdout, self.output, most), (process.stderr, self.errors, _LONGEST_COMPLAINT)]

    def wait(self, seconds: float | None, *, cuts: bool = False) -> None:
        """Until it has ended and nobody holds its streams. `cuts`: or until its output is too long.

        Raises:
            subprocess.TimeoutExpired: that takes longer; it may be called again.
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
                    room = most - len(kept)
                    kept += data[:room]
                    self.is_cut = self.is_cut or (kept is self.output and len(data) > room)
                    if self.is_cut and cuts:
                        return
                    if not data:
                        selector.unregister(stream)
                        stream.close()
                        self._open.remove(key.data)
        self._process.wait(None if give_up is None else max(0.1, give_up - time.monotonic()))


def answer_of(argv: list[str], patience: float, environ: Mapping[str, str]) -> str:
    """What a command prints.

    Raises:
        SchedulerUnreachable: it is not here, fails, or takes too long.
    """
    done = run_to_end(argv, patience, environ)
    if done.returncode:
        raise SchedulerUnreachable(failure_of(done))
    return done.stdout


def failure_of(done: subprocess.CompletedProcess[str]) -> str:
    """How a command failed, with its words."""
    lines = [" ".join(line.split()) for line in (done.stderr.strip() or done.stdout.strip()).splitlines()]
    # qstat repeats one sentence for each of its jobs.
    message = " ".join(dict.fromkeys(filter(None, lines))) or "without a message"
    message = message.encode("utf-8", "replace").decode()
    return f"{Path(done.args[0]).name} failed with exit code {done.returncode}: {message[:500]}"


def run_to_end(
    argv: list[str], patience: float, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a scheduler's command to its end.

    Raises:
        SchedulerUnreachable: it is not here, or takes too long.
    """
    import shutil

    program = shutil.which(argv[0], path=environ.get("PATH", ""))
    if program is None:
        raise SchedulerUnreachable(
            f"{argv[0]} is not on PATH here; ask on a login node of the machine", lasting=True
        )
    try:
        process = subprocess.Popen(
            [program, *argv[1:]],
            # In no language but the one that is read here, and times in seconds since 1970.
            env={**command_environment(environ), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise SchedulerUnreachable(f"{argv[0]} cannot be run: {error.strerror}") from None
    answering = Answering(process, LONGEST_ANSWER)
    with process:
        try:
            answering.wait(patience, cuts=True)
        except subprocess.TimeoutExpired:
            raise SchedulerUnreachable(f"{argv[0]} gave no answer within {patience:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
    if answering.is_cut:
        raise SchedulerUnreachable(
            f"{argv[0]} printed more than {LONGEST_ANSWER >> 20} MiB, which castoff does not read"
        )
    output, errors = (
        text.decode("utf-8", "surrogateescape") for text in (answering.output, answering.errors)
    )
    # A line may end in any way, as in all text that Python reads.
    output, errors = (text.replace("\r\n", "\n").replace("\r", "\n") for text in (output, errors))
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def ssh_command(host: str, program: Sequence[str], *, terminal: bool) -> list[str]:
    """What runs a program on another host by ssh, which hands one line to a shell there."""
    return ["ssh", "-t" if terminal else "-T", "--", host, shlex.join(program)]


def version_of(program: str, environ: Mapping[str, str]) -> str:
    """What a program says of its version, in small letters; nothing where it knows no --version."""
    try:
        done = run_to_end([program, "--version"], VERSION_PATIENCE, environ)
    except SchedulerUnreachable:
        return ""
    return "" if done.returncode else f"{done.stdout}{done.stderr}".lower()
