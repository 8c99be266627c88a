"""What a local scheduler has started, once somebody has killed it: finding all of it, and ending it.

There are two ways to find it. It holds the run's lock, unless it has closed what it did not open, as
torchrun's workers have. And the environment in which it was started holds the scheduler's mark, a word that
nothing else has; but a program may overwrite that, as some do to have a name of their own in lists of
processes, or may be started in an empty one.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launcher.runs.records import Ending, write
from launcher.runs.run import LOCK, SETTLED, Run

if TYPE_CHECKING:
    import psutil

SCHEDULER = "launcher.cli.local_scheduler"
"""The module that a scheduler's command line names."""

MARK = "CASTOFF_MARK"
"""The variable by which all that a scheduler has started is known to be its own."""

INDEX = "CASTOFF_LOCAL_INDEX"
"""The variable that says of which member it is."""

_TERM_PATIENCE = 10.0
"""Seconds that scripts have to end after TERM, as their scheduler gives them."""

_CLOCK = 2.0
"""Seconds by which the kernel's idea of when processes began may have moved."""


class Started(NamedTuple):
    """How all that a scheduler has started is known."""

    mark: str
    since: float
    """When the scheduler began: nothing that holds the lock and is older is its own."""

    @classmethod
    def now(cls) -> Started:
        """That of this process."""
        import psutil

        return cls(os.urandom(16).hex(), psutil.Process().create_time())


def living() -> dict[str, list[psutil.Process]]:
    """Every living process of this host that has a scheduler's mark, by the mark; but for this one."""
    import psutil

    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        if (mark := _environment(process).get(MARK)) and process.pid != os.getpid():
            found.setdefault(mark, []).append(process)
    return found


def end(run: Run, started: Started, member: int | None) -> None:
    """End what lives of a run without a scheduler, or of one of its members, and record what that ends.

    Scripts get TERM, which they pass on; what they leave gets TERM and then KILL.
    """
    from launcher.starters.local.processes import GRACE, end_all

    _end_scripts(run, started, member)
    if _left(run, started, member) and end_all(lambda: _left(run, started, member), GRACE):
        _settle(run, member)


def _end_scripts(run: Run, started: Started, member: int | None) -> None:
    import psutil

    asked = []
    for process in living().get(started.mark, []):
        with contextlib.suppress(psutil.Error):  # gone
            if process.cmdline()[-1:] == [str(run.script)] and _is_of(process, member):
                process.terminate()
                asked.append(process)
    psutil.wait_procs(asked, timeout=_TERM_PATIENCE)


def _left(run: Run, started: Started, member: int | None) -> list[psutil.Process]:
    found = {*living().get(started.mark, []), *_holders(run, started.since)}
    return [one for one in found if _is_of(one, member)]


def _is_of(process: psutil.Process, member: int | None) -> bool:
    return member is None or _environment(process).get(INDEX) == str(member)


def _environment(process: psutil.Process) -> dict[str, str]:
    """The environment that a living process was started in; empty if it cannot be known."""
    import psutil

    try:
        return process.environ() if process.status() != psutil.STATUS_ZOMBIE else {}
    except psutil.Error:
        return {}


def _holders(run: Run, since: float) -> Iterator[psutil.Process]:
    """The processes that hold a run's lock (Linux): none of castoff's commands, and none that is older."""
    import psutil

    path = os.path.realpath(run.path / LOCK)
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):  # gone, or another user's
            if process.pid == os.getpid() or process.create_time() < since - _CLOCK:
                continue
            files = [
                Path(f"/proc/{process.pid}/fdinfo/{file.fd}")
                for file in process.open_files()
                if file.path == path
            ]
            if any("FLOCK" in file.read_text() for file in files):
                words = process.cmdline()
                if SCHEDULER not in words and not any(Path(word).name == "castoff" for word in words[:2]):
                    yield process


def _settle(run: Run, member: int | None) -> None:
    """Write down that nothing of it lives any more, and that what had no ending was cancelled."""
    reason = "its scheduler was killed before; what it left running was ended on request"
    record = Ending("cancelled", 143, int(time.time()), reason)
    newest = {number: folder for number, _, folder in run.attempts()}
    for number, folder in newest.items():
        if member in (None, number):
            with contextlib.suppress(OSError):  # then nobody knows it
                if not (folder / "ending.json").exists():
                    write(folder / "ending.json", record)
                (folder / SETTLED).touch(mode=0o600)
