"""Which code is sent to a machine only once its user has agreed."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.config.job_fields import Snapshot
from castoff.launcher.remote import code as code_module
from castoff.launcher.remote.code import Travelling, needs_agreement, top_level_words, travelling
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.remembered import agreed_bytes, remember_agreement

from ..repository import Repository

FAR = Entry(name="far", host="host", dir="/far")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path / "home"),
        "PATH": "/usr/bin:/bin",
    }


def code_in(folder: Path, environ: dict[str, str]) -> Travelling:
    return travelling(folder, Snapshot(), environ, [])


def question(
    code: Travelling, environ: dict[str, str], entry: Entry = FAR, *, selected: bool = False
) -> str | None:
    return needs_agreement(code, agreed_bytes(entry, code.tree.top, environ), selected=selected)


def agree(code: Travelling, environ: dict[str, str]) -> None:
    remember_agreement(FAR, code.tree.top, code.tree.bytes, environ)


def test_outside_of_git(tmp_path: Path, environ: dict[str, str]) -> None:
    folder = tmp_path / "plain"
    (folder / "data").mkdir(parents=True)
    (folder / "a.py").write_text("1\n")
    (folder / "data/x").write_text("12345678")
    code = code_in(folder, environ)
    why = question(code, environ)
    assert why is not None and f"{folder} is not in a git repository" in why
    assert top_level_words(code) == ["  data/ (8 bytes, 1 file)", "  a.py (2 bytes)"]
    assert question(code, environ, selected=True) is None
    agree(code, environ)
    assert question(code, environ) is None
    elsewhere = Entry(name="other", host="other-host", dir="/far")
    assert question(code, environ, elsewhere) is not None


def test_what_is_large(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(tmp_path / "project")
    code = code_in(repository.folder, environ)
    assert question(code, environ) is None
    repository.write("model.bin", "x" * 1000)
    monkeypatch.setattr(code_module, "UNASKED", 900)
    code = code_in(repository.folder, environ)
    assert "is a lot for code" in (question(code, environ, selected=True) or "")
    agree(code, environ)
    repository.write("model.bin", "x" * 1500)
    assert question(code_in(repository.folder, environ), environ) is None
    repository.write("model.bin", "x" * 3000)
    code = code_in(repository.folder, environ)
    assert question(code, environ) is not None
