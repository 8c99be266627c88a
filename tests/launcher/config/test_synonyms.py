"""Words of other launchers: each hint names what exists here, and its example would be taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from launcher.cli import launch, logs, render, submit
from launcher.cli.main import _VERBS
from launcher.cli.other_words import instead_of_option, instead_of_verb
from launcher.config.document import Document
from launcher.config.job import JobSpec, Stage
from launcher.config.site import Node, Queue, Site
from launcher.config.structure import convert, fields_of
from launcher.config.synonyms import OF, OF_JOBS, OPTION_LETTERS, VERBS
from launcher.errors import InvalidInput


def refused(text: str) -> dict[str, str]:
    """Why a job file is refused, by the field."""
    with pytest.raises(InvalidInput) as caught:
        JobSpec.of({"command": ["x"], **Document.parse(text, "job.yaml").data})
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ('nodes: "2"', "nodes: 2"),
        ("walltime: 90", "walltime: 90m; a number alone is minutes to Slurm, but seconds to PBS"),
        ("walltime: 1:30", "walltime: 1m30s"),
        ("memory: 64 GB", "memory: 64G"),
        ("array: 1-8%2", "array: {count: 8, at_most: 2}; members count from 0"),
        ("array: 10", "array: {count: 10}"),
        ("after: 1234", "after: {afterok: [1234]}"),
        ("after: afternotok:12", "after: {afternotok: [12]}"),
        ("requeue: 3", "requeue: {max: 3}"),
        ("requeue: true", "requeue: {max: 1}"),
        ("start: torchrun", "start: {torchrun: true}"),
        ("start: srun", "start: {starter: srun}"),
        ("container: image.sif", "container: {image: image.sif}"),
        ("mail: me@example.org", "mail: {to: me@example.org}"),
        ("env: [A=1, B=x=y]", "env: {A: 1, B: x=y}"),
        ("directives: [--comment=a]", "directives: {comment: a}"),
    ],
)
def test_a_value_as_others_would_write_it(line: str, instead: str) -> None:
    (message,) = refused(line).values()
    _, _, hint = message.partition("; write ")
    assert hint.startswith(instead)
    JobSpec.of({"command": ["x"], **Document.parse(hint.partition("; ")[0], "job.yaml").data})


@pytest.mark.parametrize(
    "line", ["nodes: -1", "nodes: two", "memory: 64", "mail: true", "start: ssh", "env: 1"]
)
def test_a_value_that_nobody_would_write(line: str) -> None:
    (message,) = refused(line).values()
    assert "write" not in message


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("partition: gpu", "queue: gpu"),
        ("modules: [cuda, gcc/12]", 'setup: ["module load cuda", "module load gcc/12"]'),
        ("conda: torch", 'setup: ["conda activate torch"]'),
        ("time: 30", "walltime: 30m"),
        ("time: 1-12:30", "walltime: 1d12h30m"),
        ("time: '02:30'", "walltime: 2m30s"),
        ("ntasks: 8", "ranks: 8"),
        ("ntasks-per-node: 4", "ranks_per_node: 4"),
        ("nproc_per_node: gpu", "ranks_per_node"),
        ("gres: gpu:a100:4", "ranks_per_node: 4 and devices_per_rank: 1; that is one rank for each; "),
        ("gres: gpu:a100:4", "gpu_type: a100"),
        ("gres: lustre:1", 'directives: {slurm: {gres: "lustre:1"}}'),
        ("gpus_per_node: 4", "ranks_per_node: 4 and devices_per_rank: 1"),
        ("gpus_per_node: 0", "devices_per_rank: 0"),
        ("gpus: 8", "ranks: 8 and devices_per_rank: 1"),
        ("gpus_per_task: 2", "devices_per_rank: 2"),
        ("cpus_per_task: 8", "cores_per_rank: 8"),
        ("mem: 64GB", "memory: 64G"),
        ("mem: 64000", "memory: 64000M"),
        ("mem_per_cpu: 2G", "directives: {slurm: {mem-per-cpu: 2G}}"),
        ("nodelist: n[1-3]", 'directives: {slurm: {nodelist: "n[1-3]"}}'),
        ("dependency: 'afterok:1:2,afterany:3'", "after: {afterok: [1, 2], afterany: [3]}"),
        ("mail_user: me@example.org", "mail: {to: me@example.org}"),
        ("select: 2:ncpus=8:mpiprocs=4", "nodes: 2 and ranks_per_node: 4"),
        ("nnodes: '1:4'", "nodes"),
        ("max_nodes: 4", "nodes: 4"),
        ("j: 2x4", "nodes: 2 and ranks_per_node: 4"),
        ("script: train.py", "command: [python, train.py]"),
        ("signal: B:USR1@120", "grace: 120s"),
        ("cluster: aurora", "--site aurora"),
        ("filesystems: home:flare", 'directives: {pbs: {filesystems: "home:flare"}}'),
        ("array: {count: 2, max_parallel: 2}", "write at_most: 2"),
        ("parition: gpu", "write queue: gpu"),
        ("ranksPerNode: 2", "did you mean ranks_per_node?"),
    ],
)
def test_in_a_job_file(line: str, instead: str) -> None:
    (message,) = refused(line).values()
    assert message.startswith("is no field") and instead in message


@pytest.mark.parametrize(
    ("line", "field"), [("gnus: 1", "gnus"), ("optoins_of_mine: x", "optoins_of_mine"), ("con: x", "con")]
)
def test_where_nothing_is_near_nothing_is_guessed(line: str, field: str) -> None:
    assert refused(line)[field].startswith("is no field; there are: command, name")


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("command: python train.py --name 'a b'", 'command: [python, train.py, --name, "a b"]'),
        ("setup: module load cuda", 'setup: ["module load cuda"]'),
        ("env_from: A, B", "env_from: [A, B]"),
        ("start: {args: --label -v}", "start: {args: [--label, -v]}"),
    ],
)
def test_a_text_where_a_list_belongs(line: str, instead: str) -> None:
    (message,) = refused(line).values()
    assert message.endswith(f"; write {instead}")
    assert JobSpec.of({"command": ["x"], **Document.parse(instead, "job.yaml").data})


def test_a_text_that_no_shell_could_split() -> None:
    assert refused("command: it's")["command"] == 'is "it\'s", but takes a list of texts'


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("partition: gpu", "write defaults: {queue: gpu}"),
        ("account: me", "write defaults: {account: me}"),
        ("time: 30", "write defaults: {walltime: 30m}"),
        ("modules: [cuda]", 'write setup: ["module load cuda"]'),
        ("gres: gpu:a100:4", "write gpu_request: gres and gpu_type: a100"),
        ("max_nodes: 8", "write queues: {NAME: {ranges: [{max_nodes: 8}]}}"),
        ("queues: {gpu: {max_nodes: 8, source: s, date: 2026-01-01}}", "write ranges: [{max_nodes: 8}]"),
        ("node: {gpus: 4, source: s, date: 2026-01-01}", "write devices: [4]"),
        ("schedular: pbs", "did you mean scheduler?"),
    ],
)
def test_in_a_profile(line: str, instead: str) -> None:
    document = Document.parse(line, "site.yaml")
    document.data |= {"name": "s", "description": "d", "scheduler": "slurm", "starter": "srun"}
    problems: list[Any] = []
    convert(document, Site, problems)
    (problem,) = problems
    assert instead in problem.message


SAMPLES = {
    **dict.fromkeys(("dependency", "dependencies", "depends", "depends_on"), "afterok:1"),
    **dict.fromkeys(("mem_gb", "memory_gb", "ram_gb", "timeout_min"), 4),
    **dict.fromkeys(("launcher", "starter", "mpi", "mpirun", "mpiexec"), "pals"),
    **{word: {"A": "b"} for word in ("slurm", "sbatch", "pbs", "qsub", "environment", "environ", "envs")},
    **{word: {"A": "b"} for word in ("env_vars", "environment_variables")},
    **dict.fromkeys(("secrets", "secret", "env_secrets"), "KEY"),
    **dict.fromkeys(("export", "inherit_env"), "HOME"),
    **{"select": "2:ncpus=4:mpiprocs=2:mem=4gb", "signal": "USR1@60", "j": "2x4", "torchrun": True},
    **dict.fromkeys(("mem", "memory_per_node", "ram", "mem_per_node"), "4GB"),
    **dict.fromkeys(("wall_time", "wallclock", "max_time", "max_walltime", "duration", "timeout"), "4h"),
    "max_runtime": "4h",
}


NEEDED_TOO: dict[str, dict[str, Any]] = {"mail": {"to": "me"}, "array": {"count": 1}}


@pytest.mark.parametrize("sample", ["4", 4])
def test_every_example_would_be_taken(sample: Any) -> None:
    for word in OF_JOBS.table:
        found = OF_JOBS.find(word, SAMPLES.get(word, sample))
        assert found is not None and (found.fields or found.note), word
        fields: dict[str, Any] = {"command": ["x"]}
        for path, held in found.fields:
            outer, *inner = path.split(".")
            value = held
            for name in reversed(inner):
                value = {name: value}
            fields[outer] = {**NEEDED_TOO.get(outer, {}), **value} if inner else value
        assert JobSpec.of(fields), word


@pytest.mark.parametrize(
    "value", [None, True, [], ["a", 1], {}, {"a": "b"}, "", "a 'b", 1.5, "x" * 999, "\x1b[2J"]
)
def test_a_value_that_is_none_of_theirs_is_no_error(value: Any) -> None:
    for kind, words in OF.items():
        for word in words.table:
            hint = words.hint(word, value)
            assert hint and hint.isprintable(), (kind, word)


def test_words_of_others_are_not_our_own() -> None:
    own: list[type[msgspec.Struct]] = [JobSpec, Site, Node, Queue, Stage]
    kinds = {kind.__name__: kind for kind in own}
    for field in msgspec.structs.fields(JobSpec):
        kind = type(field.default)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kinds[kind.__name__] = kind
    for name, kind in kinds.items():
        if name in OF:
            assert not {*fields_of(kind)} & {*OF[name].table}, name
    assert not {*VERBS} & {*_VERBS}
    assert {verb for verbs in VERBS.values() for verb in verbs.split()} <= {*_VERBS}
    assert {*OPTION_LETTERS.values()} <= {*fields_of(JobSpec)}


def test_a_profile_sends_every_field_of_a_job_to_its_defaults() -> None:
    for name in {*fields_of(JobSpec)} - {*fields_of(Site)} - {"memory"}:
        found = OF["Site"].find(name, "x")
        assert found is not None and found.fields == [(f"defaults.{name}", "x")], name


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("ls", "; there is castoff list (list your runs)"),
        ("ps", "; there is castoff list (list your runs)"),
        ("kill", "; there is castoff cancel (end runs)"),
        ("run", "; there is castoff launch (start ranks here and now) and castoff submit (submit a job)"),
        ("dry-run", "; there is castoff render (print the script that a scheduler gets)"),
        ("sumbit", "; did you mean submit?"),
        ("frobnicate", ""),
    ],
)
def test_verbs(verb: str, instead: str) -> None:
    assert instead_of_verb(verb, _VERBS) == instead


@pytest.mark.parametrize(
    ("verb", "line", "said"),
    [
        (render, "--partition gpu", "there is no option --partition; write --queue gpu"),
        (render, "--partition=gpu", "there is no option --partition; write --queue gpu"),
        (submit, "-p gpu", "there is no option -p; write --queue gpu"),
        (submit, "-N4", "there is no option -N; write --nodes 4"),
        (render, "--mem 4GB", "there is no option --mem; write --memory 4G"),
        (
            render,
            "--dependency afterok:1",
            "there is no option --dependency; write --set 'after={afterok: [1]}'",
        ),
        (render, "--array 0-7%2", "write --set 'array={count: 8, at_most: 2}'; members count"),
        (render, "-t 60", "there is no option -t; write --walltime 60m; a number alone is"),
        (render, "--array x", "write --set array.count=…"),
        (render, "--env A=1", "there is no option --env; write --set env.A=1"),
        (render, "--exclusive", "there is no option --exclusive; write --set exclusive=true"),
        (render, "--command x", "the program stands after --"),
        (render, "--nodez 3", "no such option '--nodez'; did you mean --nodes?"),
        (render, "--bogus", "no such option '--bogus'"),
        (launch, "-np 4", "there is no option -np; write -n 4"),
        (logs, "--partition x", "no such option '--partition'"),
    ],
)
def test_options(verb: Any, line: str, said: str) -> None:
    words = line.split()
    error = CliRunner().invoke(verb.command, words, standalone_mode=False).exception
    message = instead_of_option(error, verb.command, words)  # type: ignore[arg-type]
    assert message is not None
    assert said in message and ("did you mean" in said or "did you mean" not in message)
    for written in message.split("--set ")[1:]:
        assignment = written.partition(" and ")[0].partition(";")[0].strip("'")
        JobSpec.of({"command": ["x"], "array": {"count": 1}}, overrides=[assignment.replace("…", "1")])


def test_an_executor_shows_pythons_words(tmp_path: Path) -> None:
    from launcher import executor

    runs = executor({}, "slurm", tmp_path)
    for word, value, said in (
        ("slurm_partition", "gpu", 'queue="gpu"'),
        ("slurm_array_parallelism", 4, 'array={"at_most": 4}'),
        ("slurm_srun_args", ["--label"], 'start={"args": ["--label"]}'),
        ("gpus_per_node", 2, "ranks_per_node=2 and devices_per_rank=1"),
    ):
        with pytest.raises(InvalidInput) as caught:
            runs.update_parameters(**{word: value})
        assert f"{word}: is no field of a job; here: write {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#SBATCH -N 2", "is a script for sbatch"),
        ("#PBS -q a", "is a script for qsub"),
        ("true", "-- bash my.sh"),
    ],
)
def test_a_batch_script_is_no_job_file(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.sh").write_text(f"#!/bin/sh\n{text}\n")
    error = CliRunner().invoke(render.command, ["my.sh"], standalone_mode=False).exception
    assert said in str(error)
