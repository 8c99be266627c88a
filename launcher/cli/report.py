"""castoff report: write a run's page."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import complete_runs
from castoff.launcher.cli.output import is_terminal, report, write_output
from castoff.launcher.cli.results import ranking_options
from castoff.launcher.cli.run_options import part_meant, selectors_argument
from castoff.launcher.runs.index import Index
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.text.quoting import visible_word

_OTHER_FORMATS = (".pdf", ".png", ".svg", ".jpg", ".md", ".txt", ".tex", ".csv", ".json", ".docx")
"""Endings of files that no page is written to, since its name would promise another format."""


@click.command(
    "report", epilog=examples("castoff report train > train.html", "castoff report sweep -o s.html")
)
@click.argument("run", required=False, shell_complete=complete_runs)
@selectors_argument()
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="Write to this file; default: standard output, or ID.html here if that is a terminal.",
)
@ranking_options
def command(
    run: str | None, selectors: tuple[str, ...], output: str | None, by: str | None, largest: bool | None
) -> None:
    """Write a page about a run: one HTML file that needs no network and no other file.

    It shows the request, attempts and their phases, hosts, the first failure, curves of all metrics, what the
    job used, and the code. For an array it compares the members, best first; of a group it draws the jobs.
    RUN is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory; without it,
    the newest run is meant. NAME=VALUE selects members by their parameters, as in lr=1e-3,seed=2.
    """
    # Imported late, since a shell that completes options waits for this module.
    from castoff.launcher.report.gathering import Wish, gather
    from castoff.launcher.report.group_page import group_page
    from castoff.launcher.report.page import page
    from castoff.launcher.status.group_states import GroupStates

    suffix = Path(output or "").suffix.lower()
    if suffix in _OTHER_FORMATS:
        page_file = visible_word(str(Path(str(output)).with_suffix(".html")))
        click.get_current_context().fail(
            f"-o {visible_word(str(output))}: the page is HTML, not {suffix}: -o {page_file}; "
            "a browser prints it as PDF"
        )
    if run is not None and (group := Index.of(os.environ).group(run)):
        name = group.id
        text = group_page(GroupStates.of(group, Poller(AT_A_GLANCE)), time.time())
    else:
        directory, members = part_meant(run, selectors)
        name = directory.id
        text = page(gather(directory, Wish(by, largest, members or None), Poller(AT_A_GLANCE)))
    if output is None and is_terminal(sys.stdout):
        output = f"{name}.html"
    if output in (None, "-"):
        click.echo(text.encode(), nl=False)
    else:
        write_output(str(output), text, 0o600)
        report(f"wrote {Path(str(output)).absolute()}")
