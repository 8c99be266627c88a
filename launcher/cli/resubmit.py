"""castoff resubmit: restart a run that is over, in its directory."""

from __future__ import annotations

import os

import click

from castoff.launcher.cli.follow import follow_run
from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import complete_runs
from castoff.launcher.cli.output import (
    check_followed,
    follow_option,
    json_option,
    print_facts,
    print_json,
    report,
)
from castoff.launcher.cli.run_options import part_meant, selectors_argument
from castoff.launcher.errors import CastoffError
from castoff.launcher.logs.sources import Selection
from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import set_aside_hosts
from castoff.launcher.runs.states import attempt_words
from castoff.launcher.schedulers.registry import title_of
from castoff.launcher.submission.group import resubmit_group
from castoff.launcher.submission.resubmit import resubmit


@click.command(
    "resubmit",
    epilog=examples(
        "castoff resubmit train", "castoff resubmit sweep --member 3", "castoff resubmit sweep lr=1e-3"
    ),
)
@click.argument("run", shell_complete=complete_runs)
@selectors_argument()
@click.option("--member", "members", type=click.IntRange(min=0), multiple=True, help="Only this member.")
@click.option("--include-done", is_flag=True, help="Also members that are done.")
@click.option("--all-hosts", is_flag=True, help="Do not exclude the hosts that the run has set aside.")
@follow_option
@json_option
def command(
    run: str,
    selectors: tuple[str, ...],
    members: tuple[int, ...],
    include_done: bool,
    all_hosts: bool,
    follows: bool,
    as_json: bool,
) -> int:
    """Restart the members of a run that are not done, in its directory, with its script.

    A program finds its newest checkpoint there, and CASTOFF_ATTEMPT above 0. With -f, the logs of the new
    attempts follow, and the exit code is the run's; Ctrl-C then leaves the run as it is. NAME=VALUE selects
    members by their parameters, as in lr=1e-3,seed=2.

    Hosts that the run has set aside (`castoff status` lists them) are excluded if the scheduler can do that,
    as Slurm can.

    Of a group, the runs that are not done start again, with those that wait for them, and jobs that were
    never submitted are.
    """
    check_followed(follows, {"--json": as_json})
    if group := Index.of(os.environ).group(run):
        for flag, given in (
            ("--member", members or selectors),
            ("--include-done", include_done),
            ("--follow", follows),
        ):
            if given:
                click.get_current_context().fail(f"{flag} takes one run, and {run} is a group of runs")
        return _resubmit_group(group, as_json=as_json)
    directory, chosen = part_meant(run, selectors, members)
    begin = resubmit(directory, members=chosen, include_done=include_done, all_hosts=all_hosts)
    record = directory.submission()
    excluded = record.excluded if record else []
    if as_json:
        facts = {
            "id": directory.id,
            "job": directory.job,
            "directory": str(directory.path),
            "attempts": begin,
        }
        print_json({**facts, "excluded": excluded})
        return 0
    is_array = (directory.facts().array_count or 1) > 1
    attempts = [attempt_words(*item, is_array=is_array) for item in begin.items()]
    more = f" and {len(attempts) - 10} more" if len(attempts) > 10 else ""
    job = f"{directory.job} ({directory.facts().scheduler})"
    print_facts(
        run=directory.id,
        job=job,
        directory=directory.path,
        attempt=None if is_array else attempts[0],
        attempts=", ".join(attempts[:10]) + more if is_array else None,
        excluded=f"{', '.join(excluded)}: set aside by the run; --all-hosts allows them again"
        if excluded
        else None,
    )
    set_aside = {host.host for host in set_aside_hosts(directory.path)}
    if not all_hosts and (left := sorted(set_aside.difference(excluded))):
        title = title_of(directory.facts().scheduler)
        report(
            f"{title} cannot exclude hosts: the job may get {', '.join(left)}, which the run has set aside"
        )
    if not follows:
        return 0
    since = Selection(frozenset(begin), tail=0, since=min(begin.values()))
    return follow_run(directory, since)


def _resubmit_group(group: Group, *, as_json: bool) -> int:
    """Restart what is not done of a group, print it, and return the exit code."""
    again = resubmit_group(group)
    if as_json:
        jobs = [{"name": step.job, "id": step.run.id, "job": step.run.job} for step in again.steps]
        print_json({"group": group.id, "jobs": jobs, "left": again.left})
        return 0
    for step in again.steps:
        click.echo(f"{step.job}: {step.run.id}, job {step.run.job} ({step.run.facts().scheduler})")
    left = ", ".join(f"{name} ({why})" for name, why in again.left.items())
    if not again.steps:
        raise CastoffError(f"{group.id}: there is nothing to start: {left}")
    if left:
        report(f"left as they are: {left}")
    return 0
