"""The only place that decides whether castoff may use a path, and that says how to allow it."""

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
    """What is at a path may be somebody else's."""

    def __init__(self, path: Path, found: list[Weakness], otherwise: str):
        named = (("it" if one.path == path else printable(str(one.path)), one.why) for one in found)
        why = ", and ".join(f"{what} {why}" for what, why in named)
        last = [otherwise] if otherwise else []
        super().__init__(
            "\n".join([f"{printable(str(path))}: is not used, since {why}", *fixes(found), *last])
        )


def check(path: Path, *, otherwise: str = "", environ: Mapping[str, str] = os.environ) -> None:
    """Make sure that what castoff finds at a path by itself, nobody but the user and root can change.

    `otherwise` ends the message: what to do instead of allowing it.

    Raises:
        Untrusted: somebody else can, whom the user has not trusted.
        CastoffError: the list of whom the user trusts cannot be used.
    """
    if found := refused(path, weaknesses(path), environ):
        raise Untrusted(path, found, otherwise)


def check_list(folder: Path, about: os.stat_result, *, environ: Mapping[str, str] = os.environ) -> None:
    """Make sure of a folder of the user's, whose mode has others not write, that no access list has them.

    Raises:
        Untrusted: one of NFSv4 has, and the user has not trusted those in it.
        CastoffError: the list of whom the user trusts cannot be used.
    """
    found = weakness(Step(folder, about, listed(folder, about), False, False, None, is_last=True))
    if found and (left := refused(folder, [found], environ)):
        raise Untrusted(folder, left, "")


def check_named(path: Path, *, environ: Mapping[str, str] = os.environ) -> None:
    """Make sure of a file that the user names that not everybody on the machine could have written it.

    An owner or a group that may change it is the user's choice, as with `python train.py`. What is not a
    file, as a pipe, is the user's own; what cannot be looked at is left to whoever reads it.

    Raises:
        Untrusted: everybody could, and the user has not allowed that.
        CastoffError: the list of what the user has allowed cannot be used.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return
        found = [one for one in weaknesses(path) if one.anyone]
    except (OSError, ValueError):  # ValueError: no path, as it holds a zero byte
        return
    if found := refused(path, found, environ):
        raise Untrusted(path, found, "")


def refused(path: Path, found: list[Weakness], environ: Mapping[str, str]) -> list[Weakness]:
    """Those weaknesses of a path that the user has not allowed.

    Raises:
        CastoffError: the list of what is allowed cannot be used.
    """
    if not found:
        return []
    on_the_way = steps_to(path)
    for folder in granted(environ):
        if folder in on_the_way:
            found = [one for one in found if not _covers(folder, one)]
    return found


def fixes(found: list[Weakness]) -> Iterator[str]:
    """What allows weaknesses, or mends them, a line each."""
    own: dict[str, list[str]] = {}
    for one in found:
        if one.ours:
            own.setdefault(one.shut_by, []).append(visible_word(str(one.path)))
    if any(one.is_link for one in found):
        yield "name what that link leads to, rather than the link"
    if words := [visible_word(str(folder)) for folder in to_trust(found)]:
        yield f"if you trust them with what castoff runs from there: castoff trust {' '.join(words)}"
    for command, paths in own.items():
        yield f"or shut them out: {command} {' '.join(paths)}"


def to_trust(found: list[Weakness]) -> Iterator[Path]:
    """The folders that allow weaknesses, once the user trusts those who can write there."""
    left = [one for one in found if not one.is_link]
    while left:
        folder = _widest(left)
        yield folder
        left = [one for one in left if not _covers(folder, one)]


def _covers(folder: Path, one: Weakness) -> bool:
    """Whether trust in those who can write to a folder allows a weakness.

    They could have put there all that lies below, and the user has named the folder, wherever that lies. Only
    what is open to everybody below it is open to more people than those.
    """
    if folder == one.path or one.path in folder.parents:
        return True
    return folder in one.path.parents and not one.anyone


def _widest(found: list[Weakness]) -> Path:
    """The folder to trust: one where the same group can write all the way, else the nearest to the file."""
    groups = {one.group for one in found}
    return (found[0] if len(groups) == 1 and None not in groups else found[-1]).path
