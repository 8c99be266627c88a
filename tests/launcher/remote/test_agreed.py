"""Which code is sent to a machine only once its user has agreed."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.config.job_fields import Snapshot
from castoff.launcher.remote import agreed
from castoff.launcher.remote.code import Travelling, travelling
from castoff.launcher.remote.entries import Entry

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


def test_outside_of_git(tmp_path: Path, environ: dict[str, str]) -> None:
    folder = tmp_path / "plain"
    (folder / "data").mkdir(parents=True)
    (folder / "a.py").write_text("1\n")
    (folder / "data/x").write_text("12345678")
    code = code_in(folder, environ)
    why = agreed.needs_agreement(FAR, code, environ, selected=False)
    assert why is not None and f"{folder} is not in a git repository" in why
    assert agreed.listed(code) == ["  data/ (8 bytes, 1 file)", "  a.py (2 bytes)"]
    assert agreed.needs_agreement(FAR, code, environ, selected=True) is None
    agreed.remember(FAR, code, environ)
    assert agreed.needs_agreement(FAR, code, environ, selected=False) is None
    elsewhere = Entry(name="other", host="other-host", dir="/far")
    assert agreed.needs_agreement(elsewhere, code, environ, selected=False) is not None


def test_what_is_large(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(tmp_path / "project")
    code = code_in(repository.folder, environ)
    assert agreed.needs_agreement(FAR, code, environ, selected=False) is None
    repository.write("model.bin", "x" * 1000)
    monkeypatch.setattr(agreed, "UNASKED", 900)
    code = code_in(repository.folder, environ)
    assert "is much for code" in (agreed.needs_agreement(FAR, code, environ, selected=True) or "")
    agreed.remember(FAR, code, environ)
    repository.write("model.bin", "x" * 1500)
    assert agreed.needs_agreement(FAR, code_in(repository.folder, environ), environ, selected=False) is None
    repository.write("model.bin", "x" * 3000)
    code = code_in(repository.folder, environ)
    assert agreed.needs_agreement(FAR, code, environ, selected=False) is not None
