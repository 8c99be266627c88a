"""Collects the stacks of a running job's ranks: a command on each of its hosts, some at the same time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.history.attempts import ended_well, placed
from castoff.launcher.interactive.places import Place, on_host, place
from castoff.launcher.planning.render import template_folder
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.command import command_environment
from castoff.launcher.stacks.answers import Answer, RankStack, read_answer

_ON_HOST = 25
"""Seconds that a host may take for its ranks."""

_PATIENCE = 32.0
"""Seconds until a host that has not answered is given up: a scheduler needs a few to start a step."""

_AT_ONCE = 16
"""Hosts that are asked at the same time: each costs the scheduler a step."""

_GRACE = 2.0
"""Seconds between TERM and KILL for a command that did not end; srun ends its step at TERM."""


class Unanswered(msgspec.Struct, frozen=True):
    """A host without a complete answer."""

    host: str
    reason: str


class Collected(msgspec.Struct, frozen=True):
    """What the hosts of a member's attempt answered."""

    member: int
    is_array: bool
    attempt: int
    time: float
    """When the first host was asked, in seconds since the epoch."""
    ranks: list[RankStack]
    unanswered: list[Unanswered]
    over: list[int]
    """Ranks that have ended well."""
    missing: list[int]
    """Ranks of hosts that answered, which have no process there and have not ended well."""


def collect(
    run: RunDirectory,
    member: int | None,
    ranks: Sequence[int],
    host: str | None,
    environ: Mapping[str, str],
    *,
    all_threads: bool,
) -> Collected:
    """Collect the stacks of a job's ranks; empty `ranks`: of all.

    `host`: only of this one. `all_threads`: of all threads, not only of main threads.

    Raises:
        CastoffError: the run is not running, has no such member, rank or host, or cannot be reached.
    """
    places = _places(run, member, ranks, host)
    begun = time.time()
    replies = _replies(places, ranks, environ, all_threads=all_threads)
    answers = [reply for reply in replies if isinstance(reply, Answer)]
    answered = {one.number for one, reply in zip(places, replies, strict=True) if isinstance(reply, Answer)}
    found = [rank for answer in answers for rank in answer.ranks]
    absent = _expected(places[0], answered, ranks, answers) - {rank.rank for rank in found}
    over = ended_well(places[0].attempt)
    number, _, attempt = places[0].attempt.name.partition(".")
    return Collected(
        member=int(number),
        is_array=(run.facts().array_count or 1) > 1,
        attempt=int(attempt),
        time=begun,
        ranks=found,
        unanswered=[reply for reply in replies if isinstance(reply, Unanswered)],
        over=sorted(absent & over),
        missing=sorted(absent - over),
    )


def _places(run: RunDirectory, member: int | None, ranks: Sequence[int], host: str | None) -> list[Place]:
    """The hosts that are asked, each once."""
    chosen: Sequence[int | None] = ranks or [None]
    named = [place(run, member, rank, host, needs="stacks need") for rank in chosen]
    if not ranks and host is None:
        named = [named[0]._replace(number=number) for number in range(len(named[0].hosts))]
    return [*{one.number: one for one in named}.values()]


def _replies(
    places: Sequence[Place], ranks: Sequence[int], environ: Mapping[str, str], *, all_threads: bool
) -> list[Answer | Unanswered]:
    """What the hosts reply, in their order."""
    hosts = _Hosts(ranks, environ, all_threads=all_threads)
    with ThreadPoolExecutor(min(_AT_ONCE, len(places))) as pool, hosts:
        futures = [pool.submit(hosts.ask, one) for one in places]
        for future in as_completed(futures):
            future.result()  # the first error ends all
    return [future.result() for future in futures]


class _Hosts:
    """The commands that run on hosts, which end with this context."""

    def __init__(self, ranks: Sequence[int], environ: Mapping[str, str], *, all_threads: bool):
        self._ranks, self._environ = ranks, environ
        self._threads = "all" if all_threads else "main"
        self._program = (template_folder() / "interactive" / "stacks.sh").read_text(encoding="utf-8")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._over = False

    def __enter__(self) -> _Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs, as after Ctrl-C, which these commands do not get, and start nothing more."""
        self._over = True
        for process in self._processes:
            _send(process, signal.SIGTERM)

    def ask(self, where: Place) -> Answer | Unanswered:
        """Ask a host for the stacks of its ranks."""
        if self._over:
            raise CancelledError
        host, mark = where.hosts[where.number], os.urandom(8).hex()
        also = str(
            Path(sys.executable).with_name("py-spy")
        )  # castoff's own, if the host has the same folders
        words = [str(where.attempt), str(where.number), mark, self._threads, also, *map(str, self._ranks)]
        command = ["timeout", "-k", "2", str(_ON_HOST), "/bin/bash", "-c", self._program, "castoff", *words]
        argv = on_host(where, command, terminal=False, environ=self._environ, verb="stacks")
        code, output, errors = self._run(argv)
        answer = read_answer(host, mark, output.splitlines())
        if answer.complete or answer.ranks:
            return answer
        if code is None:
            return Unanswered(host, f"not within {_PATIENCE:.0f} s")
        last = errors.strip().rpartition("\n")[2]
        return Unanswered(host, f"{argv[0]} exited with code {code}{last and f': {last}'}")

    def _run(self, argv: Sequence[str]) -> tuple[int | None, str, str]:
        """Run a command for a limited time; return its exit code, None if it was ended, and its output.

        Raises:
            CastoffError: the command cannot be started.
        """
        # Files, since what a command leaves behind on this host would hold a pipe open.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    argv,
                    env=command_environment(self._environ),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,  # without a terminal, ssh asks for no password
                )
            except OSError as error:
                raise CastoffError(f"{argv[0]}: cannot be started: {error.strerror}") from error
            self._processes.append(process)
            code = _code(process)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return code, texts[0], texts[1]


def _code(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for a process, and end it if it takes too long; return its exit code, None if it was ended."""
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        _send(process, signal.SIGTERM)
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        _send(process, signal.SIGKILL)
        process.wait()
    return None


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process that has not been waited for, and to its group."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _expected(where: Place, answered: set[int], ranks: Sequence[int], answers: Sequence[Answer]) -> set[int]:
    """The ranks that must be on the hosts that answered, as far as that is known."""
    facts = where.run.facts()
    sizes = {answer.world_size for answer in answers if answer.ranks}
    if facts.ranks is None or sizes - {facts.ranks}:
        return set()  # the program has started ranks of its own
    hosts = placed(where.hosts, facts)
    if any(host.ranks is None for host in hosts):
        known = set(range(facts.ranks)) if len(answered) == len(hosts) else set()
    else:
        known = {rank for number in answered for rank in hosts[number].ranks or ()}
    return known & {*ranks} if ranks else known
