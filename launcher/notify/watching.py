"""`castoff watch`: sends the messages that the jobs themselves could not send.

A job that its scheduler ends, or that never begins, cannot say so, and many compute nodes reach no server.
The watcher reads the runs' records every few seconds, with one query to each scheduler, and ends when no run
that has `notify` is left.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError
from castoff.launcher.notify.delivery import deliver
from castoff.launcher.notify.message import Message, Subject, due
from castoff.launcher.process.files import make_folders
from castoff.launcher.process.locks import NoLocks, locked
from castoff.launcher.runs.index import Entry, Index
from castoff.launcher.runs.notices import claim, notices, settle
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import judge

_RECENT = 86400.0
"""Seconds after its end for which a run's message is still of interest: perhaps nobody watched meanwhile."""

_PAUSE, _PAUSE_TO_READING = 5.0, 20
"""Seconds between two looks, and the least ratio of the pause to the CPU time that a look took."""

FIRST_RETRY, LONGEST_RETRY, GIVE_UP = 5.0, 300.0, 3600.0
"""Seconds before a message is sent again: at first, at most, and in all."""


class _Retry(NamedTuple):
    """A message that could not be sent, and may be sent again."""

    since: float
    next: float
    pause: float


class Watcher:
    """Sends due messages about the user's runs."""

    def __init__(
        self,
        environ: Mapping[str, str],
        only: Collection[Path] = (),
        say: Callable[[str], object] = print,
        *,
        hand_over: Callable[[Message, str, int], object] | None = None,
        leave: Collection[tuple[str, str, str]] = (),
    ):
        """`only`: the directories of the runs to watch; empty: all. `say` is called with a line for each
        message. `hand_over` is called with each message to a webhook, its receiver and the number of its
        record, instead of sending it. `leave`: messages not to send, by run, event and receiver.
        """
        self._environ = environ
        self._index = Index.of(environ)
        self._only = {str(path) for path in only}
        self._say = say
        self._host = socket.gethostname()
        self._poller = Poller()
        self._facts: dict[str, bool] = {}
        """Whether each run's job has `notify`."""
        self._over: set[tuple[str, int]] = set()
        """The runs that are over and about which all is sent, with the number of their resubmissions."""
        self._hand_over = hand_over
        self._settled: set[tuple[str, str, str]] = {*leave}
        """The messages that were sent or given up: run, event and receiver."""
        self._retries: dict[tuple[str, str, str], _Retry] = {}
        self._troubles: set[str] = set()

    def watch(self) -> None:
        """Look, send and wait, until no run is left about which a message may be due."""
        while True:
            before = clock.spent()
            try:
                left = self.look()
            except (CastoffError, OSError) as error:  # a file system or a scheduler may be back later
                self._report(str(error))
                left = True
            if not left:
                return
            clock.sleep(max(_PAUSE, _PAUSE_TO_READING * (clock.spent() - before)))

    def look(self) -> bool:
        """Send what is due now; return whether anything may be due later.

        Raises:
            CastoffError: the index cannot be read.
        """
        known = [entry for entry in self._index.entries() if entry.is_there]
        watched = {entry.path for entry in known if self._is_watched(entry) and self._asks(entry)}
        groups = {entry.group for entry in known if entry.path in watched and entry.group}
        entries = [
            entry for entry in known if entry.path in watched or (entry.group in groups and self._asks(entry))
        ]
        left = False
        for subject, its in self._subjects(entries):
            messages = [*due(subject, self._is_settled)]
            settled = [self._send(one, receiver) for one in messages for receiver in subject.messages.to]
            if subject.over and all(settled):
                self._over |= {(entry.path, entry.begun) for entry in its}
            else:
                left = True
        return left

    def _is_watched(self, entry: Entry) -> bool:
        if self._only:
            return entry.path in self._only and (entry.path, entry.begun) not in self._over
        ended = (entry.ended.ended or entry.ended.submitted or 0.0) if entry.ended else time.time()
        return time.time() - ended < _RECENT and (entry.path, entry.begun) not in self._over

    def _asks(self, entry: Entry) -> bool:
        """Whether a run's job has `notify`."""
        if entry.path not in self._facts:
            try:
                self._facts[entry.path] = entry.run.facts().notify is not None
            except CastoffError as error:
                self._facts[entry.path] = False
                self._report(str(error))
        return self._facts[entry.path]

    def _subjects(self, entries: list[Entry]) -> Iterator[tuple[Subject, list[Entry]]]:
        """Yield the runs and groups with their states, and their entries in the index."""
        read: list[tuple[Entry, RunRecords]] = []
        for entry in entries:
            try:
                read.append((entry, RunRecords(entry.run)))
            except CastoffError as error:
                self._report(str(error))
        statuses = judge([records for _, records in read], self._poller)
        groups: dict[str, list[tuple[Entry, RunStatus]]] = {}
        for (entry, records), status in zip(read, statuses, strict=True):
            if entry.group is not None:
                groups.setdefault(entry.group, []).append((entry, status))
            elif messages := records.plan.notify:
                yield Subject(entry.run, records.plan.name, entry.run.id, messages, [status]), [entry]
        for group_id, members in groups.items():
            its = [entry for entry, _ in members]
            messages = next(one.plan.notify for entry, one in read if entry is its[0])
            name, complete = self._group_facts(group_id, {entry.path for entry in its})
            if messages is not None:
                statuses_of_its = [status for _, status in members]
                yield Subject(its[0].run, name, group_id, messages, statuses_of_its, complete), its

    def _group_facts(self, group_id: str, there: Collection[str]) -> tuple[str, bool]:
        """Return the name of a group, and whether no further run of it will be submitted."""
        group = self._index.groups.read(group_id)
        if group is None:
            return group_id, True
        asking = [job for job in group.jobs.values() if (job.fields or {}).get("notify")]
        return group.name, group.closed or all(job.sent or job.run in there for job in asking)

    def _is_settled(self, subject: Subject, event: str) -> bool:
        return all((str(subject.run.path), event, one) in self._settled for one in subject.messages.to)

    def _send(self, message: Message, receiver: str) -> bool:
        """Send a message, unless somebody else does; return whether that is settled."""
        run = message.subject.run
        key = (str(run.path), message.event, receiver)
        retry, now = self._retries.get(key), clock.now()
        if key in self._settled or (retry is not None and now < retry.next):
            return key in self._settled
        number = claim(run, message.event, receiver, self._host)
        if number is None:
            found = notices(run).get((message.event, receiver))
            if found is not None and found.last.sent:
                self._settled.add(key)
            return key in self._settled
        if self._hand_over is not None and "@" not in receiver:
            self._hand_over(message, receiver, number)
            return False
        outcome = deliver(message, receiver, self._environ)
        settle(run, message.event, receiver, number, self._host, outcome.error)
        retry = retry or _Retry(now, now, FIRST_RETRY / 2)
        pause = max(min(2 * retry.pause, LONGEST_RETRY), outcome.pause)
        line = f"{time.strftime('%H:%M:%S')} {receiver}: {message.title}"
        if outcome.error is None:
            self._settled.add(key)
            self._say(line)
        elif not outcome.may_pass or now + pause - retry.since > GIVE_UP:
            self._settled.add(key)
            self._say(f"{line}: not sent: {outcome.error}")
        else:
            self._retries[key] = _Retry(retry.since, now + pause, pause)
            self._say(f"{line}: {outcome.error}; again in {pause:.0f} s")
        return key in self._settled

    def _report(self, trouble: str) -> None:
        """Say what went wrong, once."""
        if trouble not in self._troubles:
            self._troubles.add(trouble)
            self._say(trouble)


@contextlib.contextmanager
def alone(environ: Mapping[str, str]) -> Iterator[None]:
    """Be the only watcher of all runs on this host.

    Raises:
        CastoffError: there is one already.
    """
    host, folder = socket.gethostname(), Index.of(environ).path.parent
    with contextlib.ExitStack() as stack:
        try:
            make_folders(folder)
            stack.enter_context(locked(folder / f"watch-{host}.lock", patience=0))
        except BlockingIOError:
            raise CastoffError(f"another `castoff watch` runs on {host} and sends the messages") from None
        except NoLocks:
            pass  # a message is sent once, even so
        except OSError as error:
            raise CastoffError(f"{folder}: cannot be written: {error.strerror}") from error
        yield


def watched_run(run: RunDirectory) -> bool:
    """Whether a run has `notify`.

    Raises:
        CastoffError: its records cannot be read.
    """
    return run.facts().notify is not None
