"""A program without `--`: what is it, and what is a job file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.cli import launch
from castoff.launcher.cli.program import is_job_file

from ..conftest import Castoff
from .test_main import COMMAND

OPTIONS = [[], ["-n", "2"], ["--here"], ["--ranks=2", "--set", "env.A=1"], ["-n2", "--job-id", "python"]]


def parsed(words: list[str], behind: list[str] | None) -> tuple[list[str] | None, dict[str, object]]:
    """The program, and the verb's own options."""
    with click.Context(click.Group(), help_option_names=["-h", "--help"]) as parent:
        parent.obj = behind
        with launch.command.make_context("launch", [*words], parent=parent) as context:
            return context.obj, context.params


@given(
    options=st.sampled_from(OPTIONS),
    program=st.sampled_from(["sh", "./no-such", "train.py", "pyhton", "A=1", "ä\udcff"]),
    arguments=st.lists(
        st.sampled_from(["-n", "3", "--help", "--", "--set", "a=b", "job.yaml", "", "\udcff\n", "-"])
    ),
)
def test_it_is_the_form_with_two_hyphens(options: list[str], program: str, arguments: list[str]) -> None:
    """The words before the first `--` of all arrive apart from those behind it, as `main` splits them."""
    words = [*options, program, *arguments]
    at = words.index("--") if "--" in words else len(words)
    plain = parsed(words[:at], words[at + 1 :] if at < len(words) else None)
    assert plain == parsed(options, [program, *arguments])


def test_every_byte_reaches_it(tmp_path: Path) -> None:
    odd = [
        b"-n",
        b"3",
        b"--help",
        b"a b",
        b"",
        b"--",
        b"--",
        b"$HOME",
        b"'\"\\",
        b"\xff\xfe",
        b"\n",
        b"--json",
    ]
    program = [os.fsencode(sys.executable), b"-c", b"import os, sys; print(list(map(os.fsencode, sys.argv)))"]
    shown = [
        subprocess.run(
            [os.fsencode(COMMAND), b"launch", b"-n", b"1", *hyphens, *program, *odd],
            cwd=tmp_path,
            capture_output=True,
            check=True,
        ).stdout.decode()
        for hyphens in ([], [b"--"])
    ]
    assert shown == [f"[0] {[b'-c', *odd]}\n"] * 2


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        *(
            ("no-such.yaml", True),
            ("no-such.yml", True),
            ("no-such.json", True),
            ("job", True),
            ("pipe", True),
        ),
        *(("python", False), ("./run", False), ("folder", False), ("no-such", False), ("train.py", False)),
        *(("named.yaml", True), ("A=1", False), ("run.sh", False)),
    ],
)
def test_what_a_job_file_is(word: str, is_one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("job", "python", "run", "train.py", "named.yaml", "run.sh"):
        Path(name).write_text("#!/bin/sh\n")
    for name in ("run", "named.yaml"):
        Path(name).chmod(0o755)
    Path("folder").mkdir()
    os.mkfifo("pipe", 0o600)
    assert is_job_file(word) == is_one


def test_a_job_file_takes_options_behind_it(castoff: Castoff, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: [sh, -c, 'echo $A']\nranks_per_node: 3\n")
    answer = castoff("launch", "job.yaml", "-n", "1", "--set", "env.A=b")
    assert (answer.returncode, answer.stdout) == (0, "[0] b\n"), answer.stderr


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("train.py", "a script follows its interpreter: python train.py ("),
        ("./train.py", "a script follows its interpreter: python ./train.py"),
        ("A=1", "a variable goes before castoff, or is set by --set env.A=1 ("),
        ("prepare.sh", "a script follows its interpreter: bash prepare.sh ("),
        ("run.sh", "if you mean the one in the working folder, write ./run.sh ("),
        ("run", "if you mean the one in the working folder, write ./run ("),
    ],
)
def test_what_is_no_program_leads_on(word: str, said: str, castoff: Castoff, tmp_path: Path) -> None:
    for name in ("train.py", "prepare.sh", "run.sh", "run"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    for name in ("run.sh", "run"):
        (tmp_path / name).chmod(0o755)
    answer = castoff("launch", word, "x")
    assert answer.returncode in (126, 127) and said in answer.stderr, answer.stderr
