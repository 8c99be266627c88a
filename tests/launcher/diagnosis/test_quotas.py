"""Quotas: what each tool prints, and what is made of it."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.diagnosis import quotas
from castoff.launcher.diagnosis.quotas import Usage
from castoff.launcher.trust.mounts import Mount

HOME = Mount("/home", "nfs4", "server:/home")
KIB, GIB = 1 << 10, 1 << 30


@pytest.mark.parametrize(
    ("parse", "text", "usage"),
    [
        (
            quotas.parse_quota,
            "Disk quotas for user ann (uid 1000): \n"
            "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
            "server:/other 1 2 3 0 4 5 6 0\n"
            "server:/home  4804448* 4000000 5000000 1732700000 21190       0       0       0\n",
            Usage(4804448 * KIB, 4000000 * KIB, 5000000 * KIB, 21190, 0, 0),
        ),
        (quotas.parse_quota, "Disk quotas for user ann (uid 1000): none\n", None),
        (
            quotas.parse_lfs,
            "  /lustre/a/very/long/name\n      5242880*  4194304 6291456  6d23h  120000  0  1000000  -\n",
            Usage(5242880 * KIB, 4194304 * KIB, 6291456 * KIB, 120000, 0, 1000000),
        ),
        (quotas.parse_lfs, "/l [10] 0 0 - 5 0 0 -", Usage(10 * KIB, 0, 0, 5, 0, 0)),
        (quotas.parse_lfs, "Unexpected quotactl error", None),
        (
            quotas.parse_mmlsquota,
            "mmlsquota::HEADER:version:reserved:reserved:filesystemName:quotaType:id:name:blockUsage:"
            "blockQuota:blockLimit:blockInDoubt:blockGrace:filesUsage:filesQuota:filesLimit:filesInDoubt:\n"
            "mmlsquota::0:1:::gpfs0:GRP:500:lab:9:0:0:0:none:1:0:0:0:\n"
            "mmlsquota::0:1:::gpfs0:USR:1000:ann:2097152:10485760:12582912:0:none:4000:0:500000:0:\n",
            Usage(2097152 * KIB, 10485760 * KIB, 12582912 * KIB, 4000, 0, 500000),
        ),
        (quotas.parse_mmlsquota, "mmlsquota: not found", None),
    ],
)
def test_what_each_tool_prints(
    parse: Callable[[str, Mount], Usage | None], text: str, usage: Usage | None
) -> None:
    assert parse(text, HOME) == usage


@pytest.fixture
def tool(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """An environment in which `quota` runs a line of shell."""

    def make(line: str) -> dict[str, str]:
        (tmp_path / "quota").write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "quota").chmod(0o755)
        return {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    return make


@pytest.mark.parametrize(
    ("numbers", "status", "fact"),
    [
        ("100 0 0 0 5 0 0 0", None, ""),
        ("1048576 4194304 0 0 5 0 0 0", "ok", "/home: 1.0 GiB of 4.0 GiB"),
        ("3984588 4194304 0 0 5 0 0 0", "warning", "/home: 3.8 GiB of 4.0 GiB, nearly all of it"),
        ("4194304 4194304 8388608 9 5 0 0 0", "problem", "/home: 4.0 GiB of 4.0 GiB: over it"),
        ("8388608 0 8388608 0 5 0 0 0", "problem", "/home: 8.0 GiB of 8.0 GiB: it is full"),
        ("1 0 0 0 99 0 100 0", "warning", "/home: 99 of 100 files, nearly all of it"),
    ],
)
def test_how_much_is_left(
    tool: Callable[[str], dict[str, str]], numbers: str, status: str | None, fact: str
) -> None:
    environ = tool(f"echo server:/home {numbers}; exit 1")  # which it does where one is exceeded
    found = [*quotas.findings({HOME: Path("/home/ann")}, environ, 30)]
    assert [one.status for one in found] == ([status] if status else [])
    assert not found or found[0].fact.startswith(fact)
    assert all(
        one.remedy.startswith("to see what takes space: du -xsh /home/ann/")
        for one in found
        if one.status != "ok"
    )


def test_a_tool_that_hangs_or_fails(tool: Callable[[str], dict[str, str]]) -> None:
    """Which nobody takes for a quota that is kept."""
    (found,) = quotas.findings({HOME: Path("/home/ann")}, tool("exec sleep 1000"), 0.2)
    assert found.status == "unknown" and "gave no answer within 0.2 s" in found.fact
    assert found.remedy.startswith("`quota -w -p` by hand")
    (found,) = quotas.findings({HOME: Path("/home/ann")}, tool("echo no server >&2; exit 2"), 30)
    assert found[:3] == ("quota", "unknown", "/home: no server")


def test_only_the_tool_of_the_file_system_is_asked(tmp_path: Path) -> None:
    me = getpass.getuser()
    asked = tmp_path / "asked"
    for name in ("quota", "lfs", "mmlsquota"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$*" >>{asked}\n')
        (tmp_path / name).chmod(0o755)
    kinds = {"lustre": "10.0.0.1@o2ib:/flare", "gpfs": "/dev/fs1", "overlay": "o"}
    used = {Mount(f"/{kind}", kind, source): Path(f"/{kind}/me") for kind, source in kinds.items()}
    [*quotas.findings(used, {"PATH": f"{tmp_path}:/usr/bin:/bin"}, 30)]
    assert sorted(asked.read_text().splitlines()) == [
        f"lfs quota -q -u {me} /lustre",
        f"mmlsquota -u {me} -Y --block-size 1K fs1",
    ]
