"""The user's list of folders to trust."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.trust.granted import grant, granted, granted_file, withdraw

from ..conftest import give_away


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (file := tmp_path / "job.yaml").touch()
    with pytest.raises(CastoffError, match=rf"is a file .*: castoff trust {tmp_path}$"):
        grant(file, os.environ)
    assert granted(os.environ) == []


def test_a_folder_is_granted_and_withdrawn(tmp_path: Path) -> None:
    assert granted(os.environ) == []
    (tmp_path / "link").symlink_to(tmp_path)
    for name in (tmp_path, tmp_path / "link", tmp_path / "link" / "."):
        assert grant(name, os.environ) == tmp_path
    (other := tmp_path / "another one").mkdir()
    grant(other, os.environ)
    assert granted(os.environ) == [tmp_path, other]
    assert withdraw(tmp_path / "link", os.environ) == tmp_path
    assert granted(os.environ) == [other]
    other.rmdir()
    assert withdraw(other, os.environ) == other  # gone, but still there to trust
    assert granted(os.environ) == []
    with pytest.raises(CastoffError, match="is not trusted, so nothing changes"):
        withdraw(other, os.environ)


def test_it_may_be_written_by_hand(tmp_path: Path) -> None:
    path = granted_file(os.environ)
    path.parent.mkdir(parents=True)
    path.write_text(f"# our group's\n\n{tmp_path}\nrelative\n")
    assert granted(os.environ) == [tmp_path]


def test_what_is_not_there_cannot_be_trusted(tmp_path: Path) -> None:
    with pytest.raises(CastoffError, match="does not exist, so it cannot be trusted"):
        grant(tmp_path / "none", os.environ)


def test_nor_what_a_line_cannot_hold(tmp_path: Path) -> None:
    (odd := tmp_path / "a\nb").mkdir()
    with pytest.raises(CastoffError, match="its name has a line break"):
        grant(odd, os.environ)


@pytest.mark.usefixtures("shared_group")
def test_a_list_that_others_can_change_is_not_believed(fresh_home: Path, tmp_path: Path) -> None:
    """Or whoever can rename ~/.config would have written it."""
    grant(tmp_path, os.environ)
    fresh_home.chmod(0o775)
    for use in (lambda: granted(os.environ), lambda: grant(tmp_path, os.environ)):
        with pytest.raises(CastoffError, match=f"{fresh_home} can be changed by .*; chmod go-w {fresh_home}"):
            use()
    fresh_home.chmod(0o755)
    give_away(granted_file(os.environ))
    with pytest.raises(CastoffError, match="its contents may be another user's"):
        granted(os.environ)
