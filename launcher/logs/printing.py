"""Prints the existing logs of attempts: the rank that failed first, then the lines of all ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from castoff.launcher.errors import CastoffError
from castoff.launcher.logs.failures import failed_rank
from castoff.launcher.logs.lines import Source
from castoff.launcher.logs.show import Show, Text
from castoff.launcher.logs.sources import READ, Log, ScriptLog, Selection, is_merged, rank_log, rank_logs
from castoff.launcher.logs.tail import tail_start
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.run import RunDirectory, begun_attempts
from castoff.launcher.runs.states import AttemptStatus


def write_logs(
    run: RunDirectory,
    attempts: list[tuple[int, AttemptStatus]],
    selection: Selection,
    write: Callable[[bytes], None],
    *,
    terminal: bool = False,
    colours: bool = False,
) -> None:
    """Write the lines of attempts, given as pairs of member and attempt.

    A single rank's log is written byte for byte, unless the output is a `terminal`.

    Raises:
        CastoffError: a selected log is missing, or some cannot be read; all others were written.
    """
    for rank in sorted(selection.ranks):
        if not any(rank_logs(run, member, one.attempt, [rank]) for member, one in attempts):
            log = f"{attempts[0][1].logs}/rank-{rank:05d}.log"
            raise CastoffError(f"{log}: no such log; without --rank all existing output is shown")
    alone = len(attempts) == len(selection.ranks) == 1
    if alone and not terminal:
        ((member, attempt),) = attempts
        ((_, path),) = rank_logs(run, member, attempt.attempt, selection.ranks)
        _copy(path, selection.tail, write)
    else:
        show = Text(several=len(attempts) > 1, terminal=terminal, colours=colours, labels=not alone)
        _write_lines(run, attempts, selection, show, write)


def _copy(path: Path, tail: int | None, write: Callable[[bytes], None]) -> None:
    """Write a log's bytes unchanged."""
    with path.open("rb") as file:
        file.seek(0 if tail is None else tail_start(path, tail))
        while block := file.read(READ):
            write(block)


def _write_lines(
    run: RunDirectory,
    attempts: list[tuple[int, AttemptStatus]],
    selection: Selection,
    show: Show,
    write: Callable[[bytes], None],
) -> None:
    sources = [Source(member, attempt.attempt) for member, attempt in attempts]
    failures = [(source, failed_rank(run, *one)) for source, one in zip(sources, attempts, strict=True)]
    failed = [(source, one) for source, one in failures if one and not selection.ranks]
    for source, one in sorted(failed, key=lambda found: found[1].time):
        write(show.failure(source, one, one.excerpt()))
    problems, begun, plan = [], begun_attempts(run), run.facts()
    for source in sources:
        for log in _logs(run, plan, source, begun.get(source.member, []), selection, show):
            for block in _last(log.rest(0.0), selection.tail):
                write(block)
            if log.trouble:
                problems.append(log.trouble)
    if problems:
        raise CastoffError("\n".join(problems))


def _logs(
    run: RunDirectory, plan: Facts, of: Source, attempts: list[int], selection: Selection, show: Show
) -> Iterator[Log]:
    """The logs with an attempt's lines: the merged log, or each rank's log and the script's. `attempts`: all
    of its member.
    """
    # The last lines of the script's log may belong to another attempt.
    tail = selection.tail if selection.attempt is None else None
    script = selection._replace(attempt=of.attempt, tail=tail)
    wants_script = not selection.ranks and run.script_log(of.member).exists()
    if not (wants_script and is_merged(plan)):
        for source, path in rank_logs(run, of.member, of.attempt, selection.ranks):
            yield rank_log(source, path, selection, show)
    if wants_script:
        yield ScriptLog(run, plan, of.member, attempts, script, show)


def _last(blocks: Iterable[bytes], count: int | None) -> Iterable[bytes]:
    """Limit blocks of whole lines to the last `count` lines; None: all."""
    if count is None:
        return blocks
    lines = deque((line for block in blocks for line in block.split(b"\n")[:-1]), count)
    return (line + b"\n" for line in lines)
