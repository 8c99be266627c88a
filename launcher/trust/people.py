"""Who users and groups are: their names, which group is the user's alone, whom a container hides."""

from __future__ import annotations

import functools
import os
import stat
from pathlib import Path


def is_us(uid: int | None) -> bool:
    """Whether a user counts as nobody else: the user, or root."""
    return uid is not None and uid in (0, os.geteuid())


def user_name(uid: int) -> str:
    """A user's name, or the number."""
    import pwd  # late: ranks load this module, and seldom need a name

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def group_name(gid: int) -> str:
    """A group's name, or the number."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def uid_of(name: str) -> int | None:
    """The user of a name or number as NFSv4 writes them, `alice@example.org`; None: this host has none."""
    import pwd

    plain = name.partition("@")[0]
    try:
        return int(plain) if plain.isdecimal() else pwd.getpwnam(plain).pw_uid
    except KeyError:
        return None


def gid_of(name: str) -> int | None:
    """The group of a name or number, likewise; None: this host has none."""
    import grp

    plain = name.partition("@")[0]
    try:
        return int(plain) if plain.isdecimal() else grp.getgrnam(plain).gr_gid
    except KeyError:
        return None


def owner_and_mode(about: os.stat_result) -> str:
    """As in `root:proj, mode 2775`."""
    return f"{user_name(about.st_uid)}:{group_name(about.st_gid)}, mode {stat.S_IMODE(about.st_mode):04o}"


def is_only_ours(gid: int | None) -> bool:
    """Whether a group has no member but the user, as the one that Linux makes for each.

    Its name is the user's: only that distinguishes it from a group that others have as their first.
    """
    import grp
    import pwd

    if gid is None:
        return False
    try:
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}


def is_unknown(uid: int) -> bool:
    """Whether this stands for all users whom a container's user namespace does not have: root, too."""
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
