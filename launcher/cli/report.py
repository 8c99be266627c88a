"""castoff report: write the page of a run, or one that compares runs."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from castoff.launcher import clock
from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import complete_runs_and_parameters
from castoff.launcher.cli.output import interval_seconds, is_terminal, report, write_output
from castoff.launcher.cli.results import ranking_options
from castoff.launcher.cli.run_options import selected
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.parameters import is_selector
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.text.quoting import visible_word

if TYPE_CHECKING:
    from castoff.launcher.report.subject import Seen, Subject

_OTHER_FORMATS = (".pdf", ".png", ".svg", ".jpg", ".md", ".txt", ".tex", ".csv", ".json", ".docx")
"""Endings of files that no page is written to, since its name would promise another format."""


def _page_file(context: click.Context, _option: click.Parameter, output: str | None) -> str | None:
    """Refuse a file of another format."""
    suffix = Path(output or "").suffix.lower()
    if suffix in _OTHER_FORMATS:
        page_file = visible_word(str(Path(str(output)).with_suffix(".html")))
        context.fail(
            f"-o {visible_word(str(output))}: the page is HTML, not {suffix}: -o {page_file}; "
            "a browser prints it as PDF"
        )
    return output


@click.command(
    "report",
    epilog=examples(
        "castoff report train > train.html",
        "castoff report sweep -o s.html",
        "castoff report a b c -o abc.html",
        "castoff report train --watch",
    ),
)
@click.argument(
    "runs", nargs=-1, metavar="[RUNS...] [NAME=VALUE...]", shell_complete=complete_runs_and_parameters
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    callback=_page_file,
    help="Write to this file; default: standard output, or ID.html here if that is a terminal.",
)
@ranking_options
@click.option("--watch", is_flag=True, help="Write it again at intervals, until all is over or Ctrl-C.")
@click.option(
    "--interval",
    callback=interval_seconds,
    default="10s",
    metavar="TIME",
    help="Time between two pages of --watch; default: 10s.",
)
def command(
    runs: tuple[str, ...],
    output: str | None,
    by: str | None,
    largest: bool | None,
    watch: bool,
    interval: float,
) -> None:
    """Write a page about a run: one HTML file that needs no network and no other file.

    It shows the request, attempts and their phases, hosts, the first failure, curves of all metrics, what the
    job used, and the code. For an array it compares the members, best first; of a group it draws the jobs. It
    compares several RUNS: final metrics, what differs, and curves. With --watch, browsers load it again.

    Each of RUNS is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory;
    without any, the newest run is meant. NAME=VALUE after a run selects its members, as in lr=1e-3,seed=2.
    """
    subject = _subject(runs, by, largest)
    if output is None and is_terminal(sys.stdout):
        output = f"{subject.name}.html"
    prints = output in (None, "-")

    def write(text: str) -> None:
        if prints:
            click.echo(text.encode(), nl=False)
            sys.stdout.flush()
        else:
            write_output(str(output), text, 0o600)

    where = "" if prints else str(Path(str(output)).absolute())
    if watch:
        from castoff.launcher.cli.follow import pause
        from castoff.launcher.history.reading import readers_kept

        # Where nobody reads the pages any more, as after a broken connection, nobody needs more of them.
        with readers_kept():
            _watch(subject, write, where, interval, pause if prints else clock.sleep)
    else:
        write(_look(subject, Poller(AT_A_GLANCE)).page(None))
    if where:
        report(f"wrote {where}")


def _subject(words: tuple[str, ...], by: str | None, largest: bool | None) -> Subject:
    """The run, the runs or the group that is meant."""
    # Imported late, since a shell that completes options waits for this module.
    from castoff.launcher.report.gathering import Wish
    from castoff.launcher.report.subject import of_group, of_run, of_runs

    if len(words) == 1 and (group := Index.of(os.environ).group(words[0])):
        return of_group(group)
    meant = selected(words, ())
    if len(meant.runs) > 1:
        return of_runs(meant.runs, meant.of, Wish(by, largest))
    (run,) = meant.runs
    if all(map(is_selector, words)):
        report(f"{run.id}: the newest run")
    return of_run(run, Wish(by, largest, meant.members.get(str(run.path))))


def _look(subject: Subject, poller: Poller) -> Seen:
    from castoff.launcher.cli.reading_line import reading_line

    with reading_line(subject.runs):
        return subject.look(poller)


def _watch(
    subject: Subject,
    write: Callable[[str], None],
    where: str,
    interval: float,
    rest: Callable[[float], None],
) -> None:
    """Write the page at intervals until all runs are over; the last one is not loaded again, also after
    Ctrl-C.
    """
    poller, refresh, seen = Poller(AT_A_GLANCE), math.ceil(interval), None
    try:
        while not (seen := _look(subject, poller)).over:
            write(seen.page(refresh))
            if where:
                report(f"writes {where} every {interval:g} s; Ctrl-C ends this")
                where = ""
            rest(interval)
    except KeyboardInterrupt:
        if seen is not None:
            write(seen.page(None))
        raise
    write(seen.page(None))
