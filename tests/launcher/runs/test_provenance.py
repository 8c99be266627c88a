"""The record of a run's code: what it holds, what it never holds, and that nothing prevents it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from castoff.launcher.runs import provenance
from castoff.launcher.runs.provenance import Code, read, record, words
from castoff.launcher.runs.run import RunDirectory
from tests import patience
from tests.hostile import FILES_OF_A_PROJECT

from ..conftest import LocalJobs
from ..repository import Repository


@pytest.fixture(autouse=True)
def git(system_program: Callable[[str, str], Path]) -> Path:
    return system_program("git", "git")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")


def recorded(folder: Path, run_dir: Path | None = None, secrets: Iterable[str] = ()) -> tuple[Code, bytes]:
    """The record of a submission from a folder."""
    run = run_dir or folder.parent / f"run-{time.monotonic_ns()}"
    run.mkdir(parents=True, exist_ok=True)
    record(run, folder, os.environ, secrets=secrets)
    code = read(RunDirectory(run))
    assert code is not None
    diff = run / "code.diff"
    text = diff.read_bytes() if diff.exists() else b""
    assert code.diff_bytes == len(text)
    return code, text


def rebuilt(repository: Repository, code: Code, diff: bytes, folder: Path) -> dict[str, bytes]:
    """The files that commit and differences give."""
    assert code.commit is not None
    for command in (
        ["git", "clone", "-q", str(repository.folder), str(folder)],
        ["git", "-C", str(folder), "checkout", "-q", code.commit],
        ["git", "-C", str(folder), "apply", "--whitespace=nowarn", "-"],
    ):
        done = subprocess.run(command, input=diff, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    return files(folder)


def files(folder: Path) -> dict[str, bytes]:
    """What is in a working tree."""
    found = {}
    for path in folder.rglob("*"):
        if ".git" not in path.parts and (path.is_symlink() or path.is_file()):
            name = str(path.relative_to(folder))
            found[name] = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    return found


class TestWhatItHolds:
    def test_a_clean_one(self, repository: Repository) -> None:
        code, diff = recorded(repository.folder)
        assert (code.repository, code.branch, code.remote) == (str(repository.folder), "main", None)
        assert code.commit == repository.git("rev-parse", "HEAD")
        assert (code.changed.count, code.untracked.count, diff, code.incomplete) == (0, 0, b"", None)
        assert code.castoff and code.python

    def test_commit_and_diff_give_the_code_back(self, repository: Repository, tmp_path: Path) -> None:
        repository.write("gone.py")
        repository.write("moved.py", "x = 1\n" * 100)
        repository.write("was_a_file")
        repository.write("script.sh").chmod(0o644)
        for name in FILES_OF_A_PROJECT:
            repository.write(b"old/" + name, "one\n")
        repository.commit()
        repository.write("a.py", "print('b')")  # without a line break at its end
        repository.write("staged.py", "x = 1\n")
        repository.git("add", "staged.py")
        repository.write("staged.py", "x = 2\n")
        repository.write("empty.py", "")
        repository.write("windows.py", "a\r\nb\r\n")
        repository.write("diff.py", "diff --git a/x b/x\n\ndiff --git a/y b/y\n--- a/y\n")
        for magic in (":!a.py", ":(glob)*.py", ":/b.py"):  # git's pathspecs would take them for more
            repository.write(magic)
        (repository.folder / "gone.py").unlink()
        repository.git("mv", "moved.py", "renamed.py")
        (repository.folder / "script.sh").chmod(0o755)
        (repository.folder / "was_a_file").unlink()
        (repository.folder / "was_a_file").symlink_to("a.py")
        (repository.folder / "link").symlink_to("no\nwhere")
        for name in FILES_OF_A_PROJECT:
            repository.write(b"old/" + name, "two\n")
            repository.write(b"new/" + name, "three\n")
        code, diff = recorded(repository.folder)
        assert code.left_out == {} and code.incomplete is None
        assert rebuilt(repository, code, diff, tmp_path / "again") == files(repository.folder)
        names = {os.fsdecode(b"old/" + name) for name in FILES_OF_A_PROJECT}
        own = {"a.py", "gone.py", "moved.py", "renamed.py", "script.sh", "staged.py", "was_a_file"}
        assert set(code.changed.first) == own | names
        assert os.fsdecode(b"new/" + FILES_OF_A_PROJECT[3]) in code.untracked.first

    def test_settings_of_the_user_change_nothing(self, repository: Repository, tmp_path: Path) -> None:
        repository.write("a.py", "changed\n")
        repository.write("new/b.py")
        plain = recorded(repository.folder)[1]
        for setting in (
            *("diff.noprefix=true", "diff.mnemonicPrefix=true", "color.ui=always", "diff.relative=true"),
            *("diff.external=false", "core.quotePath=false", "diff.context=9", "core.pager=false"),
            *("diff.renames=copies", "status.showUntrackedFiles=no", "core.safecrlf=true"),
        ):
            repository.git("config", *setting.split("="))
        assert recorded(repository.folder / "new")[1] == plain

    def test_from_a_folder_below(self, repository: Repository) -> None:
        repository.write("a.py", "changed\n")
        repository.write("sub/new.py")
        code, diff = recorded(repository.folder / "sub")
        assert code.repository == str(repository.folder)
        assert (code.changed.first, code.untracked.first) == (["a.py"], ["sub/new.py"])
        assert b"+++ b/sub/new.py\n" in diff

    def test_what_git_ignores_is_not_in_it(self, repository: Repository) -> None:
        repository.write(".gitignore", "data/\n*.log\n")
        repository.write("data/x.py")
        repository.write("y.log")
        code, diff = recorded(repository.folder)
        assert code.untracked.first == [".gitignore"]
        assert b"x.py" not in diff

    def test_no_branch(self, repository: Repository) -> None:
        repository.git("checkout", "-q", "--detach")
        code, _ = recorded(repository.folder)
        assert code.branch is None and code.commit

    def test_before_the_first_commit(self, tmp_path: Path) -> None:
        repository = Repository(tmp_path / "project")
        repository.git("update-ref", "-d", "HEAD")
        repository.write("b.py")
        code, diff = recorded(repository.folder)
        assert (code.commit, code.branch, code.untracked.first) == (None, "main", ["a.py", "b.py"])
        assert b"+++ b/a.py" in diff and b"+++ b/b.py" in diff

    def test_a_second_worktree(self, repository: Repository, tmp_path: Path) -> None:
        repository.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
        (tmp_path / "other" / "a.py").write_text("changed\n")
        code, diff = recorded(tmp_path / "other")
        assert (code.branch, code.repository) == ("other", str(tmp_path / "other"))
        assert code.changed.first == ["a.py"] and b"+changed" in diff

    def test_submodules(self, repository: Repository, tmp_path: Path) -> None:
        Repository(tmp_path / "library")
        repository.git("submodule", "add", "-q", str(tmp_path / "library"), "libs/one")
        repository.git("submodule", "add", "-q", str(tmp_path / "library"), "libs/two")
        repository.commit()
        repository.git("submodule", "deinit", "-q", "libs/two")
        assert recorded(repository.folder)[0].changed.count == 0
        repository.write("libs/one/a.py", "changed\n")
        repository.write("libs/one/new.py", "new\n")
        code, diff = recorded(repository.folder)
        assert (code.changed.first, code.untracked.first) == (["libs/one/a.py"], ["libs/one/new.py"])
        again = tmp_path / "again"
        repository.git("clone", "-q", "--recurse-submodules", ".", str(again))
        done = subprocess.run(["git", "apply"], input=diff, cwd=again, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert (again / "libs/one/a.py").read_text() == "changed\n"
        assert (again / "libs/one/new.py").read_text() == "new\n"

    def test_an_unfinished_merge(self, repository: Repository) -> None:
        repository.git("checkout", "-qb", "other")
        repository.write("a.py", "other\n")
        repository.commit()
        repository.git("checkout", "-q", "main")
        repository.write("a.py", "main\n")
        repository.commit()
        with pytest.raises(AssertionError):
            repository.git("merge", "other")
        code, diff = recorded(repository.folder)
        assert code.changed.first == ["a.py"] and b"+<<<<<<< " in diff and code.incomplete is None


class TestLimits:
    def test_what_is_too_long_is_left_out_as_a_whole(self, repository: Repository, tmp_path: Path) -> None:
        for name in ("big.py", "c.py"):
            repository.write(name)
        repository.commit()
        repository.write("big.py", "x = 1\n" * 300_000)
        repository.write("one_line.json", "x" * 3_000_000)
        repository.write("c.py", "changed\n")
        repository.write("zz.py", "new\n")
        code, diff = recorded(repository.folder)
        assert code.left_out["no room in 1 MiB"].first == ["big.py", "one_line.json"]
        assert len(diff) < 2**20
        again = rebuilt(repository, code, diff, tmp_path / "again")
        assert (again["c.py"], again["zz.py"], again["big.py"]) == (b"changed\n", b"new\n", b"text\n")

    def test_code_comes_before_data(self, repository: Repository) -> None:
        for number in range(600):
            repository.write(f"results/{number}.json", "1234567890" * 200)
        repository.write("model.py", "x = 1\n" * 1000)
        code, diff = recorded(repository.folder)
        assert b"+++ b/model.py\n" in diff
        assert code.untracked.count == 601 and len(code.untracked.first) == 100
        assert 50 < code.left_out["no room in 1 MiB"].count < 200

    def test_binary_files_are_named(self, repository: Repository, tmp_path: Path) -> None:
        repository.write("old.bin", b"\0\1")
        repository.commit()
        repository.write("old.bin", b"\0\2")
        repository.write("new.bin", b"\0\3")
        repository.write("a.py", "changed\n")
        code, diff = recorded(repository.folder)
        assert set(code.left_out["binary or very long"].first) == {"old.bin", "new.bin"}
        assert rebuilt(repository, code, diff, tmp_path / "again")["a.py"] == b"changed\n"


class TestSecrets:
    SECRET = "hunter2-hunter2"

    def test_values_of_env_from(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOKEN", f"{self.SECRET}\nthe second line")
        monkeypatch.setenv("SHORT", "a")
        repository.write("a.py", f"login('{self.SECRET}')\n")
        repository.write("b.py", "# the second line\n")
        repository.write("c.py", "fine\n")
        code, diff = recorded(repository.folder, secrets=["TOKEN", "SHORT", "NOT_SET"])
        assert code.left_out["holds a value of env_from"].first == ["a.py", "b.py"]
        assert self.SECRET.encode() not in diff and b"+fine" in diff

    @pytest.mark.parametrize(
        ("url", "kept"),
        [
            ("https://github.com/me/x.git", "https://github.com/me/x.git"),
            ("https://me:hunter2@github.com/me/x.git", "https://github.com/me/x.git"),
            ("https://hunter2@github.com:8080/x", "https://github.com:8080/x"),
            ("https://me:hun@ter2@github.com/x@y", "https://github.com/x@y"),
            ("https://host/x?private_token=hunter2#hunter2", "https://host/x"),
            ("git@github.com:me/x.git", "git@github.com:me/x.git"),
            ("ssh://git@host:22/x.git", "ssh://host:22/x.git"),
            ("ssh://me:hunter2@host/x", "ssh://host/x"),
            ("/srv/git/x.git", "/srv/git/x.git"),
            ("ext::sh -c hunter2", "ext::"),
        ],
    )
    def test_remotes(self, repository: Repository, url: str, kept: str) -> None:
        repository.git("config", "remote.origin.url", url)
        assert recorded(repository.folder)[0].remote == kept

    def test_the_branchs_own_remote(self, repository: Repository) -> None:
        repository.git("config", "remote.origin.url", "https://host/origin")
        repository.git("config", "remote.mine.url", "https://host/mine")
        repository.git("config", "branch.main.remote", "mine")
        assert recorded(repository.folder)[0].remote == "https://host/mine"


class TestGitIsLeftAlone:
    def test_nothing_is_written(self, repository: Repository) -> None:
        repository.write("same.py")
        repository.commit()
        repository.write("b.py")
        repository.git("add", "b.py")
        repository.write("a.py", "changed\n")
        repository.write("c.py", "")
        os.utime(repository.folder / "same.py", (1, 1))  # the index would be refreshed
        before = repository.contents()
        code, _ = recorded(repository.folder)
        assert code.changed.count == 2 and code.untracked.first == ["c.py"]
        assert repository.contents() == before

    def test_nothing_of_the_users_is_started(self, repository: Repository, tmp_path: Path) -> None:
        trap = tmp_path / "trap"
        trap.write_text(f'#!/bin/sh\necho "$0" >>{tmp_path}/ran\nexec cat\n')
        trap.chmod(0o755)
        hooks = repository.folder / ".git" / "hooks"
        for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit"):
            (hooks / hook).write_text(trap.read_text())
            (hooks / hook).chmod(0o755)
        for name in (
            "core.fsmonitor",
            "core.pager",
            "diff.external",
            "diff.mine.textconv",
            "diff.mine.command",
        ):
            repository.git("config", name, str(trap))
        repository.write(".gitattributes", "* diff=mine\n")
        repository.write("a.py", "changed\n")
        (tmp_path / "ran").unlink(missing_ok=True)
        code, diff = recorded(repository.folder)
        assert b"+changed" in diff and code.incomplete is None
        assert not (tmp_path / "ran").exists()

    def test_variables_of_a_hook(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (
            "GIT_DIR",
            "GIT_INDEX_FILE",
            "GIT_WORK_TREE",
            "GIT_EXTERNAL_DIFF",
            "GIT_OBJECT_DIRECTORY",
        ):
            monkeypatch.setenv(name, "/nowhere")
        repository.write("a.py", "changed\n")
        code, diff = recorded(repository.folder)
        assert code.commit and b"+changed" in diff and code.incomplete is None


class TestWhereGitDoesNotTell:
    def test_no_repository(self, tmp_path: Path) -> None:
        code, diff = recorded(tmp_path, tmp_path / "run")
        assert code.repository is None and diff == b""
        assert (code.incomplete or "").startswith("not a git repository")
        assert words(RunDirectory(tmp_path / "run")) is None

    def test_no_git(self, repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert recorded(repository.folder)[0].incomplete == "git is not installed"

    def test_a_bare_repository(self, tmp_path: Path, repository: Repository) -> None:
        repository.git("clone", "-q", "--bare", ".", str(tmp_path / "bare"))
        code, _ = recorded(tmp_path / "bare")
        assert code.repository is None and "work tree" in (code.incomplete or "")

    def test_somebody_elses(self, repository: Repository) -> None:
        if os.getuid() != 0:
            pytest.skip("only root can give a folder away")
        for path in (repository.folder, repository.folder / ".git"):
            os.chown(path, 12345, 12345)
        reported = recorded(repository.folder)[0].incomplete or ""
        assert "dubious ownership" in reported
        assert f"git config --global --add safe.directory {repository.folder}" in reported

    def test_a_broken_one(self, repository: Repository) -> None:
        (repository.folder / ".git" / "index").write_bytes(b"garbage")
        code, _ = recorded(repository.folder)
        assert code.commit and code.incomplete

    @pytest.fixture
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(provenance, "PATIENCE", 0.5)
        mark = uuid.uuid4().hex
        monkeypatch.setenv("LINGERING", mark)
        yield
        left = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("LINGERING") == mark and process.pid != os.getpid()
                if ours and process.status() != psutil.STATUS_ZOMBIE:  # whose parent is about to hear of it
                    left.append(process)
            except psutil.Error:
                continue
        assert psutil.wait_procs(left, timeout=patience.SECONDS)[1] == []  # KILL takes a moment

    def test_a_git_that_hangs(
        self, repository: Repository, impatient: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "git").write_text("#!/bin/sh\nsleep inf\n")
        (tmp_path / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        code, _ = recorded(repository.folder)
        assert (code.incomplete or "").startswith("git took too long")

    def test_a_filter_that_hangs(
        self, repository: Repository, impatient: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a slow machine git itself may take that long; then it gets twice the time."""
        repository.write(".gitattributes", "*.big filter=hangs\n")
        repository.write("x.big")
        repository.commit()
        hangs = tmp_path / "hangs"
        repository.git("config", "filter.hangs.clean", f"touch {hangs}; sleep inf")
        repository.write("a.py", "changed\n")
        repository.write("x.big", "other\n")
        code, _ = recorded(repository.folder)
        while not hangs.exists() and provenance.PATIENCE < patience.SECONDS:
            monkeypatch.setattr(provenance, "PATIENCE", 2 * provenance.PATIENCE)
            code, _ = recorded(repository.folder)
        assert (code.incomplete or "").startswith("git took too long")
        assert code.commit and code.branch == "main"


def test_reading_a_record_loads_little() -> None:
    code = "import sys, castoff.launcher.runs.provenance; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"yaml", "jinja2", "tempfile", "shutil", "psutil"}
    heavy |= {"subprocess"} if sys.version_info >= (3, 11) else set()  # which uuid imports there
    assert not {*done.stdout.split()} & heavy


class TestWords:
    def test_in_one_line(self, repository: Repository, tmp_path: Path) -> None:
        def reported() -> str | None:
            run = tmp_path / f"run-{time.monotonic_ns()}"
            recorded(repository.folder, run)
            return words(RunDirectory(run))

        commit = repository.git("rev-parse", "HEAD")[:7]
        assert reported() == f"{commit} (branch main, unchanged)"
        repository.write("a.py", "changed\n")
        repository.write("b.py")
        repository.write("c.py")
        assert reported() == f"{commit} (branch main, 1 file changed, 2 files new)"
        repository.git("checkout", "-q", "--detach")
        assert reported() == f"{commit} (no branch, 1 file changed, 2 files new)"

    @pytest.mark.parametrize("text", [None, "", "{", "[]", '{"repository": 3}', '{"castoff": null}'])
    def test_a_record_that_is_none(self, text: str | None, tmp_path: Path) -> None:
        if text is not None:
            (tmp_path / "code.json").write_text(text)
        assert words(RunDirectory(tmp_path)) is None


class TestSubmission:
    def test_what_submit_prints_and_keeps(self, jobs: LocalJobs, tmp_path: Path) -> None:
        repository = Repository(tmp_path)
        repository.write("a.py", "changed\n")
        answer = jobs.castoff("submit", "--site", "local", "--name", "one", "--", "true")
        commit = repository.git("rev-parse", "HEAD")[:7]
        assert f"code        {commit} (branch main, 1 file changed)\n" in answer.stdout
        (run,) = jobs.runs()
        assert b"+changed" in (run.path / "code.diff").read_bytes()
        assert {(run.path / name).stat().st_mode & 0o777 for name in ("code.json", "code.diff")} == {0o600}
        assert jobs.wait(run)["ending"] == "done"
        second = jobs.submit(sh="true")
        code = read(second)
        assert code is not None and code.untracked.count == 0  # not the first run's files
        jobs.wait(second)

    def test_secrets_of_the_job(self, jobs: LocalJobs, tmp_path: Path) -> None:
        repository = Repository(tmp_path)
        repository.write("notes.txt", "my token is s3cr3t-s3cr3t\n")
        run = jobs.submit("--set", "env_from=[TOKEN]", env={"TOKEN": "s3cr3t-s3cr3t"}, sh="true")
        assert jobs.holders(run, "s3cr3t") == []
        assert (
            json.loads((run.path / "code.json").read_text())["left_out"]["holds a value of env_from"]["count"]
            == 1
        )
