"""A job whose own shell would swallow what castoff says below it is refused, before it is sent."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff import CastoffError, JobSpec, Site, plan
from castoff.launcher.planning.render import Script, rendered
from castoff.launcher.preflight.syntax import check_syntax
from castoff.launcher.runs.plan import Plan
from castoff.launcher.schedulers.registry import scheduler_of
from tests.launcher.conftest import Castoff

JOB = {"name": "x", "command": ["true"]}

OPEN = {
    "a reserved word": ["if true", "then true"],
    "a here-document": ["cat <<X"],
    "one whose end is indented": ["cat <<X", "hello", "  X"],
    "one within a command": ["x=$(cat <<X", "hello", ")"],
    "one that is tabbed": ["if true; then", "cat <<-X", "fi"],
    "a single quote": ["echo 'open"],
    "a double quote": ['echo "open'],
    "a quote of C's": ["echo $'open\\'"],
    "backticks": ["echo `true"],
    "a command": ["echo $(true"],
    "a value": ["echo ${HOME"],
    "a condition": ["if true; then", "true"],
    "a loop": ["for x in 1 2; do", "true"],
    "cases": ["case $HOME in", "*) true ;;"],
    "a function": ["f() {", "true"],
    "a function's name": ["f()"],
    "a group": ["{ true"],
    "a subshell": ["( true"],
    "a test": ["[[ -d / &&"],
    "arithmetic": ["(( 1 +"],
    "a pipe": ["true |"],
    "and": ["true &&"],
    "an array": ["a=(1"],
}
"""Lines that leave something open."""

CLOSED = {
    "a condition": ["if true; then", "true", "fi"],
    "a here-document": ["cat <<X", "a `b` ' \\ \"", "X"],
    "a quote over lines": ["echo 'a", "b'"],
    "a line that goes on": ["echo a \\", "  b"],
    "a comment that ends in a backslash": ["true # so \\"],
    "an escaped backslash": ["echo a\\\\"],
    "patterns": ["shopt -s extglob", "for each in !(*.yaml); do :; done"],
    "a comment alone": ["# nothing"],
    "nothing": [],
    "letters": ["echo 'Grüße, 日本'"],
}

SITE = Site.load("slurm")


def planned(*, site: Site = SITE, **fields: object) -> Plan:
    return plan(JobSpec.of({**JOB, **fields}), site)


def script_of(decided: Plan) -> Script:
    return rendered(decided, scheduler_of(decided.scheduler))


def refusal(decided: Plan) -> str:
    with pytest.raises(CastoffError) as error:
        check_syntax(decided, script_of(decided))
    return str(error.value)


class TestParts:
    def of(self, where: str, lines: list[str]) -> Plan:
        if where != "the site's teardown":
            return planned(setup=lines) if where == "setup" else planned(teardown=lines)
        return planned(site=msgspec.structs.replace(SITE, teardown=lines))

    @pytest.mark.parametrize("lines", OPEN.values(), ids=OPEN)
    def test_what_is_left_open(self, lines: list[str]) -> None:
        said = refusal(self.of("setup", lines))
        assert said.startswith("setup: bash does not parse this as intended: ")

    def test_what_a_site_leaves_open(self) -> None:
        said = refusal(self.of("the site's teardown", OPEN["a here-document"]))
        assert said.startswith("the site's teardown: bash does not parse this as intended: ")

    @pytest.mark.parametrize("lines", [["fi"], ["cat <<X", "X", "if true"], ["CASTOFF_TEARDOWN", "true"]])
    def test_what_teardown_leaves_open_or_ends(self, lines: list[str]) -> None:
        assert refusal(self.of("teardown", lines)).startswith("teardown: ")

    def test_what_is_left_open_where_no_file_can_be_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(name: str) -> int:
            raise PermissionError(1, "Operation not permitted")

        decided = self.of("setup", OPEN["a here-document"])
        monkeypatch.setattr(os, "memfd_create", refused)
        assert refusal(decided).startswith("setup: bash does not parse this as intended: ")
        monkeypatch.delattr(os, "memfd_create")
        assert refusal(decided).startswith("setup: bash does not parse this as intended: ")

    @pytest.mark.parametrize("where", ["setup", "teardown", "the site's teardown"])
    def test_a_last_line_that_continues_is_refused(self, where: str) -> None:
        said = refusal(self.of(where, ["true", "module load x \\"]))
        assert said == (
            f"{where}: its last line, module load x \\, continues in the next line, which is castoff's; "
            "remove the \\ at its end"
        )

    @pytest.mark.parametrize(
        ("lines", "line"),
        [
            ("[true, 'module load a']\nteardown: ['if x; then', 'y']", "2:13: teardown: bash"),
            ("\n- true\n- export X='a\n- true", "3:12: setup: bash"),
            ("\n- true\n- if true; then\n- |\n  fi\n  fi", "5:3: setup: bash"),
            ("[true]\nteardown:\n- true\n- rm x \\", "4:3: teardown: its last line"),
        ],
    )
    def test_its_line_of_the_job_file(self, tmp_path: Path, lines: str, line: str) -> None:
        (path := tmp_path / "job.yaml").write_text(f"setup: {lines}\ncommand: [x]\n")
        spec = JobSpec.load(path)
        decided = plan(spec, msgspec.structs.replace(SITE, setup=["true; true"], setup_last=["true"]))
        with pytest.raises(CastoffError) as error:
            check_syntax(decided, script_of(decided), spec)
        assert str(error.value).startswith(f"{path}:{line}")

    @pytest.mark.parametrize("lines", [["fi"], ["}"], [")"], ["}; {"], ["esac"], ["done"]])
    def test_what_would_close_castoffs_own(self, lines: list[str]) -> None:
        assert refusal(self.of("setup", lines)).startswith("setup: bash does not parse")

    @pytest.mark.parametrize("where", ["setup", "teardown", "the site's teardown"])
    def test_plain_lines_are_read_once_with_the_whole_script(
        self, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        texts: list[bytes] = []
        original = subprocess.run

        def run(*words: Any, **how: Any) -> Any:
            texts.append(how["stdin"].read())
            how["stdin"].seek(0)
            return original(*words, **how)

        monkeypatch.setattr(subprocess, "run", run)
        decided = self.of(where, ["module load a/1.2", "export A=b"])
        script = script_of(decided)
        check_syntax(decided, script)
        assert texts == [script.text.encode()]

    @pytest.mark.parametrize("lines", CLOSED.values(), ids=CLOSED)
    def test_what_is_whole(self, lines: list[str]) -> None:
        decided = self.of("setup", lines)
        check_syntax(decided, script_of(decided))


class TestTemplates:
    """What a template folder of somebody's own puts in the place of castoff's."""

    def own(self, folder: Path, name: str, text: str) -> Plan:
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return planned(templates=str(folder))

    @pytest.mark.parametrize("text", ["castoff_wait() {\n", "cat <<X\n", "castoff_x=1 \\\n"])
    def test_a_part(self, tmp_path: Path, text: str) -> None:
        name = "blocks/stopping.sh"
        assert refusal(self.own(tmp_path / "own", name, text)).startswith(f"{tmp_path}/own/{name}: ")

    @pytest.mark.parametrize("text", ["if true\n", "cat <<X\n"])
    def test_a_part_of_a_program_of_the_nodes(self, tmp_path: Path, text: str) -> None:
        rank = f"castoff_write_rank() {{\n  castoff_write rank.sh <<'CASTOFF_RANK'\n{text}CASTOFF_RANK\n}}\n"
        said = refusal(self.own(tmp_path / "own", "blocks/rank.sh", rank))
        assert said.startswith("rank.sh, with your parts: sh does not parse it as intended: line ")

    def test_a_head(self, tmp_path: Path) -> None:
        head = '{% extends "castoff/slurm.sh.j2" %}\n{% block environment %}\ncat <<X\n{% endblock %}\n'
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "slurm.sh.j2").write_text(head)
        said = refusal(planned(templates=str(tmp_path / "own")))
        assert said.startswith("the job's script, with its parts: bash does not parse it as intended: ")
        assert "here-document" in said


@pytest.mark.parametrize("verb", [["render"], ["render", "--head"], ["submit", "--dry-run"], ["submit"]])
def test_every_verb_that_shows_or_sends_a_script(castoff: Castoff, tmp_path: Path, verb: list[str]) -> None:
    words = ["--site", "local", "--set", f"setup={json.dumps(['cat <<X'])}", "--", "true"]
    answer = castoff(*verb, *words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "bash does not parse this as intended: warning: here-doc" in answer.stderr


def test_a_bash_that_is_too_old_to_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Mac's, of 2007: it would complain about what the cluster's bash runs."""
    bash = tmp_path / "bash"
    bash.write_text("#!/bin/sh\necho 'bash: inherit_errexit: invalid shell option name' >&2\nexit 2\n")
    bash.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    decided = planned(setup=["if true", "then true"])
    check_syntax(decided, script_of(decided))


def test_what_bash_would_complain_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A locale that this machine lacks, and a file that is named to every shell."""
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")
    monkeypatch.setenv("BASH_ENV", "/nowhere")
    monkeypatch.setenv("BASH_FUNC_x%%", "() { never closed")
    decided = planned(setup=["true"])
    check_syntax(decided, script_of(decided))
