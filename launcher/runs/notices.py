"""Records of the messages about a run, in `notify/` of its directory: one file for each event and receiver.

Whoever makes the file sends the message, so that it is sent once: the job's script, or `castoff watch`. The
file then says whether it was sent. It holds no URL. The folder also has the members of an array that are over
(`over/`); in a group it is a link to the folder that all of the group's runs share.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher.process import files
from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.records import Seconds, encode, read
from castoff.launcher.runs.run import RunDirectory

NOTIFY = "notify"
"""The folder in a run directory."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""The name of a webhook."""

_RECORD = re.compile(r"(?P<event>[a-z0-9-]+)=(?P<receiver>[^=]+?)(=(?P<number>[0-9]{1,4}))?\.json")

_OVER = re.compile(r"(?P<run>.+)\.(?P<member>[0-9]{1,9})\.[a-z-]+")
"""The name of a file that says how a member ended."""

_PENDING = 60.0
"""Seconds after which whoever made a record and says nothing more is gone."""


def webhooks_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the user's webhooks."""
    home = environ.get("HOME", "/nonexistent")
    return Path(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "castoff", "notify")


def webhook_file(name: str, environ: Mapping[str, str]) -> Path:
    """The file of a webhook."""
    return webhooks_folder(environ) / name


class Notice(msgspec.Struct, omit_defaults=True):
    """EVENT=RECEIVER.json, then EVENT=RECEIVER=2.json and so on: a try to send a message to one receiver."""

    by: str = ""
    """`job` or `watch`."""
    host: str = ""
    time: Seconds | None = None
    sent: bool = False
    error: str | None = None
    """Why it could not be sent; None: it was sent, or is just being sent."""


class Tries(NamedTuple):
    """All that is recorded of one message to one receiver."""

    tries: list[Notice]
    """What was recorded each time that somebody tried to send it; the last counts."""

    @property
    def last(self) -> Notice:
        """The newest record."""
        return self.tries[-1]

    @property
    def is_open(self) -> bool:
        """Whether it has still to be sent, as far as the records show."""
        last = self.last
        lost = last.time is not None and time.time() - last.time > _PENDING
        return last.error is not None or (not last.sent and lost)


def notices(run: RunDirectory) -> dict[tuple[str, str], Tries]:
    """The messages about a run that somebody has sent or tried to, by event and receiver.

    Raises:
        CastoffError: the folder cannot be read.
    """
    folder = run.path / NOTIFY
    numbered: dict[tuple[str, str], dict[int, Notice]] = {}
    for name in names_in(folder):
        if not (match := _RECORD.fullmatch(name)):
            continue
        notice = read(folder / name, Notice) or Notice()
        if notice.time is None:  # it is empty: the disk was full, or this is just being written
            notice.time = _changed(folder / name)
        numbered.setdefault((match["event"], match["receiver"]), {})[int(match["number"] or 1)] = notice
    return {
        key: Tries([found[number] for number in sorted(found)]) for key, found in sorted(numbered.items())
    }


def claim(run: RunDirectory, event: str, receiver: str, host: str) -> int | None:
    """Take over a message, and return the number of the record for `settle`; None if somebody else has sent
    it, or is about to.

    Raises:
        CastoffError: the folder cannot be read.
        OSError: the record cannot be made.
    """
    found = notices(run).get((event, receiver))
    if found is not None and not found.is_open:
        return None
    number = len(found.tries) + 1 if found else 1
    path = _path(run, event, receiver, number)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    try:  # of several, one makes it
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_line(Notice("watch", host, time.time())))
    return number


def settle(run: RunDirectory, event: str, receiver: str, number: int, host: str, error: str | None) -> None:
    """Record what became of a message that was claimed: sent, or the error.

    Raises:
        OSError: the record cannot be written.
    """
    notice = Notice("watch", host, time.time(), sent=error is None, error=error)
    files.replace(_path(run, event, receiver, number), _line(notice))


def forget(run: RunDirectory, members: Mapping[int, int]) -> None:
    """Forget the messages about a run, of which these members are about to start again.

    Raises:
        OSError: the records cannot be removed.
    """
    folder = run.path / NOTIFY
    for name in names_in(folder):
        if "=" in name:
            (folder / name).unlink(missing_ok=True)
    for name in names_in(folder / "over"):
        match = _OVER.fullmatch(name)
        if match and match["run"] == run.id and int(match["member"]) in members:
            (folder / "over" / name).unlink(missing_ok=True)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _line(notice: Notice) -> str:
    return encode(notice, indent=None) + "\n"


def _path(run: RunDirectory, event: str, receiver: str, number: int) -> Path:
    again = f"={number}" if number > 1 else ""
    return run.path / NOTIFY / f"{event}={receiver}{again}.json"
