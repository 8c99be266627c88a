"""The cache of compiled templates: used, never trusted where others could write, never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher import JobSpec, Site, plan, render
from launcher.planning.template_cache import template_cache


def script() -> str:
    return render(plan(JobSpec.of({"command": ["true"]}), Site.load("slurm")))


def entries(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (home / ".cache" / "castoff" / "templates").glob("*")}


def test_what_was_compiled_once_is_used(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = script()
    assert entries(fresh_home)
    monkeypatch.setattr("jinja2.Environment._compile", None)  # nothing is compiled any more
    assert script() == first


def test_a_changed_template_is_compiled_anew(tmp_path: Path) -> None:
    about = tmp_path / "blocks" / "about.j2"
    about.parent.mkdir()
    for text in ("# one\n", "# two\n"):
        about.write_text(text)
        job = JobSpec.of({"command": ["true"], "templates": str(tmp_path)})
        assert text in render(plan(job, Site.load("slurm")))


def test_damaged_entries_are_replaced(fresh_home: Path) -> None:
    first = script()
    whole = entries(fresh_home)
    for path in whole:
        path.write_bytes(b"")
    assert script() == first
    assert entries(fresh_home) == whole


def test_xdg_wins_and_a_relative_folder_is_none(tmp_path: Path) -> None:
    template_cache({"HOME": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)})
    assert (tmp_path / "castoff" / "templates").stat().st_mode & 0o777 == 0o700
    assert template_cache({"XDG_CACHE_HOME": "here"}) is None
    assert template_cache({}) is None


def test_no_folder_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert template_cache(os.environ) is None
    assert script().startswith("#!")


def test_a_folder_that_others_can_write_is_not_believed(fresh_home: Path) -> None:
    script()
    folder = fresh_home / ".cache" / "castoff" / "templates"
    folder.chmod(0o777)
    assert template_cache(os.environ) is None


def test_a_full_disk_is_no_reason_to_fail(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    assert script().startswith("#!")
    assert not entries(fresh_home)
