"""How a rank that cannot go on ends: in words for what a user can mend, with a traceback for the rest."""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from launcher.ranks import RankEnv
from trainers.core.fields import ConfigError

if TYPE_CHECKING:
    from trainers.core.distributed import Place

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)

_MOMENT = 2.0
"""Seconds that another rank than 0 leaves rank 0 to say the same in full: a starter ends all ranks
at the first that fails."""

_SHORT = 300
"""Characters of what such a rank says."""


def end(
    error: Exception, me: RankEnv | Place, folder: str | None, own_words: Callable[[str], str] = str
) -> NoReturn:
    """Say what is wrong, in a system's `own_words`, and exit with 1; `folder` is training.path, once known.

    Where there are several ranks, nothing is cleaned up: leaving a process group can wait for ranks
    that wait for this one, while the end of this process is what they notice.
    """
    explanation = explained(error, folder)
    known = "" if explanation is None else own_words(explanation)
    if explanation is None:
        traceback.print_exception(error)
    elif me.rank == 0 or getattr(error, "in_full", False):
        print(*words(known), sep="\n", file=sys.stderr)
    else:
        first, *more = known.splitlines()
        short = first if len(first) <= _SHORT else f"{first[: _SHORT - 3]}..."
        rest = f" (and {len(more)} more; rank 0 has them)" if more else ""
        print(f"[RANK {me.rank}] castoff train: {short}{rest}", file=sys.stderr, flush=True)
        time.sleep(_MOMENT)
    if me.world_size == 1:
        sys.exit(1)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it is closed
        stream.flush()
    os._exit(1)


def words(text: str) -> list[str]:
    """A message's lines, each saying whose it is."""
    return [f"castoff train: {line}" for line in text.splitlines()]


def explained(error: Exception, folder: str | None) -> str | None:
    """What a user is told; None: it is a mistake in the program, and its traceback says more."""
    if isinstance(error, ConfigError):
        return str(error)
    system = _behind(error)
    if system is not None and folder is not None and _concerns(system, Path(folder)):
        return f"training.path: {system.filename or folder}: {system.strerror or system}"
    if "torch" not in sys.modules:
        return None
    from trainers.core.checkpoint import CheckpointError, NonFiniteWeights
    from trainers.core.distributed import DistributedError, lost_peers
    from trainers.core.engine import NonFiniteError

    if isinstance(error, (DistributedError, CheckpointError, NonFiniteError, NonFiniteWeights)):
        return str(error)
    if lost_peers(error):
        text = " ".join(str(error).split())
        return f"the ranks could not meet, or another one is gone, and its log says why: {text}"
    return None


def _behind(error: Exception) -> OSError | None:
    """The system's refusal that an error is, or that it came from: torch.save tells of a full disk so."""
    if isinstance(error, OSError):
        return error
    before = error.__context__
    return before if isinstance(before, OSError) and before.errno in _FULL else None


def _concerns(error: OSError, folder: Path) -> bool:
    """Whether it is about the run's folder, or a disk that takes nothing more."""
    if error.filename is None:
        return error.errno in _FULL
    if not isinstance(error.filename, str):
        return False
    path, folder = Path(error.filename).absolute(), folder.absolute()
    return path.is_relative_to(folder) or folder.is_relative_to(path)
