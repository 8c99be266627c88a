"""Words of other launchers: each hint names what exists here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from castoff.launcher.cli import launch, render
from castoff.launcher.cli.group import WrongWords, call
from castoff.launcher.cli.help import VERBS
from castoff.launcher.config.checked import word_of_others
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Array
from castoff.launcher.config.site import Site
from castoff.launcher.config.synonyms import _table, hint
from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.structure import convert, fields_of


def refused(text: str) -> dict[str, str]:
    """Why a job file is refused, by the field."""
    with pytest.raises(InvalidInput) as caught:
        JobSpec.of({"command": ["x"], **Document.parse(text, "job.yaml").data})
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("partition: gpu", "here: queue"),
        ("modules: [cuda, gcc/12]", "here: setup, as in [module load cuda]"),
        ("time: 30", "here: walltime"),
        ("ntasks: 8", "here: ranks"),
        ("ntasks-per-node: 4", "here: ranks_per_node"),
        ("nproc_per_node: gpu", "here: ranks_per_node"),
        ("gpus_per_node: 4", "here: ranks_per_node, with devices_per_rank"),
        ("mem_per_cpu: 2G", "here: directives.slurm"),
        ("l: 2:ncpus=8:mpiprocs=4", "here: nodes, ranks_per_node and memory"),
        ("gpu_type: RTX6000", "here: device_type"),
        ("W: group_list=lab", "here: directives.pbs"),
        ("cluster: aurora", "here: the command line names the machine: --site NAME"),
        ("array: {seed: [0, 1]}", "here: parameters, as in {lr: [1e-3, 1e-4]}"),
        ("array: {limit: 2, count: 4}", "here: max_concurrent"),
        ("ranksPerNode: 2", "did you mean ranks_per_node?"),
        ("gnus: 1", "there are: command, name, nodes"),
        ("con: x", "there are: command, name, nodes"),
    ],
)
def test_in_a_job_file(line: str, hint: str) -> None:
    (message,) = refused(line).values()
    assert message.startswith(f"there is no such field; {hint}")


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("partitions: {}", "here: queues"),
        ("account: me", "here: the same field under defaults"),
        ("schedular: pbs", "did you mean scheduler?"),
    ],
)
def test_in_a_profile(line: str, instead: str) -> None:
    document = Document.parse(line, "site.yaml")
    document.data |= {"name": "s", "description": "d", "scheduler": "slurm", "launcher": "srun"}
    problems: list[Problem] = []
    convert(document, Site, problems, hint=word_of_others)
    (problem,) = problems
    assert instead in problem.message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("command: python x", "is 'python x', but takes a list of texts; use `command: [python, x]`"),
        ("command: sh -c 'echo \"$A\"'", '; use `command: [sh, "-c", "echo \\"$A\\""]`'),
        ("command: it's", '; use `command: ["it\'s"]`'),
        ("launcher: {args: --label -v}", '; use `launcher: {args: ["--label", "-v"]}`'),
        ("setup: module load x", '; use `setup: ["module load x"]`'),
        ("setup: |\n  module load x\n\n  true", '; use `setup: ["module load x", "true"]`'),
        ("options: 7", "is 7, but takes a list of lines of text, none empty; use `options: [7]`"),
        ("after: {afterok: prepare}", "; use `after: {afterok: [prepare]}`"),
        (
            "mail: {to: me, on: now}",
            "is 'now', but takes a list of begin, end, fail; a list is written [a, b]",
        ),
        ("stage: data.tar", "; a list is written [a, b]"),
        ("env: A=b c", '; use `env: {A: "b c"}`'),
        ("after: prepare", "takes conditions, each with a list of runs, as in {afterok: [preprocess]}"),
        ("after: [prepare]", "takes conditions, each with a list of runs, as in {afterok: [preprocess]}"),
        ("notify: slack", "; use `notify: {to: slack}`"),
    ],
)
def test_a_text_where_a_list_belongs(line: str, said: str) -> None:
    (message,) = refused(line).values()
    assert message.endswith(said)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("JobSpec", fields_of(JobSpec)),
        ("Array", fields_of(Array)),
        ("Site", fields_of(Site)),
        ("verb", VERBS),
    ],
)
def test_words_of_others_are_not_our_own(kind: str, own: dict[str, Any]) -> None:
    table = _table(kind)
    assert not {*own} & {*table}
    for meant in table.values():  # a field, perhaps with more to say, or a sentence
        assert meant.partition(",")[0].partition(".")[0] in own or " " in meant.partition(",")[0], meant


@pytest.mark.parametrize("word", ["", "-", "\x1b[2J", "x" * 999, "[", "é"])
def test_any_word_has_an_answer(word: str) -> None:
    assert hint("verb", word, list(VERBS)).startswith("; there are: init, ")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("my.sh", "#SBATCH -N 2", "is a script for sbatch"),
        ("my.sh", "#PBS -q a", "is a script for qsub"),
        ("my.sh", "true", "-- bash my.sh"),
        ("my.sbatch", "#SBATCH -N 2", "is a script for sbatch"),  # read as YAML, all of it is comments
        ("my.sbatch", "#SBATCH -N 2\necho a: b: c", "`castoff import my.sbatch -o my.yaml`"),
    ],
)
def test_a_batch_script_is_refused_as_a_job_file(
    name: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(f"#!/bin/sh\n{text}\n")
    error = CliRunner().invoke(render.command, [name], standalone_mode=False).exception
    assert said in str(error)
    if name == "my.sbatch":
        assert said in str(CliRunner().invoke(launch.command, [name], standalone_mode=False).exception)


@pytest.mark.parametrize(
    ("name", "text", "here"),
    [
        ("my.yaml", "command: [x] #SBATCH", "castoff submit my.yaml -N 2"),
        ("my.sbatch", "#SBATCH -N 2", "castoff import my.sbatch"),
        ("my.py", "print()", "castoff launch -- python my.py -N 2"),
    ],
)
def test_a_file_in_a_verbs_place(
    name: str, text: str, here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    with pytest.raises(WrongWords, match=re.escape(f"; here: {here} (see")):
        call([name, "-N", "2"], None)
