"""Decides who else can change a file or folder, for one step on the way to a path.

A test creates and checks each of the cases below. `me`, `bob` and `root` are users, `proj` is a group with
other members and `mine` one without; `unknown` is a user whom a container does not show.

| owner   | group | mode | list        | below                | place      | who can change it |
|---------|-------|------|-------------|----------------------|------------|-------------------|
| me      | mine  | 0755 | -           | -                    | last       | nobody            |
| root    | mine  | 0755 | -           | -                    | last       | nobody            |
| bob     | mine  | 0755 | -           | -                    | on the way | owner             |
| bob     | mine  | 0755 | -           | me:mine 1777         | last       | owner, as anyone  |
| me      | mine  | 0775 | -           | -                    | on the way | nobody            |
| me      | proj  | 0775 | -           | -                    | on the way | group proj        |
| me      | proj  | 0757 | -           | -                    | on the way | everybody         |
| me      | proj  | 1777 | -           | -                    | on the way | nobody            |
| bob     | proj  | 1777 | -           | -                    | on the way | owner             |
| me      | mine  | 0775 | g:proj:rwx  | -                    | on the way | group proj        |
| me      | mine  | 0755 | g:proj:rwx  | -                    | on the way | nobody            |
| me      | mine  | 0775 | u:bob:rwx   | -                    | last       | bob               |
| me      | mine  | 0775 | u:root:rwx  | -                    | last       | nobody            |
| me      | mine  | 1775 | g:proj:rwx  | -                    | on the way | nobody            |
| me      | proj  | 0775 | u:bob:rwx   | -                    | last       | bob and group proj |
| me      | proj  | 0775 | -           | me:mine 0700         | on the way | nobody            |
| me      | proj  | 0777 | -           | me:mine 0750         | on the way | nobody            |
| me      | proj  | 0775 | g:proj:rwx  | me:mine 0700         | last       | nobody            |
| me      | proj  | 0775 | -           | me:proj 0750         | on the way | group proj        |
| me      | proj  | 0775 | -           | me:mine 0750 u:bob:x | on the way | group proj        |
| bob     | proj  | 0755 | -           | me:mine 0700         | on the way | owner             |
| unknown | proj  | 0755 | -           | -                    | on the way | nobody            |
| unknown | proj  | 0755 | -           | -                    | last       | owner             |
| unknown | proj  | 0755 | -           | me:mine 1777         | on the way | owner, as anyone  |
| unknown | proj  | 0777 | -           | -                    | on the way | everybody         |

The lists in the table are POSIX lists; NFSv4 lists are equivalent. If only the user and root can enter a
folder, modes and lists below it do not matter, but owners do, since a file's owner may have written it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.trust import people
from castoff.launcher.trust.access import Listed


class Weakness(NamedTuple):
    """A step on the way to a path that another user can change or replace."""

    path: Path
    why: str
    """The words that follow the path in a sentence: `belongs to bob`."""
    anyone: bool
    """Whether everybody on the machine can change it, not only an owner, a group or users in a list."""
    group: str | None
    """The group, if only one group can change it; else None."""
    ours: bool
    """Whether it belongs to the user, who can deny others access."""
    is_link: bool
    shut_by: str = "chmod go-w"
    """The command that denies others access."""


class Step(NamedTuple):
    """A file, folder or link on the way to a path."""

    path: Path
    about: os.stat_result
    listed: Listed | None
    """Who has access to it; None for a link, which has neither mode nor list."""
    is_beside_all: bool
    """Whether everyone may create files in its folder."""
    is_below_all: bool
    """Whether everyone may create files in a folder above it."""
    shut_off_by: Path | None
    """The nearest folder above it, on its file system, that only the user and root can enter."""
    is_last: bool
    """Whether it is the path's own last step."""


def weakness(step: Step) -> Weakness | None:
    """How another user can change a step without the knowledge of the user or root; None if nobody can."""
    return _by_owner(step) or _by_mode_or_list(step)


def lets_nobody_else_in(about: os.stat_result, listed: Listed) -> bool:
    """Whether only the user and root can reach the files in a folder."""
    may_open = people.is_us(about.st_uid)
    return may_open and not any(
        (access.enters or access.rules) and access.is_other for access in listed.accesses
    )


def _by_owner(step: Step) -> Weakness | None:
    uid, anyone = step.about.st_uid, step.is_beside_all
    if people.is_us(uid):
        return None
    if people.is_unknown(uid):
        # This may be the host's root, to whom the outermost folders of all paths belong.
        if not step.is_last and not step.is_below_all:
            return None
        reason, anyone = "belongs to a user whom this container does not show", step.is_below_all
    else:
        reason = f"belongs to {people.user_name(uid)}"
    is_link = stat.S_ISLNK(step.about.st_mode)
    return Weakness(step.path, reason, anyone, None, ours=False, is_link=is_link)


def _by_mode_or_list(step: Step) -> Weakness | None:
    if step.listed is None:
        return None
    about = step.about
    # In a folder with the sticky bit, such as /tmp, users can rename only their own files.
    is_sticky = bool(stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX)
    writers = [access for access in step.listed.accesses if access.rules or (access.writes and not is_sticky)]
    others = [one for one in writers if one.is_other]
    if not others or _is_shut_off(step):
        return None
    everybody = [one for one in others if one.kind == "everybody"]
    names = list(dict.fromkeys(map(str, everybody or others)))
    only = others[0] if len(names) == 1 and not everybody else None
    list_words = "" if step.listed.by == "mode" else f", {step.listed.by} access list"
    return Weakness(
        step.path,
        f"can be changed by {_joined(names)} ({people.owner_and_mode(about)}{list_words})",
        anyone=bool(everybody),
        group=str(only) if only is not None and only.kind == "group" else None,
        ours=about.st_uid == os.geteuid(),
        is_link=False,
        shut_by="nfs4_editfacl" if step.listed.by == "NFSv4" else "chmod go-w",
    )


def _is_shut_off(step: Step) -> bool:
    """Whether nobody else can reach a step, since all paths to it lead through a folder closed to others."""
    if step.shut_off_by is None:
        return False
    from castoff.launcher.trust.mounts import current_mounts  # late: few paths are writable by others

    # A mounted file system can be reached otherwise: below another folder, or on other hosts.
    mounted = {mount.point for mount in current_mounts()}
    between = [step.path, *step.path.parents]
    return not any(str(path) in mounted for path in between[: between.index(step.shut_off_by)])


def _joined(names: list[str]) -> str:
    """Join names: `bob, ann and group proj`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
