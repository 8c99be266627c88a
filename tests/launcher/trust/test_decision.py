"""What castoff uses and refuses, and what allows it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from castoff.launcher.trust.decision import Untrusted, check, check_named
from castoff.launcher.trust.granted import grant

from ..conftest import STRANGER, give_away


@pytest.fixture
def project(tmp_path: Path, shared_group: None) -> Path:
    """A folder in which a group works, and in it one of the user's own."""
    inner = tmp_path / "project" / "mine"
    inner.mkdir(parents=True)
    inner.parent.chmod(0o2775)
    return inner.parent


def refusal(path: Path) -> list[str]:
    with pytest.raises(Untrusted) as caught:
        check(path)
    return str(caught.value).split("\n")


def allow(lines: list[str]) -> None:
    """Do what a refusal says allows it."""
    ((program, *words),) = (
        shlex.split(line.partition(": ")[2]) for line in lines if line.startswith("if you trust")
    )
    assert program == "castoff" and words.pop(0) == "trust"
    for word in words:
        grant(Path(word), os.environ)


class TestWhatCastoffFindsByItself:
    def test_the_refusal_names_the_weak_folder_and_both_ways_out(self, project: Path) -> None:
        said, allowed, shut = refusal(project / "mine" / "file")
        assert said.startswith(f"{project}/mine/file: is not used, since {project} can be changed by group ")
        assert allowed.endswith(f": castoff trust {project}")
        assert shut == f"or shut them out: chmod go-w {project}"

    def test_one_line_allows_it_all(self, project: Path) -> None:
        """Folders below that the same group may write to are no more than that group's."""
        (project / "mine" / "experiment").mkdir()
        (project / "mine" / "experiment").chmod(0o2775)
        allow(refusal(project / "mine" / "experiment" / "file"))
        for path in ("mine", "mine/experiment", "other", "mine/experiment/file"):
            check(project / path)

    def test_also_what_a_member_made_below(self, project: Path) -> None:
        grant(project, os.environ)
        give_away(project / "mine")
        check(project / "mine" / "file")

    def test_but_not_what_everybody_can_change_below(self, project: Path) -> None:
        grant(project, os.environ)
        (open_to_all := project / "open").mkdir()
        open_to_all.chmod(0o777)
        lines = refusal(open_to_all / "file")
        assert f"since {open_to_all} can be changed by everybody (" in lines[0]
        allow(lines)
        check(open_to_all / "file")

    def test_nor_what_somebody_put_into_a_sticky_one_below(self, project: Path) -> None:
        grant(project, os.environ)
        (project / "open" / "his").mkdir(parents=True)
        (project / "open").chmod(0o1777)
        check(project / "open" / "his")
        give_away(project / "open" / "his")
        assert (
            f"his: is not used, since it belongs to user {STRANGER}" in refusal(project / "open" / "his")[0]
        )

    def test_nor_what_a_link_leads_to_elsewhere(self, project: Path, tmp_path: Path) -> None:
        grant(project, os.environ)
        (his := tmp_path / "his").mkdir()
        (project / "link").symlink_to(his)
        check(project / "link" / "file")
        give_away(his)
        assert f"since {his} belongs to" in refusal(project / "link" / "file")[0]

    def test_trust_in_one_folder_does_not_cover_another(self, project: Path, tmp_path: Path) -> None:
        (other := tmp_path / "project2").mkdir()
        other.chmod(0o775)
        grant(project, os.environ)
        assert "project2 can be changed" in refusal(other / "file")[0].replace("it can", "project2 can")

    def test_people_who_differ_get_the_narrowest_folder(self, project: Path) -> None:
        """That is the one nearest to the file: trusting the widest would trust too many."""
        (project / "mine" / "his").mkdir()
        give_away(project / "mine" / "his")
        lines = refusal(project / "mine" / "his" / "file")
        assert lines[1].endswith(f": castoff trust {project}/mine/his")
        allow(lines)
        check(project / "mine" / "his" / "file")
        refusal(project / "mine" / "file")

    def test_a_link_to_elsewhere_needs_several_lines(self, project: Path, tmp_path: Path) -> None:
        (other := tmp_path / "other").mkdir()
        other.chmod(0o777)
        (project / "mine" / "link").symlink_to(other)
        lines = refusal(project / "mine" / "link" / "file")
        assert lines[1].endswith(f": castoff trust {other} {project}")
        allow(lines)
        check(project / "mine" / "link" / "file")

    def test_somebody_else_s_link_cannot_be_trusted(self, tmp_path: Path) -> None:
        (link := tmp_path / "link").symlink_to("/etc")
        if os.geteuid() != 0:
            pytest.skip("only root can give a link away")
        os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
        assert refusal(link / "passwd")[1:] == ["name the link's target instead of the link"]

    def test_an_odd_name_is_a_shell_s_word(self, tmp_path: Path) -> None:
        (odd := tmp_path / "it's\n$(here)").mkdir()
        odd.chmod(0o777)
        said, allowed, _ = refusal(odd / "file")
        assert "it's\\n$(here)" in said and r"it\047s\012$(here)'" in allowed


class TestWhatTheUserNames:
    """A file whose path the user gives: only what everybody could have written is refused."""

    def test_a_group_s_and_a_colleague_s(self, project: Path) -> None:
        (file := project / "mine" / "job.yaml").touch()
        check_named(file)
        file.chmod(0o664)
        check_named(file)
        give_away(file)
        check_named(file)

    @pytest.mark.parametrize("mode", [0o777, 0o1777])
    def test_what_everybody_could_have_written(self, project: Path, mode: int) -> None:
        (file := project / "mine" / "job.yaml").touch()
        file.parent.chmod(mode)
        if mode == 0o1777:
            check_named(file)
            give_away(file)
        with pytest.raises(Untrusted) as caught:
            check_named(file)
        allow(str(caught.value).split("\n"))
        check_named(file)

    def test_a_file_open_to_all(self, tmp_path: Path) -> None:
        (file := tmp_path / "job.yaml").touch()
        file.chmod(0o666)
        with pytest.raises(
            Untrusted, match=f"since it can be changed by everybody .*\n.*\n.* chmod go-w {file}"
        ):
            check_named(file)

    def test_a_path_that_is_not_a_file_is_left_to_its_reader(self, tmp_path: Path) -> None:
        read, write = os.pipe()
        try:
            for path in (f"/dev/fd/{read}", "/dev/null", str(tmp_path), str(tmp_path / "none"), "a\0b"):
                check_named(Path(path))
        finally:
            os.close(read)
            os.close(write)
