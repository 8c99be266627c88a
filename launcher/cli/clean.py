"""castoff clean: remove the directories of runs that are over."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NamedTuple

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import complete_runs
from castoff.launcher.cli.output import (
    age,
    brief,
    is_terminal,
    json_option,
    print_json,
    print_table,
    report,
)
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import Submission
from castoff.launcher.runs.removal import remove, size, sweep
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import ENDINGS, RunSummary, summary
from castoff.launcher.status.overview import Overview, Row
from castoff.launcher.status.script_output import failure_reason
from castoff.launcher.status.watch import status
from castoff.launcher.text.layout import Column
from castoff.launcher.text.shortened import cut_ids, cut_middles
from castoff.launcher.text.words import counted, size_words

_COLUMNS = (
    Column("run", least=16, shorten=cut_ids),
    Column("state"),
    Column("ended", goes=2),
    Column("size"),
    Column("folder", goes=1, least=24, shorten=cut_middles),
)


class _Candidate(NamedTuple):
    """A run that may be removed."""

    run: RunDirectory
    summary: RunSummary
    bytes: int


@click.command(
    "clean",
    epilog=examples(
        "castoff clean --older-than 30d --dry-run",
        "castoff clean --ending done --name 'test*'",
    ),
)
@click.argument("runs", nargs=-1, shell_complete=complete_runs)
@click.option(
    "--older-than",
    callback=age,
    metavar="AGE",
    help="Only runs that ended more than AGE ago, as 30d, or before a date.",
)
@click.option(
    "--ending",
    "endings",
    type=click.Choice([ending for ending in reversed(ENDINGS) if ending != "unknown"]),
    multiple=True,
    metavar="ENDING",
    help="Only runs with this ending, as done; may be repeated.",
)
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="Only runs of this name; * matches anything."
)
@click.option("--dry-run", "dry", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    runs: tuple[str, ...],
    older_than: int | None,
    endings: tuple[str, ...],
    names: tuple[str, ...],
    dry: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove the directories of runs that are over: RUNS, or all that the options allow.

    Asks first. Active runs, and runs that a waiting run needs, are never removed.
    """
    if not runs and older_than is None and not endings and not names:
        context.fail("name the runs, or choose them as in castoff clean --older-than 30d")
    if not (yes or dry) and (as_json or not is_terminal(sys.stdin)):
        context.fail("cannot ask without a terminal: give --yes, or --dry-run to see what would be removed")
    index = Index.of(os.environ)

    def allowed(summary: RunSummary) -> bool:
        return (
            (not endings or summary.ending in endings)
            and (not names or any(fnmatchcase(summary.name, name) for name in names))
            and (older_than is None or time.time() - _ended(summary) >= older_than)
        )

    candidates = _candidates(index, index.find_all(runs), allowed)
    if not as_json:
        _show(candidates)
    if candidates and not (dry or yes):
        together = size_words(sum(candidate.bytes for candidate in candidates))
        if not click.confirm(f"Remove {counted(len(candidates), 'run')}, {together}?", err=True):
            raise CastoffError("nothing was removed")
    removed, problems = ([], []) if dry else _remove(candidates, index)
    if as_json:
        for run, summary, bytes in candidates:
            facts = {"id": run.id, "directory": str(run.path), "ending": summary.ending, "bytes": bytes}
            print_json({**facts, "removed": run in removed})
    elif removed:
        report(f"removed {counted(len(removed), 'run')}")
    if problems:
        raise CastoffError("\n".join(problems))


def _candidates(
    index: Index, named: list[RunDirectory], allowed: Callable[[RunSummary], bool]
) -> list[_Candidate]:
    """The runs to remove. Raises an error if a run that the user named may not be removed."""
    overview = Overview.asked(index)
    needed = {  # the directory of each run that another waits for: the id of the waiting run
        path: row.entry.id
        for row in overview.rows
        if row.summary.state in ("pending", "unknown")
        for paths in (row.run.submission() or Submission()).after.values()
        for path in paths
    }
    meant, _ = overview.choose(lambda row: row.summary.state == "ended" and allowed(row.summary))
    candidates, problems = [], []
    for choice in named or meant:
        try:
            run = choice.run if isinstance(choice, Row) else choice
            candidate = _examine(run, needed, named=bool(named))
        except CastoffError as error:
            problems.append(str(error))
            continue
        if allowed(candidate.summary):
            candidates.append(candidate)
    if named and problems:
        raise CastoffError("\n".join(problems))
    for problem in problems:
        report(problem)
    return candidates


def _ended(summary: RunSummary) -> float:
    """The time a run ended; if that is unknown, the time it was submitted; else now."""
    return summary.ended or summary.submitted or time.time()


def _examine(run: RunDirectory, needed: dict[str, str], *, named: bool) -> _Candidate:
    """Check by its own records, not by the index, that a run may be removed; raise an error if not."""
    current = status(run)
    if current.unsettled:
        raise CastoffError(f"{run.id}: may still be active; {current.reason}")
    if not current.over:
        raise CastoffError(f"{run.id}: is {current.state}; castoff cancel {run.id} ends it")
    if waiting := needed.get(str(run.path)):
        raise CastoffError(f"{run.id}: {waiting} waits for it, and needs to see how it ended")
    likely = run.submission() is not None or (named and current.ending != "resume")
    if current.state != "ended" or not (current.final or likely):
        is_failure = current.reason == failure_reason(run, current.members, current.ending)
        reason = None if is_failure else current.reason
        why = reason or "castoff did not submit it, so its scheduler may still requeue it"
        fix = f"if you know that it is not active, remove {run.path} yourself"
        raise CastoffError(f"{run.id}: {why}; {fix}")
    return _Candidate(run, summary(current), size(run))


def _show(candidates: list[_Candidate]) -> None:
    if not candidates:
        report("there is nothing to remove")
        return
    now = time.time()
    rows = [
        (
            run.id,
            summary.ending or "",
            f"{brief(now - _ended(summary))} ago",
            size_words(bytes),
            str(run.path.parent),
        )
        for run, summary, bytes in candidates
    ]
    print_table(_COLUMNS, rows)


def _remove(candidates: list[_Candidate], index: Index) -> tuple[list[RunDirectory], list[str]]:
    """Remove runs and the remains of earlier removals; returns the removed runs and the error messages."""
    removed, problems = [], []
    for candidate in candidates:
        try:
            remove(candidate.run)
            removed.append(candidate.run)
            index.forget([candidate.run])
        except CastoffError as error:
            problems.append(str(error))
    for folder in {*index.folders(), *(candidate.run.path.parent for candidate in candidates)}:
        sweep(folder)
    return removed, problems
