"""The only place that decides whether castoff may use a path, and explains how to allow it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.trust.access import listed
from castoff.launcher.trust.granted import granted
from castoff.launcher.trust.paths import steps_to, weaknesses
from castoff.launcher.trust.writers import Step, Weakness, weakness


class Untrusted(CastoffError):
    """Another user may have changed what is at a path."""

    def __init__(self, path: Path, found: list[Weakness], otherwise: str):
        named = (("it" if one.path == path else printable(str(one.path)), one.why) for one in found)
        reasons = ", and ".join(f"{subject} {reason}" for subject, reason in named)
        last = [otherwise] if otherwise else []
        super().__init__(
            "\n".join([f"{printable(str(path))}: is not used, since {reasons}", *fixes(found), *last])
        )


def check(path: Path, *, otherwise: str = "", environ: Mapping[str, str] = os.environ) -> None:
    """Check a path that castoff found by itself: only the user and root may be able to change what is there.

    `otherwise` ends the message: an alternative to allowing it.

    Raises:
        Untrusted: another user, whom the user has not trusted, can change it.
        CastoffError: the file of trusted folders cannot be used.
    """
    if weak := refused(path, weaknesses(path), environ):
        raise Untrusted(path, weak, otherwise)


def check_list(folder: Path, about: os.stat_result, *, environ: Mapping[str, str] = os.environ) -> None:
    """Check a user's folder whose mode keeps others out: no access list may let them write to it.

    Raises:
        Untrusted: an NFSv4 list lets users write whom the user has not trusted.
        CastoffError: the file of trusted folders cannot be used.
    """
    weak = weakness(Step(folder, about, listed(folder, about), False, False, None, is_last=True))
    if weak and (left := refused(folder, [weak], environ)):
        raise Untrusted(folder, left, "")


def check_named(path: Path, *, environ: Mapping[str, str] = os.environ) -> None:
    """Check that not everybody on the machine could have written a file that the user names.

    Another owner, or a group that may change it, is the user's choice, as with `python train.py`. Only
    regular files are checked; one that cannot be accessed is left to its reader.

    Raises:
        Untrusted: everybody could have written the file, and the user has not allowed that.
        CastoffError: the file of trusted folders cannot be used.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return
        weak = [one for one in weaknesses(path) if one.anyone]
    except (OSError, ValueError):  # ValueError: the path contains a zero byte
        return
    if weak := refused(path, weak, environ):
        raise Untrusted(path, weak, "")


def refused(path: Path, found: list[Weakness], environ: Mapping[str, str]) -> list[Weakness]:
    """The weaknesses of a path that the user has not allowed.

    Raises:
        CastoffError: the file of trusted folders cannot be used.
    """
    if not found:
        return []
    on_the_way = steps_to(path)
    for folder in granted(environ):
        if folder in on_the_way:
            found = [item for item in found if not _covers(folder, item)]
    return found


def fixes(found: list[Weakness]) -> Iterator[str]:
    """The commands that allow or remove weaknesses, one a line."""
    paths_by_command: dict[str, list[str]] = {}
    for weak in found:
        if weak.ours:
            paths_by_command.setdefault(weak.shut_by, []).append(visible_word(str(weak.path)))
    if any(weak.is_link for weak in found):
        yield "name the link's target instead of the link"
    if words := [visible_word(str(folder)) for folder in to_trust(found)]:
        yield f"if you trust them with what castoff runs from there: castoff trust {' '.join(words)}"
    for command, paths in paths_by_command.items():
        yield f"or shut them out: {command} {' '.join(paths)}"


def to_trust(found: list[Weakness]) -> Iterator[Path]:
    """The folders to trust, so that these weaknesses are allowed."""
    left = [item for item in found if not item.is_link]
    while left:
        folder = _widest(left)
        yield folder
        left = [item for item in left if not _covers(folder, item)]


def _covers(folder: Path, one: Weakness) -> bool:
    """Whether trusting those who can write to a folder allows a weakness.

    Those people could have made everything below the folder. A path below it that everybody can change is not
    covered, since it is open to more people.
    """
    if folder == one.path or one.path in folder.parents:
        return True
    return folder in one.path.parents and not one.anyone


def _widest(found: list[Weakness]) -> Path:
    """The folder to trust: the outermost if the same group can write to all, else the nearest to the file."""
    groups = {item.group for item in found}
    return (found[0] if len(groups) == 1 and None not in groups else found[-1]).path
