"""castoff cancel: end runs."""

from __future__ import annotations

import click

from launcher.cli.help import examples
from launcher.cli.output import ending_words, json_option, print_json
from launcher.cli.run_options import run_options, runs_meant
from launcher.errors import CastoffError


@click.command("cancel", epilog=examples("castoff cancel train", "castoff cancel --name 'sweep*'"))
@run_options
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone.

    However many there are, their scheduler is asked to end all of them at once.
    """
    from launcher.submission.cancel import end

    wishes = end(runs_meant(runs, names))
    for one in wishes:
        if (now := one.after) is None:
            continue
        if as_json:
            print_json({"id": now.id, "state": now.state, "ending": now.ending})
        else:
            click.echo(f"{now.id}: {ending_words(now, '' if one.asked else ' already')}")
    problems = [one.problem for one in wishes if one.problem]
    if problems:
        raise CastoffError("\n".join(problems))
    return 0
