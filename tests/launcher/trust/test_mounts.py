"""Which file system a path lies on, and who sees it."""

from __future__ import annotations

import pytest

from castoff.launcher.trust.mounts import Mount, mount_of, parse_mounts

MOUNTS = parse_mounts(
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "40 22 0:35 / /home rw,relatime shared:2 master:3 - nfs4 server:/home rw,vers=4.2\n"
    r"41 22 0:36 / /my\040disk rw - fuse.sshfs me@there:/x rw" + "\n"
    "42 22 0:37 / /home/fast rw - lustre 10.0.0.1@o2ib:/flare rw\n"
    "43 22 0:38 / /home rw - autofs auto.home rw\n"
    "44 43 0:39 / /home rw - gpfs fs1 rw\n"
    "a line of no kind\n"
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homes", "ext4"),
        ("/home", "gpfs"),  # what was mounted last in a place is what is seen
        ("/home/fast/runs", "lustre"),
        ("/my disk/x", "fuse.sshfs"),
    ],
)
def test_the_nearest_mount(path: str, kind: str) -> None:
    found = mount_of(path, MOUNTS)
    assert found is not None and found.kind == kind


@pytest.mark.parametrize(
    ("kind", "source", "seen_by"),
    [
        ("nfs", "server:/home", "all"),
        ("lustre", "10.0.0.1@o2ib:/flare", "all"),
        ("fuse.sshfs", "me@there:/x", "all"),
        ("tmpfs", "none", "one"),
        ("ext4", "/dev/sda1", "one"),
        ("fuse.dfuse", "dfuse", "unknown"),
        ("newfs", "x", "unknown"),
    ],
)
def test_who_sees_it(kind: str, source: str, seen_by: str) -> None:
    assert Mount("/x", kind, source).seen_by == seen_by
