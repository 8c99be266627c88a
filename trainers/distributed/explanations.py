"""Messages of errors that a user can correct, and the place of a mistake in a program."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from castoff.trainers.configuration.fields import UserError

if TYPE_CHECKING:
    from castoff.trainers.distributed.errors import RanksLost
    from castoff.trainers.distributed.health_check import RankHealthCheck

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


def explained(error: Exception, folder: str | None) -> str | None:
    """The message of an error for a user; None for a mistake in the program, which needs its traceback."""
    if isinstance(error, UserError):
        return str(error)
    system = _behind(error)
    if system is not None and folder is not None and _concerns(system, Path(folder)):
        return f"training.path: {system.filename or folder}: {system.strerror or system}"
    if "torch" not in sys.modules:
        return None
    from castoff.trainers.distributed.errors import lost_peers

    if lost_peers(error):
        text = " ".join(str(error).split())
        return f"the ranks could not connect, or another rank has ended, and its log has the reason: {text}"
    return None


def _behind(error: Exception) -> OSError | None:
    """The OSError that an error is, or that caused it: torch.save reports a full disk in this way."""
    if isinstance(error, OSError):
        return error
    before = error.__context__
    return before if isinstance(before, OSError) and before.errno in _FULL else None


def _concerns(error: OSError, folder: Path) -> bool:
    """Whether an OSError concerns the run's folder, or a full or read-only disk."""
    if error.filename is None:
        return error.errno in _FULL
    if not isinstance(error.filename, str):
        return False
    path, folder = Path(error.filename).absolute(), folder.absolute()
    return path.is_relative_to(folder) or folder.is_relative_to(path)


def brief(error: BaseException) -> str:
    """An error in one line; the traceback that a loader worker's error quotes is left out."""
    first, *more = str(error).strip().splitlines() or [""]
    return " … ".join([f"{type(error).__name__}: {first}", *more[-1:]])


def place_of(error: BaseException) -> str:
    """The place where an error was raised; see `place_in`."""
    return place_in([frame for frame, _ in traceback.walk_tb(error.__traceback__)])


def place_in(frames: Sequence[FrameType]) -> str:
    """The innermost frame outside torch and Python's library, in words; `frames` start with the outermost."""
    for frame in reversed(frames):
        path = Path(frame.f_code.co_filename)
        if module_of(frame).partition(".")[0] not in ("torch", *sys.stdlib_module_names):
            return f"in {frame.f_code.co_name} ({path.name}:{frame.f_lineno})"
    return "in no code of this program"


def module_of(frame: FrameType) -> str:
    """The name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def missing_ranks(error: BaseException, call: RankHealthCheck, waits_for: str | None = None) -> RanksLost:
    """The error that names the missing ranks after a collective failed; `waits_for`: what this rank waited
    for.
    """
    from castoff.trainers.distributed.errors import RanksLost

    raised = error.__cause__ or error  # a hook's error is raised again by the trainer
    verdict = call.hold("waits", waits_for or place_of(raised))
    if verdict.is_explained:
        return RanksLost(verdict, call.rank)
    call.show_threads()
    message = " ".join(str(error).split())
    return RanksLost(verdict, call.rank, [f"rank {call.rank} got the error: {message}"])
