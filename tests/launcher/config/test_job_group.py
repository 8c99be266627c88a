"""Several jobs in one file: both forms, what they share, their order, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from castoff import InvalidInput, JobSpec
from castoff.launcher.config.job_group import JobGroup, load, made

BY_NAME = """
name: pipe
defaults:
  ranks_per_node: 2
  env: {A: "1", B: "1"}
jobs:
  evaluate:
    command: [cat]
    ranks: 1
    after: {afterok: [train]}
  prepare: {command: [touch, data], env: {B: "2"}}
  train: {command: [cat, data], after: {afterok: [prepare]}}
"""

DOCUMENTS = """# two jobs
name: evaluate
command: [cat]
after: {afterok: [prepare]}
---
name: prepare
command: [touch, data]
---
"""


def group_of(tmp_path: Path, text: str, **options: Any) -> JobGroup:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    group = load(file, **options)
    assert isinstance(group, JobGroup)
    return group


def refused(tmp_path: Path, text: str, **options: Any) -> list[str]:
    with pytest.raises(InvalidInput) as error:
        group_of(tmp_path, text, **options)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in error.value.problems]


def test_by_name(tmp_path: Path) -> None:
    group = group_of(tmp_path, BY_NAME)
    assert (group.name, group.names) == ("pipe", ["prepare", "train", "evaluate"])
    prepare, train, evaluate = group.jobs
    assert prepare.env == {"A": "1", "B": "2"} and train.env == {"A": "1", "B": "1"}
    assert (train.ranks_per_node, evaluate.ranks_per_node, evaluate.ranks) == (2, None, 1)


@pytest.mark.parametrize("first", ["", "---\n", "defaults: {nodes: 2}\n---\n"])
def test_documents(tmp_path: Path, first: str) -> None:
    group = group_of(tmp_path, first + DOCUMENTS)
    assert (group.name, group.names) == ("pipeline", ["prepare", "evaluate"])
    assert {spec.nodes for spec in group.jobs} == {2 if "nodes" in first else None}


def test_one_job_is_none(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("---\ncommand: [true]\n---\n")
    assert load(file) == JobSpec.load(file) == JobSpec.of({"command": ["true"]})
    with pytest.raises(InvalidInput, match="holds one job, so --only and --from have nothing to select"):
        load(file, only=["train"])


def test_a_file_with_several_is_no_job(tmp_path: Path) -> None:
    for text in (BY_NAME, DOCUMENTS):
        (tmp_path / "job.yaml").write_text(text)
        with pytest.raises(InvalidInput, match="holds several jobs; `castoff submit` takes it"):
            JobSpec.load(tmp_path / "job.yaml")


def test_set_and_flags(tmp_path: Path) -> None:
    group = group_of(
        tmp_path, BY_NAME, overrides=["train.nodes=4", "env.A=9", "walltime=5m"], flags={"account": "mine"}
    )
    assert [spec.nodes for spec in group.jobs] == [None, 4, None]
    assert {(spec.env["A"], spec.walltime, spec.account) for spec in group.jobs} == {("9", "5m", "mine")}


@pytest.mark.parametrize(
    ("only", "since", "names"),
    [
        (["train"], [], ["train"]),
        (["evaluate", "prepare"], [], ["prepare", "evaluate"]),
        ([], ["train"], ["train", "evaluate"]),
        ([], ["prepare"], ["prepare", "train", "evaluate"]),
        (["prepare"], ["evaluate"], ["prepare", "evaluate"]),
    ],
)
def test_selection(tmp_path: Path, only: list[str], since: list[str], names: list[str]) -> None:
    assert group_of(tmp_path, BY_NAME, only=only, since=since).names == names


def test_the_order_of_the_file_stays(tmp_path: Path) -> None:
    jobs = {
        name: f"{{command: [true], after: {{afterany: [{before}]}}}}"
        for name, before in (("z", "m"), ("b", "x"), ("a", "m"))
    }
    text = "\n".join(["jobs:", *(f"  {name}: {job}" for name, job in jobs.items()), "  m: {command: [true]}"])
    assert group_of(tmp_path, text).names == ["b", "m", "z", "a"], "x is no job of the file"


PREPARE = "jobs:\n  prepare: {command: [true]}\n"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "jobs:\n  a: {command: [true], after: {afterok: [c]}}\n"
            "  b: {command: [true], after: {after: [a]}}\n  c: {command: [true], after: {afterok: [b]}}\n",
            [
                "pipeline.yaml:2: after: makes a circle, so that none could ever start: "
                "a after c, c after b, b after a"
            ],
        ),
        (
            "jobs:\n  a: {command: [true], after: {afterok: [a]}}\n",
            ["pipeline.yaml:2: after: makes a circle, so that none could ever start: a after a"],
        ),
        (
            PREPARE + "  train: {nodes: none, command: [true]}\n",
            ["pipeline.yaml:3: nodes: is 'none', but takes a whole number of at least 1"],
        ),
        (
            PREPARE + "  train: {nodes: 1}\n",
            [
                "pipeline.yaml:3: command: is missing: name the program to run, as in "
                "`command: [python, train.py]`"
            ],
        ),
        (
            "name: a\ncommand: [true]\n---\ncommand: [true]\n---\nname: a\ncommand: [true]\n",
            [
                "pipeline.yaml:4: name: is missing: each of several jobs needs a name",
                "pipeline.yaml:6: name: is a, as that of an earlier job of the group; each needs its own",
            ],
        ),
        (
            PREPARE + "  env: {command: [true]}\n  1st: {command: [true]}\n",
            [
                "pipeline.yaml:3: name: is env, which is also a field, "
                "so that --set env.… would be ambiguous; "
                "choose another",
                "pipeline.yaml:4: name: is '1st', but takes up to 60 letters, digits, and _ . + -, "
                "beginning with a letter",
            ],
        ),
        (
            PREPARE + "  pipeline: {command: [true]}\n",
            [
                "pipeline.yaml:3: name: is pipeline, and so is the group's: "
                "give the group a name of its own, "
                "as in name: pipeline, or rename the file"
            ],
        ),
        (
            "default: {}\n" + PREPARE,
            [
                "pipeline.yaml:1: default: is not a field of a group"
                "; did you mean defaults?; a job's fields go "
                "below jobs"
            ],
        ),
        (
            PREPARE + "  train: {name: other, command: [true]}\n",
            ["pipeline.yaml:3: name: is already train, its key below jobs: drop it"],
        ),
        (
            PREPARE + "---\nname: b\n",
            ["pipeline.yaml:1: jobs: excludes further documents: write all jobs below it"],
        ),
        ("jobs: []\n", ["pipeline.yaml:1: jobs: is [], but takes a mapping"]),
        ("jobs: {}\n", ["pipeline.yaml:1: jobs: is missing: name the jobs, as in jobs: {train: {…}}"]),
        (
            "defaults: {name: x}\n" + PREPARE,
            ["pipeline.yaml:1: defaults.name: is for single jobs: drop it here"],
        ),
        (
            PREPARE + "  train:\n    command: [cat, '{prepare.dir}/data']\n",
            [
                "pipeline.yaml:4: command.1: refers to the run of prepare, "
                "but does not wait for it: add after: "
                "{afterok: [prepare]}"
            ],
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, problems: list[str]) -> None:
    assert refused(tmp_path, text) == problems


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"only": ["trian"]}, "--only trian: is not a job of pipe; did you mean train?"),
        ({"since": ["x"]}, "--from x: is not a job of pipe; there are: prepare, train, evaluate"),
        ({"flags": {"name": "x"}}, "--name: is for a file with one job; each of several has its own"),
        (
            {"overrides": ["train.nodes=x"]},
            "--set train.nodes=x: nodes: is 'x', but takes a whole number of at least 1",
        ),
        ({"overrides": ["nodes=x"]}, "--set nodes=x: is 'x', but takes a whole number of at least 1"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    assert refused(tmp_path, BY_NAME, **options) == [problem]


def test_a_reference_to_an_indirect_run_waits_for_its_start(tmp_path: Path) -> None:
    text = BY_NAME.replace("command: [cat]", "command: [cat, '{prepare.dir}/data', '{other.dir}', '{}']")
    evaluate = group_of(tmp_path, text).jobs[-1]
    assert evaluate.after == {"afterok": ["train"], "after": ["prepare"]}
    assert evaluate.source is not None and evaluate.source.where(("command",)).endswith(":8")


def test_made_in_python() -> None:
    late = JobSpec(name="late", command=["true"], after={"afterok": ["early"]})
    assert made("both", [late, JobSpec(name="early", command=["true"])]).names == ["early", "late"]
    with pytest.raises(InvalidInput, match=r"^job: name: is missing"):
        made("both", [JobSpec(command=["true"])])
