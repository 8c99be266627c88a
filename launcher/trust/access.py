"""Reads who has access to a file or folder, from its mode and its access list, POSIX or NFSv4.

Linux shows lists as extended attributes: a POSIX list in its binary form (acl(5), and
include/uapi/linux/posix_acl_xattr.h), an NFSv4 list in its network format (nfs4_acl(5); RFC 8881, 6.2.1).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from castoff.launcher.trust import people

_POSIX, _NFS4 = "system.posix_acl_access", "system.nfs4_acl"

_SHOWN_BY = frozenset(
    {
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay", "lustre"),
        *("ceph", "squashfs", "erofs", "iso9660", "vfat", "rootfs", "devtmpfs", "devpts", "proc", "sysfs"),
    }
)
"""Kinds of file systems that show all access lists that they apply."""


class Access(NamedTuple):
    """The access of a user or group other than the owner."""

    kind: Literal["user", "group", "everybody"]
    number: int | None
    """The uid or gid; None for everybody, or if this host does not know the name."""
    name: str
    """The name in an NFSv4 list; else empty."""
    writes: bool
    """Whether the user or group may change a file, or a folder's entries."""
    enters: bool
    """Whether the user or group may reach the files in a folder."""
    rules: bool = False
    """Whether the user or group may change the access list or the owner."""

    @property
    def is_other(self) -> bool:
        """Whether this access includes anyone but the user and root."""
        if self.kind == "user":
            return not people.is_us(self.number)
        return self.kind == "everybody" or not people.is_only_ours(self.number)

    def __str__(self) -> str:
        if self.kind == "everybody":
            return "everybody"
        if self.name or self.number is None:
            return f"{self.kind} {self.name}"
        if self.kind == "user":
            return people.user_name(self.number)
        return f"group {people.group_name(self.number)}"


class Listed(NamedTuple):
    """Who has access to a file or folder."""

    accesses: list[Access]
    by: Literal["mode", "POSIX", "NFSv4"]


def listed(path: Path, about: os.stat_result) -> Listed:
    """Read who has access to a file or folder besides its owner; `path` is not a link."""
    if (data := _attribute(path, _NFS4)) is not None:
        return Listed([*_of_nfs4(data, about)], "NFSv4")
    # The group's bits of the mode are the mask of a POSIX list: without them, its entries allow nothing.
    if about.st_mode & (stat.S_IWGRP | stat.S_IXGRP) and (data := _attribute(path, _POSIX)) is not None:
        return Listed([*_of_posix(data, about)], "POSIX")
    mode = about.st_mode
    group = Access("group", about.st_gid, "", bool(mode & stat.S_IWGRP), bool(mode & stat.S_IXGRP))
    others = Access("everybody", None, "", bool(mode & stat.S_IWOTH), bool(mode & stat.S_IXOTH))
    return Listed([group, others], "mode")


def hides_lists(path: Path, kind: str) -> bool:
    """Whether a file system of this kind may apply an access list to a path without showing it."""
    if kind in _SHOWN_BY:
        return False
    return not any(_is_supported(path, name) for name in (_POSIX, _NFS4)) or kind == "gpfs"


def _attribute(path: Path, name: str) -> bytes | None:
    if not hasattr(os, "getxattr"):  # not Linux
        return None
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:  # there is no list, or neither list nor file can be read
        return None


def _is_supported(path: Path, name: str) -> bool:
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(path, name, follow_symlinks=False)
    except OSError as error:
        return error.errno == errno.ENODATA
    return True


_ENTRY = struct.Struct("<HHI")
_USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x02, 0x04, 0x08, 0x10, 0x20
_WRITE, _EXECUTE = 2, 1


def _of_posix(data: bytes, about: os.stat_result) -> Iterator[Access]:
    entries = [*_ENTRY.iter_unpack(data[4 : 4 + (len(data) - 4) // _ENTRY.size * _ENTRY.size])]
    mask = next((allowed for tag, allowed, _ in entries if tag == _MASK), 7)
    for tag, allowed, number in entries:
        masked = allowed & mask
        if tag == _USER:
            yield Access("user", number, "", bool(masked & _WRITE), bool(masked & _EXECUTE))
        elif tag in (_GROUP_OBJ, _GROUP):
            gid = about.st_gid if tag == _GROUP_OBJ else number
            yield Access("group", gid, "", bool(masked & _WRITE), bool(masked & _EXECUTE))
        elif tag == _OTHER:
            yield Access("everybody", None, "", bool(allowed & _WRITE), bool(allowed & _EXECUTE))


_ALLOW, _DENY = 0, 1
_ONLY_INHERITED, _IS_GROUP = 0x08, 0x40
_MAY_ENTER = 0x20
_MAY_RULE = 0x40000 | 0x80000  # change the file's list, its owner
_MAY_CHANGE = {True: 0x2 | 0x4 | 0x40, False: 0x2 | 0x4}
"""For a folder: create files and folders in it, and remove its entries. For a file: write, and append."""


def _of_nfs4(data: bytes, about: os.stat_result) -> Iterator[Access]:
    """Read who has access by an NFSv4 list. A denial counts only for later entries with the same name; a
    denial for everybody counts for all later entries.
    """
    changes = _MAY_CHANGE[stat.S_ISDIR(about.st_mode)]
    denied: dict[str, int] = {}
    for kind, flags, mask, name in _aces(data):
        if flags & _ONLY_INHERITED or name == "OWNER@":
            continue
        if kind == _DENY:
            denied[name] = denied.get(name, 0) | mask
        if kind != _ALLOW:
            continue
        allowed = mask & ~denied.get(name, 0) & ~denied.get("EVERYONE@", 0)
        may = bool(allowed & changes), bool(allowed & _MAY_ENTER), bool(allowed & _MAY_RULE)
        if name == "EVERYONE@":
            yield Access("everybody", None, "", *may)
        elif name == "GROUP@":
            yield Access("group", about.st_gid, "", *may)
        elif flags & _IS_GROUP:
            yield Access("group", people.gid_of(name), name, *may)
        else:
            yield Access("user", people.uid_of(name), name, *may)


def _aces(data: bytes) -> Iterator[tuple[int, int, int, str]]:
    """The entries of a list in its network format: four numbers and a text each, in units of four bytes."""
    offset = 4
    while offset + 16 <= len(data):
        kind, flags, mask, length = struct.unpack_from(">IIII", data, offset)
        name = data[offset + 16 : offset + 16 + length].decode(errors="replace")
        yield kind, flags, mask, name
        offset += 16 + (length + 3) // 4 * 4
