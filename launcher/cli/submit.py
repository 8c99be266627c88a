"""castoff submit: submit a job, or the jobs of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.job_options import job_options, load_jobs, load_site, only_option, target
from castoff.launcher.cli.output import (
    check_followed,
    follow_option,
    json_option,
    print_facts,
    print_json,
    report,
)
from castoff.launcher.cli.program import TakesJob
from castoff.launcher.cli.submit_words import print_dry_run, report_changes
from castoff.launcher.config.job_group import JobGroup

if TYPE_CHECKING:
    from castoff.launcher.config.job import JobSpec
    from castoff.launcher.config.site import Site


@click.command(
    "submit",
    cls=TakesJob,
    epilog=examples(
        "castoff submit job.yaml",
        "castoff submit job.yaml -N 4 -t 2h -A MyProject --set env.LR=0.1",
        "castoff submit -n 2 --site local -- python train.py --lr 0.1",
        "castoff submit pipeline.yaml --from train --set train.nodes=4",
    ),
)
@job_options
@only_option
@click.option(
    "--from",
    "since",
    multiple=True,
    metavar="NAME",
    help="Only this job of a file with several, and those that wait for it; may be repeated.",
)
@click.option("--new", is_flag=True, help="Begin anew, even if an earlier submission of the file stopped.")
@follow_option
@click.option(
    "--dry-run", "--test-only", "dry", is_flag=True, help="Print script and command line; touch nothing."
)
@click.option("--runs-dir", type=click.Path(path_type=Path), help="Where run directories go.")
@click.option("--yes", is_flag=True, help="Do not ask before code is sent to another machine.")
@json_option
def command(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    only: tuple[str, ...],
    since: tuple[str, ...],
    new: bool,
    follows: bool,
    dry: bool,
    runs_dir: Path | None,
    yes: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Submit a job: make its run directory, submit its script, print the run's id.

    With -f, its logs follow, and the exit code is the job's; Ctrl-C then leaves the job as it is.

    The jobs of a file with several are submitted in the order of their `after`. If that stops half-way, the
    same command submits the rest. With -f, the logs of all follow, and the exit code is that of `castoff
    wait`.
    """
    check_followed(follows, {"--json": as_json, "--dry-run": dry})
    spec = load_jobs(job, overrides, flags, only, since)
    other = target.get()
    selection = tuple(
        word
        for option, names in (("--only", only), ("--from", since))
        for name in names
        for word in (option, name)
    )
    choices = {"new": new, "follows": follows, "dry": dry, "as_json": as_json}
    if other is not None:
        from castoff.launcher.cli.submit_elsewhere import submit_elsewhere

        return submit_elsewhere(
            other.machine,
            other.typed,
            spec,
            site_name,
            selection=selection,
            runs_dir=runs_dir,
            agrees=yes,
            **choices,
        )
    if isinstance(spec, JobGroup):
        from castoff.launcher.cli.submit_group import submit_jobs

        site = load_site(site_name, *spec.jobs)
        return submit_jobs(spec, site, selection, runs_dir=runs_dir, **choices)
    site = load_site(site_name, spec)
    if dry:
        print_dry_run(spec, site, as_json=as_json)
        return 0
    return _submit(spec, site, runs_dir, follows=follows, as_json=as_json, is_named=site_name is not None)


def _submit(
    spec: JobSpec, site: Site, runs_dir: Path | None, *, follows: bool, as_json: bool, is_named: bool
) -> int:
    """Submit one job, and print its run. `is_named`: whether the user named the site."""
    from castoff.launcher.runs.provenance import read, words
    from castoff.launcher.schedulers.choice import not_described
    from castoff.launcher.submission.submit import submit

    run = submit(spec, site, runs_dir=runs_dir)
    report_changes(spec, site)
    if not is_named and (note := not_described(site)):
        report(note)
    record = run.submission()
    hours = record.node_hours if record else None
    if as_json:
        print_json({"id": run.id, "job": run.job, "directory": str(run.path), "node_hours": hours})
        return 0
    code = read(run)
    print_facts(
        run=run.id,
        job=f"{run.job} ({site.scheduler})",
        directory=run.path,
        code=words(run) or None,
        snapshot=code.snapshot.words() if code and code.snapshot else None,
        node_hours="no walltime, so no bound" if hours is None else f"at most {hours:.2f}",
    )
    if not follows:
        return 0
    from castoff.launcher.cli.follow import follow_run

    return follow_run(run)
