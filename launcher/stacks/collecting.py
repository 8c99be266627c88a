"""Collects the stacks of a running job's ranks: a command on each of its hosts, some at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
) -> Collected:
    """Collect the stacks of a job's ranks; empty `ranks`: of all. `host`: only of this one.

    Raises:
        CastoffError: the run is not running, has no such member, rank or host, or cannot be reached.
    """
    chosen: Sequence[int | None] = ranks or [None]
    named = [place(run, member, rank, host, needs="stacks need") for rank in chosen]
    if not ranks and host is None:
        named = [named[0]._replace(number=number) for number in range(len(named[0].hosts))]
    places = [*{one.number: one for one in named}.values()]
    begun = time.time()
    with ThreadPoolExecutor(min(_AT_ONCE, len(places))) as pool:
        replies = [*pool.map(lambda one: _ask(one, ranks, environ), places)]
    answers = [reply for reply in replies if isinstance(reply, Answer)]
    answered = {one.number for one, reply in zip(places, replies, strict=True) if isinstance(reply, Answer)}
    over = ended_well(places[0].attempt)
    expected = _expected(places[0], answered, ranks, answers)
    found = [rank for answer in answers for rank in answer.ranks]
    absent = expected - {rank.rank for rank in found}
    number, _, attempt = places[0].attempt.name.partition(".")
    return Collected(
        int(number),
        (run.facts().array_count or 1) > 1,
        int(attempt),
        begun,
        found,
        [reply for reply in replies if isinstance(reply, Unanswered)],
        sorted(absent & over),
        sorted(absent - over),
    )


def _ask(where: Place, ranks: Sequence[int], environ: Mapping[str, str]) -> Answer | Unanswered:
    """Ask a host for the stacks of its ranks."""
    host, mark = where.hosts[where.number], os.urandom(8).hex()
    text = (template_folder() / "interactive" / "stacks.sh").read_text(encoding="utf-8")
    also = str(Path(sys.executable).with_name("py-spy"))  # castoff's own, if the host has the same folders
    words = [str(where.attempt), str(where.number), mark, also, *map(str, ranks)]
    command = ["timeout", "-k", "2", str(_ON_HOST), "/bin/bash", "-c", text, "castoff", *words]
    argv = on_host(where, command, terminal=False, environ=environ, verb="stacks")
    code, output, errors = _run(argv, environ)
    answer = read_answer(host, mark, output.splitlines())
    if answer.complete or answer.ranks:
        return answer
    if code is None:
        return Unanswered(host, f"it did not answer within {_PATIENCE:.0f} s")
    said = errors.strip().splitlines()
    return Unanswered(host, f"{argv[0]} exited with code {code}{f': {said[-1]}' if said else ''}")


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int | None, str, str]:
    """Run a command, for a limited time; return its exit code, None if it had to be ended, and its output.

    Raises:
        CastoffError: the command cannot be started.
    """
    try:
        process = subprocess.Popen(
            argv,
            env=command_environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise CastoffError(f"{argv[0]}: cannot be started: {error.strerror}") from error
    with process:
        try:
            output, errors = process.communicate(timeout=_PATIENCE)
            return process.returncode, output, errors
        except subprocess.TimeoutExpired:
            process.terminate()
        try:
            output, errors = process.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
        return None, output, errors


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
