"""Finds who else can change a path: checks every file, folder and link that the kernel passes on its way."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.trust.access import hides_lists, listed
from castoff.launcher.trust.writers import Step, Weakness, lets_nobody_else_in, weakness

_MOST_LINKS = 40
"""The number of links that the kernel follows."""


class _Folder(NamedTuple):
    """The properties of a folder that decide who can replace or change its entries."""

    mode: int
    device: int
    is_below_all: bool
    shut_off_by: Path | None
    """The nearest folder that only the user and root can enter: this one or one above it on its file system.
    """


def weaknesses(path: Path, *, is_installed: bool = False) -> list[Weakness]:
    """Everything that another user can change between the root folder and a path, as far as the path exists.

    `is_installed`: whether the path may belong to a user who is unknown inside a container, as files of root
    often do.
    """
    steps = (step._replace(is_last=step.is_last and not is_installed) for step in _steps(path))
    return list({step.path: weak for step in steps if (weak := weakness(step))}.values())


def steps_to(path: Path) -> set[Path]:
    """All paths on the way to a path: its folders, links and their targets, and the path itself."""
    return {step.path for step in _steps(path)}


def hiding(path: Path) -> list[str]:
    """The kinds of file systems on the way to a path that may apply access lists without showing them."""
    if not hasattr(os, "getxattr"):  # only Linux shows lists
        return [sys.platform]
    from castoff.launcher.trust.mounts import current_mounts, mount_of  # late: only reports need it

    mounts = current_mounts()
    kinds: dict[str, bool] = {}
    for step in _steps(path):
        if step.listed is not None and (mount := mount_of(str(step.path), mounts)) is not None:
            kinds[mount.kind] = kinds.get(mount.kind, False) or hides_lists(step.path, mount.kind)
    return [kind for kind, hides in kinds.items() if hides]


def _steps(path: Path) -> Iterator[Step]:
    """The steps of the kernel on its way to a path, in order."""
    folder = Path("/")
    about = folder.lstat()
    folders = {folder: _Folder(about.st_mode, about.st_dev, is_below_all=False, shut_off_by=None)}
    yield _step(folder, about, _Folder(0, about.st_dev, is_below_all=False, shut_off_by=None), is_last=False)
    left = _names(path if path.is_absolute() else Path.cwd() / path)
    links = 0
    while left:
        name = left.pop()
        if name == "..":
            folder = folder.parent
            continue
        entry = folder / name
        try:
            about = entry.lstat()
        except OSError:  # it does not exist, or nobody can read it here
            return
        step = _step(entry, about, folders[folder], is_last=not left)
        yield step
        if step.listed is None:
            target, links = entry.readlink(), links + 1
            if links > _MOST_LINKS:
                return
            folder = Path("/") if target.is_absolute() else folder
            left += _names(target)
        else:
            shut_off_by = entry if lets_nobody_else_in(about, step.listed) else step.shut_off_by
            folders[entry] = _Folder(about.st_mode, about.st_dev, step.is_below_all, shut_off_by)
            folder = entry


def _step(at: Path, about: os.stat_result, folder: _Folder, *, is_last: bool) -> Step:
    beside_all = bool(folder.mode & stat.S_IWOTH)
    return Step(
        at,
        about,
        None if stat.S_ISLNK(about.st_mode) else listed(at, about),
        is_beside_all=beside_all,
        is_below_all=beside_all or folder.is_below_all,
        shut_off_by=folder.shut_off_by if about.st_dev == folder.device else None,
        is_last=is_last,
    )


def _names(path: Path) -> list[str]:
    """The names in a path, the last first."""
    return [name for name in reversed(path.parts) if name != path.anchor]
