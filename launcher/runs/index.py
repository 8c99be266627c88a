"""The index: the list of a user's runs, in which arguments of the command line are looked up.

It is a journal of JSON lines, each about the run directory at `path`:

  {"path", "name", "scheduler", "group", "parameters", "time"}  the run was submitted
  {"path", "name", "group", "parameters", "time", "found"}      a search found the run
  {"path", "ended", "of"}      the run is over for good; `ended` is the summary for lists
  {"path", "begun"}            the run was started again, so `ended` no longer holds
  {"path", "removed"}          the directory was removed

`of` counts how often the run had been started again when its ending was read. An ending that was read before
a new start and recorded after it is thus ignored. `castoff list --scan` restores lost entries, since run
directories contain the same information.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import MappingProxyType

import msgspec

from castoff.launcher.config.array_indices import problem as problem_of_indices
from castoff.launcher.errors import CastoffError, report
from castoff.launcher.process.locks import is_locked
from castoff.launcher.runs import journal
from castoff.launcher.runs.directory import draft_of, is_run_directory
from castoff.launcher.runs.groups import Group, Groups, name_of_group
from castoff.launcher.runs.records import Seconds, decode
from castoff.launcher.runs.run import LOCK, RunDirectory
from castoff.launcher.runs.states import RunSummary
from castoff.launcher.runs.sweep import Sweep, Swept
from castoff.launcher.text.shortened import like
from castoff.launcher.typed.suggestion import did_you_mean


@dataclass(slots=True)
class Entry:
    """A run in the index."""

    path: str
    name: str
    added: float
    """Seconds since the epoch."""
    begun: int = 0
    """How often the run was started again."""
    ended: RunSummary | None = None
    """The summary of a run that is over for good, unless it is started again; None if not known."""
    scheduler: str | None = None
    """The scheduler that has the run's jobs; None if a search found the run."""
    group: str | None = None
    """The id of the group with which the run was submitted; None: it was submitted alone."""
    parameters: Sweep = field(default_factory=dict)
    """What its members sweep."""

    def matches(self, pattern: str) -> bool:
        """Whether the run's name, or its group's name or id, matches a pattern, in which * stands for any
        text.
        """
        if fnmatchcase(self.name, pattern):
            return True
        group = self.group
        return group is not None and any(fnmatchcase(one, pattern) for one in (group, name_of_group(group)))

    @property
    def run(self) -> RunDirectory:
        """The run directory, opened; it may be gone.

        Raises:
            CastoffError: castoff does not trust it.
        """
        return RunDirectory(Path(self.path))

    @property
    def id(self) -> str:
        """The run's id."""
        return os.path.basename(self.path)  # noqa: PTH119 - 10,000 Paths would take longer than the rest

    @property
    def is_there(self) -> bool:
        """Whether the run's path exists; `run` then opens it, if castoff trusts it."""
        return os.path.lexists(self.path)


class _Event(msgspec.Struct, omit_defaults=True):
    """A line of the index."""

    path: str
    name: str | None = None
    scheduler: str | None = None
    group: str | None = None
    parameters: dict[str, Swept] = {}
    time: Seconds = 0.0
    found: bool = False
    ended: RunSummary | None = None
    of: int = 0
    begun: bool = False
    removed: bool = False


class Index:
    """The user's runs, oldest first.

    Methods raise CastoffError if the file cannot be read or written.
    """

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Index:
        """The index in the user's state folder ($XDG_STATE_HOME, else ~/.local/state).

        Raises:
            CastoffError: there is no home folder.
        """
        state = Path(environ.get("XDG_STATE_HOME") or "")
        if not state.is_absolute():  # the XDG specification says to ignore a relative path
            try:
                state = Path(environ.get("HOME") or Path.home()) / ".local" / "state"
            except RuntimeError:
                raise CastoffError(
                    "there is no home folder to keep the index of runs in; set HOME or XDG_STATE_HOME"
                ) from None
        return cls(state / "castoff" / "runs.jsonl")

    def add(
        self,
        run: RunDirectory,
        name: str,
        scheduler: str | None = None,
        group: str | None = None,
        parameters: Sweep = MappingProxyType({}),
    ) -> None:
        """Append a run. `group`: the id of its group. `parameters`: what its members sweep."""
        self._append([_Event(str(run.path), name, scheduler, group, {**parameters}, time.time())])

    def adopt(self, runs: Iterable[tuple[RunDirectory, str, float, str | None, Sweep]]) -> None:
        """Append runs that a search found, with their names, the times of their submission, their groups, and
        what their members sweep.
        """
        self._append(
            _Event(str(run.path), name, group=group, parameters={**sweep}, time=submitted, found=True)
            for run, name, submitted, group, sweep in runs
        )

    def reopen(self, run: RunDirectory) -> None:
        """Discard the recorded ending of a run that is about to be started again.

        To be called while the run is locked for its new start: from then on others see that it is not over,
        and endings that were read before are ignored."""
        self._append([_Event(str(run.path), begun=True)])

    def forget(self, runs: Iterable[RunDirectory]) -> None:
        """Remove runs from the index."""
        self._append(_Event(str(run.path), removed=True) for run in runs)

    def remember(self, ended: Iterable[tuple[Entry, RunSummary]]) -> None:
        """Record how runs ended, so that lists need not read their directories again."""
        self._append(_Event(entry.path, ended=summary, of=entry.begun) for entry, summary in ended)

    def entries(self) -> list[Entry]:
        """All runs that were not removed, oldest first, even if their directories are gone."""
        entries: dict[str, Entry] = {}
        latest = 0.0
        for event in self._events():
            entry = entries.get(event.path)
            if event.removed:
                entries.pop(event.path, None)
            elif event.name is not None:
                # If a clock was set back, a new run still comes after the earlier ones.
                added = event.time if event.found else max(latest, event.time)
                latest = max(latest, added)
                # An ending that was read before a search found the run again is ignored, too.
                begun = entry.begun + 1 if entry else 0
                scheduler = event.scheduler or (entry.scheduler if entry else None)
                group = event.group or (entry.group if entry else None)
                sweep = event.parameters
                entries[event.path] = Entry(
                    event.path, event.name, added, begun, None, scheduler, group, sweep
                )
            elif entry is not None and event.begun:
                entry.begun += 1
                entry.ended = None
            elif entry and event.ended and event.ended.state == "ended" and event.of == entry.begun:
                entry.ended = event.ended
        return sorted(entries.values(), key=lambda entry: entry.added)

    def folders(self) -> list[Path]:
        """The folders that have or had run directories."""
        return sorted({Path(event.path).parent for event in self._events()})

    def newest(self) -> RunDirectory:
        """The run that was submitted last.

        Raises:
            CastoffError: there is none, or castoff does not trust its directory.
        """
        for entry in reversed(self.entries()):
            if entry.is_there:
                return _trusted(entry.path)
        raise CastoffError("there are no runs yet; `castoff list --scan FOLDER` finds those in a folder")

    def find(self, reference: str) -> RunDirectory:
        """Find a run by its path, its name (the newest such run), its id, a unique beginning of its id, its
        id as a narrow list shows it, or the scheduler's id of its job.

        A reference with a `/` is a path; any other reference is a path only if no run has that name or id.

        Raises:
            CastoffError: no run or several runs match, or castoff does not trust its directory.
        """
        if group := self.group(reference):
            ids = ", ".join(Path(job.run).name for job in [*group.jobs.values()][:_MANY])
            raise CastoffError(f"{reference}: is a group of {len(group.jobs)} runs; name one of them: {ids}")
        return _trusted(_find(reference, self.entries))

    def find_all(self, references: Iterable[str]) -> list[RunDirectory]:
        """Find several runs, each once. A group stands for all of its runs that were submitted.

        Raises:
            CastoffError: some cannot be found; the message has the reason for each.
        """
        entries, groups = cache(self.entries), self.groups
        runs: dict[Path, RunDirectory] = {}
        problems = []
        for reference in references:
            try:
                group = _group(reference, entries, groups)
                for run in group.runs if group else [_trusted(_find(reference, entries))]:
                    runs[run.path] = run
            except CastoffError as error:
                problems.append(str(error))
        if problems:
            raise CastoffError("\n".join(problems))
        return list(runs.values())

    @property
    def groups(self) -> Groups:
        """The user's groups, whose journals are beside the index."""
        return Groups(self.path.parent / "groups")

    def group(self, reference: str) -> Group | None:
        """The group with this name (the newest), this id, or a unique beginning of its id; None if the
        reference means a run. The newer of a run and a group of the same name is meant.

        Raises:
            CastoffError: the journals of groups cannot be read.
        """
        return _group(reference, cache(self.entries), self.groups)

    def gone(self, reference: str) -> Entry | None:
        """The entry of a submitted run with this id, name or path, if its directory is gone; else None."""
        newest = self.entries()[::-1]
        if "/" in reference:
            path = os.path.abspath(reference)  # noqa: PTH100 - nothing there has links to resolve
            exact = [entry for entry in newest if entry.path == path]
        else:
            exact = _called(reference, newest) if not is_run_directory(Path(reference)) else []
        if not exact or any(entry.is_there for entry in exact) or draft_of(Path(exact[0].path)).exists():
            return None
        return exact[0]

    def _events(self) -> Iterator[_Event]:
        """The valid lines of the index."""
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
"""The maximum number of runs that an error names."""

_RECENT = 1000
"""The number of newest runs among which a misspelt name is searched."""


def record_runs(environ: Mapping[str, str], change: Callable[[Index], None], otherwise: str) -> None:
    """Change the user's index. If that fails, report the error and its consequence, `otherwise`.

    A run that the index does not list keeps running, and its directory stays.
    """
    try:
        change(Index.of(environ))
    except CastoffError as error:
        report(f"{error}; {otherwise}")


def _group(reference: str, known: Callable[[], list[Entry]], groups: Groups) -> Group | None:
    """Find the group that `reference` means; None: it means a run, or nothing."""
    if not reference or "/" in reference:
        return None
    exact = groups.called(reference)
    begun = groups.begun(reference) if exact is None else []
    if exact is None and len(begun) != 1:
        return None
    newest = known()[::-1]
    if exact is None:
        is_run = _called(reference, newest) or any(entry.id.startswith(reference) for entry in newest)
        return None if is_run else groups.read(begun[0])
    runs = [entry for entry in _called(reference, newest) if entry.is_there]
    return None if runs and runs[0].added > exact.time else exact


def _find(reference: str, known: Callable[[], list[Entry]]) -> str:
    """Find the path of the run that `reference` means."""
    if "/" in reference or reference in (".", ".."):
        if is_run_directory(Path(reference)):
            return reference
        raise CastoffError(
            f"{reference}: is not a run directory, as `castoff submit` makes: it has no job.sh next "
            "to attempts/"
        )
    newest = known()[::-1] if reference else []
    exact = _called(reference, newest)
    if path := next((entry.path for entry in exact if entry.is_there), None):
        return path
    is_meant = like(reference).fullmatch
    meant = [entry for entry in newest if is_meant(entry.id) and entry.is_there]
    if len(meant) > 1:
        ids = ", ".join(entry.id for entry in meant[:_MANY])
        which = "begin with this" if meant[0].id.startswith(reference) else "look like this"
        raise CastoffError(
            f"{reference}: {len(meant)} runs have ids that {which}; give more of the id; the newest: {ids}"
        )
    if meant:
        return meant[0].path
    if reference and is_run_directory(Path(reference)):
        return reference
    refusals = []
    for entry in (entry for entry in newest if entry.is_there):
        try:
            if _has_job(entry, reference):
                return entry.path
        except CastoffError as error:  # one run that cannot be read must not hide the others
            refusals.append(str(error))
    run, colon, members = reference.rpartition(":")
    if colon and _called(run, newest):
        if wrong := problem_of_indices(members):
            raise CastoffError(f"{reference}: what follows the colon {wrong}")
        raise CastoffError(f"{reference}: this command takes whole runs, not members of one: write {run}")
    near = did_you_mean(reference, [entry.name for entry in newest[:_RECENT]])
    # Run directories are only searched for schedulers' ids, which all contain a digit.
    unread = f"\nnot searched: {refusals[0]}" if refusals and re.search("[0-9]", reference) else ""
    raise CastoffError(f"{reference or 'an empty name'}: {_missing(exact, near)}{unread}")


def _called(reference: str, newest: list[Entry]) -> list[Entry]:
    """The index's entries with this name, then its entries with this id."""
    exact = [entry for entry in newest if entry.name == reference]
    return exact + [entry for entry in newest if entry.id == reference]


def _trusted(path: str | Path) -> RunDirectory:
    """Open the run at a path, after resolving links in its parents.

    Raises:
        CastoffError: castoff does not trust the directory.
    """
    path = Path(path)
    return RunDirectory(path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name)


def _has_job(entry: Entry, reference: str) -> bool:
    """Whether the run has a job with this id; PBS ids may omit the server's name.

    Raises:
        CastoffError: castoff does not trust the directory, or its record cannot be read.
    """
    if entry.ended:
        job = entry.ended.job
    else:
        submission = entry.run.submission()
        if submission and reference in (send.job for send in submission.sends):
            return True  # a large array has several jobs
        # A script that was submitted by hand names its directory after its job.
        job = submission.job if submission else entry.id.removeprefix("castoff-")
    return job is not None and reference in (job, job.partition(".")[0])


def _missing(exact: list[Entry], near: str) -> str:
    """Why no run was found; `near`: a suggested name."""
    if not exact:
        return f"no such run{near}; `castoff list` shows your runs"
    path = Path(exact[0].path)
    if not (draft := draft_of(path)).exists():
        scan = "`castoff list --scan FOLDER` find it"
        return f"its directory {path} is gone; if it was moved, name its new path, or let {scan}"
    if is_locked(draft / LOCK):
        return "it is being submitted now"
    return "its submission was interrupted before it reached the scheduler; submit it again"
