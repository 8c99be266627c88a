"""The attempt of a castoff run that rank 0 belongs to, by the files that it shares with the script.

The script writes ending.json when the attempt is over. A rank that finds it was taken for lost, as on a host
that came back, and another attempt may train by now. Rank 0 writes into CASTOFF_PROGRESS_FILE how many
optimizer steps are done: restarts need progress, and its absence shows a hang.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from castoff.trainers.configuration.fields import UserError


class AttemptOver(UserError):
    """This process belongs to an attempt that is over, and must not write any more."""


class Attempt:
    """What rank 0 reads and writes of its attempt; outside a castoff run that is nothing."""

    def __init__(self, environ: Mapping[str, str] | None = None):
        environ = os.environ if environ is None else environ
        run, folder = environ.get("CASTOFF_RUN_DIR"), environ.get("CASTOFF_ATTEMPT_DIR")
        progress = environ.get("CASTOFF_PROGRESS_FILE")
        self.run = Path(run).name if run else None
        """The run that it belongs to, by its directory's name, which no other has."""
        self.member = int(environ.get("CASTOFF_ARRAY_INDEX") or 0)
        self.number = int(environ.get("CASTOFF_ATTEMPT") or 0)
        self._folder = Path(folder) if folder else None
        self._progress = Path(progress) if progress else None
        self._step = -1
        self._writing = threading.Lock()

    def check(self) -> None:
        """See that it lasts.

        Raises:
            AttemptOver: its script has recorded its ending.
        """
        if self._folder is not None and (self._folder / "ending.json").exists():
            raise AttemptOver(
                f"this attempt is over, by {self._folder}/ending.json: it was taken for lost, and another "
                "one may train by now. It ends, and writes nothing more"
            )

    def has_ended(self, number: int) -> bool:
        """Whether the script of another attempt of the same member has recorded its ending."""
        return (
            self._folder is not None
            and self._folder.with_name(f"{self.member}.{number}").joinpath("ending.json").exists()
        )

    def record_progress(self, step: int) -> None:
        """So many optimizer steps are done; the time below shows that this process has got here.

        A disk that takes nothing is the matter of what must be written.
        """
        if self._progress is None:
            return
        with self._writing, suppress(OSError):  # the thread that writes checkpoints has an older step
            self._step = max(self._step, step)
            content = b"%20d\n%20d\n" % (self._step, time.time_ns())
            if not self._progress.exists():
                draft = self._progress.with_name(f".{self._progress.name}.{os.getpid()}")
                draft.write_bytes(content)
                draft.replace(self._progress)
                return
            # One write of the same length, in place: ext4 takes 2 ms to rename a file over another.
            descriptor = os.open(self._progress, os.O_WRONLY)
            try:
                os.pwrite(descriptor, content, 0)
            finally:
                os.close(descriptor)  # on NFS others see it from here on
