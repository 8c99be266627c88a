"""Which folders of code the user has agreed to send to a machine before, and how much of each.

A repository says what is code. Outside of one, whatever lies in the folder would be sent; and what is large
may not be meant.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from castoff.launcher.errors import printable
from castoff.launcher.process import files
from castoff.launcher.remote.code import Travelling
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.pending import state_folder
from castoff.launcher.runs.snapshot import files_words
from castoff.launcher.text.words import size_words

UNASKED = 64 << 20
"""Bytes of a repository, or of a folder that was agreed to, that are sent without a question."""

_LISTED = 20


def needs_agreement(
    entry: Entry, code: Travelling, environ: Mapping[str, str], *, selected: bool
) -> str | None:
    """Why code is not sent to a machine before the user has agreed; None: it may be sent.

    `selected`: the job lists what is code.
    """
    agreed = _read(environ).get(entry.host, {}).get(str(code.tree.top))
    top = printable(str(code.tree.top))
    if agreed is None and not code.tree.in_git and not selected:
        return f"{top} is not in a git repository, so all that is in it would be sent"
    if code.tree.bytes > max(UNASKED, 2 * (agreed or 0)):
        return f"{size_words(code.tree.bytes)} is much for code"
    return None


def remember(entry: Entry, code: Travelling, environ: Mapping[str, str]) -> None:
    """Write down that the user has agreed; if that fails, the user is asked once more."""
    kept = _read(environ)
    kept.setdefault(entry.host, {})[str(code.tree.top)] = code.tree.bytes
    with contextlib.suppress(OSError):
        path = _file(environ)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(path, msgspec.json.encode(kept).decode())


def listed(code: Travelling) -> list[str]:
    """What would be sent, in lines: what lies at the top, the largest first."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, about in code.tree.files.items():
        first, slash, _ = name.partition("/")
        sizes[first + slash] += about.st_size
        counts[first + slash] += 1
    lines = []
    for name, bytes_ in sizes.most_common(_LISTED):
        many = f", {files_words(counts[name])}" if name.endswith("/") else ""
        lines.append(f"  {printable(name)} ({size_words(bytes_)}{many})")
    more = len(sizes) - len(lines)
    return [*lines, *([f"  and {more} more"] if more else [])]


def _read(environ: Mapping[str, str]) -> dict[str, dict[str, int]]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(_file(environ).read_bytes(), type=dict[str, dict[str, int]])
    return {}


def _file(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / "code.json"
