"""File systems as they are, full, closed, gone and slow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Search, Site
from castoff.launcher.diagnosis import storage
from castoff.launcher.diagnosis.finding import Finding, Subject
from tests.mounts import mount_small, with_mounts

Look = Callable[..., dict[str, Finding]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """What is found for a site and a job, by what it is about, where one thing alone is."""

    def findings(site: str = "local", *, runs: Path | None = None, **fields: str) -> dict[str, Finding]:
        subject = Subject.of(
            Site.load(site, search=Search({}, None)),
            JobSpec.of({"command": ["true"], **fields}),
            source=None,
            directory=tmp_path,
            runs=runs or tmp_path / "runs",
            environ={"HOME": str(tmp_path), "PATH": ""},
        )
        return {one.about: one for one in storage.findings(subject)}

    return findings


def test_where_all_is_well(look: Look, tmp_path: Path) -> None:
    found = look()
    assert {name: one.status for name, one in found.items()} == dict.fromkeys(
        ("home", "workdir", "runs"), "ok"
    )
    assert found["runs"].fact.startswith(f"{tmp_path}/runs (") and "GiB free" in found["runs"].fact
    assert not [*tmp_path.iterdir()]  # nothing is left


def test_what_is_missing(look: Look, tmp_path: Path) -> None:
    """The folder of runs is made by the first submission."""
    (tmp_path / "file").touch()
    found = look(workdir="data/run")
    assert found["workdir"].status == "problem"
    assert found["workdir"].fact == f"{tmp_path}/data/run does not exist"
    assert found["workdir"].remedy == f"mkdir -p {tmp_path}/data/run (--workdir FOLDER)"
    assert look(workdir="file")["workdir"].fact == f"{tmp_path}/file is not a folder"


def test_a_full_disk_and_few_files(look: Look, tmp_path: Path) -> None:
    def full() -> None:
        small = tmp_path / "small"
        mount_small(small, "size=64k")
        (small / "data").write_bytes(b"x" * 65536)
        one = look(runs=small / "runs")["runs"]
        assert (
            one.status == "problem" and one.fact == f"{small}/runs (tmpfs) is full: No space left on device"
        )
        assert one.remedy.startswith(
            f"to see what takes space: du -xsh {small}/* | sort -h; then delete some of it, or choose "
            "another folder (--runs-dir FOLDER, or export "
        )
        files = tmp_path / "files"
        mount_small(files, "nr_inodes=12")
        one = look(runs=files / "runs")["runs"]
        assert one.status == "problem" and "has room for only 11 more files" in one.fact

    with_mounts(tmp_path, full)


def test_one_that_does_not_answer(look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setattr(storage, "_PROBE", tmp_path / "hangs.py")
    monkeypatch.setattr(storage, "PATIENCE", 0.2)
    found = look()
    assert {one.status for one in found.values()} == {"problem"}
    assert found["home"].fact == f"{tmp_path}: no answer within 0.2 s"
    assert found["home"].remedy.startswith(f"its file server does not answer: try `ls {tmp_path}`")


def test_a_slow_one_without_locks(look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = {"nearest": str(tmp_path), "real": str(tmp_path), "free": 1 << 40, "files": 0, "free_files": 0}
    slow = {**answer, "seconds": 2.5, "locks": False}
    monkeypatch.setattr(storage, "_ask", lambda path: slow)
    found = look()
    assert found["home"].status == "warning" and "is slow: 2.5 s for one small file" in found["home"].fact
    assert "has no locks (flock)" in found["runs"].fact


def test_nodes_may_not_see_a_local_disk(look: Look) -> None:
    found = look("slurm")
    assert found["home"].status == "ok"
    for about in ("workdir", "runs"):
        assert found[about].status == "warning"
        assert "is a disk of this host, which compute nodes may not see" in found[about].fact
