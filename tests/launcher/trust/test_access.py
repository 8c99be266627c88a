"""Whom access lists let in, and where none can be seen."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.directory import check_trusted
from castoff.launcher.trust.access import hides_lists
from castoff.launcher.trust.decision import check
from castoff.launcher.trust.granted import grant
from castoff.launcher.trust.paths import weaknesses

ALLOW, DENY = 0, 1
ADD, READ, SEARCH, RULE = 0x2, 0x1, 0x20, 0x40000
INHERITED_ONLY, GROUP = 0x08, 0x40


def nfs4(*entries: tuple[int, int, int, str]) -> bytes:
    """A list as a server sends it."""
    rows = [
        struct.pack(">IIII", kind, flags, mask, len(who)) + who.encode() + b"\0" * (-len(who) % 4)
        for kind, flags, mask, who in entries
    ]
    return struct.pack(">I", len(rows)) + b"".join(rows)


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> dict[Path, bytes]:
    """Paths with lists of NFSv4, as if they lay on a server that has such."""
    found: dict[Path, bytes] = {}

    def getxattr(path: Path, name: str, *, follow_symlinks: bool) -> bytes:
        if name == "system.nfs4_acl" and path in found:
            return found[path]
        raise OSError(errno.EOPNOTSUPP, "Operation not supported", str(path))

    monkeypatch.setattr(os, "getxattr", getxattr)
    return found


OURS = (ALLOW, 0, ADD | READ | SEARCH | RULE, "OWNER@"), (ALLOW, 0, READ | SEARCH, "EVERYONE@")


@pytest.mark.parametrize(
    ("entries", "who"),
    [
        ([], None),
        ([(ALLOW, 0, ADD, "bob@example.org")], "user bob@example.org"),
        ([(ALLOW, 0, ADD, "root@example.org")], None),
        ([(ALLOW, GROUP, ADD, "proj@example.org")], "group proj@example.org"),
        ([(ALLOW, 0, RULE, "bob@example.org")], "user bob@example.org"),
        ([(ALLOW, 0, READ | SEARCH, "bob@example.org")], None),
        ([(ALLOW, INHERITED_ONLY, ADD, "bob@example.org")], None),
        ([(DENY, 0, ADD, "EVERYONE@"), (ALLOW, 0, ADD, "bob@example.org")], None),
        ([(DENY, 0, ADD, "ann@example.org"), (ALLOW, 0, ADD, "bob@example.org")], "user bob@example.org"),
        ([(ALLOW, 0, ADD, "EVERYONE@")], "everybody"),
    ],
)
def test_a_list_of_nfs4(
    tmp_path: Path, lists: dict[Path, bytes], entries: list[tuple[int, int, int, str]], who: str | None
) -> None:
    """Its entries need not show in the mode, which is 0755 here."""
    lists[tmp_path] = nfs4(*entries, *OURS)
    found = weaknesses(tmp_path / "file")
    assert [one.why.partition(" (")[0] for one in found] == ([f"can be changed by {who}"] if who else [])


def test_what_shuts_them_out_and_what_allows_them(tmp_path: Path, lists: dict[Path, bytes]) -> None:
    lists[tmp_path] = nfs4((ALLOW, 0, ADD, "bob@example.org"), *OURS)
    uses: list[Callable[[], None]] = [lambda: check(tmp_path), lambda: check_trusted(tmp_path)]
    for use in uses:
        with pytest.raises(CastoffError) as caught:
            use()
        said, allow, shut = str(caught.value).split("\n")
        assert "by user bob@example.org (" in said and "mode 0755, NFSv4 access list)" in said
        assert allow.endswith(f": castoff trust {tmp_path}")
        assert shut == f"or shut them out: nfs4_editfacl {tmp_path}"
    grant(tmp_path, os.environ)
    for use in uses:
        use()


def test_a_cut_list_is_read_as_far_as_it_goes(tmp_path: Path, lists: dict[Path, bytes]) -> None:
    whole = nfs4((ALLOW, 0, ADD, "bob@example.org"), *OURS)
    for length in range(len(whole)):
        lists[tmp_path] = whole[:length]
        weaknesses(tmp_path)


def test_which_file_systems_hide_lists(tmp_path: Path, lists: dict[Path, bytes]) -> None:
    """One of this host decides by what it shows; a server may by a list that it shows to nobody."""
    assert not hides_lists(tmp_path, "ext4")
    assert hides_lists(tmp_path, "nfs") and hides_lists(tmp_path, "fuse.dfuse")
    lists[tmp_path] = nfs4(*OURS)
    assert not hides_lists(tmp_path, "nfs4") and hides_lists(tmp_path, "gpfs")
