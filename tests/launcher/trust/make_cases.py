"""Makes the cases of `launcher.trust.writers`, and prints whom castoff sees there: as root, on a tmpfs.

`python -m tests.launcher.trust.make_cases FOLDER NAMES` reads them from standard input, as JSON. FOLDER is
one that everybody may enter, and below none that is open to all; NAMES says who `me`, `bob`, `mine` and
`proj` are here.
"""

from __future__ import annotations

import ctypes
import grp
import json
import os
import pwd
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from castoff.launcher.trust import mounts, people
from castoff.launcher.trust.paths import weaknesses

_LOADED = (grp, pwd, mounts)
"""What castoff imports late, and perhaps from where `me` may not read."""

_NEW_USER_NAMESPACE = 0x10000000
_ANYBODY = 0xFFFFFFFF
_ALLOWED = {"r": 4, "w": 2, "x": 1, "-": 0}


def posix_list(mode: int, entries: list[tuple[str, int, int]]) -> bytes:
    """A POSIX access list as Linux has it: the mode's own entries, and these of users and groups."""
    rows = [(0x01, mode >> 6 & 7, _ANYBODY)]
    rows += [(0x02, allowed, number) for kind, number, allowed in entries if kind == "u"]
    rows.append((0x04, mode >> 3 & 7, _ANYBODY))
    rows += [(0x08, allowed, number) for kind, number, allowed in entries if kind == "g"]
    rows += [(0x10, mode >> 3 & 7, _ANYBODY), (0x20, mode & 7, _ANYBODY)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)


def set_list(path: Path, mode: int, text: str, ids: Mapping[str, int]) -> None:
    """Give a folder a list, as in `u:bob:rwx`."""
    if text in ("", "-"):
        return
    kind, name, letters = text.split(":")
    entry = (kind, ids[name], sum(_ALLOWED[letter] for letter in letters))
    os.setxattr(path, "system.posix_acl_access", posix_list(mode, [entry]))


def make(folder: Path, case: Mapping[str, str], ids: Mapping[str, int]) -> tuple[Path, Path]:
    """Make a case in a folder: what is judged, and the path that is asked for."""
    folder.mkdir(mode=0o755)
    if case["below"] != "-":
        owners, digits, entry = (*case["below"].split(), "")[:3]
        owner, group = owners.split(":")
        folder = folder / "below"
        _folder(folder, owner, group, digits, entry, ids)
    place = folder / "place"
    _folder(place, case["owner"], case["group"], case["mode"], case["list"], ids)
    (inner := place / "file").touch(mode=0o644)
    os.chown(inner, ids["me"], ids["mine"])
    return place, place if case["place"] == "last" else inner


def _folder(path: Path, owner: str, group: str, digits: str, entry: str, ids: Mapping[str, int]) -> None:
    path.mkdir()
    os.chown(path, ids[owner], ids[group])
    path.chmod(int(digits, 8))
    set_list(path, int(digits, 8), entry, ids)


def judge(place: Path, path: Path) -> Any:
    """What castoff says of a place on the way to a path."""
    return [(one.why, one.anyone) for one in weaknesses(path) if one.path == place]


def in_a_container(place: Path, path: Path, ids: Mapping[str, int]) -> Any:
    """The same in a user namespace that has `me` alone."""
    (begin, go), (answer, give) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER_NAMESPACE)
        os.write(give, b"x" if code == 0 else b"-")
        os.read(begin, 1)
        os.setgid(ids["mine"])
        os.setuid(ids["me"])
        people._overflow_uid.cache_clear()
        os.write(give, json.dumps(judge(place, path)).encode())
        os._exit(0)
    assert os.read(answer, 1) == b"x"
    Path(f"/proc/{child}/uid_map").write_text(f"{ids['me']} {ids['me']} 1")
    Path(f"/proc/{child}/gid_map").write_text(f"{ids['mine']} {ids['mine']} 1")
    os.write(go, b"x")
    os.waitpid(child, 0)
    return json.loads(os.read(answer, 1 << 16))


def main(folder: Path, ids: Mapping[str, int], cases: list[Mapping[str, str]]) -> None:
    """Make all cases, and judge each as `me`."""
    os.umask(0)
    os.setgroups([])
    answers = []
    for number, case in enumerate(cases):
        place, path = make(folder / str(number), case, ids)
        if case["owner"] == "unknown":
            answers.append(in_a_container(place, path, ids))
            continue
        os.setegid(ids["mine"])
        os.seteuid(ids["me"])
        answers.append(judge(place, path))
        os.seteuid(0)
        os.setegid(0)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.load(sys.stdin))
