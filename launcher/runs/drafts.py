"""Run directories in the making: hidden, locked, and removed if submission fails.

`.causets-20261120-231502-k3x9.draft` gets its name in one step, when all is in it. Whoever is killed
before leaves a draft that nobody holds, and that nobody takes for a run; the next submission into that
folder takes it away. That may be just before its submission has the lock: then that one begins another.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from castoff.launcher.errors import CastoffError
from castoff.launcher.process.files import make_folders
from castoff.launcher.process.locks import locked
from castoff.launcher.runs.directory import check_folder, draft_of
from castoff.launcher.runs.removal import empty, set_aside
from castoff.launcher.runs.run import LOCK, RunDirectory

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


@dataclass
class Draft:
    """A run directory in the making: hidden, locked, and gone again unless it is published."""

    run: RunDirectory
    """The directory as it is now."""
    final: RunDirectory
    """What it will be."""
    lock: IO[str]
    """The open file of its LOCK, which is held."""

    def publish(self) -> RunDirectory:
        """Give it its name, in one step; an OSError says why it cannot have it."""
        self.run.path.rename(self.final.path)
        return self.final

    def withdraw(self) -> None:
        """Take its name back: it goes like any other draft."""
        self.final.path.rename(self.run.path)


class RunExists(CastoffError):
    """There is a run of that id, or one is just being made."""


def name_in_id(name: str) -> str:
    """A job's name as its runs' ids hold it: every scheduler takes a path of these characters."""
    return _UNSAFE.sub("_", name)[:60].lstrip(".-") or "run"


def new_id(name: str) -> str:
    """An id for a new run: the job's name, the time and two random bytes."""
    return f"{name_in_id(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


@contextlib.contextmanager
def new_run(name: str, folder: Path, run_id: str | None = None) -> Iterator[Draft]:
    """Begin the directory of a new run in `folder`; `run_id`: its id, which was chosen before.

    An error on the way takes the draft away; what a KILL leaves behind, `sweep` does.

    Raises:
        RunExists: there is one of that id.
        CastoffError: it cannot be made there, or others could put theirs in its place.
    """
    with contextlib.ExitStack() as stack:
        try:
            check_folder(folder)
            make_folders(folder, 0o755)
            home = folder.resolve()
            draft = None
            while draft is None:
                draft = _draft(home / (run_id or new_id(name)), stack)
                if draft is None and run_id is not None:
                    raise RunExists(f"{home / run_id}: is there already, or is just being made")
            for inner in ("attempts", "logs"):
                (draft.run.path / inner).mkdir(mode=0o700)
            # git takes no run for code, in whatever working tree it lies.
            (draft.run.path / ".gitignore").write_text("*\n")
        except OSError as error:
            raise CastoffError(
                f"{folder}: the run directory cannot be made there: {error.strerror}; "
                "choose another folder with --runs-dir or CASTOFF_RUNS_DIR"
            ) from error
        yield draft


def _draft(final: Path, stack: contextlib.ExitStack) -> Draft | None:
    """A locked draft that `stack` holds and discards; None if that id is taken, or was just swept."""
    path = draft_of(final)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return None
    try:
        lock = stack.enter_context(locked(path / LOCK, patience=0))
        if not os.path.samestat(os.fstat(lock.fileno()), (path / LOCK).lstat()):
            return None
    except (FileNotFoundError, BlockingIOError):
        return None
    except OSError:
        _discard(path)
        raise
    stack.callback(_discard, path)
    # Only now: whoever had a draft of this name before may have made a run of it.
    return None if os.path.lexists(final) else Draft(RunDirectory(path), RunDirectory(final), lock)


def _discard(draft: Path) -> None:
    """Take a draft away, unless it has its name by now."""
    with contextlib.suppress(OSError, CastoffError):  # the next submission sweeps it
        empty(set_aside(draft, draft.stem[1:]))
