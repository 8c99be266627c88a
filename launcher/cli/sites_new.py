"""castoff sites new and castoff sites probe: make a profile from what this machine reports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from castoff.launcher.cli.offers import F, complete_runs, complete_sites, set_option
from castoff.launcher.cli.output import duration, ending_words, report
from castoff.launcher.config.quantities import units
from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.schedulers.choice import site_named
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import counted


def _probe_options(function: F) -> F:
    function = click.option(
        "--timeout",
        default="10m",
        callback=duration,
        show_default=True,
        help="How long to wait for the probe's job.",
    )(function)
    return set_option(function)


@click.command("new", short_help="Make a profile of this machine.")
@click.argument("name")
@click.option("-o", "output", type=click.Path(), help="Write the profile to this file; - prints it.")
@click.option(
    "--project", is_flag=True, help="Write it into the project's .castoff/sites, for all who use the project."
)
@click.option("--queue", help="The queue whose nodes it describes.  [default: the scheduler's default]")
@click.option("--gpu-type", help="The type of GPU that these nodes have, as the scheduler calls it.")
@click.option(
    "--scheduler",
    type=click.Choice(HAVE_DIRECTIVES),
    help="The scheduler to ask.  [default: the first that this host has]",
)
@click.option("--probe", "also_probe", is_flag=True, help="Then ask a node, as `castoff sites probe` does.")
@_probe_options
def new(
    name: str,
    output: str | None,
    project: bool,
    queue: str | None,
    gpu_type: str | None,
    scheduler: str | None,
    also_probe: bool,
    timeout: int,
    overrides: tuple[str, ...],
) -> None:
    """Make a profile of this machine from what its scheduler reports: queues, limits, nodes, accounts.

    Whatever the scheduler does not report becomes a question in the profile, a line with `# ?`. The profile
    is written to your profiles, or with --project to the project's, and never replaces one.
    """
    # Imported late, since a shell that completes options waits for this module.
    from castoff.launcher.siting.entries import count_questions
    from castoff.launcher.siting.new import destination, proposal, refuse_existing, write_profile

    search = Search.here()
    path = destination(name, search, project=project)
    if output is None:
        refuse_existing(path, search)
    proposed = proposal(path, search, queue=queue, gpu_type=gpu_type, scheduler=scheduler, project=project)
    if output == "-":
        click.echo(proposed.text, nl=False)
        return
    if output is not None:
        path = Path(output)
        if path.exists() or path.is_symlink():
            raise CastoffError(f"-o: {printable(output)} exists already; name another file, or remove it")
    write_profile(path, proposed.text)
    click.echo(f"wrote      {printable(str(path))}")
    click.echo(f"node       {proposed.node}")
    if also_probe and output is None:
        _probe(site_named(name, search=search), timeout, overrides)
    if questions := count_questions(path.read_text(encoding="utf-8")):
        click.echo(f"open       {counted(questions, 'question')} in it, the lines with `# ?`")
    if output is not None:
        return
    word = visible_word(name)
    click.echo(f"next       castoff render --site {word} --nodes 2 --walltime 30m -- python train.py")
    click.echo(
        f"           export CASTOFF_SITE={word}   or `site: {word}` in .castoff/config.yaml: for every job"
    )
    if not also_probe:
        click.echo(f"           castoff sites probe {word}   a job that asks one of its nodes")


@click.command("probe", short_help="Ask a node for what its scheduler does not know.")
@click.argument("name", shell_complete=complete_sites)
@click.option(
    "--run",
    "reference",
    help="Read the answer of this earlier run; submit no job.",
    shell_complete=complete_runs,
)
@_probe_options
def probe(name: str, reference: str | None, timeout: int, overrides: tuple[str, ...]) -> None:
    """Ask a node for what its scheduler does not know, by a two-minute job, and write it into the profile.

    The node reports its sockets and the numbers of their cores, its devices and the cores nearest to each,
    its own disks, modules, its mpiexec, and whether ssh works between nodes. --set gives the job what it
    needs, such as an account.
    """
    _probe(site_named(name), timeout, overrides, reference)


def _probe(site: Site, timeout: int, overrides: Sequence[str], reference: str | None = None) -> None:
    from castoff.launcher.runs.index import Index
    from castoff.launcher.schedulers.machine_questions import ask
    from castoff.launcher.siting.new import probe_profile
    from castoff.launcher.siting.probe import parse
    from castoff.launcher.siting.probe_job import collect, remote_shell, start_probe

    word = visible_word(site.name)
    info = ask(site)
    if reference is None:
        run = start_probe(site, info, overrides)
        report(f"site {site.name}: run {run.id} probes a node; waiting up to {units(timeout)}")
    else:
        run = Index.of(os.environ).find(reference)
    answer, status = collect(run, timeout)
    why = f": {status.reason}" if status.reason else ""
    if not status.over:
        raise CastoffError(
            f"run {run.id} is still {status.state}{why}; the profile is unchanged. When the run is over: "
            f"castoff sites probe {word} --run {run.id}; to do without: castoff cancel {run.id}"
        )
    if answer is None:
        raise CastoffError(
            f"run {run.id} asked no node, {ending_words(status)}{why}; see castoff logs {run.id}"
        )
    facts = parse(answer)
    change = probe_profile(site, info, facts, remote_shell(site)[1], Search.here())
    click.echo(f"asked      {printable(facts.host)}: {facts.words()}")
    if status.ending != "done":
        click.echo(f"but        not all ranks started: {ending_words(status)}; see castoff logs {run.id}")
    click.echo(f"{'wrote' if change.changed else 'unchanged':10} {printable(str(change.path))}")
    for reason in change.left:
        click.echo(f"not written: {reason}")
