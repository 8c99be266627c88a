"""What a message suggests is said in flags where the command line was wrong, and as YAML where a file was."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.cli import launch, submit
from castoff.launcher.cli.flags import answered, flag_words, flags_of
from castoff.launcher.config.job import JobSpec
from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.text.quoting import yaml_word
from castoff.launcher.typed.suggestion import setting

from ..conftest import Castoff

FLAGS = flags_of(submit.command)


def said(where: str, path: str, message: str, command: click.Command = submit.command) -> str:
    return str(answered(InvalidInput([Problem(where, path, message)]), flags_of(command)))


@pytest.mark.parametrize(
    ("where", "path", "expected"),
    [
        ("the command line", "account", "--account: is missing; give it, as in --account m1"),
        ("--account", "account", "--account: is missing; give it, as in --account m1"),
        ("--set account=", "account", "--set account=: is missing; give it, as in --account m1"),
        (
            "job.yaml",
            "account",
            "job.yaml: account: is missing; give it, as in `account: m1` or --account m1",
        ),
        ("job", "account", "job: account: is missing; give it, as in `account: m1` or --account m1"),
        ("the command line", "mail.to", "mail.to: is missing; give it, as in --account m1"),
    ],
)
def test_where_it_was_wrong(where: str, path: str, expected: str) -> None:
    assert said(where, path, "is missing; give it, as in `account: m1`") == expected


def test_a_verb_without_that_flag_is_answered_with_set() -> None:
    assert said("--queue", "queue", "`qos: debug`", launch.command) == "--queue: --set qos=debug"
    assert said("job.yaml:1", "qos", "`qos: debug`", launch.command) == "job.yaml:1: qos: `qos: debug`"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('walltime: "00:30:00"', "--walltime 00:30:00"),
        ('directives: {pbs: {filesystems: "home:flare"}}', "--set directives.pbs.filesystems=home:flare"),
        ("restart: {never: [2, 3]}", "--set 'restart.never=[2, 3]'"),
        ("command: [python, train.py, a b]", "-- python train.py 'a b'"),
        ("env_from: [A, B]", "--set 'env_from=[A, B]'"),
        ("exclusive: true", "--set exclusive=true"),
        ('env: {A: "1", B: "true"}', """--set 'env.A="1"' --set 'env.B="true"'"""),
        ("requeue: {how: copy, max: 2}", "--set requeue.how=copy --set requeue.max=2"),
        ("no_such_field: 1", ""),
        ("account: [", ""),
    ],
)
def test_a_line_of_a_job_file_as_words(line: str, words: str) -> None:
    assert flag_words(line, FLAGS) == words


@given(text=st.text(min_size=1).filter(lambda text: text.isprintable() and "`" not in text))
def test_what_is_suggested_means_the_same_on_the_command_line(text: str) -> None:
    """Whatever the value: typed into a shell and read by --set or a flag, it is that value."""
    fields: list[tuple[str, Callable[[JobSpec], str | None]]] = [
        ("env.A", lambda job: job.env["A"]),
        ("constraint", lambda job: job.constraint),
    ]
    for field, read in fields:
        words = shlex.split(flag_words(setting(field, yaml_word(text)).strip("`"), FLAGS))
        if words[0] == "--set":
            job = JobSpec.load(None, overrides=["command=[x]", words[1]])
        else:
            job = JobSpec.load(None, overrides=["command=[x]"], flags={words[0][2:]: words[1]})
        assert read(job) == text


def test_all_that_aurora_misses_can_be_pasted(castoff: Castoff) -> None:
    """The answer to a command line without the required fields, added to it, is a command line that works."""
    words = ["render", "--site", "aurora"]
    answer = castoff(*words, "--", "python", "train.py")
    assert answer.returncode == 2 and "account: MyProject" not in answer.stderr
    given = [word for found in re.findall(r"as in (--.*?) \(", answer.stderr) for word in shlex.split(found)]
    assert given[:4] == ["--account", "MyProject", "--walltime", "00:30:00"]
    assert castoff(*words, *given, "--", "python", "train.py").returncode == 0


def test_of_a_job_file_the_line_and_its_file(castoff: Castoff, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: [x]\nwalltime: 30m\ndirectives: {filesystems: home}\n")
    answer = castoff("render", "job.yaml", "--site", "aurora")
    assert answer.stderr.startswith("castoff: job.yaml: account: is missing")
    assert "`account: MyProject` or --account MyProject (" in answer.stderr


def test_a_flag_wins_over_what_says_the_same_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: [x]\nranks_per_node: 4\n")
    assert JobSpec.load(path, flags={"ranks": 2}) == JobSpec(command=["x"], ranks=2)
    path.write_text("command: [x]\nranks: 4\n")
    assert JobSpec.load(path, flags={"ranks_per_node": 2}) == JobSpec(command=["x"], ranks_per_node=2)
    with pytest.raises(InvalidInput, match="excludes ranks_per_node"):
        JobSpec.load(path, flags={"ranks": 2, "ranks_per_node": 2})


@pytest.mark.parametrize(
    ("short", "long"),
    [
        *(("-N", "--nodes"), ("-n", "--ranks"), ("-J", "--name"), ("-A", "--account"), ("-p", "--queue")),
        *(("-q", "--queue"), ("-t", "--walltime")),
    ],
)
def test_short_flags_are_those_of_the_schedulers(short: str, long: str, castoff: Castoff) -> None:
    value = {"-t": "30m"}.get(short, "3")
    rest = ["--site", "slurm", "-N", "3", "--", "x"]
    assert castoff("render", short, value, *rest).stdout == castoff("render", long, value, *rest).stdout != ""
