"""castoff status: show the state of a run."""

from __future__ import annotations

import functools
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from castoff.launcher.cli.group_status import print_group
from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import (
    brief,
    json_option,
    moment,
    parameter_columns,
    print_json,
    print_table,
    report,
)
from castoff.launcher.cli.run_options import groups_meant, run_options, selected
from castoff.launcher.config.quantities import cpulist
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.history.attempt_use import AttemptUse, attempt_use
from castoff.launcher.history.attempts import early_ranks, early_words, hosts
from castoff.launcher.history.listing import site_words, start_words, words_of_status
from castoff.launcher.history.members_use import MembersUse, members_use
from castoff.launcher.history.metrics import Metrics
from castoff.launcher.history.reading import FEW_STRETCHES, MetricsReader, metrics_files
from castoff.launcher.logs.silence import last_sign, silence_words, silent_since
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.notices import notices
from castoff.launcher.runs.parameters import RunParameters, parameters_of
from castoff.launcher.runs.provenance import words
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import (
    AttemptStatus,
    MemberStatus,
    RunStatus,
    attempt_words,
    members_words,
    why,
)
from castoff.launcher.status.overview import adopt_unlisted
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.status.script_output import failure_reason, script_output
from castoff.launcher.status.watch import statuses
from castoff.launcher.text.layout import Column

_ROWS = 20
"""Number of members up to which each has a row; more are grouped by state and exit code."""

_ATTEMPTS = 10
"""Number of attempts shown in full, the newest; earlier ones are only counted."""

_HOSTS = 4
"""Limit of the hosts named for an attempt."""

_READS = 1.0
"""Seconds for reading a program's reports, for the progress line."""

_COLUMNS = 6
"""Limit of an array's parameters in the table of its members."""

_DETAILS = 5
"""Limit of an array's failures, and of its silent members, that are shown in full."""


@click.command(
    "status", epilog=examples("castoff status", "castoff status train --json", "castoff status sweep lr=1e-3")
)
@run_options()
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], as_json: bool) -> None:
    """Show the state of runs: their members, attempts, and the rank that failed first.

    Each of RUNS is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory;
    without any, the newest run is meant. `castoff list` lists all. NAME=VALUE after a run selects its members
    by their parameters, as in lr=1e-3,seed=2. Of a group, the jobs are drawn as a tree.
    """
    groups, others = groups_meant(runs)
    for group in groups:
        print_group(group, _facts, as_json=as_json)
    if groups and not (others or names):
        return
    runs = (*others,)
    _report_orphans(runs)
    meant = selected(runs, names, newest_too=True)
    runs_now = [*map(meant.of, statuses(meant.runs, Poller(AT_A_GLANCE)))]
    adopt_unlisted(os.environ, meant.runs)
    if as_json:
        print_json(*map(_facts, runs_now))
        return
    now = time.time()
    for number, run in enumerate(runs_now):
        if number:
            click.echo()
        _print_whole(run, now)


def _report_orphans(runs: tuple[str, ...]) -> None:
    """Report the jobs that may be left of runs whose directories are gone.

    Raises:
        CastoffError: with the report, if there are such runs.
    """
    from castoff.launcher.submission.orphans import look_for

    index = Index.of(os.environ)
    if gone := [entry for reference in runs if (entry := index.gone(reference)) is not None]:
        raise CastoffError("\n".join(look_for(entry).words for entry in gone))


def _print_whole(run: RunStatus, now: float) -> None:
    parameters = parameters_of(RunDirectory(Path(run.directory)))
    _print_run(run, now)
    if len(run.members) > 1:
        _print_members(run, parameters, now)
        return
    for member in run.members:
        if words := parameters.words(member.member):
            _line("member", f"{parameters.name(member.member) or member.member}: {words}")
        left_out = member.attempts[:-_ATTEMPTS]
        if left_out:
            counts = Counter(attempt.word for attempt in left_out)
            words = ", ".join(f"{count} {word}" for word, count in counts.items())
            _line("attempts", f"0-{left_out[-1].attempt}  {words}; --json lists all of them")
        for attempt in member.attempts[-_ATTEMPTS:]:
            _print_attempt(run, member, attempt, now)


def _facts(run: RunStatus) -> dict[str, Any]:
    """A run's status as JSON. Adds what its members' newest attempts use, to each member its name and
    parameters, if it has any, and to each attempt its script's output, the time of its ranks' last output if
    it is running, and the ranks that ended long before the others.
    """
    result: dict[str, Any] = msgspec.to_builtins(run)
    directory = RunDirectory(Path(run.directory))
    if found := notices(directory):
        result["messages"] = [
            {"event": event, "to": receiver, **msgspec.structs.asdict(tries.last)}
            for (event, receiver), tries in found.items()
        ]
    if use := _use(run, lambda: _metrics(run)):
        result["use"] = use.facts
    parameters = parameters_of(directory)
    for member, facts in zip(run.members, result["members"], strict=True):
        if parameters.names:
            facts |= {"name": parameters.name(member.member), "parameters": parameters.typed(member.member)}
        for attempt, its in zip(member.attempts, facts["attempts"], strict=True):
            its["script_output"] = script_output(directory, member.member, attempt)
            its["last_output"] = last_sign(attempt) if attempt.state == "running" else None
            its["ended_early"] = [rank._asdict() for rank in early_ranks(directory, attempt)]
    return result


def _print_run(run: RunStatus, now: float) -> None:
    _line("run", run.id)
    _line("site", site_words(run))
    _line("submitted", run.submitted and f"{moment(run.submitted)}, {brief(now - run.submitted)} ago")
    _line("directory", run.directory)
    _line("code", words(RunDirectory(Path(run.directory))))
    _line("state", run.state_words)
    directory = RunDirectory(Path(run.directory))
    shown_below = failure_reason(directory, run.members, run.ending)
    _line("", run.reason if run.reason != shown_below else None)
    if start := run.expected_start:
        _line("starts", start_words(start, now))
    read = functools.cache(lambda: _metrics(run))
    if run.members[0].attempts and (metrics := read()):
        _line("progress", words_of_status(run, [metrics], now).progress)
    if use := _use(run, read):
        _line("use", f"{use.words}\n{use.advice}")
    _line("messages", _messages(run))
    for number, host in enumerate(run.set_aside):
        when = f", {brief(now - host.time)} ago" if host.time else ""
        _line("" if number else "set aside", f"{host.host}: {host.reason} (attempt {host.attempt}{when})")


def _messages(run: RunStatus) -> str:
    """What became of the messages that the job's `notify` asks for, a line for each receiver."""
    lines = {}
    for (event, receiver), tries in notices(RunDirectory(Path(run.directory))).items():
        last = tries.last
        if last.error is not None:
            watched = "" if last.by == "watch" else "; `castoff watch` sends it"
            lines[receiver] = f"{receiver}: not sent: {last.error}{watched}"
        elif last.sent:
            lines[receiver] = f"{receiver}: sent {moment(last.time or 0.0)} ({event.partition('-')[0]})"
    return "\n".join(lines.values())


def _metrics(run: RunStatus) -> Metrics | None:
    """The metrics of a run's only member; None for an array, or if they cannot be read soon."""
    if len(run.members) > 1:
        return None
    reader = MetricsReader(FEW_STRETCHES)
    try:
        directory = RunDirectory(Path(run.directory))
        metrics = reader.look(metrics_files(directory, run.members[0].member), time.monotonic() + _READS)
    except CastoffError:  # its records are damaged; show the rest of the status
        return None
    return None if reader.behind else metrics


def _use(run: RunStatus, read: Callable[[], Metrics | None]) -> AttemptUse | MembersUse | None:
    """What the newest attempts of a run's members use."""
    directory, member = RunDirectory(Path(run.directory)), run.members[0]
    try:
        if len(run.members) > 1:
            return members_use(directory, run.members)
        if not member.attempts:
            return None
        return attempt_use(directory, member.member, member.attempts[-1], read)
    except CastoffError:  # as above
        return None


def _print_attempt(run: RunStatus, member: MemberStatus, attempt: AttemptStatus, now: float) -> None:
    number = attempt_words(member.member, attempt.attempt, is_array=len(run.members) > 1)
    hosts_of_attempt = _place(RunDirectory(Path(run.directory)), member.member, attempt)
    _line("attempt", f"{number}  {_words(attempt, hosts_of_attempt, run.walltime, now)}")
    for line in why(attempt.failure, attempt.reason):
        _line("", line)
    directory = RunDirectory(Path(run.directory))
    _line("", early_words(early_ranks(directory, attempt), attempt))
    if silent_since(attempt, now) is not None:
        of_member = f" --member {member.member}" if len(run.members) > 1 else ""
        _line("", f"`castoff stacks {run.id}{of_member}` shows where its ranks are")
    for line in script_output(directory, member.member, attempt):
        _line("", f"  {line}")
    _line("", attempt.started and f"logs in {attempt.logs}")


def _place(run: RunDirectory, member: int, attempt: AttemptStatus) -> str:
    """The host of an attempt's script, and the hosts of its ranks if they differ."""
    if elsewhere := _elsewhere(run, member, attempt):
        return f"{elsewhere} (its script on {attempt.host})"
    return attempt.host or "an unknown host"


def _elsewhere(run: RunDirectory, member: int, attempt: AttemptStatus) -> str:
    """The hosts of an attempt's ranks, if its script is on none of them, as in a job that members share."""
    try:
        ranks_on = [host.host for host in hosts(run, member, attempt.attempt)]
    except CastoffError:  # its records are damaged; show the script's host and the rest of the status
        return ""
    if not attempt.host or _short_name(attempt.host) in map(_short_name, ranks_on):
        return ""
    more = f" and {len(ranks_on) - _HOSTS} more hosts" if len(ranks_on) > _HOSTS else ""
    return f"{', '.join(ranks_on[:_HOSTS])}{more}"


def _short_name(host: str) -> str:
    return host.partition(".")[0]


def _words(attempt: AttemptStatus, hosts_of_attempt: str, walltime: int | None, now: float) -> str:
    state, took = attempt.word, attempt.seconds(now)
    if not attempt.started:
        return f"{state}, never began"
    began = f"began {moment(attempt.started)} on {hosts_of_attempt}"
    if attempt.restart:
        began += f", restart {attempt.restart} of its job"
    if attempt.ended:
        return f"{state} after {brief(took or 0.0)}, {began}"
    if attempt.state == "running":
        left = f", {brief(attempt.started + walltime - now)} left" if walltime else ""
        return f"{state} for {brief(now - attempt.started)}{left}{_silence(attempt, now)}, {began}"
    return f"{state}, {began}"


def _silence(attempt: AttemptStatus, now: float) -> str:
    words = silence_words(silent_since(attempt, now), now)
    return words and f", {words}"


def _print_members(run: RunStatus, parameters: RunParameters, now: float) -> None:
    """Print an array's members, and the first few failures and silent members in full."""
    _line("members", members_words(run.counts))
    click.echo()
    if len(run.members) <= _ROWS:
        names = parameters.varying[:_COLUMNS]
        named = ["name"] if parameters.member_name else []
        columns = [
            *(Column(heading) for heading in ("member", *named)),
            *parameter_columns(names, goes=5),
            Column("state"),
            Column("code", goes=3),
            Column("attempts", goes=1),
            Column("began", goes=4),
            Column("took", goes=2),
            Column("host"),
        ]
        directory = RunDirectory(Path(run.directory))
        rows = [_cells(directory, member, parameters, names, now) for member in run.members]
        print_table(columns, rows)
    else:
        print_table([*map(Column, ("state", "code", "count", "members"))], _groups(run.members))
    newest = [(member, member.attempts[-1]) for member in run.members if member.attempts]
    begun = [
        (member, attempt) for member, attempt in newest if attempt.started or attempt.word != "cancelled"
    ]
    bad = [(member, attempt) for member, attempt in begun if attempt.failure or attempt.reason]
    silent = [one for one in newest if silent_since(one[1], now)] if len(run.members) <= _ROWS else []
    if bad or silent:
        click.echo()
    for member, attempt in [*bad[:_DETAILS], *silent[:_DETAILS]]:
        _print_attempt(run, member, attempt, now)
        _line("", parameters.words(member.member))
    if len(bad) > _DETAILS:
        report(f"{len(bad) - _DETAILS} more failures are not shown; --json lists all of them")


def _cells(
    run: RunDirectory, member: MemberStatus, parameters: RunParameters, names: list[str], now: float
) -> tuple[str, ...]:
    name, values = parameters.name(member.member), parameters.values(member.member)
    which = (str(member.member), *([] if name is None else [name]), *(values.get(one, "") for one in names))
    always = (*which, *_state_and_code(member), str(len(member.attempts)))
    if not member.attempts:
        return (*always, "", "", "")
    last = member.attempts[-1]
    took = last.seconds(now)
    began = moment(last.started) if last.started else ""
    host = _elsewhere(run, member.member, last) or last.host or ""
    return (*always, began, "" if took is None else brief(took), host)


def _groups(members: list[MemberStatus]) -> list[tuple[str, ...]]:
    """The table rows of members grouped by state and exit code."""
    groups: dict[tuple[str, str], list[int]] = {}
    for member in members:
        groups.setdefault(_state_and_code(member), []).append(member.member)
    return [(*key, str(len(numbers)), _shortened(cpulist(numbers))) for key, numbers in groups.items()]


def _state_and_code(member: MemberStatus) -> tuple[str, str]:
    code = member.attempts[-1].code if member.attempts and member.state == "ended" else None
    return member.word, "" if code is None else str(code)


def _shortened(numbers: str, most: int = 72) -> str:
    return numbers if len(numbers) <= most else f"{numbers[:most].rpartition(',')[0]},…"


def _line(heading: str, text: object) -> None:
    for part in str(text or "").splitlines():
        click.echo(f"{heading:10} {printable(part)}")
        heading = ""
