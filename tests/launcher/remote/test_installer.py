"""The program that installs castoff on a machine: whole, or nothing is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from castoff.launcher.remote import installer

pytestmark = pytest.mark.costly


def called(task: str, folder: Path, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-I", "-c", Path(installer.__file__).read_text(), task]
    words += [str(folder), str(folder / "home/castoff")]
    return subprocess.run(words, input=sent, capture_output=True, check=False)


@pytest.mark.parametrize("content", [b"half", b"no wheel at all"])
def test_what_fails_leaves_nothing(content: bytes, tmp_path: Path) -> None:
    files = [("castoff-1-py3-none-any.whl", 15)]
    about = {"version": "1+gabc", "offline": True, "extra": "tui", "files": files}
    (tmp_path / "home/castoff/0.9+gdef/lib").mkdir(parents=True)  # of an earlier one that was killed
    (tmp_path / "home/castoff/1.0/src").mkdir(parents=True)  # somebody's own
    failed = called("install", tmp_path, json.dumps(about).encode() + b"\n" + content)
    assert failed.returncode == 1 and b"nothing was installed" in failed.stderr, failed.stderr
    assert b"Traceback" not in failed.stderr
    assert sorted(path.name for path in (tmp_path / "home/castoff").iterdir()) == [".lock", "1.0"]


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    found = json.loads(called("probe", tmp_path / "not there/yet").stdout)
    assert not found["folder_is_there"] and found["writable"] and not [*tmp_path.iterdir()]
    (tmp_path / "file").touch()
    found = json.loads(called("probe", tmp_path / "file/yet").stdout)
    assert not found["writable"] and not found["home_writable"]
