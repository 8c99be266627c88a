"""Finds the file system of a path in the kernel's list of mounts, and whether other hosts see it."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

_SHARED = frozenset(
    {
        *(
            "lustre",
            "gpfs",
            "beegfs",
            "ceph",
            "afs",
            "9p",
            "cifs",
            "smb3",
            "panfs",
            "wekafs",
            "pvfs2",
            "orangefs",
        ),
        *("dvs", "quobyte", "glusterfs", "virtiofs", "gfs2", "ocfs2", "vast"),
    }
)
_OF_ONE_HOST = frozenset(
    {
        *(
            "ext2",
            "ext3",
            "ext4",
            "xfs",
            "btrfs",
            "zfs",
            "f2fs",
            "tmpfs",
            "ramfs",
            "overlay",
            "squashfs",
            "erofs",
        ),
        *("devtmpfs", "rootfs", "iso9660"),
    }
)


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    """The kernel's name for the type of the file system: ext4, nfs4, fuse.dfuse."""
    source: str
    """The mounted device, or the server and its folder."""

    @property
    def seen_by(self) -> Literal["all", "one", "unknown"]:
        """Whether other hosts see the file system, judged by its type. To which hosts a server exports is not
        known.
        """
        if self.kind in _SHARED or self.kind.startswith("nfs"):
            return "all"
        if self.kind in _OF_ONE_HOST:
            return "one"
        return "all" if self.kind.startswith("fuse.") and ":" in self.source else "unknown"


def current_mounts() -> list[Mount]:
    """The mounts that this process sees; none if the kernel has no such list."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux, or no /proc
        return []
    return parse_mounts(text)


def parse_mounts(text: str) -> list[Mount]:
    """Parse /proc/self/mountinfo to mounts, in order (proc_pid_mountinfo(5))."""
    mounts = []
    for line in text.splitlines():
        before, _, behind = line.partition(" - ")
        words, kind = before.split(), behind.split()
        if len(words) > 4 and len(kind) > 1:
            mounts.append(Mount(_plain(words[4]), kind[0], _plain(kind[1])))
    return mounts


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount that holds a path without links: the last mount with the longest mount point."""
    place = PurePosixPath(path)
    holding = [mount for mount in mounts if place.is_relative_to(mount.point)]
    return max(reversed(holding), key=lambda one: len(one.point), default=None)


def _plain(word: str) -> str:
    """Replace the kernel's escapes in a word, such as \\\\040 for a space."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), word)
