"""castoff cancel."""

from __future__ import annotations

import click

from launcher.cli.output import ending_words, json_option, print_json
from launcher.cli.run_options import run_options, runs_meant
from launcher.errors import CastoffError
from launcher.status.watch import statuses


@click.command("cancel")
@run_options
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone.

    However many there are, their scheduler is asked to end all of them at once.
    """
    from launcher.submission.cancel import end

    wishes = end(runs_meant(runs, names))
    problems = [one.problem for one in wishes if one.problem]
    ended = [one for one in wishes if not one.problem]
    for one, now in zip(ended, statuses(one.run for one in ended), strict=True):
        if as_json:
            print_json({"id": now.id, "state": now.state, "ending": now.ending})
        else:
            click.echo(f"{now.id}: {ending_words(now, '' if one.asked else ' already')}")
        if one.is_active:
            why = f"; {now.reason}" if now.reason else ""
            problems.append(f"{now.id}: still not over after {one.patience:g} s{why}")
    if problems:
        raise CastoffError("\n".join(problems))
    return 0
