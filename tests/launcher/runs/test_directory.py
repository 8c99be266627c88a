"""Run directories on disk: whose they are, and where they lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.directory import check_trusted, find_run_directories, is_run_directory, opened
from castoff.launcher.runs.drafts import new_run
from castoff.launcher.runs.run import RunDirectory


def make_run(folder: Path, name: str = "job") -> RunDirectory:
    with new_run(name, folder) as draft:
        draft.run.script.touch()
        return draft.publish()


class TestTrust:
    def test_the_user_s_own(self, tmp_path: Path) -> None:
        check_trusted(make_run(tmp_path).path)

    @pytest.mark.parametrize("mode", [0o755, 0o750, 0o500])
    def test_others_may_look(self, tmp_path: Path, mode: int) -> None:
        run = make_run(tmp_path)
        run.path.chmod(mode)
        check_trusted(run.path)

    @pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777, 0o2770])
    def test_others_may_write(self, tmp_path: Path, mode: int) -> None:
        run = make_run(tmp_path)
        run.path.chmod(mode)
        with pytest.raises(CastoffError) as caught:
            check_trusted(run.path)
        assert str(caught.value) == (
            f"{run.path}: others may write to it (mode {mode:04o}), so its contents may be theirs; if you "
            f"trust it, chmod go-w {run.path}"
        )

    def test_somebody_else_s(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = make_run(tmp_path)
        monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
        with pytest.raises(CastoffError, match=r"belongs to \w+ and you are user 4000000: "):
            check_trusted(run.path)

    def test_a_link_in_its_place(self, tmp_path: Path) -> None:
        run = make_run(tmp_path)
        link = tmp_path / "link"
        link.symlink_to(run.path)
        assert is_run_directory(link)
        with pytest.raises(CastoffError, match=f"is a link to {run.path}, and castoff follows none"):
            check_trusted(link)

    def test_a_path_that_is_not_a_directory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(CastoffError, match="is not a directory"):
            check_trusted(tmp_path / "file")


class TestOpened:
    """What was checked by its path may be another directory when it is opened."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        return make_run(tmp_path / "runs").path

    @pytest.fixture
    def exchanged(self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
        """Puts something in the run directory's place as soon as its path has been checked."""

        def exchange(other: Path) -> None:
            def check(path: Path) -> None:
                check_trusted(path)
                path.rename(tmp_path / "gone")
                other.rename(path)

            monkeypatch.setattr("castoff.launcher.runs.directory.check_trusted", check)

        return exchange

    def test_it_stays_the_one_that_was_opened(self, run: Path, tmp_path: Path) -> None:
        with opened(run) as descriptor:
            run.rename(tmp_path / "gone")
            make_run(tmp_path / "other").path.rename(run)
            assert os.path.samestat(os.fstat(descriptor), (tmp_path / "gone").stat())

    def test_one_that_others_may_write_to(
        self, run: Path, tmp_path: Path, exchanged: Callable[[Path], None]
    ) -> None:
        other = make_run(tmp_path / "other").path
        other.chmod(0o770)
        exchanged(other)
        with pytest.raises(CastoffError, match="others may write to it"), opened(run):
            pass

    def test_a_link(self, run: Path, tmp_path: Path, exchanged: Callable[[Path], None]) -> None:
        (tmp_path / "link").symlink_to(make_run(tmp_path / "other").path)
        exchanged(tmp_path / "link")
        with pytest.raises(CastoffError, match="cannot be opened"), opened(run):
            pass


class TestSearch:
    def test_finds_them_wherever_they_lie(self, tmp_path: Path) -> None:
        runs = [make_run(tmp_path / folder) for folder in ("a/castoff-runs", "a/castoff-runs", "b/c/d", ".")]
        (runs[0].path / "logs" / "inner").mkdir()
        make_run(runs[1].path / "logs")  # no run of its own: it lies in another's directory
        directories, refused = find_run_directories(tmp_path)
        assert sorted(directories) == sorted(run.path for run in runs) and refused == []
        assert find_run_directories(runs[0].path) == ([runs[0].path], [])

    def test_follows_no_links_and_leaves_hidden_folders_alone(self, tmp_path: Path) -> None:
        make_run(tmp_path / "real" / ".cache")
        run = make_run(tmp_path / "real")
        (tmp_path / "searched").mkdir()
        (tmp_path / "searched" / "link").symlink_to(run.path)
        (tmp_path / "searched" / "parent").symlink_to(tmp_path / "real")
        (tmp_path / "searched" / "loop").symlink_to(tmp_path / "searched")
        assert find_run_directories(tmp_path / "searched") == ([], [])
        assert find_run_directories(tmp_path / "real") == ([run.path], [])
        assert find_run_directories(tmp_path / "searched" / "parent") == ([run.path], [])

    def test_half_a_run_is_none(self, tmp_path: Path) -> None:
        new_run("no-script", tmp_path)
        (tmp_path / "job.sh").touch()
        assert find_run_directories(tmp_path) == ([], [])

    def test_those_that_may_not_be_trusted(self, tmp_path: Path) -> None:
        run = make_run(tmp_path)
        run.path.chmod(0o777)
        directories, (refusal,) = find_run_directories(tmp_path)
        assert directories == [] and "others may write to it" in refusal

    def test_folders_of_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make_run(tmp_path / "theirs")
        monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
        assert find_run_directories(tmp_path) == ([], [])

    def test_what_cannot_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = make_run(tmp_path)
        (tmp_path / "closed").mkdir()
        real = os.scandir

        def scandir(path: Path | int) -> object:
            if str(path).endswith("/closed"):
                raise PermissionError(13, "Permission denied", path)
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)
        closed = f"{tmp_path}/closed: cannot be searched: Permission denied"
        assert find_run_directories(tmp_path) == ([run.path], [closed])
        with pytest.raises(CastoffError, match="cannot be searched: Permission denied"):
            find_run_directories(tmp_path / "closed")
        with pytest.raises(CastoffError, match="cannot be searched: No such file"):
            find_run_directories(tmp_path / "none")
