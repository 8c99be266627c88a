"""Names of users and groups, the user's own group, and users whom a container does not show."""

from __future__ import annotations

import functools
import os
import stat
from pathlib import Path


def is_us(uid: int | None) -> bool:
    """Whether a uid is the user's own or root's."""
    return uid is not None and uid in (0, os.geteuid())


def user_name(uid: int) -> str:
    """The name of a user, or else the number."""
    import pwd  # late: ranks load this module, and rarely need a name

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def group_name(gid: int) -> str:
    """The name of a group, or else the number."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def uid_of(name: str) -> int | None:
    """The uid of a name or number as in NFSv4, `alice@example.org`; None if this host has no such user."""
    import pwd

    plain = name.partition("@")[0]
    try:
        return int(plain) if plain.isdecimal() else pwd.getpwnam(plain).pw_uid
    except KeyError:
        return None


def gid_of(name: str) -> int | None:
    """The gid of a name or number in NFSv4's form; None if this host has no such group."""
    import grp

    plain = name.partition("@")[0]
    try:
        return int(plain) if plain.isdecimal() else grp.getgrnam(plain).gr_gid
    except KeyError:
        return None


def owner_and_mode(about: os.stat_result) -> str:
    """Owner, group and mode in words: `root:proj, mode 2775`."""
    return f"{user_name(about.st_uid)}:{group_name(about.st_gid)}, mode {stat.S_IMODE(about.st_mode):04o}"


def is_only_ours(gid: int | None) -> bool:
    """Whether the user is a group's only member, as in the group that Linux makes for each user.

    Only a group with the user's name counts, since another group may be the primary group of other users.
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
    """Whether this uid represents all users who are not in a container's user namespace, even root."""
    return uid == _overflow_uid()


@functools.cache
def _overflow_uid() -> int | None:
    """The uid that represents users who are not in this user namespace; None if the namespace contains all
    users.
    """
    try:
        shown = Path("/proc/self/uid_map").read_text().split()
        everybody = shown == ["0", "0", "4294967295"]
        return None if everybody else int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):  # not Linux, or no /proc: assume no such namespace
        return None
