"""Who else can change a path, by owner and mode of it and of every folder and link above it.

Only the user and root count as nobody else. The group bits tell of POSIX access lists as well, whose mask
they are; a list of NFSv4 shows nowhere.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MOST_LINKS = 40
"""As many as the kernel follows."""


class Weakness(NamedTuple):
    """Something on the way to a path that somebody else can change, or put his own in place of."""

    path: Path
    why: str
    """What follows the path in a sentence: `belongs to bob`."""
    anyone: bool
    """Whether everybody on the machine can, and not only an owner or a group."""
    group: str | None
    """The one group that can; None: somebody else."""
    ours: bool
    """Whether it is the user's own, who can shut others out."""
    is_link: bool


class _Step(NamedTuple):
    path: Path
    about: os.stat_result
    open_to_all: bool
    """Whether everybody may put something beside it."""


def weaknesses(path: Path) -> list[Weakness]:
    """All that somebody else can change on the way to a path, from / on, as far as that is there."""
    found = {step.path: weakness for step in _steps(path) if (weakness := _weakness(step))}
    return list(found.values())


def owner_and_mode(about: os.stat_result) -> str:
    """As in `root:proj, mode 2775`."""
    return f"{user_name(about.st_uid)}:{_group_name(about.st_gid)}, mode {stat.S_IMODE(about.st_mode):04o}"


def user_name(uid: int) -> str:
    """A user's name, or the number."""
    import pwd  # late: ranks load this module, and seldom need a name

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def steps_to(path: Path) -> set[Path]:
    """Everything on the way to a path, links and what they lead to, and itself."""
    return {step.path for step in _steps(path)}


def _steps(path: Path) -> Iterator[_Step]:
    """What the kernel passes on its way to a path, in that order."""
    here = Path("/")
    about = here.lstat()
    modes = {here: about.st_mode}
    yield _Step(here, about, open_to_all=False)
    left = _names(path if path.is_absolute() else Path.cwd() / path)
    links = 0
    while left:
        name = left.pop()
        if name == "..":
            here = here.parent
            continue
        at = here / name
        try:
            about = at.lstat()
        except OSError:  # what is not there, or may not be looked at, cannot be read either
            return
        yield _Step(at, about, open_to_all=bool(modes[here] & stat.S_IWOTH))
        if stat.S_ISLNK(about.st_mode):
            target, links = at.readlink(), links + 1
            if links > _MOST_LINKS:
                return
            here = Path("/") if target.is_absolute() else here
            left += _names(target)
        else:
            here, modes[at] = at, about.st_mode


def _names(path: Path) -> list[str]:
    """The names that a path is made of, the last first."""
    return [name for name in reversed(path.parts) if name != path.anchor]


def _weakness(step: _Step) -> Weakness | None:
    path, about, mode = step.path, step.about, step.about.st_mode
    is_link = stat.S_ISLNK(mode)
    if about.st_uid not in (0, os.geteuid()) and not _is_unmapped(about.st_uid):
        why = f"belongs to {user_name(about.st_uid)}"
        return Weakness(path, why, step.open_to_all, None, ours=False, is_link=is_link)
    # In a folder with a sticky bit, as /tmp, nobody can rename what is another's.
    if is_link or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        return None
    anyone = bool(mode & stat.S_IWOTH)
    group = None if anyone or not mode & stat.S_IWGRP else about.st_gid
    if not anyone and (group is None or _is_only_ours(group)):
        return None
    who = "everybody" if group is None else f"group {_group_name(group)}"
    why = f"can be changed by {who} ({owner_and_mode(about)})"
    name = None if group is None else _group_name(group)
    return Weakness(path, why, anyone, name, ours=about.st_uid == os.geteuid(), is_link=False)


def _group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _is_only_ours(gid: int) -> bool:
    """Whether a group has no member but the user, as the one that Linux makes for each.

    Its name is the user's: only that distinguishes it from a group that others have as their first.
    """
    import grp
    import pwd

    try:
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}


def _is_unmapped(uid: int) -> bool:
    """Whether this is what a user namespace, as of a container, shows in place of users outside, root's too.

    Who they are is not visible there, so castoff does not refuse what is theirs.
    """
    return uid == _overflow_uid()


@functools.cache
def _overflow_uid() -> int | None:
    """The uid that stands for those whom this user namespace does not have; None where it has all."""
    try:
        shown = Path("/proc/self/uid_map").read_text().split()
        everybody = shown == ["0", "0", "4294967295"]
        return None if everybody else int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):  # no Linux, or no /proc: no such namespace is known
        return None
