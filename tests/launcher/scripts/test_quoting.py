"""Text in a script: shell words through real shells, directives as sbatch and qsub read them.

Whole jobs are in test_hostile_jobs.py, and there it is shown that each of these functions is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castoff import InvalidInput, JobSpec, Site, plan, render
from castoff.launcher.schedulers.pbs.qsub_directives import directive as pbs_directive
from castoff.launcher.schedulers.slurm.sbatch_directives import directive as slurm_directive
from castoff.launcher.text.quoting import (
    comment,
    interpreter,
    shell_word,
    visible_word,
    yaml_word,
)
from castoff.launcher.typed.document import Document
from tests.hostile import ANY, ANY_LINE, ARGUMENTS, ASCII, QUOTES

from .readers import read_pbs, read_slurm

several = settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


Find = Callable[[str, str], Path]


def through(shell: str, words: list[str]) -> list[str]:
    """Words as a program sees them that a shell starts."""
    program = [sys.executable, "-S", "-c", "import sys,json;print(json.dumps(sys.argv[1:]))"]
    line = " ".join(map(shell_word, [*program, *words]))
    answer = subprocess.run([shell, "-c", line], capture_output=True, check=True)
    reported: list[str] = json.loads(answer.stdout)
    return reported


@pytest.mark.everyday("dash")
@pytest.mark.parametrize("shell", ["bash", "dash"])
@several
@given(words=st.lists(ANY | QUOTES | st.sampled_from(ARGUMENTS), min_size=10, max_size=60))
def test_shell_words(shell: str, words: list[str], system_program: Find) -> None:
    system_program(shell, shell)
    assert through(shell, words) == words


def test_no_line_of_a_script_ends_in_cr_lf() -> None:
    """qsub refuses such a script as a whole."""
    assert "\r\n" not in shell_word("a\r\nb\r\n")
    assert through("bash", ["a\r\nb\r\n"]) == ["a\r\nb\r\n"]


@several
@given(words=st.lists(ANY | QUOTES, min_size=10, max_size=60))
def test_words_for_a_terminal_are_the_same_words(words: list[str]) -> None:
    shown = list(map(visible_word, words))
    assert all(word.isprintable() for word in shown)
    program = [sys.executable, "-S", "-c", "import sys,json;print(json.dumps(sys.argv[1:]))"]
    line = " ".join([*map(shell_word, program), *shown])
    answer = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert json.loads(answer.stdout) == words
    assert visible_word("it's") == shell_word("it's")
    assert visible_word(os.fsdecode(b"caf\xe9")) == r"$'caf\351'"


@given(value=ANY | QUOTES | st.sampled_from(["null", "Yes", "1e3", "~", "", "-", "a: b", "x.y-z_1"]))
def test_words_of_a_job_file(value: str) -> None:
    text = yaml_word(value)
    assert text.isprintable()
    document = Document.parse(f"queue: {text}  # and on\n", "job.yaml")
    assert document.data == {"queue": value}


@given(text=ANY | QUOTES)
def test_comments(text: str) -> None:
    assert comment(text).isprintable()
    assert (comment(text) == text) == text.isprintable()


def test_interpreters() -> None:
    for text in ("/bin/bash", "/bin/bash -l", "/opt/a b/sh"):
        assert interpreter(text) == text
    for text in ("bash", "", "-l", "/bin/sh\nx", "/bin/sh\r", "/bin/\x1bsh"):
        with pytest.raises(ValueError, match=r"^shell: is .*, but must be the path of a shell"):
            interpreter(text)


@given(value=ANY_LINE | QUOTES)
def test_slurm_directives(value: str) -> None:
    assert read_slurm(f"#!/bin/bash\n#SBATCH {slurm_directive('comment', value)}\n\n") == [("comment", value)]


@given(value=ANY_LINE | QUOTES)
def test_pbs_options(value: str) -> None:
    assert read_pbs(f"#!/bin/bash\n#PBS {pbs_directive('A', value)}\n\n") == [("A", value)]


@given(value=(ASCII | QUOTES).map(lambda text: text.replace("&", "")))
def test_pbs_resources(value: str) -> None:
    """As one resource, whatever commas it has; or not at all."""
    if "&" in value or ("'" in value and '"' in value):
        with pytest.raises(ValueError, match=r"directives\.site: "):
            pbs_directive("site", value)
        return
    assert read_pbs(f"#!/bin/bash\n#PBS {pbs_directive('site', value)}\n\n") == [("site", value)]


def test_bare_flags() -> None:
    assert read_slurm(f"#SBATCH {slurm_directive('exclusive', True)}\n") == [("exclusive", True)]
    assert read_pbs(f"#PBS {pbs_directive('V', True)}\n#PBS {pbs_directive('flag', True)}\n") == [
        ("V", True),
        ("flag", True),
    ]


@pytest.mark.parametrize("broken", ["a\nb", "a\rb", "a\x00b"])
@pytest.mark.parametrize(
    ("quote", "name"), [(slurm_directive, "comment"), (pbs_directive, "A"), (pbs_directive, "site")]
)
def test_a_directive_is_one_line(quote: Callable[[str, str], str], name: str, broken: str) -> None:
    with pytest.raises(ValueError, match=rf"directives\.{name}: .*"):
        quote(name, broken)


@pytest.mark.parametrize("value", ["a&b", "grün", "a\tb", 'it\'s "it"'])
def test_what_a_pbs_resource_cannot_hold(value: str) -> None:
    with pytest.raises(ValueError, match=r"directives\.site: .*PBS"):
        pbs_directive("site", value)


def test_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        shell_word("a\x00b")


def test_errors_name_the_job_and_the_field() -> None:
    job: dict[str, Any] = {"name": "j", "command": ["true"], "directives": {"site": "a&b"}}
    with pytest.raises(InvalidInput, match=r"j on pbs: directives\.site: is 'a&b'"):
        render(plan(JobSpec.of(job), Site.load("pbs")))
