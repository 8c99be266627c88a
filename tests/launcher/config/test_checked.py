"""A JobSpec and a Site that a program builds: checked like a file, once, and described by `help()`."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff import InvalidInput, JobSpec, Site, plan
from castoff.launcher.config import checked
from castoff.launcher.config.job_fields import Array, Stage

FIELDS: dict[str, Any] = {
    "name": "mine",
    "description": "a machine",
    "scheduler": "slurm",
    "launcher": "srun",
}


def problems(build: Any, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        build(**fields)
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["x"], "nodes": "4", "name": "a\n", "env": {"A": "\udcff"}},
        {"command": ["x"], "partition": "short"},
        {"command": ["x"], "stage": [{"from": ""}], "array": {"count": 0}},
        {"command": ["-x"], "walltime": 3},
    ],
    ids=lambda fields: " ".join(fields),
)
def test_a_wrong_field_is_refused_in_the_words_for_a_file(fields: dict[str, Any]) -> None:
    assert problems(JobSpec, **fields) == problems(lambda **given: JobSpec.of(given), **fields) != {}


def test_what_mends_it_is_written_for_the_place_that_it_is_in() -> None:
    both = {"command": ["x"], "ranks": 2, "ranks_per_node": 3}
    assert "(ranks_per_node=None clears it)" in problems(JobSpec, **both)["ranks"]
    (in_a_file,) = problems(lambda **given: JobSpec.of(given), **both).values()
    assert "(--set ranks_per_node=null clears it)" in in_a_file


def test_parts_of_a_job_are_checked_with_it() -> None:
    assert problems(JobSpec, array=Array(count=0)) == {"array.count": problems(JobSpec, nodes=0)["nodes"]}
    staged = JobSpec(command=["x"], stage=[Stage(source="data.tar")])
    assert staged.stage == JobSpec.of({"command": ["x"], "stage": [{"from": "data.tar"}]}).stage


def test_a_job_without_a_command_is_a_function_s_or_a_site_s() -> None:
    assert JobSpec(nodes=2).command == []
    assert "command" in problems(plan, spec=JobSpec(nodes=2), site=Site.load("slurm"))


def test_what_a_file_may_leave_to_its_reader_a_program_may_too() -> None:
    built = JobSpec(command=["x", 7], workdir=Path("/here"), env={"A": 1e-3})  # type: ignore[list-item,arg-type,dict-item]
    assert (built.command, built.workdir, built.env) == (["x", "7"], "/here", {"A": "0.001"})


def test_what_is_changed_is_checked() -> None:
    job = JobSpec(command=["x"], ranks=4)
    assert job.changed(nodes=2).nodes == 2
    assert problems(job.changed, nodes=8).keys() == {"ranks"}
    assert problems(job.__replace__, nodes=8).keys() == {"ranks"}
    site = Site(**FIELDS)
    assert site.changed(shell="/bin/sh").shell == "/bin/sh"
    assert problems(site.changed, submit_timeout="soon").keys() == {"submit_timeout"}
    assert problems(site.changed, poll_interval="1s") == {"poll_interval": "is 1s, but must be at least 2s"}
    assert site.changed(poll_interval="2s").poll_interval == "2s"


def test_a_site_is_checked() -> None:
    node = {"sockets": ["0-3"], "devices": [2], "source": "lscpu", "date": "2026-11-20"}
    assert problems(Site, **FIELDS, node=node).keys() == {"node.device_variable"}
    assert problems(Site, **{**FIELDS, "launcher": "slurm"}).keys() == {"launcher"}
    assert problems(Site, **FIELDS, defaults={"nodes": 0}).keys() == {"defaults.nodes"}


def test_a_job_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read or built is right: planning it does not look again."""
    (tmp_path / "job.yaml").write_text("command: [x]")
    jobs = [JobSpec.load(tmp_path / "job.yaml"), JobSpec(command=["x"])]
    site = Site.load("slurm")
    monkeypatch.delattr(checked, "convert")
    for job in jobs:
        assert plan(job, site).command == ["x"]
        assert plan(copy.copy(job), site).command == ["x"]


def test_it_can_be_copied_and_pickled() -> None:
    job = JobSpec(command=["x"], stage=[Stage(source="data.tar")])
    for again in (copy.copy(job), copy.deepcopy(job), pickle.loads(pickle.dumps(job))):
        assert again == job
    assert repr(job).startswith("JobSpec(command=['x'], stage=[Stage(")


def test_a_list_that_is_changed_afterwards_changes_no_job() -> None:
    command = ["x"]
    job = JobSpec(command=command)
    command.append("\0")
    assert job.command == ["x"]


def test_help_fits_on_a_screen() -> None:
    assert len(str(inspect.signature(JobSpec))) < 700
    text = pydoc.plain(pydoc.render_doc(JobSpec))
    shown = text[: text.index("Method resolution order")].splitlines()
    signature = [line for line in shown if line.startswith(" |      ")]  # on Python 3.13 a line each
    assert len(shown) - len(signature) < len(JobSpec.__struct_fields__) + 13  # a line for each field
    for name in JobSpec.__struct_fields__:
        assert any(line.startswith(f" |  {name} ") for line in shown), name
    assert max(len(line) for line in shown if " |  JobSpec(" not in line) < 120
    assert {"load", "of", "changed"} <= set(dir(JobSpec))
    assert "nodes" in dir(JobSpec())


def test_the_schema_describes_each_field_once() -> None:
    schema = msgspec.json.schema(JobSpec)["$defs"]["JobSpec"]
    assert schema["properties"]["nodes"]["description"].rstrip(".") in str(JobSpec.__doc__)
    from castoff.launcher.config.schema import job_schema

    assert "\n" not in job_schema(["slurm"])["$defs"]["JobSpec"]["description"]
