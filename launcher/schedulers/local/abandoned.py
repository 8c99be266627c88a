"""What a local scheduler has started, once somebody has killed it: finding all of it, and ending it.

There are two ways to find it. It holds the run's lock, unless it has closed what it did not open, as
torchrun's workers have. And the environment in which it was started holds the scheduler's mark, a word that
nothing else has; but a program may overwrite that, as some do to have a name of their own in lists of
processes, or may be started in an empty one.
"""

from __future__ import annotations

import contextlib
import os
import signal
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

_KILL_PATIENCE = 10.0
"""Seconds in which what was sent KILL is gone, but for what hangs in the kernel."""

_POLL = 0.05

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


class Marked:
    """What lives on this host of runs whose schedulers are gone; looked for once, when first asked for."""

    def __init__(self) -> None:
        self._found: dict[str, list[psutil.Process]] | None = None

    def of(self, started: Started | None) -> list[psutil.Process]:
        """Every living process with a scheduler's mark, but this one; None: there was none."""
        if started is None:
            return []
        if self._found is None:
            import psutil

            self._found = {}
            for process in psutil.process_iter():
                if (known := _environment(process).get(MARK)) and process.pid != os.getpid():
                    self._found.setdefault(known, []).append(process)
        return self._found.get(started.mark, [])


def end(run: Run, started: Started, member: int | None) -> None:
    """End what lives of a run without a scheduler, or of one of its members, and record what that ends.

    Scripts get TERM, which they pass on; what they leave gets TERM and then KILL.
    """
    import psutil

    from launcher.starters.local.processes import GRACE, send

    _end_scripts(run, started, member)
    told, left = set[psutil.Process](), list[psutil.Process]()
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, _KILL_PATIENCE)):
        begun = time.monotonic()
        while (left := _left(run, started, member)) and time.monotonic() - begun <= patience:
            send(left if number == signal.SIGKILL else set(left) - told, number)
            told.update(left)
            psutil.wait_procs(left, timeout=_POLL)
    if told and not left:
        _settle(run, member)


def _end_scripts(run: Run, started: Started, member: int | None) -> None:
    import psutil

    asked = []
    for process in Marked().of(started):
        with contextlib.suppress(psutil.Error):  # gone
            if process.cmdline()[-1:] == [str(run.script)] and _is_of(process, member):
                process.terminate()
                asked.append(process)
    psutil.wait_procs(asked, timeout=_TERM_PATIENCE)


def _left(run: Run, started: Started, member: int | None) -> list[psutil.Process]:
    return [one for one in {*Marked().of(started), *_holders(run, started.since)} if _is_of(one, member)]


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
            names = os.listdir(f"/proc/{process.pid}/fd")  # noqa: PTH208
            if any(_holds(process.pid, name, path) for name in names):
                words = process.cmdline()
                if SCHEDULER not in words and not any(Path(word).name == "castoff" for word in words[:2]):
                    yield process


def _holds(pid: int, descriptor: str, path: str) -> bool:
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/{pid}/fd/{descriptor}") == path:  # noqa: PTH115 - of thousands
            return "FLOCK" in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text()
    return False


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
