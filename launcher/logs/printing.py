"""Printing the logs of attempts as they are now: the first rank that failed, then all ranks' lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from launcher.errors import CastoffError
from launcher.logs.failures import failed_rank
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
    sources = [Source(member, attempt.attempt) for member, attempt in attempts]
    failures = [(source, failed_rank(run, *one)) for source, one in zip(sources, attempts, strict=True)]
    failed = [(source, one) for source, one in failures if one and not selection.ranks]
    for source, one in sorted(failed, key=lambda found: found[1].time):
        write(show.failure(source, one, one.excerpt()))
    problems = []
    for source in sources:
        for log in _logs(run, source, selection, show):
            for block in _last(log.rest(0.0), selection.tail):
                write(block)
            if log.trouble:
                problems.append(log.trouble)
    if problems:
        raise CastoffError("\n".join(problems))


def _logs(run: Run, of: Source, selection: Selection, show: Show) -> Iterator[Log]:
    """The logs that hold an attempt's lines: one where they are merged, else each rank's and the script's."""
    # Its last lines may be another attempt's.
    tail = selection.tail if selection.attempt is None else None
    script = selection._replace(attempt=of.attempt, tail=tail)
    wants_script = not selection.ranks and run.script_log(of.member).exists()
    if not (wants_script and is_merged(run)):
        for source, path in rank_logs(run, of.member, of.attempt, selection.ranks):
            yield rank_log(source, path, selection, show)
    if wants_script:
        yield ScriptLog(run, of.member, script, show)


def _last(blocks: Iterable[bytes], count: int | None) -> Iterable[bytes]:
    """Blocks of whole lines; with `count`, the last so many lines."""
    if count is None:
        return blocks
    lines = deque((line for block in blocks for line in block.split(b"\n")[:-1]), count)
    return (line + b"\n" for line in lines)
