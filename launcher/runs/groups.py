"""Groups: runs that were submitted together from one file.

Each group has a journal in the user's state folder, beside the index of runs. It lists all jobs before the
first is submitted, each with the directory that its run gets, so that a submission that was interrupted
continues without submitting a job twice. Lines of JSON:

  {"group", "name", "time", "file", "directory", "site", "selection", "command"}   the first line
  {"job", "run", "after", "fields"}   a job; a later line about the same job replaces it
  {"dropped"}   the job was not submitted and is no longer part of the group
  {"sent"}      the run of this job was submitted
  {"closed"}    the group was cancelled, so that the same command does not continue it

`castoff list --scan` restores a lost journal from the run directories, which name their group.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.runs import journal
from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.records import Seconds, decode, encode
from castoff.launcher.runs.run import RunDirectory

_ID = re.compile(r"(?P<name>[\w.+-]+)-(?P<time>\d{8}-\d{6})-[0-9a-f]{4}", re.ASCII)


def is_group_id(text: str) -> bool:
    """Whether a text has the form of a group's id."""
    return _ID.fullmatch(text) is not None


def name_of_group(group_id: str) -> str:
    """The name of a group, from its id."""
    return group_id.rsplit("-", 3)[0]


class GroupJob(msgspec.Struct, omit_defaults=True):
    """A job of a group."""

    job: str
    """Its name."""
    run: str
    """The directory of its run, which exists once the job is submitted."""
    after: dict[str, list[str]] = {}
    """The jobs of the group for which it waits, by condition."""
    fields: dict[str, Any] | None = None
    """The job's fields as they were submitted; None if the journal was restored."""
    sent: bool = False
    """Whether the run was submitted."""

    @property
    def directory(self) -> RunDirectory | None:
        """The run, if its directory exists.

        Raises:
            CastoffError: castoff does not trust it.
        """
        return RunDirectory(Path(self.run)) if os.path.lexists(self.run) else None

    @property
    def waits_for(self) -> list[str]:
        """The jobs of the group for which it waits."""
        return list(dict.fromkeys(name for names in self.after.values() for name in names))


class _Line(msgspec.Struct, omit_defaults=True):
    """A line of a group's journal."""

    group: str | None = None
    name: str = ""
    time: Seconds = 0.0
    file: str | None = None
    directory: str | None = None
    site: str = ""
    selection: list[str] = []
    command: str | None = None
    job: str | None = None
    run: str = ""
    after: dict[str, list[str]] = {}
    fields: dict[str, Any] | None = None
    dropped: str | None = None
    sent: str | None = None
    closed: bool = False


class Group:
    """A group of runs, as its journal describes it."""

    def __init__(self, path: Path, first: _Line, lines: Iterable[_Line]):
        self.path = path
        self.id = first.group or ""
        """The group's id, as in `pipeline-20261129-101500-1f2e`."""
        self.name = first.name
        self.time = first.time
        """When it was first submitted, in seconds since the epoch."""
        self.file = first.file
        """The path of its file; None: it was made in Python."""
        self.directory = first.directory
        """The folder from which it was submitted."""
        self.site = first.site
        self.selection = first.selection
        """The options that selected some of the file's jobs."""
        self.command = first.command
        """The command line that continues its submission from another machine, which has its file; None: it
        was submitted on this machine.
        """
        self.closed = False
        """Whether it was cancelled."""
        self.jobs: dict[str, GroupJob] = {}
        """Its jobs by name; each comes after those for which it waits."""
        for line in lines:
            if line.job is not None and line.run.startswith("/") and "\0" not in line.run:
                self.jobs.pop(line.job, None)
                self.jobs[line.job] = GroupJob(line.job, line.run, line.after, line.fields)
            elif line.dropped is not None:
                self.jobs.pop(line.dropped, None)
            elif line.sent in self.jobs:
                self.jobs[line.sent].sent = True
            self.closed = self.closed or line.closed

    @property
    def runs(self) -> list[RunDirectory]:
        """The runs whose directories exist.

        Raises:
            CastoffError: castoff does not trust one of them.
        """
        return [run for job in self.jobs.values() if (run := job.directory) is not None]

    @property
    def unsent(self) -> list[GroupJob]:
        """The jobs that have not been submitted, as far as the journal shows."""
        return [job for job in self.jobs.values() if not job.sent]

    def put(self, job: GroupJob) -> None:
        """Add or replace a job that has not been submitted."""
        self._append(_Line(job=job.job, run=job.run, after=job.after, fields=job.fields))
        self.jobs.pop(job.job, None)
        self.jobs[job.job] = job

    def drop(self, name: str) -> None:
        """Remove a job that has not been submitted."""
        self._append(_Line(dropped=name))
        del self.jobs[name]

    def mark_sent(self, job: GroupJob) -> None:
        """Record that a job's run was submitted."""
        self._append(_Line(sent=job.job))
        job.sent = True

    def close(self) -> None:
        """Record that the group was cancelled."""
        if not self.closed:
            self._append(_Line(closed=True))
            self.closed = True

    def _append(self, line: _Line) -> None:
        try:
            journal.append(self.path, [line])
        except OSError as error:
            raise _unusable(self.path, error) from error


class Groups:
    """The user's groups.

    Methods raise CastoffError if their journals cannot be read or written.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._ids: list[str] | None = None

    def begin(self, group_id: str, first: dict[str, Any], jobs: Iterable[GroupJob]) -> Group:
        """Record a new group with all of its jobs. `first`: what its first line holds."""
        path = self.folder / f"{group_id}.jsonl"
        jobs = list(jobs)
        head = _Line(group=group_id, time=time.time(), **first)
        lines = [head, *(_Line(job=job.job, run=job.run, after=job.after, fields=job.fields) for job in jobs)]
        lines += [_Line(sent=job.job) for job in jobs if job.sent]
        try:
            files.make_folders(self.folder)
            files.replace(path, "".join(encode(line, indent=None) + "\n" for line in lines))
        except OSError as error:
            raise _unusable(path, error) from error
        self._ids = None
        return Group(path, head, lines[1:])

    def ids(self) -> list[str]:
        """The ids of all groups, newest first."""
        if self._ids is None:
            ids = (name.removesuffix(".jsonl") for name in names_in(self.folder) if name.endswith(".jsonl"))
            matches = filter(None, map(_ID.fullmatch, ids))
            by_time = sorted(matches, key=lambda match: match["time"], reverse=True)
            self._ids = [match[0] for match in by_time]
        return self._ids

    def newest(self, name: str) -> Group | None:
        """The newest group of this name."""
        named = [one for one in self.ids() if name_of_group(one) == name]
        same_second = (one for one in named if one[:-4] == named[0][:-4])  # ids end in four random digits
        groups = filter(None, map(self.read, same_second))
        return max(groups, key=lambda group: group.time, default=None)

    def called(self, reference: str) -> Group | None:
        """The group with this id, or the newest with this name."""
        return self.read(reference) if reference in self.ids() else self.newest(reference)

    def begun(self, reference: str) -> list[str]:
        """The ids that begin with `reference`."""
        return [one for one in self.ids() if one.startswith(reference)]

    def read(self, group_id: str) -> Group | None:
        """Read a group's journal; None if it is damaged or gone."""
        path = self.folder / f"{group_id}.jsonl"
        try:
            lines = [line for line in (decode(text, _Line) for text in journal.lines(path)) if line]
        except OSError as error:
            raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error
        if not lines or lines[0].group != group_id:
            return None
        return Group(path, lines[0], lines[1:])


def _unusable(path: Path, error: OSError) -> CastoffError:
    return CastoffError(
        f"{path}: cannot be written: {error.strerror}; set XDG_STATE_HOME to a folder of yours"
    )
