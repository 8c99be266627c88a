"""How much of this machine there is to use."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.launchers.local import processes


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
