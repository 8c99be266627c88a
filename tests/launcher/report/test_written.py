"""Pages of `castoff report` are no code, wherever they were written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.config.job_fields import Snapshot
from castoff.launcher.remote.code import travelling
from castoff.launcher.report.group_page import group_page
from castoff.launcher.report.page import page
from castoff.launcher.runs.groups import GroupJob, Groups
from castoff.launcher.runs.pages import is_page
from castoff.launcher.runs.snapshot import tree_around
from castoff.launcher.status.group_states import GroupStates

from ..repository import Repository
from .made import facts, with_curves


@pytest.fixture
def repository(tmp_path: Path, system_program: Callable[[str, str], Path]) -> Repository:
    system_program("git", "git")
    return Repository(tmp_path / "project")


def test_pages_of_any_kind_begin_so_that_they_are_known(tmp_path: Path) -> None:
    group = Groups(tmp_path).begin("made-1", {"name": "made"}, [GroupJob("a", "/nowhere")])
    of_group = group_page(GroupStates(group, {"a": None}), 1.0)
    for text in (page(facts()), page(with_curves(loss=[1.0])), of_group):
        (tmp_path / "a.html").write_text(text)
        assert is_page(tmp_path / "a.html")
        assert not is_page(tmp_path / "missing.html")


@pytest.mark.parametrize("in_git", [True, False])
def test_are_left_out_and_make_no_other_code(repository: Repository, tmp_path: Path, in_git: bool) -> None:
    folder = repository.folder if in_git else tmp_path / "plain"
    folder.mkdir(exist_ok=True)
    before = travelling(folder, Snapshot(), os.environ, [])
    (folder / "run-1.html").write_text(page(facts()))
    after = travelling(folder, Snapshot(), os.environ, [])
    assert (after.code.files, after.code.name) == (before.code.files, before.code.name)
    assert after.left_out_words == "; not in it: run-1.html"
    (folder / "own.html").write_text("<p>mine</p>")
    assert len(travelling(folder, Snapshot(), os.environ, []).code.files) == len(before.code.files) + 1
    assert [*tree_around(folder, Snapshot(paths=["run-1.html"]), os.environ).files] == [
        "run-1.html"
    ]  # as the job asks
    if in_git:
        repository.commit()
        assert "run-1.html" in tree_around(folder, Snapshot(), os.environ).files
