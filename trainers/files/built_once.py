"""Builds a folder once: one process writes it while others wait, and it is complete or absent."""

from __future__ import annotations

import glob
import shutil
from collections.abc import Callable
from pathlib import Path

from castoff.trainers.files.durable import draft_of, flush
from castoff.trainers.files.locking import locked


def built_once(folder: Path, is_whole: Callable[[Path], bool], write: Callable[[Path], object]) -> None:
    """Fill a draft of a folder by `write`, then rename it; does nothing if `folder` is complete (`is_whole`).

    An incomplete older folder is replaced, so `write` must refuse if it holds the user's files. Drafts of
    killed processes are removed. When this returns, the folder is on disk, if `write` has flushed its files.

    Raises:
        OSError: the lock or the folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder) as alone:
        if is_whole(folder):
            return
        if alone:  # without a lock, another process may still be writing its draft
            for left in folder.parent.glob(f".{glob.escape(folder.name)}.draft-*"):
                shutil.rmtree(left)
        draft = draft_of(folder)
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            write(draft)
            flush(draft)
            _put_in_place(draft, folder, is_whole)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _put_in_place(draft: Path, folder: Path, is_whole: Callable[[Path], bool]) -> None:
    """Rename a complete draft, unless another process without a lock was faster."""
    replaced = draft.with_name(f"{draft.name}.replaced")
    try:
        if is_whole(folder):
            return
        if folder.exists():
            folder.rename(replaced)
        draft.rename(folder)
    except OSError:
        if not is_whole(folder):
            raise
    flush(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)
