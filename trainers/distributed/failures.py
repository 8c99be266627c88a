"""How a rank that cannot continue exits: it reports why, also to the ranks that would wait for it.

What is wrong is written by the block in which it was raised, on the stream that the process began with. So
nothing that comes later can lose it: torch holds back what is written at the very end, and ranks end at once.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from castoff.launcher.ranks import RankEnv
from castoff.trainers.distributed.explanations import brief, explained, missing_ranks, place_of
from castoff.trainers.distributed.stacks import write_stacks_on_request
from castoff.trainers.distributed.termination import pause

if TYPE_CHECKING:
    from castoff.trainers.distributed.health_check import RankHealthCheck
    from castoff.trainers.distributed.process_group import RankContext

Rank: TypeAlias = "RankEnv | RankContext"
OwnWords: TypeAlias = Callable[[str], str]
Hook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], Any]
"""As sys.excepthook."""

_MOMENT = 5.0
"""Seconds that a rank leaves another to say the same in full: a launcher ends all ranks at one failure."""

_SHORT = 300
"""Characters of what such a rank says."""

_INTERRUPTED = 130
"""Exit code of a process that Ctrl-C has ended, as shells report it."""

_reporting = False
"""Whether a block of `reported` lasts."""


@contextmanager
def reported(
    me: Rank, folder: str | None = None, own_words: OwnWords = str, *, ends: bool = False
) -> Iterator[None]:
    """What leaves this block, but an early stop, is on standard error by then; see `report`.

    The program may catch it. If it does not, or `ends`, the process ends with 1, and nothing is shown twice.
    Of blocks inside each other the outermost one reports.
    """
    global _reporting
    if _reporting or _is_interactive():
        yield
        return
    _reporting, in_threads = True, threading.excepthook
    threading.excepthook = partial(_thread_ended, in_threads, me)
    _report_crashes()
    write_stacks_on_request(me.rank)
    try:
        yield
    except Exception as error:
        at_once = report(error, me, folder, own_words)
        if ends:
            leave(me, at_once=at_once)
        sys.excepthook = partial(_uncaught, sys.excepthook, error, me, at_once)
        raise
    except (KeyboardInterrupt, SystemExit) as error:
        _report_who_ends(error, me)
        if ends and isinstance(error, KeyboardInterrupt):
            _exit(_INTERRUPTED)
        raise
    finally:
        _reporting, threading.excepthook = False, in_threads


def end(error: Exception, me: Rank, folder: str | None, own_words: OwnWords = str) -> NoReturn:
    """Say what is wrong, and exit with 1; see `report`."""
    leave(me, at_once=report(error, me, folder, own_words))


def leave(me: Rank, *, at_once: bool) -> NoReturn:
    """Exit with 1; `at_once`: whether no other rank is to leave before, being the one that has said why.

    Where there are several ranks, nothing is cleaned up: leaving a process group can wait for ranks
    that wait for this one, while the end of this process is what they notice.
    """
    if me.world_size == 1:
        sys.exit(1)
    call = _health_check()
    if not at_once:
        pause(_MOMENT)
    elif call is not None:
        call.linger()
    _exit(1)


def report(error: Exception, me: Rank, folder: str | None, own_words: OwnWords = str) -> bool:
    """Write what is wrong on standard error; whether this rank may be the first to leave.

    `own_words` are a system's, and `folder` is training.path, once known. Of ranks that have the same error
    one says it in full, the others in a line. It is reported to ranks that will wait for this one.
    """
    call = _health_check()
    if call is not None:
        error = _with_names(error, call)
    explanation = explained(error, folder)
    known = None if explanation is None else own_words(explanation)
    lines = _traceback(error, me) if known is None else _marked(known, me)
    reporter = _reporter(error, known, me, call)
    if reporter == me.rank:
        _write(lines)
    else:
        _write(_marked(_in_a_line(known or brief(error), len(lines), reporter), me))
    if call is not None:
        call.ended(brief(error))
        call.has_reported()
    if reporter is None and len(lines) > 1:
        pause(_MOMENT)  # had rank 0 the same error, this rank would be ended meanwhile
        _write(lines)
        return True
    return reporter == me.rank and not getattr(error, "is_explained", False)


def words(text: str) -> list[str]:
    """A message's lines, each saying whose it is."""
    return [f"castoff train: {line}" for line in text.splitlines()]


def _reporter(error: Exception, known: str | None, me: Rank, call: RankHealthCheck | None) -> int | None:
    """The rank that says it in full; None where it may be this one, and may be rank 0."""
    reporting = getattr(error, "reporting_rank", None)
    if reporting is not None:
        return int(reporting)
    if call is not None:
        return call.first_to_report(_key(error, known))
    return None if me.rank and known is not None else me.rank


def _key(error: BaseException, known: str | None) -> str:
    """A key that is the same for ranks with the same error."""
    if known is None:
        lines = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
        known = f"{type(error)} {lines}"
    return hashlib.sha256(known.encode(errors="replace")).hexdigest()[:16]


def _traceback(error: BaseException, me: Rank) -> list[str]:
    """With the rank before each line, as torch has it."""
    mark = f"[rank{me.rank}]: " if me.world_size > 1 else ""
    trace = error.__traceback__
    if trace is not None and trace.tb_frame.f_code.co_filename == __file__:  # this module's own block
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    return [mark + line if line else "" for line in text.splitlines()]


def _marked(text: str, me: Rank) -> list[str]:
    return [line if me.rank == 0 else f"[RANK {me.rank}] {line}" for line in words(text)]


def _in_a_line(text: str, count: int, reporter: int | None) -> str:
    first = text.splitlines()[0]
    short = first if len(first) <= _SHORT else f"{first[: _SHORT - 3]}..."
    if reporter is not None:
        return f"{short} (as on rank {reporter})" if count == 1 else f"{short} (rank {reporter} says more)"
    return short if count == 1 else f"{short} (and {count - 1} more)"


def _with_names(error: Exception, call: RankHealthCheck) -> Exception:
    """Where a collective has failed: which ranks are missing."""
    from castoff.trainers.distributed.errors import RanksLost, of_a_collective

    if isinstance(error, RanksLost) or not of_a_collective(error):
        return error
    return missing_ranks(error, call)


def _health_check() -> RankHealthCheck | None:
    """Where errors are reported to other ranks; None where there are none, or they have not met."""
    if "torch" not in sys.modules:
        return None
    from castoff.trainers.distributed.process_group import health_check

    return health_check()


def _report_who_ends(error: KeyboardInterrupt | SystemExit, me: Rank) -> None:
    """Python ends a program by these without a word on where, and on which rank."""
    if isinstance(error, KeyboardInterrupt):
        if me.world_size == 1:
            return
        what = "KeyboardInterrupt"
        sys.excepthook = partial(_interrupted, sys.excepthook, error)
    elif type(error) is not SystemExit or error.code in (None, 0):
        return
    else:
        what = f"sys.exit({error.code!r})"
    words = f"{what} {place_of(error)}"
    _write(_marked(words, me))
    call = _health_check()
    if call is not None:
        call.ended(words)


def _uncaught(
    before: Hook,
    reported_one: Exception,
    me: Rank,
    at_once: bool,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Instead of sys.excepthook: what is on standard error already is not shown again."""
    if error is not reported_one:
        before(kind, error, trace)
    elif me.world_size > 1:
        leave(me, at_once=at_once)


def _interrupted(
    before: Hook,
    reported_one: KeyboardInterrupt,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    if error is not reported_one:
        before(kind, error, trace)
        return
    _exit(_INTERRUPTED)


def _thread_ended(before: Callable[[Any], Any], me: Rank, ended: threading.ExceptHookArgs) -> None:
    """Instead of threading.excepthook: with the rank, and once for all ranks. The program still runs on."""
    error = ended.exc_value
    if error is None or isinstance(error, SystemExit) or me.world_size == 1:
        before(ended)
        return
    name = "a thread" if ended.thread is None else ended.thread.name
    call = _health_check()
    reporter = me.rank if call is None else call.first_to_report(_key(error, None))
    if reporter == me.rank:
        _write([f"[rank{me.rank}]: Exception in thread {name}:", *_traceback(error, me)])
    else:
        _write(_marked(_in_a_line(f"in thread {name}: {brief(error)}", 1, reporter), me))


def _is_interactive() -> bool:
    """Whether a person's own session shows errors, and continues after them."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _report_crashes() -> None:
    """Have Python say where it was when a signal ends it that a crash sends."""
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)


def _write(lines: list[str]) -> None:
    """On the stream that the process began with: another one in its place may hold everything back."""
    stream = sys.__stderr__ or sys.stderr
    if stream is not None:
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            print(*lines, sep="\n", file=stream, flush=True)


def _exit(code: int) -> NoReturn:
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
