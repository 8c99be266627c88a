"""Why the shell could not run a rank's program: exit codes 126 and 127 alone do not say it, the rank's log
does."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from castoff.launcher.runs.records import Failure

_NOT_RUN = (126, 127)

_SAYS_WHY = re.compile(
    r"^castoff: no \S+ on this job's PATH|not found|No such file|Permission denied|cannot execute"
    r"|Exec format error|Is a directory|bad interpreter"
)
"""The line in which a shell, env or rank.sh gives the reason."""

_LAST = 64 * 1024
"""Number of bytes at the end of a log that are searched."""


def explained(failure: Failure | None, logs: Path) -> Failure | None:
    """The failure with the reason from the rank's log in the folder `logs`, if its program could not be
    run."""
    if failure is None or failure.code not in _NOT_RUN or failure.reason:
        return failure
    name = failure.log or (None if failure.rank is None else f"rank-{failure.rank:05d}.log")
    if name is None or os.sep in name:
        return failure
    try:
        with (logs / name).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST))
            lines = file.read(_LAST).decode(errors="replace").splitlines()
    except OSError:
        return failure
    said = [line.strip() for line in lines if _SAYS_WHY.search(line)]
    return msgspec.structs.replace(failure, detail=said[-1].removeprefix("castoff: ")) if said else failure
