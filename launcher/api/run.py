"""Run: a submitted job in a Python program, with castoff's commands as methods."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from castoff.launcher.api.display import drawn_members, run_html, status_line
from castoff.launcher.config.quantities import cpulist
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.history.reading import (
    FEW_STRETCHES,
    MetricsReader,
    metrics_files,
    metrics_of,
    reduced_metrics_of,
)
from castoff.launcher.logs.printing import write_logs
from castoff.launcher.logs.sources import Selection, attempts_of, check_ranks
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory, begun_attempts
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status import watch
from castoff.launcher.status.poller import Poller
from castoff.launcher.submission import cancel, resubmit
from castoff.launcher.text.python_words import speaks_python


class Run(RunDirectory):
    """A submitted job, as `submit` and `Run.find` return it.

    Its methods print nothing. They raise CastoffError, with the message that `castoff` would print, in which
    arguments take the place of flags.
    """

    def __init__(self, path: Path):
        super().__init__(path)
        self._poller = Poller()

    def __reduce__(self) -> tuple[type[Run], tuple[Path]]:
        return Run, (self.path,)  # without the scheduler's answers: another process asks again

    @classmethod
    @speaks_python()
    def find(cls, reference: str) -> Run:
        """Find a run by its id, a unique beginning of its id, its name (the newest such run), the scheduler's
        id of its job, or its directory.

        Raises:
            CastoffError: no run or several runs match, or castoff does not trust its directory.
        """
        return cls(Index.of(os.environ).find(reference).path)

    @speaks_python()
    def status(self) -> RunStatus:
        """The state of the run.

        castoff asks the scheduler only if the run's records leave a doubt, and ever less often while nothing
        changes. A loop may call this every second.

        Raises:
            CastoffError: the run's directory cannot be read.
        """
        return watch.status(self, self._poller)

    @speaks_python()
    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> RunStatus:
        """Wait until the run is over, and return its status, whatever its `.ending` and `.code` are.

        It also returns if the run can never begin, because its dependencies can never be satisfied
        (`.never_begins`). `progress`: whether to show the run's state and progress in one line; None: only in
        a notebook or IPython.

        Raises:
            StillRunning: the run is not over after `timeout` seconds. This is a TimeoutError.
            CastoffError: the run's directory cannot be read.
        """
        if not (watched_by_a_person() if progress is None else progress):
            now = watch.wait(self, timeout)
        else:
            now = self._wait_in_sight(timeout)
        watch.check_over([now], timeout)
        return now

    def _wait_in_sight(self, timeout: float | None) -> RunStatus:
        line = ProgressLine()
        readers: dict[int, MetricsReader] = {}
        try:
            for (now,) in watch.poll([self], timeout):
                last = now
                for member in drawn_members(now.members):
                    reader = readers.setdefault(member, MetricsReader(FEW_STRETCHES))
                    reader.look(metrics_files(self, member))
                metrics = [reader.metrics for reader in readers.values()]
                line.show(status_line(now, metrics, at=time.time()))
        finally:
            line.end()
        return last

    @speaks_python()
    def stop(self) -> RunStatus:
        """Ask the program to save its state and end; `wait` waits for that, and `resubmit` resumes the run.

        A job that is still queued ends when it starts. A run that is over does not change.

        Raises:
            CastoffError: the run's directory cannot be read or written.
        """
        cancel.stop([self])
        return self._anew()

    @speaks_python()
    def cancel(self) -> RunStatus:
        """End the run, and return when all its processes are gone. A run that is over does not change.

        Raises:
            CastoffError: the run cannot be ended from here, its scheduler refuses, or processes are left.
        """
        (request,) = cancel.end([self])
        if request.problem:
            raise CastoffError(request.problem)
        return self._anew()

    @speaks_python()
    def resubmit(
        self, *, members: Collection[int] = (), include_done: bool = False, all_hosts: bool = False
    ) -> dict[int, int]:
        """Start again those members that are not done, in the run's directory.

        `members`: only these members. `include_done`: also members that are done. `all_hosts`: also use hosts
        that the run has set aside, which Slurm otherwise avoids. Returns the number of each started member's
        attempt, as `{0: 1}`.

        Raises:
            CastoffError: the run is active, there is nothing to start, or this host cannot submit it.
        """
        begun = resubmit.resubmit(self, members=members, include_done=include_done, all_hosts=all_hosts)
        self._poller = Poller()
        return begun

    @speaks_python()
    def logs(
        self,
        *,
        member: int | None = None,
        attempt: int | None = None,
        rank: int | None = None,
        tail: int | None = None,
    ) -> str:
        """The logs as `castoff logs` prints them: the first rank that failed, then the lines of all ranks.

        By default, these are the logs of all members and their newest attempts. `tail`: the number of lines
        at the end of each log. The files are in `log_folder`.

        Raises:
            CastoffError: the run has not begun, or has no such member, attempt, rank or log.
        """
        chosen = Selection(
            members=frozenset() if member is None else frozenset([member]),
            attempt=attempt,
            ranks=frozenset() if rank is None else frozenset([rank]),
            tail=tail,
        )
        check_ranks(self, chosen)
        blocks: list[bytes] = []
        write_logs(self, attempts_of(self, self.status(), chosen), chosen, blocks.append)
        return b"".join(blocks).decode(errors="replace")

    @speaks_python()
    def metrics(self, member: int | None = None) -> Any:
        """The metrics that the program has reported, a row for each report, with `step`, `epoch` and `time`.

        Returns a pandas DataFrame, or without pandas a dict of columns, with None for missing values.
        `member`: a member of an array; None: all members, with their numbers in the column `member`.
        castoff's trainers write to CASTOFF_METRICS_FILE, and any program may.

        >>> run.metrics()["train/loss"]  # doctest: +SKIP

        Raises:
            CastoffError: there is no such member, or its reports cannot be read.
        """
        members = [*self.facts().members]
        if member is not None and member not in members:
            raise CastoffError(f"{self.id} has no member {member}; it has {cpulist(members)}")
        if member is None and len(members) == 1:
            member = members[0]
        if member is not None:
            return as_table(metrics_of(self, member).columns())
        begun = begun_attempts(self)
        each = {number: metrics_of(self, number, begun.get(number, ())).columns() for number in members}
        return as_table(joined(each))

    def _repr_html_(self) -> str:
        """Show the run in a notebook."""
        now = self.status()
        metrics = [reduced_metrics_of(self, member) for member in drawn_members(now.members)]
        return run_html(now, metrics, at=time.time(), folder=Path.cwd())

    def _anew(self) -> RunStatus:
        """Get the status again, without the scheduler's earlier answers."""
        self._poller = Poller()
        return self.status()


Columns = Mapping[str, Sequence[float | None]]


def joined(of_members: Mapping[int, Columns]) -> dict[str, list[float | None]]:
    """Concatenate the columns of members, and add a column `member` with their numbers."""
    lengths = {number: max(map(len, columns.values()), default=0) for number, columns in of_members.items()}
    names = dict.fromkeys(name for columns in of_members.values() for name in columns)
    numbers: list[float | None] = [number for number, length in lengths.items() for _ in range(length)]
    columns_by_name = {"member": numbers}
    for name in names:
        columns_by_name[name] = []
        for number, columns in of_members.items():
            columns_by_name[name] += columns.get(name, [None] * lengths[number])
    return columns_by_name


def as_table(columns: Columns) -> Any:
    """A pandas DataFrame if pandas is installed; otherwise the columns themselves."""
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns)


class ProgressLine:
    """A line that is rewritten when it changes. Nothing is shown outside a notebook or a terminal."""

    def __init__(self) -> None:
        self._shell = _ipython()
        self._in_notebook = self._shell is not None and hasattr(self._shell, "kernel")
        self._on_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown: Any = None
        self._words = ""

    def show(self, words: str) -> None:
        """Replace the line by these words."""
        words = printable(words)
        if words == self._words:
            return
        if self._in_notebook:
            self._display(words)
        elif self._on_terminal:
            words = words[: shutil.get_terminal_size().columns - 1]  # a line that wraps could not be replaced
            sys.stderr.write(f"\r{words.ljust(len(self._words))}")
            sys.stderr.flush()
        self._words = words

    def end(self) -> None:
        """Leave the line as it is; further output begins on a new line."""
        if self._words and self._on_terminal and not self._in_notebook:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _display(self, words: str) -> None:
        from importlib import import_module

        data = {"text/plain": words}
        if self._shown is None:
            self._shown = import_module("IPython.display").display(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)


def watched_by_a_person() -> bool:
    """Whether a person sees output immediately, as in a notebook or IPython."""
    return _ipython() is not None


def _ipython() -> Any:
    """The IPython shell in which this program runs, if any. IPython is never imported for this."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
