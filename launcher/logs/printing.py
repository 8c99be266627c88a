"""Printing the logs of attempts as they are now: the first rank that failed, then all ranks' lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from launcher.errors import CastoffError
from launcher.logs.failures import FailedRank, failed_rank
from launcher.logs.lines import Source
from launcher.logs.show import Show
from launcher.logs.sources import Log, ScriptLog, Selection, is_merged, rank_log, rank_logs
from launcher.runs.run import Run
from launcher.runs.states import AttemptStatus


def print_logs(
    run: Run,
    attempts: list[tuple[int, AttemptStatus]],
    selection: Selection,
    show: Show,
    write: Callable[[bytes], None],
) -> None:
    """Write the lines of attempts, each given with its member, and of which the newest where none is named.

    Raises:
        CastoffError: a log cannot be read; all that can be was written.
    """
    failed: dict[Source, FailedRank] = {}
    for member, attempt in [] if selection.ranks else attempts:
        if one := failed_rank(run, member, attempt):
            failed[Source(member, attempt.attempt)] = one
    first = min(failed, key=lambda source: failed[source].failure.time or 0.0, default=None)
    if first:
        write(show.failure(first, failed[first], failed[first].excerpt()))
    problems = []
    for member, attempt in attempts:
        source = Source(member, attempt.attempt)
        if source in failed and source != first:
            write(show.failure(source, failed[source], failed[source].excerpt()))
        for log in _logs(run, source, failed.get(source), selection, show):
            for block in _last(_drained(log), selection.tail):
                write(block)
            if log.trouble:
                problems.append(f"{log.path}: cannot be read: {log.trouble}")
    if problems:
        raise CastoffError("\n".join(problems))


def _logs(run: Run, of: Source, failed: FailedRank | None, selection: Selection, show: Show) -> Iterator[Log]:
    """The logs that hold an attempt's lines: one where they are merged, else each rank's and the script's."""
    # Its last lines may be another attempt's.
    tail = selection.tail if selection.attempt is None else None
    script = selection._replace(attempt=of.attempt, tail=tail)
    wants_script = not selection.ranks and run.script_log(of.member).exists()
    if not (wants_script and is_merged(run)):
        for source, path in rank_logs(run, of.member, of.attempt, selection.ranks):
            yield rank_log(source, path, selection, show)
    if wants_script:
        own = ScriptLog(run, of.member, script, show)
        if failed is not None:
            own.expect(of.attempt, failed)
        yield own


def _drained(log: Log) -> Iterator[bytes]:
    yield log.poll(time.monotonic())
    while log.grown:
        yield log.poll(time.monotonic())
    yield log.finish()


def _last(blocks: Iterable[bytes], count: int | None) -> Iterable[bytes]:
    """Blocks of whole lines; with `count`, the last so many lines."""
    if count is None:
        return blocks
    lines = deque((line for block in blocks for line in block.split(b"\n")[:-1]), count)
    return (line + b"\n" for line in lines)
