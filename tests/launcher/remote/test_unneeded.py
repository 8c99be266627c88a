"""What goes from the folder of an entry, and all that stays because somebody may need it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.remote import unneeded
from castoff.launcher.remote.code_store import Store
from castoff.launcher.remote.messages import Code, File
from castoff.launcher.runs.index import Index
from tests.launcher.status.test_watch import Made

SECONDS = count(1_000_000_000)
"""Times of the past, each later than the one before."""


def sent(folder: Path, name: str, content: bytes = b"x") -> Path:
    """Code of a project that was sent; each call's is newer than that of the call before."""
    with ExitStack() as held:
        file = File(b"a/train.py", 0o644, len(content), hashlib.sha256(content).digest())
        store = Store(folder, Code("net", name, [file]), held)
        for number in store.lacking():
            store.take(number, iter([content]))
        path = store.finish()
    at = next(SECONDS)
    os.utime(path.with_name(f".{name}.files"), (at, at))
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}


@pytest.fixture
def far(tmp_path: Path) -> Path:
    (folder := tmp_path / "far").mkdir()
    return folder


def looked(far: Path, environ: dict[str, str]) -> list[str]:
    return [path.name for path in unneeded.unneeded(far, environ).unneeded]


def a_run(far: Path, record: str, text: str) -> None:
    (run := far / "castoff-runs/run-1").mkdir(parents=True)
    (run / record).write_text(text)


def test_code_that_no_run_names_goes_but_for_the_newest(far: Path, environ: dict[str, str]) -> None:
    old, newest = sent(far, "abc"), sent(far, "def")
    (old / "a/__pycache__").mkdir()
    (old / "a/__pycache__/train.pyc").touch()
    assert looked(far, environ) == ["abc"]
    meant = [old, newest, far / "castoff-runs", far.parent]
    assert unneeded.remove(far, meant, environ) == [old]
    assert {path.name for path in newest.parent.iterdir()} == {"def", ".def.files", ".lock"}
    assert sent(far, "abc").is_dir() and looked(far, environ) == ["def"]


@pytest.mark.parametrize("record", ["submission.json", "job.sh", "job.yaml", "plan.json"])
def test_code_that_a_run_names_stays(record: str, far: Path, environ: dict[str, str]) -> None:
    old = sent(far, "abc")
    sent(far, "def")
    a_run(far, record, f'{{"directory": "{old}/a"}}')
    assert looked(far, environ) == [] and unneeded.remove(far, [old], environ) == [] and old.is_dir()


def written(path: Path) -> None:
    (path / "results").mkdir()
    (path / "results/weights.pt").write_text("of a week")


def linked(path: Path) -> None:
    (path / "scratch").symlink_to("/tmp")


def changed(path: Path) -> None:
    (path / "a/train.py").write_text("edited there")


@pytest.mark.parametrize("change", [written, linked, changed])
def test_code_that_holds_what_was_not_sent_stays(
    change: Callable[[Path], None], far: Path, environ: dict[str, str]
) -> None:
    change(sent(far, "abc"))
    sent(far, "def")
    found = unneeded.unneeded(far, environ)
    assert found.unneeded == [] and "abc stays: " in found.notes[0]


def test_runs_that_cannot_be_read_leave_a_doubt(far: Path, environ: dict[str, str]) -> None:
    old = sent(far, "abc")
    sent(far, "def")
    (far / "castoff-runs/run-1/submission.json").mkdir(parents=True)  # as unreadable as can be, to root too
    for call in (lambda: looked(far, environ), lambda: unneeded.remove(far, [old], environ)):
        with pytest.raises(CastoffError, match=r"submission\.json"):
            call()
    assert old.is_dir()


SUBMITS = """
import sys
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from castoff.launcher.remote.code_store import in_use
with in_use(Path(sys.argv[1])):
    print("sends", flush=True)
    sys.stdin.read()
"""


def test_code_stays_while_a_submission_is_under_way(far: Path, environ: dict[str, str]) -> None:
    old = sent(far, "abc")
    sent(far, "def")
    words = [sys.executable, "-c", SUBMITS, str(old.parent)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as submission:
        assert submission.stdin and submission.stdout
        assert submission.stdout.readline() == b"sends\n"
        assert unneeded.remove(far, [old], environ) == []
        a_run(far, "submission.json", f'{{"directory": "{old}"}}')
        submission.stdin.close()
    assert unneeded.remove(far, [old], environ) == [] and old.is_dir()  # by now a run is there


@pytest.fixture
def castoffs(far: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Those beside the one that is called, which lies below the home, and not in the entry's folder."""
    home = far.with_name("home") / ".local/share/castoff/lab"
    monkeypatch.setattr("sys.prefix", str(home / "0.1.0+gccc"))
    for name, age in (("0.1.0+gaaa", 40), ("0.1.0+gbbb", 40), ("0.1.0+gccc", 2), ("my-checkout", 40)):
        (home / name / "bin").mkdir(parents=True)
        (complete := home / name / "complete").touch()
        now = complete.stat().st_mtime
        os.utime(complete, (now, now - age * 24 * 3600))
    (home / "current").symlink_to("0.1.0+gbbb")
    return home


def test_castoffs_that_nobody_calls_go(far: Path, environ: dict[str, str], castoffs: Path) -> None:
    assert looked(far, environ) == ["0.1.0+gaaa"]
    meant = [*castoffs.iterdir()]
    assert unneeded.remove(far, meant, environ) == [castoffs / "0.1.0+gaaa"]
    assert len([*castoffs.iterdir()]) == 4


def test_all_castoffs_stay_while_a_run_may_use_them(
    far: Path, environ: dict[str, str], castoffs: Path, tmp_path: Path
) -> None:
    made = Made(tmp_path / "runs")
    (made.run.path / "job.sh").touch()
    Index.of(environ).add(made.run, "made")
    assert looked(far, environ) == [] and unneeded.remove(far, [*castoffs.iterdir()], environ) == []
    made.attempt("0.0", "done")
    assert looked(far, environ) == ["0.1.0+gaaa"]
