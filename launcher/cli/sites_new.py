"""castoff sites new and castoff sites probe: a profile from what this machine reports."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.output import report, several
from launcher.config.site import Search
from launcher.errors import CastoffError, printable
from launcher.quoting import visible_word
from launcher.schedulers.registry import HAVE_DIRECTIVES


@click.command("new")
@click.argument("name")
@click.option("-o", "output", type=click.Path(), help="Another file for it; - prints it.")
@click.option("--project", is_flag=True, help="Put it into the project's .castoff/sites, for all who use it.")
@click.option("--queue", help="The queue whose nodes it is for.  [default: the scheduler's default]")
@click.option(
    "--scheduler",
    type=click.Choice(HAVE_DIRECTIVES),
    help="The one to ask.  [default: the first that is here]",
)
def new(name: str, output: str | None, project: bool, queue: str | None, scheduler: str | None) -> None:
    """Make a profile of this machine from what its scheduler says: queues, limits, nodes, accounts.

    What the scheduler does not say stands in it as a question, a line with `# ?`. It goes to your profiles,
    or with --project to the project's, and never over one that is there.
    """
    # Late, like what it runs.
    from launcher.schedulers.site_draft import questions_of
    from launcher.schedulers.site_new import destination, proposal, write_profile

    search = Search.here()
    path = destination(name, search, project=project)
    found = proposal(path, search, queue=queue, scheduler=scheduler, project=project)
    report(f"site {name}: {found.asked}")
    if output == "-":
        click.echo(found.text, nl=False)
        return
    if output is not None:
        path = Path(output)
        if path.exists() or path.is_symlink():
            raise CastoffError(f"-o: {printable(output)} is there already; name another file, or remove it")
    write_profile(path, found.text)
    click.echo(f"wrote      {printable(str(path))}")
    if questions := questions_of(found.text):
        click.echo(f"open       {several(questions, 'question')} in it, the lines with `# ?`")
    if output is None:
        word = visible_word(name)
        click.echo(f"next       castoff render --site {word} --nodes 2 --walltime 30m -- python train.py")
        click.echo(
            f"           castoff sites probe {word}   asks a node for what the scheduler does not know"
        )
