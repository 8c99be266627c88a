"""The attempt of a castoff run that rank 0 belongs to, and the files that it shares with the job script.

The script writes ending.json when the attempt is over. A rank that finds this file was given up, say on a
host that was unreachable for a while, and another attempt may be training. Rank 0 writes the number of
completed optimizer steps to CASTOFF_PROGRESS_FILE: the script restarts only after progress, and takes missing
progress for a hang.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from castoff.trainers.configuration.fields import UserError
from castoff.trainers.files.durable import replace_file
from castoff.trainers.files.lock_file import Holder


class AttemptOver(UserError):
    """This process belongs to an attempt that is over, and must stop writing."""


class Attempt:
    """The files of this process's attempt; outside a castoff run there are none."""

    def __init__(self, environ: Mapping[str, str] | None = None):
        environ = os.environ if environ is None else environ
        folder, progress = environ.get("CASTOFF_ATTEMPT_DIR"), environ.get("CASTOFF_PROGRESS_FILE")
        self.me = Holder.here(environ)
        """This process, as it is recorded in the lock of the run's folder."""
        self._folder = Path(folder) if folder else None
        self._progress = Path(progress) if progress else None
        self._step = -1
        self._writing = threading.Lock()

    @property
    def run(self) -> str | None:
        """The run's unique id, its directory's name; None outside a castoff run."""
        return self.me.run

    def check(self) -> None:
        """Check that the attempt is not over.

        Raises:
            AttemptOver: the script has recorded the attempt's ending.
        """
        if self._folder is not None and (self._folder / "ending.json").exists():
            raise AttemptOver(
                f"this attempt is over, according to {self._folder}/ending.json: it was considered lost, "
                "and another attempt may be training now. It ends without writing anything more"
            )

    def has_ended(self, number: int) -> bool:
        """Whether the script of another attempt of the same member has recorded its ending."""
        return (
            self._folder is not None
            and self._folder.with_name(f"{self.me.member}.{number}").joinpath("ending.json").exists()
        )

    def record_progress(self, step: int) -> None:
        """Write the number of completed optimizer steps, and the time as a sign of life, to the progress
        file.

        A full disk is ignored: what must be written, such as a checkpoint, reports it.
        """
        if self._progress is None:
            return
        with self._writing, suppress(OSError):  # the thread that writes checkpoints may report an older step
            self._step = max(self._step, step)
            content = b"%20d\n%20d\n" % (self._step, time.time_ns())
            if not self._progress.exists():
                replace_file(self._progress, content)
                return
            # One write of the same length, in place: ext4 takes 2 ms to rename a file over another.
            descriptor = os.open(self._progress, os.O_WRONLY)
            try:
                os.pwrite(descriptor, content, 0)
            finally:
                os.close(descriptor)  # closing makes it visible to other NFS clients
