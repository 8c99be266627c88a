"""Drafts: run directories that are being made. They are hidden, locked, and removed if submission fails.

`.causets-20261120-231502-k3x9.draft` is renamed in one step, when it is complete. A submission that is killed
before the renaming leaves an unlocked draft. It does not count as a run, and the next submission into that
folder removes it. If a draft is removed just before its own submission has locked it, that submission makes
another draft.
"""

from __future__ import annotations

import contextlib
import os
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

_LONGEST, _LONGEST_BYTES = 60, 180
"""The most characters, and bytes, of a name in a run id: a file name has 255 bytes."""
_GAP = "__"
"""Stands for the middle of a long name."""


@dataclass
class Draft:
    """A run directory that is being made: hidden, locked, and removed unless it is published."""

    run: RunDirectory
    """The directory as it is now."""
    final: RunDirectory
    """The directory after it is published."""
    lock: IO[str]
    """The open, locked file LOCK."""

    def publish(self) -> RunDirectory:
        """Give the directory its final name, in one step. Raises OSError if that fails."""
        self.run.path.rename(self.final.path)
        return self.final

    def withdraw(self) -> None:
        """Turn a published directory into a draft again, which is removed like any other."""
        self.final.path.rename(self.run.path)


class RunExists(CastoffError):
    """A run with this id exists or is being made."""


def name_in_id(name: str) -> str:
    """A job's name as part of a run id: its letters and digits, in any script, and `._+-`. Of a long name,
    both ends are kept, since the last part often tells runs apart.

    Schedulers whose paths are plain ASCII, such as PBS, accept no other letters in names either.
    """
    text = "".join(letter if _is_kept(letter) else "_" for letter in _composed(name)).lstrip(".-") or "run"
    if _fits(text):
        return text
    ends = ((text[:count], text[-count:]) for count in range((_LONGEST - len(_GAP)) // 2, 0, -1))
    return next(short for begin, end in ends if _fits(short := f"{begin}{_GAP}{end}"))


def is_id(text: str) -> bool:
    """Whether a text may be a run's id: a file name that is not hidden and no option."""
    return text[:1] not in ("", ".", "-") and all(map(_is_kept, text)) and len(text.encode()) < 250


def _composed(name: str) -> str:
    """The name with each accented letter as one character, as file systems and terminals expect."""
    if name.isascii():
        return name
    import unicodedata  # late: few names need it

    return unicodedata.normalize("NFC", name)


def _is_kept(letter: str) -> bool:
    if letter.isascii():
        return letter.isalnum() or letter in "._+-"
    import unicodedata

    return unicodedata.category(letter)[0] in "LMN"  # letters, their marks, and numbers


def _fits(name: str) -> bool:
    return len(name) <= _LONGEST and len(name.encode()) <= _LONGEST_BYTES


def new_id(name: str) -> str:
    """Make the id of a new run: the job's name, the time and two random bytes."""
    return f"{name_in_id(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


@contextlib.contextmanager
def new_run(name: str, folder: Path, run_id: str | None = None) -> Iterator[Draft]:
    """Make the draft of a new run in `folder`; `run_id`: its id, if it was chosen before.

    On an error, the draft is removed; after a SIGKILL, `sweep` removes it.

    Raises:
        RunExists: there is a run with that id.
        CastoffError: the run directory cannot be made there, or other users could replace it.
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
                    raise RunExists(f"{home / run_id}: exists already, or is just being made")
            for inner in ("attempts", "logs"):
                (draft.run.path / inner).mkdir(mode=0o700)
            # so that git ignores the run directory, in any working tree
            (draft.run.path / ".gitignore").write_text("*\n")
        except OSError as error:
            raise CastoffError(
                f"{folder}: the run directory cannot be made there: {error.strerror}; "
                "choose another folder with --runs-dir or CASTOFF_RUNS_DIR"
            ) from error
        yield draft


def _draft(final: Path, stack: contextlib.ExitStack) -> Draft | None:
    """Make a locked draft, which `stack` holds and discards; None if the id is taken or the draft is gone."""
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
    # Only now: until we had the lock, another process could have published its draft of this name.
    return None if os.path.lexists(final) else Draft(RunDirectory(path), RunDirectory(final), lock)


def _discard(draft: Path) -> None:
    """Remove a draft, unless it has been published."""
    with contextlib.suppress(OSError, CastoffError):  # the next submission sweeps it
        empty(set_aside(draft, draft.stem[1:]))
