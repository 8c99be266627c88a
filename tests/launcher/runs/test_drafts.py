"""Run directories in the making: their names, and what becomes of those that nobody finished."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.process import locks
from castoff.launcher.runs import drafts
from castoff.launcher.runs.directory import is_draft
from castoff.launcher.runs.drafts import is_id, name_in_id, new_id, new_run
from castoff.launcher.runs.removal import sweep

from ..conftest import everything, give_away


class TestNewRun:
    @pytest.mark.parametrize(
        ("name", "begins"),
        [("a b/c", "a_b_c-"), ("..", "run-"), ("", "run-"), ("ä" * 99, "ä" * 29 + "__" + "ä" * 29 + "-")],
    )
    def test_ids_are_plain_words(self, tmp_path: Path, name: str, begins: str) -> None:
        with new_run(name, tmp_path) as draft:
            assert draft.publish().id.startswith(begins)

    def test_an_id_that_is_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        numbers = iter([b"\0\0", b"\0\0", b"\0\1"])
        monkeypatch.setattr(os, "urandom", lambda count: next(numbers) if count == 2 else b"aside")
        monkeypatch.setattr("time.strftime", lambda _: "now")
        with new_run("x", tmp_path) as first, new_run("x", tmp_path) as second:
            assert [first.final.id, second.final.id] == ["x-now-0000", "x-now-0001"]

    @pytest.mark.parametrize("name", ["x-now-0000", ".x-now-0000.draft"])
    @pytest.mark.parametrize("kind", ["link", "dangling", "file", "folder"])
    def test_a_name_that_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
    ) -> None:
        """Whatever stands there, another name is taken."""
        (tmp_path / "target").mkdir()
        planted = tmp_path / "runs" / name
        planted.parent.mkdir()
        if kind in ("link", "dangling"):
            planted.symlink_to(tmp_path / "target" / ("none" * (kind == "dangling")))
        elif kind == "file":
            planted.touch()
        else:
            planted.mkdir()
        numbers = iter([b"\0\0", b"\0\1"])
        monkeypatch.setattr(os, "urandom", lambda count: next(numbers) if count == 2 else b"aside")
        monkeypatch.setattr("time.strftime", lambda _: "now")
        with new_run("x", tmp_path / "runs") as draft:
            assert draft.publish().id == "x-now-0001"
        assert everything(tmp_path / "target") == set() and planted.is_symlink() == (
            kind in ("link", "dangling")
        )

    def test_a_file_system_without_locks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr("fcntl.flock", refuse)
        said = "cannot be made there: No locks available"
        with pytest.raises(CastoffError, match=said), new_run("x", tmp_path):
            pass
        assert everything(tmp_path) == set()

    def test_a_name_that_is_taken_in_the_last_moment(self, tmp_path: Path) -> None:
        (tmp_path / "target").mkdir()
        with new_run("x", tmp_path) as draft:
            draft.final.path.symlink_to(tmp_path / "target")
            with pytest.raises(OSError, match="Not a directory"):
                draft.publish()
        assert everything(tmp_path) == {"target", draft.final.id}


class TestSweep:
    def test_only_what_nobody_holds(self, tmp_path: Path) -> None:
        with new_run("held", tmp_path) as held:
            left = tmp_path / ".left-1.draft"
            left.mkdir()
            (left / "job.sh").touch()
            (tmp_path / ".half-1.swept").mkdir()
            assert sweep(tmp_path) == ["left-1"]
            assert everything(tmp_path) == {
                *(f"{held.run.id}{name}" for name in ("", "/attempts", "/logs", "/local.lock", "/.gitignore"))
            }
        assert everything(tmp_path) == set()
        assert sweep(tmp_path / "none") == []

    def test_never_what_is_not_ours(self, tmp_path: Path) -> None:
        folder = tmp_path / "runs"
        folder.mkdir()
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "precious").touch()
        (folder / ".a-1.draft").symlink_to(tmp_path / "target")
        (folder / ".b-1.swept").symlink_to(tmp_path / "target")
        (folder / ".c-1.draft").touch()
        (folder / ".d.other").mkdir()
        inside = folder / ".e-1.draft"
        inside.mkdir()
        (inside / "attempts").symlink_to(tmp_path / "target")
        (inside / "job.sh").touch()
        assert sweep(folder) == ["e-1"]
        assert everything(folder) == {".a-1.draft", ".b-1.swept", ".c-1.draft", ".d.other"}
        assert everything(tmp_path / "target") == {"precious"}

    def test_never_somebody_else_s(self, tmp_path: Path) -> None:
        (tmp_path / ".a-1.draft").mkdir()
        give_away(tmp_path / ".a-1.draft")
        assert sweep(tmp_path) == []
        assert everything(tmp_path) == {".a-1.draft"}

    @pytest.mark.parametrize("step", ["locked", "take"])
    def test_never_what_is_just_begun(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        """Another submission sweeps between any two steps: nobody is told of a submission that lives."""
        reported: list[list[str]] = []
        home = {"locked": drafts, "take": locks}[step]
        then = getattr(home, step)

        def sweep_first(*words: Any, **options: Any) -> Any:
            if not reported:
                reported.append([])
                reported[:] = [sweep(tmp_path)]
            return then(*words, **options)

        monkeypatch.setattr(home, step, sweep_first)
        with new_run("mine", tmp_path) as draft:
            assert reported == [[]] and sweep(tmp_path) == []
            assert is_draft(draft.run.path) and (draft.run.path / "attempts").is_dir()
            draft.publish()
        assert everything(tmp_path) >= {draft.final.id}
        assert not list(tmp_path.glob(".*"))

    def test_what_was_killed_as_it_began(self, tmp_path: Path) -> None:
        """It was not a submission yet, so it is not reported."""
        (tmp_path / ".a-1.draft").mkdir()
        assert sweep(tmp_path) == []
        assert everything(tmp_path) == set()


@pytest.mark.parametrize(
    ("name", "in_id"),
    [
        ("train_2.1+x-y", "train_2.1+x-y"),
        ("a b/c", "a_b_c"),
        ("..-", "run"),
        ("", "run"),
        ("Обучение", "Обучение"),
        ("训练-α", "训练-α"),
        ("हिन्दी", "हिन्दी"),
        ("entrai\u0302nement", "entraînement"),
        ("x\u202ey\u3000z\N{GRINNING FACE}", "x_y_z_"),
        ("a" * 60, "a" * 60),
        ("a" * 80 + "-seed42", "a" * 29 + "__" + "a" * 22 + "-seed42"),
    ],
)
def test_a_name_in_an_id(name: str, in_id: str) -> None:
    assert name_in_id(name) == in_id
    assert is_id(new_id(name))


def test_a_long_name_of_long_letters_is_a_file_name(tmp_path: Path) -> None:
    name = name_in_id("模" * 300 + "-seed42")
    assert name.startswith("模模") and name.endswith("模-seed42")
    with new_run(name, tmp_path) as draft:
        assert draft.publish().path.is_dir()


@pytest.mark.parametrize("text", ["", ".x", "-x", "a/b", "..", "a b", "a\n", "模" * 100, "a\udc80"])
def test_what_is_no_id(text: str) -> None:
    assert not is_id(text)
