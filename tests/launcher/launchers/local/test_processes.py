"""How much of this machine there is to use, and which processes belong to the ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from castoff.launcher.launchers.local import processes
from tests.patience import until

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores, and no control group that says less."""
    monkeypatch.setattr(processes, "allowed_cores", lambda: list(range(8)))
    monkeypatch.setattr(processes, "_quota", lambda *_: 1000)


@pytest.mark.usefixtures("eight")
class TestShares:
    @pytest.mark.parametrize(
        ("most", "needed", "widths"),
        [
            (12, 1, [1] * 8),
            (12, 3, [4, 4]),
            (3, 1, [2, 2, 2]),
            (12, 8, [0]),  # one program: nothing is taken from it
            (12, 100, [0]),
            (1, 1, [0]),
        ],
    )
    def test_as_many_as_fit(self, most: int, needed: int, widths: list[int]) -> None:
        shares = processes.shares(most, needed)
        assert [len(share) for share in shares] == widths
        taken = [core for share in shares for core in share]
        assert len(set(taken)) == len(taken)

    def test_a_quota_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "_quota", lambda *_: 2)
        assert processes.shares(12, 1) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert processes.shares(12, 3) == [[]]


class TestQuota:
    def quota(self, tmp_path: Path, own: str, **files: str) -> int:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / name.replace("__", ".").replace("_in_", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return processes._quota(tmp_path, tmp_path / "own")

    def test_the_narrowest_of_all_groups_around(self, tmp_path: Path) -> None:
        inner, outer = "max 100000\n", "250000 100000\n"
        reported = {"a_in_b_in_cpu__max": inner, "a_in_cpu__max": outer}
        assert self.quota(tmp_path, "0::/a/b\n", **reported) == 2
        assert self.quota(tmp_path, "0::/a/b\n", a_in_b_in_cpu__max="50000 100000\n") == 1

    def test_none(self, tmp_path: Path) -> None:
        assert self.quota(tmp_path, "0::/\n") > 10**6
        assert processes._quota(tmp_path, tmp_path / "missing") > 10**6


def test_the_copies_that_clients_stand_for() -> None:
    """So that a rank that has to be killed counts once, and not with its client."""
    tree = processes.ProcessTree()
    try:
        with (
            subprocess.Popen(["cat"], stdin=subprocess.PIPE) as agent,
            subprocess.Popen(
                ["sh", "-c", "printf castoff:4711 >/proc/$$/comm; echo; read -r _"], **PIPES
            ) as client,
            subprocess.Popen(["sh", "-c", "echo; read -r _"], **PIPES) as begins,
        ):
            for one in (client, begins):
                assert one.stdout is not None and one.stdout.readline() == b"\n"
            tree.agent = agent.pid
            tree.ranks |= {client.pid, begins.pid}
            assert {one.pid for one in tree.members()} == tree.ranks
            assert tree.copies == {4711}
    finally:
        tree.close()


def test_what_one_leaves_as_it_ends_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may start another and end between the moment when the children are listed and its own turn."""
    tree, listed = processes.ProcessTree(), processes.children
    leaves = subprocess.Popen(["sh", "-c", "read -r _; sleep 1000 & exit"], stdin=subprocess.PIPE)

    def with_a_late_one(parent: int | None = None) -> set[int]:
        found = listed(parent)
        if leaves.stdin is not None and not leaves.stdin.closed:
            leaves.stdin.close()
            until(lambda: psutil.Process(leaves.pid).status() == psutil.STATUS_ZOMBIE)
        return found

    monkeypatch.setattr(processes, "children", with_a_late_one)
    try:
        assert tree.reap()
        (left,) = tree.members()
        left.kill()
        until(lambda: not tree.reap())
    finally:
        for one in tree.members():
            one.kill()
        leaves.wait()
        tree.close()
