"""A wheel of castoff as it is here, and what its version says."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile

import pytest

from castoff.launcher.remote import wheel
from castoff.launcher.remote.install import platforms


def test_it_is_whole_and_always_the_same() -> None:
    built = wheel.build()
    assert built.content == wheel.build().content
    assert built.version == wheel.own_version() and built.name == f"castoff-{built.version}-py3-none-any.whl"
    needed = {line.partition(">")[0] for line in built.requirements}
    assert needed >= {"click", "msgspec", "psutil", "rich", "textual"} and "torch" not in needed
    archive = zipfile.ZipFile(io.BytesIO(built.content))
    names = archive.namelist()
    inner = ("launcher/remote/installer.py", "templates/head.sh.j2", "trainers/ddp.py")
    assert {"castoff/__init__.py", "castoff/py.typed", *(f"castoff/{name}" for name in inner)} <= {*names}
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "templates"))]
    info = f"castoff-{built.version}.dist-info"
    assert f"\nVersion: {built.version}\n" in archive.read(f"{info}/METADATA").decode()
    assert "castoff = castoff.__main__:console" in archive.read(f"{info}/entry_points.txt").decode()
    for line in archive.read(f"{info}/RECORD").decode().splitlines():
        name, digest, size = line.rsplit(",", 2)
        if digest:
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content))


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("0.1.0", "0.1.0+gabc", False),
        ("0.1.0+gabc", "0.1.0+gabc", False),
        ("0.1.0+gabd", "0.1.0+gabc", True),
        ("0.2.0", "0.1.0+gabc", True),
    ],
)
def test_versions_differ_as_far_as_they_say(one: str, other: str, differ: bool) -> None:
    assert wheel.differs(one, other) == wheel.differs(other, one) == differ


def test_platforms_are_those_that_a_libc_takes() -> None:
    old = platforms("x86_64", ["glibc", "2.17"])
    assert old[0] == "manylinux_2_17_x86_64" and "manylinux2014_x86_64" in old
    assert "manylinux_2_18_x86_64" not in old and old[-1] == "linux_x86_64"
    assert "manylinux_2_35_aarch64" in platforms("aarch64", ["glibc", "2.35"])
    assert platforms("x86_64", ["", ""])[0].startswith("musllinux_1_")
