"""Finds the attempt and the host of a rank of a running job, and how to reach that host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.owner import other_host
from castoff.launcher.runs.records import Facts, read, record_bytes
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus
from castoff.launcher.schedulers.job_info import member_job_id
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import status


class _Distribution(msgspec.Struct):
    """The field of plan.json for ranks that the job's own srun flags distribute."""

    own_distribution: str | None = None


class Place(NamedTuple):
    """The job and the host on which a command runs."""

    run: RunDirectory
    attempt: Path
    """The attempt's folder."""
    hosts: list[str]
    """The job's hosts, in the order of their node ranks."""
    number: int
    """The index of the chosen host in `hosts`."""
    rank: int | None
    """The rank; None: the first rank on the host."""
    job: str | None
    """The scheduler's job id; in an array, the id of the member's job."""
    scheduler: str


def place(
    run: RunDirectory, member: int | None, rank: int | None, host: str | None, *, needs: str = "a shell needs"
) -> Place:
    """Find the host of a rank, or the first rank of a host; by default that of the first host.

    `needs`: what needs a running job, for a message.

    Raises:
        CastoffError: the run is not running, or has no such member, rank or host.
    """
    facts, now = run.facts(), status(run)
    if rank is not None and facts.ranks is not None and rank >= facts.ranks:
        raise CastoffError(f"{run.id}: no rank {rank}; ranks are 0 to {facts.ranks - 1}")
    chosen = _member(run, now, member)
    attempt = _attempt(run, now, chosen, needs)
    folder = run.path / "attempts" / f"{chosen.member}.{attempt.attempt}"
    hosts = record_bytes(folder / "hosts").decode(errors="replace").split() or [attempt.host or "localhost"]
    number = _host_number(run, facts, hosts, rank, host)
    return Place(run, folder, hosts, number, rank, _job(run, chosen.member, attempt.attempt), now.scheduler)


def on_host(
    where: Place, command: list[str], *, terminal: bool, environ: Mapping[str, str], verb: str
) -> list[str]:
    """The command line that runs a command on that host. `terminal`: give it a terminal.

    Raises:
        CastoffError: the host cannot be reached from this one.
    """
    scheduler = queued(where.scheduler)
    if scheduler is not None and where.job is not None:
        return scheduler.beside_command(where.job, where.hosts, where.number, command, terminal, environ)
    if (elsewhere := other_host(where.run)) is not None:
        raise CastoffError(f"{where.run.id}: it runs on {elsewhere}; call castoff {verb} there")
    return command


def _member(run: RunDirectory, now: RunStatus, member: int | None) -> MemberStatus:
    """The member that the user named, or else the only running one."""
    if member is not None:
        named = next((one for one in now.members if one.member == member), None)
        if named is None:
            raise CastoffError(f"{run.id}: no member {member}; members are 0 to {now.members[-1].member}")
        return named
    running = [one for one in now.members if one.state == "running"]
    if len(running) > 1:
        listed = ", ".join(str(one.member) for one in running[:10]) + (", …" if len(running) > 10 else "")
        raise CastoffError(f"{run.id}: several members run ({listed}): choose one with --member")
    return running[0] if running else now.members[0]


def _attempt(run: RunDirectory, now: RunStatus, member: MemberStatus, needs: str) -> AttemptStatus:
    """The running attempt of a member.

    Raises:
        CastoffError: the member is not running; the message has what to do instead.
    """
    job = f"{run.id}, member {member.member}" if len(now.members) > 1 else run.id
    logs = f"castoff logs {run.id}" + (f" --member {member.member}" if len(now.members) > 1 else "")
    reason = member.reason or now.reason
    because = f" ({reason})" if reason else ""
    if member.state == "running":
        if member.attempts and member.attempts[-1].state == "running":
            return member.attempts[-1]
        raise CastoffError(f"{job}: it is just starting{because}; try again in a few seconds")
    if member.state == "pending":
        raise CastoffError(
            f"{job}: it is waiting{because}, and {needs} a running job; `castoff status {run.id}` "
            "shows when it does"
        )
    if member.state == "ended":
        ending = member.ending or now.ending
        raise CastoffError(f"{job}: it is over ({ending}), so no rank is left; `{logs}` shows what it wrote")
    raise CastoffError(f"{job}: it is not known whether it runs{because}; `{logs}` shows what it wrote")


def _host_number(
    run: RunDirectory, facts: Facts, hosts: list[str], rank: int | None, host: str | None
) -> int:
    """The index of the host that the user named, or of the host with the named rank."""
    if host is not None:
        for same in (str, _short):
            if (name := same(host)) in (names := [same(known) for known in hosts]):
                return names.index(name)
        raise CastoffError(f"{run.id}: {host} is not one of its hosts: {_listed(hosts)}")
    if rank is None or len(hosts) == 1:
        return 0
    plan = read(run.path / "plan.json", _Distribution)
    if plan is None or plan.own_distribution or not facts.layout:
        reason = "its own --distribution decides that" if plan else "castoff did not submit it"
        raise CastoffError(
            f"{run.id}: it is not known on which host rank {rank} is ({reason}): name the host, too, as in "
            f"--rank {rank} --host {hosts[-1]}; its hosts: {_listed(hosts)}"
        )
    counts = (count for count, times in facts.layout for _ in range(times))
    first = 0
    for number, count in enumerate(counts):
        if rank < first + count:
            return min(number, len(hosts) - 1)
        first += count
    return len(hosts) - 1


def _listed(hosts: list[str]) -> str:
    return ", ".join([*hosts[:8], *(["…", hosts[-1]] if len(hosts) > 8 else [])])


def _short(host: str) -> str:
    return host if host.replace(".", "").isdecimal() else host.partition(".")[0]


def _job(run: RunDirectory, member: int, attempt: int) -> str | None:
    """The job id of an attempt."""
    records = RunRecords(run)
    attempts = records.attempts.get(member, [])
    recorded = next((record.job for record in attempts if record.number == attempt), None)
    key = records.key(member, recorded or records.job)
    return None if key is None else member_job_id(*key)
