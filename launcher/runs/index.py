"""The index: a user's runs, and how a word on the command line finds one.

A journal of JSON lines, each about the run directory at `path`:

  {"path", "name", "scheduler", "time"}  it was submitted
  {"path", "name", "time", "found"}      a search came across it
  {"path", "ended", "of"}      it is over for good; in `ended` all that a list shows of it
  {"path", "begun"}            it was begun again, so what `ended` said holds no longer
  {"path", "removed"}          its directory was removed

`of` counts the times it had been begun again before it was looked at, so that an ending that was seen
before and written down after a new beginning is not believed. What is lost can be found again, for run
directories record all of it themselves: `castoff list --scan` does that.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from castoff.launcher.errors import CastoffError, report
from castoff.launcher.process.locks import is_locked
from castoff.launcher.runs import journal
from castoff.launcher.runs.directory import draft_of, is_run_directory
from castoff.launcher.runs.records import Seconds, decode
from castoff.launcher.runs.run import LOCK, RunDirectory
from castoff.launcher.runs.states import RunSummary
from castoff.launcher.typed.suggestion import did_you_mean


@dataclass(slots=True)
class Entry:
    """What the index knows of a run."""

    path: str
    name: str
    added: float
    """Seconds since the epoch."""
    begun: int = 0
    """How often it was begun again."""
    ended: RunSummary | None = None
    """What it came to, if that is known and can only change by a new beginning."""
    scheduler: str | None = None
    """Whose jobs it has; None where a search has found it."""

    @property
    def run(self) -> RunDirectory:
        """The run's directory, opened; it may be gone.

        Raises:
            CastoffError: it may not be used.
        """
        return RunDirectory(Path(self.path))

    @property
    def id(self) -> str:
        """The run's id."""
        return os.path.basename(self.path)  # noqa: PTH119 - 10,000 Paths would take longer than the rest

    @property
    def is_there(self) -> bool:
        """Whether something lies where its directory was; `run` opens it, if it may be used."""
        return os.path.lexists(self.path)


class _Event(msgspec.Struct, omit_defaults=True):
    """A line of the index."""

    path: str
    name: str | None = None
    scheduler: str | None = None
    time: Seconds = 0.0
    found: bool = False
    ended: RunSummary | None = None
    of: int = 0
    begun: bool = False
    removed: bool = False


class Index:
    """The user's runs, oldest first.

    CastoffError says that it cannot be written, or that it is there and cannot be read.
    """

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Index:
        """The index in the user's state folder ($XDG_STATE_HOME, else ~/.local/state).

        Raises:
            CastoffError: there is no home.
        """
        state = Path(environ.get("XDG_STATE_HOME") or "")
        if not state.is_absolute():  # which the XDG specification wants passed over
            try:
                state = Path(environ.get("HOME") or Path.home()) / ".local" / "state"
            except RuntimeError:
                raise CastoffError(
                    "there is no home folder to keep the index of runs in; set HOME or XDG_STATE_HOME"
                ) from None
        return cls(state / "castoff" / "runs.jsonl")

    def add(self, run: RunDirectory, name: str, scheduler: str | None = None) -> None:
        """Append a run."""
        self._append([_Event(str(run.path), name, scheduler, time.time())])

    def adopt(self, runs: Iterable[tuple[RunDirectory, str, float]]) -> None:
        """Append runs that were found, with their names and the times of their submission."""
        self._append(_Event(str(run.path), name, time=at, found=True) for run, name, at in runs)

    def reopen(self, run: RunDirectory) -> None:
        """Take back what is known of a run's end, because it is about to begin again.

        To be called while the run is locked for its new beginning: who looks at it from then on sees
        that it is not over, and what was seen before counts no longer."""
        self._append([_Event(str(run.path), begun=True)])

    def forget(self, runs: Iterable[RunDirectory]) -> None:
        """Take runs out."""
        self._append(_Event(str(run.path), removed=True) for run in runs)

    def remember(self, ended: Iterable[tuple[Entry, RunSummary]]) -> None:
        """Write down what runs have come to, so that no list need look at them again."""
        self._append(_Event(entry.path, ended=one, of=entry.begun) for entry, one in ended)

    def entries(self) -> list[Entry]:
        """All runs that were not removed, oldest first, whether their directories are there or not."""
        entries: dict[str, Entry] = {}
        latest = 0.0
        for event in self._events():
            entry = entries.get(event.path)
            if event.removed:
                entries.pop(event.path, None)
            elif event.name is not None:
                # A clock that was set back puts no run before those that were there already.
                at = event.time if event.found else max(latest, event.time)
                latest = max(latest, at)
                # Nor is an ending believed that was seen before a search came across it again.
                begun = entry.begun + 1 if entry else 0
                scheduler = event.scheduler or (entry.scheduler if entry else None)
                entries[event.path] = Entry(event.path, event.name, at, begun, scheduler=scheduler)
            elif entry is not None and event.begun:
                entry.begun += 1
                entry.ended = None
            elif entry and event.ended and event.ended.state == "ended" and event.of == entry.begun:
                entry.ended = event.ended
        return sorted(entries.values(), key=lambda entry: entry.added)

    def folders(self) -> list[Path]:
        """The folders in which run directories lie or have lain."""
        return sorted({Path(event.path).parent for event in self._events()})

    def newest(self) -> RunDirectory:
        """The run that was submitted last.

        Raises:
            CastoffError: there is none, or its directory may not be used.
        """
        for entry in reversed(self.entries()):
            if entry.is_there:
                return _trusted(entry.path)
        raise CastoffError("there are no runs yet; `castoff list --scan FOLDER` finds those in a folder")

    def find(self, reference: str) -> RunDirectory:
        """The run of a path, a name (its newest run), an id, its unique beginning, a scheduler's id.

        What holds a `/` is a path; anything else is one only if no run is called so.

        Raises:
            CastoffError: there is none, or there are several, or its directory may not be used.
        """
        return self.find_all([reference])[0]

    def find_all(self, references: Iterable[str]) -> list[RunDirectory]:
        """The runs of several words, each once.

        Raises:
            CastoffError: with everything that is wrong with any of them.
        """
        entries = cache(self.entries)
        found: dict[Path, RunDirectory] = {}
        problems = []
        for reference in references:
            try:
                run = _trusted(_find(reference, entries))
                found[run.path] = run
            except CastoffError as error:
                problems.append(str(error))
        if problems:
            raise CastoffError("\n".join(problems))
        return list(found.values())

    def gone(self, reference: str) -> Entry | None:
        """The run of an id, a name or a path, if it was submitted and its directory is gone."""
        known = self.entries()[::-1]
        if "/" in reference:
            at = os.path.abspath(reference)  # noqa: PTH100 - nothing there has links to resolve
            exact = [entry for entry in known if entry.path == at]
        else:
            exact = _called(reference, known) if not is_run_directory(Path(reference)) else []
        if not exact or any(entry.is_there for entry in exact) or draft_of(Path(exact[0].path)).exists():
            return None
        return exact[0]

    def _events(self) -> Iterator[_Event]:
        """The lines that say something of a run."""
        try:
            for line in journal.lines(self.path):
                event = decode(line, _Event)
                if event and event.path.startswith("/") and "\0" not in event.path:
                    yield event
        except OSError as error:
            raise self._unusable("read", error) from error

    def _append(self, events: Iterable[_Event]) -> None:
        try:
            journal.append(self.path, events)
        except OSError as error:
            raise self._unusable("written", error) from error

    def _unusable(self, verb: str, error: OSError) -> CastoffError:
        return CastoffError(
            f"{self.path}: the index of runs cannot be {verb}: {error.strerror}; "
            "set XDG_STATE_HOME to a folder of yours"
        )


_MANY = 8
"""How many runs an error names."""

_RECENT = 1000
"""Among how many runs a name that is nearly right is looked for."""


def record_runs(environ: Mapping[str, str], change: Callable[[Index], None], otherwise: str) -> None:
    """Change the user's index; where that fails, say why and what follows, and continue.

    It is only an index: a run that it does not list stays where it is and keeps running.
    """
    try:
        change(Index.of(environ))
    except CastoffError as error:
        report(f"{error}; {otherwise}")


def _find(reference: str, known: Callable[[], list[Entry]]) -> str:
    """The path of the run that is meant."""
    if "/" in reference or reference in (".", ".."):
        if is_run_directory(Path(reference)):
            return reference
        raise CastoffError(f"{reference}: is not a run directory: it holds no job.sh beside attempts/")
    newest = known()[::-1] if reference else []
    exact = _called(reference, newest)
    if path := next((entry.path for entry in exact if entry.is_there), None):
        return path
    begun = [entry for entry in newest if entry.id.startswith(reference) and entry.is_there]
    if len(begun) > 1:
        ids = ", ".join(entry.id for entry in begun[:_MANY])
        raise CastoffError(
            f"{reference}: {len(begun)} runs begin with that; write more of the id; the newest: {ids}"
        )
    if begun:
        return begun[0].path
    if reference and is_run_directory(Path(reference)):
        return reference
    refusals = []
    for entry in (entry for entry in newest if entry.is_there):
        try:
            if _has_job(entry, reference):
                return entry.path
        except CastoffError as error:  # one run that cannot be read must not hide the others
            refusals.append(str(error))
    near = did_you_mean(reference, [entry.name for entry in newest[:_RECENT]])
    # Only a scheduler's id is looked for in run directories, and each has a digit.
    unread = f"\nnot looked at: {refusals[0]}" if refusals and re.search("[0-9]", reference) else ""
    raise CastoffError(f"{reference or 'an empty name'}: {_missing(exact, near)}{unread}")


def _called(reference: str, newest: list[Entry]) -> list[Entry]:
    """The entries of a name, and of an id."""
    exact = [entry for entry in newest if entry.name == reference]
    return exact + [entry for entry in newest if entry.id == reference]


def _trusted(path: str | Path) -> RunDirectory:
    """The run at a path, its parents' links resolved.

    Raises:
        CastoffError: it may not be used.
    """
    at = Path(path)
    return RunDirectory(at.resolve() if at.name in ("", "..") else at.parent.resolve() / at.name)


def _has_job(entry: Entry, reference: str) -> bool:
    """Whether a run has this scheduler's id; PBS's may be given without the server's name.

    Raises:
        CastoffError: its directory may not be used, or its record cannot be read.
    """
    if entry.ended:
        job = entry.ended.job
    else:
        submission = entry.run.submission()
        if submission and reference in (send.job for send in submission.sends):
            return True  # a large array takes several
        # A script that stands alone names its directory after its job.
        job = submission.job if submission else entry.id.removeprefix("castoff-")
    return job is not None and reference in (job, job.partition(".")[0])


def _missing(exact: list[Entry], near: str) -> str:
    """Why nothing was found; `near`: what may be meant."""
    if not exact:
        return f"no such run{near}; `castoff list` shows your runs"
    path = Path(exact[0].path)
    if not (draft := draft_of(path)).exists():
        scan = "`castoff list --scan FOLDER` find it"
        return f"its directory {path} is gone; if it was moved, name its new path, or let {scan}"
    if is_locked(draft / LOCK):
        return "it is just being submitted"
    return "its submission was interrupted before anything was sent; submit it again"
