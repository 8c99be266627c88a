"""The copy of the code: what is in it, what is refused, and that runs use it."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Snapshot
from castoff.launcher.errors import CastoffError, InvalidInput
from castoff.launcher.runs import snapshot
from castoff.launcher.runs.provenance import read, record
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.snapshot import Names, Taken, take
from tests.command_line import NO_BYTECODE
from tests.hostile import FILES_OF_A_PROJECT
from tests.launcher.runs.test_provenance import files

from ..conftest import LocalJobs
from ..repository import Repository


@pytest.fixture(autouse=True)
def git(system_program: Callable[[str, str], Path]) -> Path:
    return system_program("git", "git")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")


def taken(folder: Path, run: Path | None = None, **fields: Any) -> tuple[Path, Taken]:
    """A snapshot of what is submitted from a folder."""
    run = run or folder.parent / f"run-{time.monotonic_ns()}"
    run.mkdir(parents=True)
    return run / "code", take(run, folder, Snapshot(**fields), os.environ)


SECRETS = [
    *(
        ".ssh/id_ed25519",
        ".gnupg/x",
        ".aws/credentials",
        ".netrc",
        ".env",
        ".env.local",
        "conf/.env",
        "a.pem",
    ),
    *("id_rsa", "server.key", "mykey", "apikey.txt", "keys/one.json", "conf/service-account-key.json"),
    *("api_key.py", "passwords.txt", "client_secret.json"),
]
NO_SECRETS = [
    "keypoints_val.json",
    "key_value_attention/model.py",
    "keyboard.csv",
    "monkey.jpg",
    "env.yaml",
    "a.py",
]


class TestSecrets:
    """What git does not know and looks by its name like a secret is left out, and named."""

    def shown(self, taken: Taken) -> list[str]:
        return taken.withheld.first

    @pytest.mark.parametrize("in_git", [True, False])
    def test_are_left_out_and_named(self, repository: Repository, tmp_path: Path, in_git: bool) -> None:
        folder = repository.folder if in_git else tmp_path / "plain"
        for name in (*SECRETS, *NO_SECRETS):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("x")
        code, reported = taken(folder)
        assert {name for name in (*SECRETS, *NO_SECRETS) if (code / name).exists()} == {*NO_SECRETS}
        folders = {".ssh/", ".gnupg/", ".aws/", "keys/"}
        expected = {name for name in SECRETS if name.partition("/")[0] + "/" not in folders} | folders
        assert {*reported.withheld.first} == expected
        assert "; left out, as they may hold secrets: .aws/, .env, " in reported.words()

    def test_not_what_git_tracks_or_the_job_names(self, repository: Repository) -> None:
        repository.write("tests/cert.pem")
        repository.commit()
        for name in (".env", "conf/.env", "conf/x.yaml"):
            repository.write(name)
        code, reported = taken(repository.folder)
        assert (code / "tests/cert.pem").exists() and reported.withheld.first == [".env", "conf/.env"]
        code, reported = taken(repository.folder, paths=["conf", ".env"])
        assert {*files(code)} == {".env", "conf/x.yaml"} and reported.withheld.first == ["conf/.env"]

    def test_are_in_no_difference(self, repository: Repository, tmp_path: Path) -> None:
        repository.write(".env", "TOKEN=xyzzy-1\n")
        repository.write("new.py", "1\n")
        run = tmp_path / "run"
        run.mkdir()
        record(run, repository.folder, os.environ)
        text = (run / "code.diff").read_text()
        assert "new.py" in text and "xyzzy" not in text
        code = read(RunDirectory(run))
        assert code and code.left_out["may hold a secret, by its name"].first == [".env"]


class TestHome:
    """A home holds all that its user has, and no project is a folder above it."""

    @pytest.mark.parametrize("in_git", [True, False])
    def test_is_refused_and_so_is_what_lies_above(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_git: bool
    ) -> None:
        home = Repository(tmp_path / "homes/me").folder if in_git else tmp_path / "homes/me"
        (home / "project/src").mkdir(parents=True)
        (home / "project/src/a.py").write_text("1\n")
        monkeypatch.setenv("HOME", str(home))
        for folder in (home, home.parent, Path("/")):
            with pytest.raises(CastoffError, match=r"your home|which is not a project"):
                taken(folder, tmp_path / f"never {folder.name}")
        for paths in ([".."], ["."], ["../.."]):
            with pytest.raises(CastoffError, match=r"your home|which is not a project"):
                taken(
                    home / "project" if paths != ["."] else home,
                    tmp_path / f"nor {paths[0][-4:]!r}".replace("/", "-"),
                    paths=paths,
                )
        if in_git:  # a home that is a repository, as of dotfiles, holds all that lies below
            with pytest.raises(CastoffError, match="your home: submit from"):
                taken(home / "project", tmp_path / "here")
        else:
            code, _ = taken(home / "project")
            assert {*files(code)} == {"src/a.py"}
        code, _ = taken(home, home.parent / "run", paths=["project/src"])
        assert {*files(code)} == {"project/src/a.py"}


class TestInARepository:
    def test_what_is_copied(self, repository: Repository) -> None:
        repository.write(".gitignore", "data/\n*.log\n.venv\n__pycache__\n")
        for odd in FILES_OF_A_PROJECT:
            repository.write(b"known/" + odd, b"\0" + odd)
        repository.write("gone.py")
        repository.commit()
        for odd in FILES_OF_A_PROJECT:
            repository.write(b"new/" + odd, b"\1" + odd)
        repository.write("a.py", "changed\n")
        repository.write("run.sh", "#!/bin/sh\n").chmod(0o755)
        repository.write("read_only").chmod(0o444)
        (repository.folder / "gone.py").unlink()
        expected = files(repository.folder)
        for name in ("data/x", "y.log", ".venv/bin/python", "__pycache__/z.pyc"):
            repository.write(name)
        code, reported = taken(repository.folder)
        assert files(code) == expected
        assert stat.S_IMODE((code / "run.sh").stat().st_mode) & 0o777 == 0o755
        assert stat.S_IMODE((code / "read_only").stat().st_mode) == 0o444
        assert (code / "a.py").stat().st_mtime_ns == (repository.folder / "a.py").stat().st_mtime_ns
        assert (code / "a.py").stat().st_ino != (repository.folder / "a.py").stat().st_ino
        assert reported.files == len(expected) and reported.bytes == sum(map(len, expected.values()))
        assert reported.left_out == Names(3, [".venv/", "data/", "y.log"])
        assert reported.words().endswith("; not in it: .venv/, data/, y.log")
        assert not (code / ".git").exists()

    def test_from_a_folder_below(self, repository: Repository) -> None:
        repository.write("sub/deep/x.py")
        repository.write(".gitignore", "ignored/\n")
        repository.write("ignored/y")
        for folder in ("sub/deep", "ignored", "."):
            code, _ = taken(repository.folder / folder, repository.folder.parent / f"run {folder}/r")
            assert (code / "a.py").is_file() and (code / "sub/deep/x.py").is_file()
            assert Path(os.path.realpath(code.parent / "code.workdir")) == Path(
                os.path.normpath(code / folder)
            )
        moved = code.parents[1].rename(code.parents[2] / "moved")
        assert (moved / "r" / "code.workdir" / "a.py").is_file()

    def test_links(self, repository: Repository, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        top = repository.folder
        repository.write(".gitignore", "data/\n")
        repository.write("data/x")
        repository.write("sub/y.py")
        links = {
            "to_file": ("a.py", "a.py"),
            "sub/up": ("../a.py", "../a.py"),
            "to_folder": ("sub", "sub"),
            "absolute": (str(top / "a.py"), "a.py"),
            "sub/absolute": (str(top / "a.py"), "../a.py"),
            "around": (f"../{top.name}/a.py", "a.py"),
            "relative_out": ("../outside", str(outside)),
            "absolute_out": (str(outside), str(outside)),
            "to_ignored": ("data", str(top / "data")),
            "nowhere": ("../nothing", str(tmp_path / "nothing")),
            "itself": ("itself", str(top / "itself")),
        }
        for name, (text, _) in links.items():
            (top / name).symlink_to(text)
        code, _ = taken(top)
        assert {name: str((code / name).readlink()) for name in links} == {
            name: text for name, (_, text) in links.items()
        }

    def test_submodules_and_repositories_within(self, repository: Repository, tmp_path: Path) -> None:
        library = Repository(tmp_path / "library")
        library.write(".gitignore", "built\n")
        library.commit()
        repository.git("submodule", "add", "-q", str(library.folder), "libs/one")
        repository.git("submodule", "add", "-q", str(library.folder), "libs/two")
        repository.commit()
        repository.git("submodule", "deinit", "-q", "libs/two")
        repository.git("clone", "-q", str(library.folder), "cloned")
        for name in ("libs/one/new.py", "libs/one/built", "cloned/new.py", "cloned/built"):
            repository.write(name)
        code, _ = taken(repository.folder)
        assert set(files(code)) == {
            *("a.py", ".gitmodules", "libs/one/a.py", "libs/one/.gitignore", "libs/one/new.py"),
            *("cloned/a.py", "cloned/.gitignore", "cloned/new.py"),
        }

    def test_a_folder_that_became_a_link(self, repository: Repository, tmp_path: Path) -> None:
        """What git knows in it is not read, and above all not written, through the link."""
        repository.write("x/b.py", "inside\n")
        repository.commit()
        (repository.folder / "x" / "b.py").unlink()
        (repository.folder / "x").rmdir()
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "b.py").write_text("precious\n")
        (repository.folder / "x").symlink_to(tmp_path / "precious")
        code, _ = taken(repository.folder)
        assert (code / "x").readlink() == tmp_path / "precious"
        assert (tmp_path / "precious" / "b.py").read_text() == "precious\n"

    def test_what_ignores_itself_is_not_even_named(self, repository: Repository) -> None:
        """As the caches of tools do, and the directories of runs."""
        for folder in (".cache", "runs/1", "runs/2"):
            repository.write(f"{folder}/.gitignore", "*\n")
            repository.write(f"{folder}/code/a.py")
        repository.write("__pycache__/a.pyc")
        code, reported = taken(repository.folder)
        assert set(files(code)) == {"a.py"} and reported.left_out == Names()

    def test_only_these_paths(self, repository: Repository) -> None:
        for name in ("src/x.py", "src/deep/y.py", "configs/z.yaml", "src-old/w.py", "big/data"):
            repository.write(name)
        code, _ = taken(repository.folder, paths=["src", "./configs/z.yaml", "src/deep/", "a.py"])
        assert set(files(code)) == {"a.py", "src/x.py", "src/deep/y.py", "configs/z.yaml"}
        below = repository.folder / "src" / "deep"
        code, _ = taken(below, repository.folder.parent / "r1", paths=[".", "../../configs"])
        assert set(files(code)) == {"src/deep/y.py", "configs/z.yaml"}
        code, _ = taken(repository.folder, paths=["."])
        assert len(files(code)) == 6

    def test_links_to_the_original(self, repository: Repository) -> None:
        repository.write(".gitignore", "data/*\n!data/.gitkeep\nout/\n")
        for name in ("data/.gitkeep", "data/x", "out/deep/z", "src/y.py"):
            repository.write(name)
        code, reported = taken(repository.folder, link=["data", "src/../out/deep"])
        assert (code / "data" / "x").samefile(repository.folder / "data" / "x")
        assert (code / "out" / "deep").is_symlink() and not (code / "out").is_symlink()
        assert reported.left_out.first == ["out/"] and "data/.gitkeep" not in reported.words()

    def test_git_that_refuses(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        (repository.folder / ".git" / "index").write_bytes(b"garbage")
        with pytest.raises(CastoffError, match=r"snapshot: .*: git reports: .*index"):
            taken(repository.folder)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(CastoffError, match="git is not installed"):
            taken(repository.folder)


def test_odd_names_in_one_line() -> None:
    names = ["a\nb/", "\x1b[2J", "\udcff", "d", "e", "f", "g"]
    reported = Taken(files=1, bytes=3, left_out=Names(7, names))
    assert reported.words() == "1 file, 3 bytes; not in it: a\\nb/, \\x1b[2J, \\udcff, d, e and 2 more"


class TestWithoutGit:
    def test_what_is_copied(self, tmp_path: Path) -> None:
        folder = tmp_path / "project"
        for odd in FILES_OF_A_PROJECT:
            path = folder / os.fsdecode(odd)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("text\n")
        (folder / "sub").mkdir()
        (folder / "sub" / "x.py").write_text("x\n")
        (folder / "sub" / "up").symlink_to("..")
        expected = files(folder)
        (folder / ".gitignore").write_text("data/\n")
        expected[".gitignore"] = b"data/\n"
        for name in ("venv/x", "data/y", "sub/__pycache__/x.pyc"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("left out\n")
        os.mkfifo(folder / "pipe")
        code, reported = taken(folder)
        assert files(code) == expected
        assert reported.left_out.first == ["data/", "venv/"]
        assert (code.parent / "code.workdir").readlink() == Path("code")

    def test_paths(self, tmp_path: Path) -> None:
        folder = tmp_path / "project"
        for name in ("src/x.py", "src/deep/y.py", "z.yaml", "big/data"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        code, _ = taken(folder, paths=["src/deep", "src", "z.yaml"])
        assert set(files(code)) == {"src/x.py", "src/deep/y.py", "z.yaml"}
        with pytest.raises(CastoffError, match="git reports: pathspec 'nothing' did not match any"):
            taken(folder, paths=["nothing"])


class TestRefusals:
    def test_too_large(self, repository: Repository) -> None:
        repository.write("data/a", "x" * 700_000)
        repository.write("data/b", "x" * 700_000)
        repository.write("big", "x" * 800_000)
        with pytest.raises(CastoffError) as caught:
            taken(repository.folder, limit="2M")
        assert "4 files, 2.1 MiB, but a snapshot may hold 20,000 files and 2M" in str(caught.value)
        assert "data/ (1.3 MiB), big (781.2 KiB), a.py (11 bytes)" in str(caught.value)
        assert ".gitignore" in str(caught.value) and "limit: 2G" in str(caught.value)
        taken(repository.folder, limit="3M")

    def test_too_many(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(snapshot, "MAX_FILES", 10)
        for number in range(20):
            repository.write(f"many/{number}")
        with pytest.raises(CastoffError, match=r"holds 21 files, .*\n.*: many/ \(20 files\), "):
            taken(repository.folder)

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"paths": ["nothing"]}, "pathspec 'nothing' did not match any"),
            ({"paths": ["data"]}, "pathspec 'data' did not match any"),
            ({"paths": [".."]}, "'..' is outside repository"),
            ({"link": ["nothing"]}, "snapshot.link: nothing: .*nothing does not exist"),
            (
                {"link": ["../.."]},
                "snapshot.link: ../..: is not below .*, or contains the job's working directory",
            ),
            ({"link": ["."]}, "snapshot.link: .: is not below .*, or contains the job's working directory"),
            (
                {"link": ["data", "data/x"]},
                "snapshot.link: data/x: is in a folder that is already a link to the original",
            ),
            (
                {"link": ["scratch/x"]},
                "snapshot.link: scratch/x: is in a folder that is already a link to the original",
            ),
        ],
    )
    def test_what_is_not_there(
        self, fields: dict[str, Any], said: str, repository: Repository, tmp_path: Path
    ) -> None:
        repository.write(".gitignore", "data/\n")
        repository.write("data/x")
        (tmp_path / "scratch").mkdir()
        (tmp_path / "scratch" / "x").touch()
        (repository.folder / "scratch").symlink_to(tmp_path / "scratch")
        with pytest.raises(CastoffError, match=said):
            taken(repository.folder, **fields)
        assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["x"]
        assert [path.name for path in (repository.folder / "data").iterdir()] == ["x"]

    @pytest.mark.parametrize(
        ("value", "said"),
        [
            ("yes", "is 'yes', but takes true or false or the fields paths, link, limit"),
            ("3", "takes true or false or the fields"),
            ("{path: [src]}", "snapshot.path: there is no such field"),
            ("{paths: [/src]}", "snapshot.paths.0: is '/src', but counts from where the job is submitted"),
            ("{link: [a, /b]}", "snapshot.link.1: is '/b'"),
            ("{limit: 1}", "snapshot.limit: is 1, but takes a size"),
        ],
    )
    def test_fields(self, value: str, said: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            JobSpec.of({"command": ["true"]}, overrides=[f"snapshot={value}"])
        assert said in str(caught.value)

    def test_nothing_is_left_and_nothing_submitted(self, jobs: LocalJobs, tmp_path: Path) -> None:
        repository = Repository(tmp_path)
        repository.write("big", "x" * 2_000_000)
        words = ["--site", "local", "--set", "snapshot.limit=1M", "--", "true"]
        answer = jobs.castoff("submit", *words)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.startswith("castoff: snapshot: ") and "Traceback" not in answer.stderr
        assert list((tmp_path / "castoff-runs").iterdir()) == []

    def test_a_full_disk(self, tmp_path: Path) -> None:
        Repository(tmp_path).write("big", "x" * 100_000)
        limited = f"{NO_BYTECODE}; ulimit -f 50; "
        limited += "exec castoff submit --site local --set snapshot=true --name x -- true"
        answer = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.endswith(": cannot be written: File too large\n")
        assert list((tmp_path / "castoff-runs").iterdir()) == []

    def test_a_repository_within_that_git_refuses(self, repository: Repository) -> None:
        inner = Repository(repository.folder / "inner")
        (inner.folder / ".git" / "index").write_bytes(b"garbage")
        with pytest.raises(CastoffError, match=r"git reports: .*index"):
            taken(repository.folder)


class TestRuns:
    """Submitted, edited while they wait, and run."""

    def waiting(self, jobs: LocalJobs) -> RunDirectory:
        return jobs.submit("--name", "blocker", sh="until [ -e go ]; do sleep 0.05; done")

    @pytest.mark.parametrize("in_git", [True, False])
    def test_old_code_with_and_new_code_without(self, jobs: LocalJobs, in_git: bool) -> None:
        if in_git:
            Repository(jobs.folder)
        jobs.job("print('old')\n", "train.py")
        self.waiting(jobs)
        words = ["--set", "after.afterany=[blocker]", "--ranks-per-node", "1"]
        frozen = jobs.submit(*words, "--set", "snapshot=true", "--", "python", "train.py")
        moving = jobs.submit(*words, "--", "python", "train.py")
        jobs.job("print('new')\n", "train.py")
        (jobs.folder / "go").touch()
        assert jobs.wait(frozen)["ending"] == jobs.wait(moving)["ending"] == "done"
        assert (jobs.log(frozen), jobs.log(moving)) == ("[0] old", "[0] new")

    def test_where_it_runs(self, jobs: LocalJobs) -> None:
        repository = Repository(jobs.folder)
        repository.write(".gitignore", "venv/\n")
        repository.write("sub/venv/activate", "export ACTIVE=yes\n")
        repository.write("sub/inner/x")
        job = repository.write(
            "sub/job.yaml",
            "snapshot: true\nsetup: ['. venv/activate', 'export SETUP=$PWD', 'cd /']\nranks_per_node: 1\n"
            'command: [sh, -c, \'echo "$PWD"; echo "$SETUP $ACTIVE"; echo "$CASTOFF_SUBMIT_DIR";'
            ' cd "$CASTOFF_CODE_DIR" && pwd -P\']\n',
        )
        jobs.folder = jobs.folder / "sub"
        here = jobs.submit(job)
        below = jobs.submit(job, "--workdir", "inner")
        away = jobs.submit(job, "--workdir", "/tmp")
        for run, folder in ((here, "sub"), (below, "sub/inner"), (away, None)):
            assert jobs.wait(run)["ending"] == "done", jobs.log(run)
            original, copy = jobs.folder, run.path / "code"
            assert jobs.log(run).splitlines() == [
                f"[0] {copy / folder if folder else '/tmp'}",
                f"[0] {original} yes",
                f"[0] {original}",
                f"[0] {copy / 'sub'}",
            ]

    def test_an_array_and_its_requeues(self, jobs: LocalJobs) -> None:
        Repository(jobs.folder)
        jobs.job("[ $CASTOFF_ATTEMPT = 1 ] || { echo resume >$CASTOFF_OUTCOME_FILE; }; pwd -P\n", "step.sh")
        job = jobs.job(
            "snapshot: true\narray: {count: 2}\nrequeue: {max: 1}\nranks_per_node: 1\n"
            "command: [sh, step.sh]\nafter: {afterany: [blocker]}\n"
        )
        self.waiting(jobs)
        run = jobs.submit(job)
        jobs.job("exit 1\n", "step.sh")
        (jobs.folder / "go").touch()
        reported = jobs.wait(run)
        assert reported["ending"] == "done"
        for member in (0, 1):
            assert [line for line in jobs.log(run, member).splitlines() if "code" in line] == [
                f"[0] {run.path / 'code'}"
            ] * 2

    def test_the_record_and_submit_report_the_snapshot(self, jobs: LocalJobs) -> None:
        repository = Repository(jobs.folder)
        repository.write(".gitignore", "data/\n")
        repository.write("data/x")
        answer = jobs.castoff("submit", "--site", "local", "--set", "snapshot=true", "--", "true")
        assert "\nsnapshot    2 files, 17 bytes; not in it: data/\n" in answer.stdout
        assert "1 file new, snapshot)\n" in answer.stdout
        (run,) = jobs.runs()
        code = read(run)
        assert code is not None and code.snapshot is not None and code.snapshot.files == 2
        jobs.wait(run)

    def test_launch_leaves_it_out(self, jobs: LocalJobs) -> None:
        job = jobs.job("snapshot: true\ncommand: [pwd]\n")
        answer = jobs.castoff("launch", job)
        assert answer.stdout == f"[0] {jobs.folder}\n"
        assert "launch ignores snapshot" in answer.stderr
