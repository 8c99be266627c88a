"""Text in a script: shell words through real shells, directives as sbatch and qsub read them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher import InvalidInput, JobSpec, Site, plan, render, rendering
from launcher.quoting import pbs_directive, shell_word, slurm_directive

from .readers import read_pbs, read_slurm
from .test_placement import HOSTILE

ANY = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=40)
LINE = st.text(st.characters(exclude_characters="\x00\n\r", exclude_categories=["Cs"]), max_size=40)
QUOTES = st.text(st.sampled_from("'\"\\ #$`,=:&!*[]{}~%-a"), max_size=30)
ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="&"), max_size=40)

several = settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


Find = Callable[[str, str], Path]


def through(shell: str, words: list[str]) -> list[str]:
    """Words as a program sees them that a shell starts."""
    program = [sys.executable, "-S", "-c", "import sys,json;print(json.dumps(sys.argv[1:]))"]
    line = " ".join(map(shell_word, [*program, *words]))
    answer = subprocess.run([shell, "-c", line], capture_output=True, check=True)
    told: list[str] = json.loads(answer.stdout)
    return told


@pytest.mark.parametrize("shell", ["bash", "dash"])
@several
@given(words=st.lists(ANY | QUOTES, min_size=10, max_size=60))
def test_shell_words(shell: str, words: list[str], system_program: Find) -> None:
    system_program(shell, shell)
    assert through(shell, words) == words


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_hostile_shell_words(shell: str, system_program: Find) -> None:
    system_program(shell, shell)
    assert through(shell, HOSTILE) == HOSTILE


def test_no_line_of_a_script_ends_in_cr_lf() -> None:
    """qsub refuses such a script as a whole."""
    assert "\r\n" not in shell_word("a\r\nb\r\n")
    assert through("bash", ["a\r\nb\r\n"]) == ["a\r\nb\r\n"]


@given(value=LINE | QUOTES)
def test_slurm_directives(value: str) -> None:
    assert read_slurm(f"#!/bin/bash\n#SBATCH {slurm_directive('comment', value)}\n\n") == [("comment", value)]


@given(value=LINE | QUOTES)
def test_pbs_options(value: str) -> None:
    assert read_pbs(f"#!/bin/bash\n#PBS {pbs_directive('A', value)}\n\n") == [("A", value)]


@given(value=ASCII | QUOTES)
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


def test_nul_is_no_word() -> None:
    with pytest.raises(ValueError, match="NUL"):
        shell_word("a\x00b")


def test_errors_name_the_job_and_the_field() -> None:
    job: dict[str, Any] = {"name": "j", "command": ["true"], "directives": {"site": "a&b"}}
    with pytest.raises(InvalidInput, match=r"j on pbs: directives\.site: is 'a&b'"):
        render(plan(JobSpec.of(job), Site.load("pbs")))


# --- The whole way: what a job says, rendered, and read or run as the machine would ------------------


HOSTILE_LINES = [word for word in HOSTILE if word and not set("\n\r") & set(word)]


def check_directives(scheduler: str, read: Callable[[str], list[tuple[str, str | bool]]]) -> None:
    names = [f"site-{number}" if scheduler == "slurm" else f"site{number}" for number in range(99)]
    values = [
        w for w in HOSTILE_LINES if scheduler == "slurm" or (w.isascii() and w.isprintable() and w != "&")
    ]
    job = {
        "command": ["true"],
        "account": 'it\'s "mine" # \\ $5',
        "directives": dict(zip(names, values, strict=False)),
    }
    decided = plan(JobSpec.of(job), Site.load(scheduler))
    assert len(decided.directives) > len(values)
    assert read(render(decided)) == decided.directives


def check_words(folder: Path) -> None:
    """A local script with a program in castoff's place that writes down what it is given."""
    seen = folder / "seen.json"
    stub = folder / "stub"
    stub.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"json.dump([sys.argv, dict(os.environ)], open({str(seen)!r}, 'w'))\n"
    )
    stub.chmod(0o755)
    env = {f"V{number}": word for number, word in enumerate(HOSTILE)}
    inner = folder / "it's $HOME"
    inner.mkdir(exist_ok=True)
    job = {"command": ["true", *HOSTILE], "env": env, "workdir": str(inner)}
    script = folder / "job.sh"
    script.write_text(render(plan(JobSpec.of(job), Site.load("local"))))
    done = subprocess.run(
        ["bash", script], cwd=folder, env={"PATH": "/usr/bin:/bin", "CASTOFF_COMMAND": str(stub)}, check=False
    )
    assert done.returncode == 0
    argv, environ = json.loads(seen.read_text())
    assert argv[argv.index("--") + 1 :] == ["true", *HOSTILE]
    assert {name: environ.get(name) for name in env} == env
    assert environ["PWD"] == str(inner)


def check_everything(folder: Path) -> None:
    check_words(folder)
    check_directives("slurm", read_slurm)
    check_directives("pbs", read_pbs)


def test_the_whole_way(tmp_path: Path) -> None:
    check_everything(tmp_path)


BROKEN: dict[str, Callable[..., str]] = {
    "sh": lambda text: text,
    "words": " ".join,
    "slurm_directive": lambda name, value: f"--{name}={value}",
    "pbs_directive": lambda name, value: f"-{name} {value}" if len(name) == 1 else f"-l {name}={value}",
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_whole_way_notices_a_missing_quote(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rendering.FILTERS, name, BROKEN[name])
    if name == "words":  # the program goes through the function itself
        monkeypatch.setattr(rendering, "shell_word", BROKEN["sh"])
    with pytest.raises((AssertionError, ValueError, IndexError)):
        check_everything(tmp_path)
