"""Who else could change what is at a path."""

from __future__ import annotations

import grp
import os
import tempfile
from pathlib import Path

import pytest

from castoff.launcher.trust.paths import weaknesses

from ..conftest import STRANGER, give_away


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that nobody else can change."""
    inner = tmp_path / "folder"
    inner.mkdir(mode=0o755)
    return inner


def found(path: Path) -> list[tuple[Path, bool]]:
    return [(one.path, one.anyone) for one in weaknesses(path)]


class TestModes:
    @pytest.mark.parametrize("mode", [0o700, 0o755, 0o555, 0o1755, 0o2755])
    def test_ours_alone(self, folder: Path, mode: int) -> None:
        folder.chmod(mode)
        (file := folder / "file").touch(mode=0o644)
        assert weaknesses(file) == []

    @pytest.mark.parametrize(
        ("mode", "anyone"), [(0o775, False), (0o2770, False), (0o757, True), (0o777, True)]
    )
    @pytest.mark.usefixtures("shared_group")
    def test_a_folder_above(self, folder: Path, mode: int, anyone: bool) -> None:
        (folder / "a" / "b").mkdir(parents=True, mode=0o755)
        (folder / "a" / "b" / "file").touch(mode=0o644)
        folder.chmod(mode)
        for path in (folder, folder / "a", folder / "a" / "b" / "file", folder / "not" / "there"):
            (one,) = weaknesses(path)
            assert (one.path, one.anyone, one.ours) == (folder, anyone, True)
            whose = "everybody" if anyone else f"group {grp.getgrgid(folder.stat().st_gid).gr_name}"
            assert one.why.startswith(f"can be changed by {whose} (") and one.why.endswith(f"{mode:04o})")

    @pytest.mark.usefixtures("shared_group")
    def test_with_a_sticky_bit_nobody_renames_what_is_ours(self, folder: Path) -> None:
        (folder / "a").mkdir(mode=0o755)
        for mode in (0o1777, 0o1775, 0o3777):
            folder.chmod(mode)
            assert weaknesses(folder / "a") == []

    @pytest.mark.usefixtures("shared_group")
    def test_a_file(self, folder: Path) -> None:
        (file := folder / "file").touch()
        file.chmod(0o664)
        assert found(file) == [(file, False)]
        file.chmod(0o666)
        assert found(file) == [(file, True)]
        file.chmod(0o1666)  # the bit means nothing for files
        assert found(file) == [(file, True)]


class TestOwners:
    def test_somebody_else_s(self, folder: Path) -> None:
        (file := folder / "file").touch()
        give_away(folder)
        (one,) = weaknesses(file)
        assert (one.path, one.why, one.anyone) == (folder, f"belongs to user {STRANGER}", False)
        assert not one.ours
        folder.chmod(0o1777)  # its owner renames what he likes in it
        assert found(file) == [(folder, False)]

    def test_what_anybody_may_put_in_a_sticky_folder(self, folder: Path) -> None:
        folder.chmod(0o1777)
        (file := folder / "file").touch()
        (link := folder / "link").symlink_to("/etc/passwd")
        assert found(link) == []
        give_away(file)
        os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
        assert found(file) == [(file, True)]
        assert found(link) == [(link, True)]

    def test_root_trusts_no_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        give_away(tmp_path)
        monkeypatch.setenv("SUDO_UID", str(STRANGER))
        assert found(tmp_path) == [(tmp_path, False)]

    def test_a_user_trusts_root(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can own what is root's")
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
        assert weaknesses(tmp_path) == []


class TestTheWay:
    def test_links_and_what_they_lead_to(self, folder: Path, tmp_path: Path) -> None:
        (open_to_all := tmp_path / "open").mkdir()
        open_to_all.chmod(0o777)
        (open_to_all / "real").mkdir()
        (folder / "absolute").symlink_to(open_to_all / "real")
        (folder / "relative").symlink_to("../open/real")
        (folder / "twice").symlink_to("absolute")
        for name in ("absolute", "relative", "twice"):
            assert found(folder / name / "file") == [(open_to_all, True)]

    def test_dots_are_followed_as_the_kernel_does(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`link/..` is above what the link leads to, and not beside the link."""
        (there := tmp_path / "open" / "inner").mkdir(parents=True)
        there.parent.chmod(0o777)
        (folder / "link").symlink_to(there)
        (folder / "file").touch()
        (there.parent / "file").touch()
        assert found(folder / "link" / ".." / "file") == [(there.parent, True)]
        monkeypatch.chdir(there)
        assert found(Path("../file")) == [(there.parent, True)]
        assert found(Path("..", "..", "folder", ".", "file")) == [(there.parent, True)]

    def test_a_circle_of_links_ends(self, folder: Path) -> None:
        (folder / "a").symlink_to("b")
        (folder / "b").symlink_to("a")
        assert weaknesses(folder / "a" / "file") == []


def test_outside_of_one_nobody_is_somebody() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(folder, 65534, 65534)
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
            pytest.skip("only root can: these tests run in a user namespace")
        assert found(Path(folder)) == [(Path(folder), True)]
