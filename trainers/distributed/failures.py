"""Reports why a rank fails, also to the ranks that would wait for it, and exits.

The context `reported` writes an error as soon as it leaves it, to the process's original standard error.
Written later, it could be lost: torchrun withholds output at the very end, and ranks exit at once.
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
"""The type of sys.excepthook."""

_MOMENT = 5.0
"""Seconds that a rank waits for another to report the same error in full, before it exits and the launcher
ends all ranks."""

_SHORT = 300
"""The most characters of a one-line report."""

_INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""

_reporting = False
"""Whether a context of `reported` is active."""


@contextmanager
def reported(
    me: Rank, folder: str | None = None, own_words: OwnWords = str, *, ends: bool = False
) -> Iterator[None]:
    """Write an error that leaves this context to standard error, except an early stop; see `report`.

    The program may catch the error. If it does not, or if `ends` is set, the process exits with code 1, and
    the error is not shown twice. Of nested contexts the outermost reports.
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
    """Report an error, and exit with code 1; see `report`."""
    leave(me, at_once=report(error, me, folder, own_words))


def leave(me: Rank, *, at_once: bool) -> NoReturn:
    """Exit with code 1; `at_once`: this rank reported the error in full, so it need not wait for others.

    With several ranks nothing is cleaned up: leaving the process group might wait for ranks that wait for
    this one, whereas they notice that this process exits.
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
    """Write an error to standard error; returns whether this rank may exit first.

    `own_words` translates a message to a training system's field names; `folder` is training.path, once
    known. If several ranks have the same error, one writes it in full, the others in a line. The error is
    also sent to ranks that will wait for this one.
    """
    call = _health_check()
    if call is not None:
        error = _with_names(error, call)
    explanation = explained(error, folder)
    message = None if explanation is None else own_words(explanation)
    lines = _traceback(error, me) if message is None else _marked(message, me)
    reporter = _reporter(error, message, me, call)
    if reporter == me.rank:
        _write(lines)
    else:
        _write(_marked(_in_a_line(message or brief(error), len(lines), reporter), me))
    if call is not None:
        call.ended(brief(error))
        call.has_reported()
    if reporter is None and len(lines) > 1:
        pause(_MOMENT)  # if rank 0 has the same error, the launcher ends this rank meanwhile
        _write(lines)
        return True
    return reporter == me.rank and not getattr(error, "is_explained", False)


def words(text: str) -> list[str]:
    """The lines of a message, each prefixed with `castoff train`."""
    return [f"castoff train: {line}" for line in text.splitlines()]


def _reporter(error: Exception, message: str | None, me: Rank, call: RankHealthCheck | None) -> int | None:
    """The rank that reports the error in full."""
    reporting = getattr(error, "reporting_rank", None)
    if reporting is not None:
        return int(reporting)
    if call is not None:
        return call.first_to_report(_key(error, message))
    return None if me.rank and message is not None else me.rank


def _key(error: BaseException, message: str | None) -> str:
    """A key that is the same for ranks with the same error."""
    if message is None:
        lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        message = f"{type(error)} {lines}"
    return hashlib.sha256(message.encode(errors="replace")).hexdigest()[:16]


def _traceback(error: BaseException, me: Rank) -> list[str]:
    """The traceback's lines, each prefixed with the rank, as torch does."""
    mark = f"[rank{me.rank}]: " if me.world_size > 1 else ""
    trace = error.__traceback__
    if trace is not None and trace.tb_frame.f_code.co_filename == __file__:  # the frame of `reported`
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
    """After a failed collective, an error that names the missing ranks; other errors are unchanged."""
    from castoff.trainers.distributed.errors import RanksLost, of_a_collective

    if isinstance(error, RanksLost) or not of_a_collective(error):
        return error
    return missing_ranks(error, call)


def _health_check() -> RankHealthCheck | None:
    """The health check, which passes errors to other ranks; None: there are none, or they are not
    connected yet.
    """
    if "torch" not in sys.modules:
        return None
    from castoff.trainers.distributed.process_group import health_check

    return health_check()


def _report_who_ends(error: KeyboardInterrupt | SystemExit, me: Rank) -> None:
    """Report the place and the rank of Ctrl-C or sys.exit, which Python does not."""
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
    """Replaces sys.excepthook: an error that has been reported is not shown again."""
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
    """Replaces threading.excepthook: adds the rank, and reports once for all ranks. The program continues."""
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
    """Whether this is an interactive session, which shows errors and continues."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _report_crashes() -> None:
    """Have Python write the stack when a crash's signal, such as SEGV, ends the process."""
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)


def _write(lines: list[str]) -> None:
    """Write to the process's original standard error, because a replacement of sys.stderr might buffer
    everything.
    """
    stream = sys.__stderr__ or sys.stderr
    if stream is not None:
        with suppress(OSError, ValueError):  # a broken pipe, or a closed stream
            print(*lines, sep="\n", file=stream, flush=True)


def _exit(code: int) -> NoReturn:
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
