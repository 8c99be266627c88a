"""castoff submit, for a file with several jobs."""

from __future__ import annotations

from pathlib import Path

import click

from castoff.launcher.cli.output import print_facts, print_json, report
from castoff.launcher.cli.submit_words import bound_words, print_dry_run, report_changes
from castoff.launcher.config.job_group import JobGroup, name_of
from castoff.launcher.config.site import Site
from castoff.launcher.submission.group import Step, submit_group
from castoff.launcher.submission.group_checks import check_plans


def submit_jobs(
    jobs: JobGroup,
    site: Site,
    selection: tuple[str, ...],
    *,
    runs_dir: Path | None,
    new: bool,
    follows: bool,
    dry: bool,
    as_json: bool,
) -> int:
    """Submit the jobs of a file, or print what that would do, and return the exit code."""
    if dry:
        check_plans(jobs, site)
        for spec in jobs.jobs:
            report(f"{name_of(spec)}:")
            print_dry_run(spec, site, as_json=as_json)
        return 0
    steps: list[Step] = []

    def show(step: Step) -> None:
        steps.append(step)
        if not as_json:
            before = ", submitted before" if step.was_there else ""
            click.echo(f"{step.job}: {step.run.id}, job {step.run.job} ({site.scheduler}){before}")

    group = submit_group(jobs, site, runs_dir=runs_dir, new=new, selection=selection, on_step=show)
    for spec in jobs.jobs:
        report_changes(spec, site)
    if as_json:
        runs = [
            {"name": step.job, "id": step.run.id, "job": step.run.job, "directory": str(step.run.path)}
            for step in steps
        ]
        print_json({"group": group.id, "jobs": runs})
        return 0
    hours = [record.node_hours if (record := step.run.submission()) else None for step in steps]
    print_facts(group=group.id, node_hours=bound_words(hours))
    if not follows:
        return 0
    from castoff.launcher.cli.group_logs import follow_group

    return follow_group(group)
