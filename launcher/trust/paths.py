"""Who else can change a path: every file, folder and link on the way to it, as the kernel passes them."""

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
"""As many as the kernel follows."""


class _Folder(NamedTuple):
    """What counts of a folder for what lies in it."""

    mode: int
    device: int
    is_below_all: bool
    shut_off_by: Path | None
    """The nearest that lets nobody else in, itself or above it, on the same file system."""


def weaknesses(path: Path, *, is_installed: bool = False) -> list[Weakness]:
    """All that somebody else can change on the way to a path, from / on, as far as that is there.

    `is_installed`: whether the path may belong to whom a container does not show, as programs of root's do.
    """
    steps = (step._replace(is_last=step.is_last and not is_installed) for step in _steps(path))
    return list({step.path: found for step in steps if (found := weakness(step))}.values())


def steps_to(path: Path) -> set[Path]:
    """Everything on the way to a path, links and what they lead to, and itself."""
    return {step.path for step in _steps(path)}


def hiding(path: Path) -> list[str]:
    """Kinds of file systems on the way to a path that may decide by access lists which they do not show."""
    if not hasattr(os, "getxattr"):  # only Linux shows lists
        return [sys.platform]
    from castoff.launcher.trust.mounts import current_mounts, mount_of  # late: only a report asks

    mounts = current_mounts()
    kinds: dict[str, bool] = {}
    for step in _steps(path):
        if step.listed is not None and (mount := mount_of(str(step.path), mounts)) is not None:
            kinds[mount.kind] = kinds.get(mount.kind, False) or hides_lists(step.path, mount.kind)
    return [kind for kind, hides in kinds.items() if hides]


def _steps(path: Path) -> Iterator[Step]:
    """What the kernel passes on its way to a path, in that order."""
    here = Path("/")
    about = here.lstat()
    folders = {here: _Folder(about.st_mode, about.st_dev, is_below_all=False, shut_off_by=None)}
    yield _step(here, about, _Folder(0, about.st_dev, is_below_all=False, shut_off_by=None), is_last=False)
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
        step = _step(at, about, folders[here], is_last=not left)
        yield step
        if step.listed is None:
            target, links = at.readlink(), links + 1
            if links > _MOST_LINKS:
                return
            here = Path("/") if target.is_absolute() else here
            left += _names(target)
        else:
            shut_off_by = at if lets_nobody_else_in(about, step.listed) else step.shut_off_by
            folders[at] = _Folder(about.st_mode, about.st_dev, step.is_below_all, shut_off_by)
            here = at


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
    """The names that a path is made of, the last first."""
    return [name for name in reversed(path.parts) if name != path.anchor]
