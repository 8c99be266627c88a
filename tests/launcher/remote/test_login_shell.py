"""One command line that every login shell reads alike."""

from __future__ import annotations

import io
import os
import re
import shutil
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.launcher.errors import CastoffError
from castoff.launcher.remote.login_shell import Marks, castoff_script, folder_word, login_command
from castoff.launcher.remote.ssh import Output

from ..conftest import STRANGER
from ..trust.make_cases import set_list

MARKS = Marks("abc")
PRINTS = "import sys; sys.stdout.buffer.write(repr(sys.argv[1:]).encode(errors='surrogateescape'))"
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def call(shell: str, home: Path, words: list[str]) -> bytes:
    program = home / "far 'castoff'"
    if not program.exists():
        program.write_text(f'#!/bin/sh\nexec python3 -c "{PRINTS}" "$@"\n')
        program.chmod(0o755)
    script = castoff_script(
        folder=str(home),
        home="unused",
        setup=[],
        own=str(program),
        build="1",
        words=words,
        variables=[("X", "y z")],
        marks=MARKS,
    )
    done = subprocess.run([shell, "-c", login_command(script)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", ["sh", "bash", "csh", "tcsh", "fish"])
def test_words_reach_the_castoff_there_unchanged(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, and CASTOFF_TESTS_NO_SYSTEM_PACKAGES is set")

    @settings(max_examples=15)
    @given(st.lists(WORDS, max_size=5))
    def unchanged(words: list[str]) -> None:
        said = call(shell, tmp_path, words)
        assert said == f"\x1e{MARKS.begin}\n{words!r}\x1e{MARKS.end} 0\n".encode()

    unchanged()
    call(shell, tmp_path, ["x" * 50_000])  # longer than a csh's word may be


def test_python_variables_of_the_machine_do_not_reach_the_castoff_there(tmp_path: Path) -> None:
    installed(tmp_path / "castoff/current")
    (tmp_path / "json.py").write_text("raise SystemExit('of another Python')\n")
    assert f"['list'] {tmp_path}" in run_installed("sh", tmp_path)


def installed(home: Path) -> None:
    """A castoff that prints its words."""
    (home / "bin").mkdir(parents=True)
    (home / "bin/python").symlink_to(sys.executable)
    (home / "bin/castoff").write_text("import os, sys, json; print(sys.argv[1:], os.environ['PYTHONPATH'])\n")
    (home / "complete").touch()


def run_installed(shell: str, home: Path) -> str:
    """What the castoff below a home prints, or why it is not run."""
    script = castoff_script(
        folder=str(home), home="castoff", setup=[], own=None, build="1", words=["list"], marks=MARKS
    )
    environ = {"PYTHONPATH": str(home), "PATH": os.environ["PATH"], "HOME": str(home)}
    words = [shell, "-c", login_command(script)]
    done = subprocess.run(words, capture_output=True, check=False, env=environ)
    assert done.stderr == b""
    return done.stdout.decode()


def open_to_group(folder: Path) -> None:
    """As a project's folder."""
    os.chown(folder, 0, STRANGER)
    folder.chmod(0o2775)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize(
    ("change", "runs"),
    [
        (lambda folder: None, True),
        (lambda folder: folder.chmod(0o1777), True),
        (lambda folder: folder.chmod(0o777), False),
        (lambda folder: open_to_group(folder), False),
        (lambda folder: folder.chmod(0o775), True),  # of root's own group
        (lambda folder: set_list(folder, 0o775, "u:bob:rwx", {"bob": STRANGER}), False),
        (lambda folder: set_list(folder, 0o755, "u:bob:rwx", {"bob": STRANGER}), True),
        (lambda folder: os.chown(folder, STRANGER, STRANGER), False),
        (lambda folder: (folder.chmod(0o777), folder.parent.chmod(0o700)), True),
    ],
    ids=["ours", "sticky", "open", "group", "own group", "list", "masked list", "his", "closed above"],
)
def test_a_castoff_that_others_could_have_replaced_is_not_run(
    tmp_path: Path, change: Callable[[Path], object], runs: bool
) -> None:
    home = tmp_path / "a home"
    installed(home / "castoff/current")
    change(home / "castoff")
    said = run_installed("sh", home)
    if runs:
        assert said.startswith(f"\x1e{MARKS.begin}\n['list'] "), said
    else:
        assert re.fullmatch(rf"\x1e{MARKS.failed} open \d+ d[rwxts+-]+ {home}/castoff\n", said), said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize(
    ("change", "opened"),
    [
        (lambda folder: None, ""),
        (lambda folder: folder.chmod(0o1777), ""),
        (lambda folder: open_to_group(folder), ""),  # a group's own software
        (lambda folder: folder.chmod(0o777), "env"),
        (lambda folder: (folder.chmod(0o777), folder.parent.chmod(0o710)), ""),
        (lambda folder: (folder / "bin/real").chmod(0o777), "env/bin/real"),
        (lambda folder: (folder.parent / "links").chmod(0o777), "links"),
    ],
    ids=["ours", "sticky", "group", "open", "closed above", "program", "link"],
)
def test_a_named_castoff_that_everybody_could_have_replaced_is_not_run(
    tmp_path: Path, change: Callable[[Path], object], opened: str
) -> None:
    home = tmp_path / "a home"
    for folder in ("env/bin", "links"):
        (home / folder).mkdir(parents=True)
    (home / "env/bin/real").write_text('#!/bin/sh\necho "$0"\n')
    (home / "env/bin/real").chmod(0o755)
    (home / "links/castoff").symlink_to("../env/bin/real")
    change(home / "env")
    script = castoff_script(
        folder="", home="", setup=[], own="links/castoff", build="1", words=[], marks=MARKS
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, env=environ)
    assert said.stderr == ""
    if opened:
        assert re.fullmatch(rf"\x1e{MARKS.failed} open \d+ [d-][rwxts+-]+ {home}/{opened}\n", said.stdout)
    else:
        assert said.stdout.startswith(f"\x1e{MARKS.begin}\n{home}/links/castoff\n"), said.stdout


def test_what_the_login_shell_reads_holds_nothing_special() -> None:
    command = login_command("any $(text) 'with' \"quotes\"\n!\\")
    safe = set(string.ascii_letters + string.digits + "+/= -")
    fixed = """exec /bin/sh -c 'eval "$(printf %s "$@" | base64 -d)"' castoff """
    assert command.startswith(fixed) and set(command.removeprefix(fixed)) <= safe
    with pytest.raises(CastoffError, match="the command line is too long to be sent"):
        login_command("x" * 200_000)


@pytest.mark.parametrize(
    ("folder", "word"),
    [
        ("/a b", "'/a b'"),
        ("~/x y", "\"$HOME\"/'x y'"),
        ("x", '"$HOME"/x'),
        ("~", '"$HOME"'),
        ("~/", '"$HOME"'),
    ],
)
def test_folders_count_from_home(folder: str, word: str) -> None:
    assert folder_word(folder) == word


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@given(before=st.binary(max_size=30), output=st.binary(max_size=80), code=st.integers(0, 255))
def test_output_is_what_stands_between_the_marks(size: int, before: bytes, output: bytes, code: int) -> None:
    whole = before + f"\x1e{MARKS.begin}\n".encode() + output + f"\x1e{MARKS.end} {code}\n".encode()
    got: list[bytes] = []
    found = Output(_Slow(whole, size), MARKS)  # type: ignore[arg-type]
    assert found.begins()
    found.copy(got.append)
    assert (b"".join(got), found.code) == (output, code)


@given(output=st.binary(max_size=80), cut=st.integers(1, 20))
def test_output_that_is_cut_has_no_code(output: bytes, cut: int) -> None:
    end = f"\x1e{MARKS.end} 0\n".encode()
    whole = f"\x1e{MARKS.begin}\n".encode() + output + end
    found = Output(_Slow(whole[:-cut], 5), MARKS)  # type: ignore[arg-type]
    assert found.begins()
    found.copy(lambda _: None)
    assert found.code is None


@pytest.mark.parametrize("text", [b"", b"Welcome\n", f"x\x1e{MARKS.failed} setup 3\n".encode()])
def test_what_never_begins_says_why_if_it_can(text: bytes) -> None:
    found = Output(_Slow(text, 4), MARKS)  # type: ignore[arg-type]
    assert not found.begins()
    assert found.obstacle == ("setup 3" if b"setup" in text else None)


@given(before=st.integers(0, 20))
def test_a_banner_without_an_end_hides_no_mark(before: int) -> None:
    banner = b"x" * ((1 << 16) - before)
    found = Output(io.BytesIO(banner + f"\x1e{MARKS.begin}\nout\x1e{MARKS.end} 0\n".encode()), MARKS)
    got: list[bytes] = []
    assert found.begins()
    found.copy(got.append)
    assert (b"".join(got), found.code) == (b"out", 0)


@pytest.mark.parametrize("code", ["9" * 5000, "-1", "", "1 2", "256", "1000000"])
def test_what_is_not_an_exit_code_is_none(code: str) -> None:
    found = Output(io.BytesIO(f"\x1e{MARKS.begin}\n\x1e{MARKS.end} {code}\n".encode()), MARKS)
    assert found.begins()
    found.copy(lambda _: None)
    assert found.code is None


class _Slow:
    """A pipe in which so many bytes come at a time."""

    def __init__(self, text: bytes, size: int):
        self._text, self._size = text, size

    def readline(self, count: int) -> bytes:
        size = min(count, self._text.find(b"\n") + 1 or count)
        line, self._text = self._text[:size], self._text[size:]
        return line

    def read1(self, count: int) -> bytes:
        part, self._text = self._text[: self._size], self._text[self._size :]
        return part
