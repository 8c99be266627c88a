"""Which variables a machine has been given from here before: names alone, in the user's state folder.

A machine names the variables of a run that is resubmitted. It could name any; so what no job of this laptop
has named for it is not given without a question.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from castoff.launcher.process import files
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.pending import state_folder
from castoff.launcher.trust.folders import make_folders


def given_before(entry: Entry, environ: Mapping[str, str]) -> set[str]:
    """The names of variables that were given to the entry's host."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return set(_read(environ).get(entry.host, []))
    return set()


def remember(entry: Entry, names: Iterable[str], environ: Mapping[str, str]) -> None:
    """Write down that the entry's host is given these; if that fails, the user is asked once more."""
    known = given_before(entry, environ)
    if known.issuperset(names):
        return
    with contextlib.suppress(OSError):
        path = _file(environ)
        make_folders(path.parent)
        try:
            kept = _read(environ)
        except (OSError, msgspec.MsgspecError):
            kept = {}
        kept[entry.host] = sorted(known.union(names))
        files.replace(path, msgspec.json.encode(kept).decode())


def _read(environ: Mapping[str, str]) -> dict[str, list[str]]:
    return msgspec.json.decode(_file(environ).read_bytes(), type=dict[str, list[str]])


def _file(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / "variables.json"
