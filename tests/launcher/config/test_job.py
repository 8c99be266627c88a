"""Job files: what they take, what they refuse, and that they refuse it all at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Snapshot
from castoff.launcher.config.program_name import program_name
from castoff.launcher.errors import CastoffError, InvalidInput
from tests.launcher.fields_of_jobs import type_of


def job(**fields: Any) -> JobSpec:
    return JobSpec.of({"command": ["train.py"], **fields})


def problems_of(*overrides: str, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        JobSpec.of({"command": ["train.py"], **fields}, overrides=overrides)
    return {problem.path: problem.message for problem in caught.value.problems}


def load(tmp_path: Path, text: str, **more: Any) -> JobSpec:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return JobSpec.load(path, **more)


FULL = """\
name: causets
nodes: 2
ranks_per_node: 12
cores_per_rank: 8
devices_per_rank: 1
device_type: a100
memory: 64G
walltime: 1:30:00
account: no
queue: debug
qos: 007
constraint: gpu&hbm80g
reservation: r
select: {model: mil_ait, wd: true, gpu_mem: null}
exclude: n[1-3]
exclusive: true
mail: {to: me@example.org, on: [begin, fail]}
command: [python, train.py, --lr, 1e-3, --seed, 010, --amp, no, --resume, true, '']
setup:
  - module load frameworks
  - |
    if true; then
      echo ok
    fi
teardown: [cp -r out here]
env: {OMP_NUM_THREADS: 1, my_opts: "a b; echo", LR: 1e-3, EMPTY: ""}
env_from: [WANDB_API_KEY]
inherit: [HOME]
workdir: /w
binding: 4-7:8,10-11
snapshot: {paths: [src, 007], link: [data], limit: 1G}
python: /opt/bin/python
shell: /bin/bash -l
directives: {comment: null, hold: true, x: false, n: 5, pbs: {filesystems: "home:flare"}, slurm: null}
options: [proxy]
launcher: {name: pals, torchrun: false, driver: false, args: [--label]}
container: {runtime: apptainer, image: /a.sif, binds: [/a, "/b:/c:ro"], env: {N: 1}, gpus: none, args: [-x]}
stage:
  - {from: env.tar.gz, activate: true}
  - {from: /a, to: b, unpack: false, sha256: 0000000000000000000000000000000000000000000000000000000000000001}
array: {count: 8, max_concurrent: 4}
after: {afterok: [preprocess, 123], afterany: ["7[].host"]}
notify: {to: [phone, me@example.org], on: [end, fail]}
requeue: {max: 3}
signal: USR1@5m
restart: {max: 3, hang: 15m, never: [2, 77], progress: ckpt}
preflight: ["test -d /scratch"]
grace: 5m
templates: mine
"""


class TestReading:
    def test_every_field(self, tmp_path: Path) -> None:
        spec = load(tmp_path, FULL)
        assert spec.account == "no"
        assert spec.qos == "007"
        assert spec.walltime == "1:30:00"
        assert spec.command[2:] == ["--lr", "1e-3", "--seed", "010", "--amp", "no", "--resume", "true", ""]
        # Names keep their case, values their spelling (NeMo-Run 234).
        assert spec.env == {"OMP_NUM_THREADS": "1", "my_opts": "a b; echo", "LR": "1e-3", "EMPTY": ""}
        assert spec.select == {"model": "mil_ait", "wd": True, "gpu_mem": None}
        assert spec.directives == {
            "comment": None,
            "hold": True,
            "x": False,
            "n": "5",
            "pbs": {"filesystems": "home:flare"},
            "slurm": None,
        }
        assert (spec.container.gpus, spec.container.env) == ("none", {"N": "1"})
        assert [item.source for item in spec.stage] == ["env.tar.gz", "/a"]
        assert spec.stage[1].sha256 == f"{1:064}"
        assert spec.after == {"afterok": ["preprocess", "123"], "afterany": ["7[].host"]}
        assert spec.snapshot == Snapshot(paths=["src", "007"], link=["data"], limit="1G")
        assert spec.templates == str(tmp_path / "mine")
        unread = {field.name for field in msgspec.structs.fields(JobSpec)} - set(msgspec.to_builtins(spec))
        held = {name for name in unread if type_of(name) not in (int, str, bool)}
        assert held == set(), "this file should show every field of parts that goes with the others"

    def test_a_job_of_one_line(self, tmp_path: Path) -> None:
        assert load(tmp_path, "command: [train.py]") == JobSpec(command=["train.py"])

    def test_of_reads_back_a_spec(self, tmp_path: Path) -> None:
        spec = load(tmp_path, FULL)
        assert JobSpec.of(msgspec.to_builtins(spec)) == spec
        assert JobSpec.of(json.loads(msgspec.json.encode(spec))) == spec

    def test_of_leaves_what_it_is_given_alone(self) -> None:
        fields = {"command": ["x"], "env": {"A": "1"}, "setup": ["one"]}
        before = json.dumps(fields)
        assert JobSpec.of(fields, overrides=["env.A=2", "setup.0=two"]).env == {"A": "2"}
        assert json.dumps(fields) == before

    @pytest.mark.parametrize("text", ["- a", "train.py", "4"])
    def test_a_file_without_fields_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(
            InvalidInput, match=r"job\.yaml: is not a job: it holds no fields; `castoff init`"
        ):
            load(tmp_path, text)
        with pytest.raises(CastoffError, match="no such file"):
            JobSpec.load(tmp_path / "none.yaml")

    @pytest.mark.parametrize("text", ["", "# nothing\n", "null", "{}"])
    def test_an_empty_file_is_a_job_that_lacks_its_command(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(InvalidInput, match=r"job\.yaml: command: is missing: name the program"):
            load(tmp_path, text)
        assert load(tmp_path, text, flags={"command": ["x"]}).command == ["x"]

    def test_a_misspelt_command_is_not_missing_too(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput) as error:
            load(tmp_path, "comand: [x]")
        (problem,) = error.value.problems
        assert (problem.path, problem.message) == ("comand", "there is no such field; did you mean command?")


class TestPrecedence:
    TEXT = "command: [a]\nnodes: 1\nname: file\nenv: {A: file, B: file}\n"

    def test_set_over_flags_over_the_file(self, tmp_path: Path) -> None:
        spec = load(
            tmp_path,
            self.TEXT,
            flags={"nodes": 2, "name": "flag", "command": ["b", "-n", "4"]},
            overrides=["name=set", "env.A=set"],
        )
        assert spec == JobSpec(command=["b", "-n", "4"], nodes=2, name="set", env={"A": "set", "B": "file"})

    def test_the_last_set_wins(self, tmp_path: Path) -> None:
        assert load(tmp_path, self.TEXT, overrides=["nodes=3", "nodes=4"]).nodes == 4

    def test_null_takes_a_field_back(self, tmp_path: Path) -> None:
        spec = load(tmp_path, self.TEXT, overrides=["nodes=null", "name=", "env=null"])
        assert (spec.nodes, spec.name, spec.env) == (None, None, {})

    def test_without_a_file(self) -> None:
        spec = JobSpec.load(None, flags={"command": ["a"]}, overrides=["array.count=3"])
        assert spec.command == ["a"]
        assert spec.array is not None
        assert spec.array.count == 3
        assert JobSpec.load(None, overrides=["command=[a]"]).command == ["a"]

    def test_each_problem_names_where_it_was_set(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput) as caught:
            load(
                tmp_path,
                "command: [a]\nnodes: x\nqueue: [q]\n",
                flags={"ranks_per_node": 0, "name": "a\nb"},
                overrides=["grace=soon", "nodes", "array.count=x", "nope=1"],
            )
        assert {problem.path: problem.where for problem in caught.value.problems} == {
            "": "--set nodes",
            "nodes": f"{tmp_path}/job.yaml:2",
            "queue": f"{tmp_path}/job.yaml:3",
            "ranks_per_node": "--ranks-per-node",
            "name": "--name",
            "grace": "--set grace=soon",
            "array.count": "--set array.count=x",
            "nope": "--set nope=1",
        }

    def test_a_job_remembers_the_lines_of_its_fields(self, tmp_path: Path) -> None:
        spec = load(tmp_path, "templates: mine\n" + self.TEXT, overrides=["queue=q"])
        assert spec.source is not None
        assert spec.source.where(("env", "B")) == f"{tmp_path}/job.yaml:5"
        assert spec.source.where(("queue",)) == "--set queue=q"
        assert job().source is None
        assert "document" not in msgspec.to_builtins(spec)


# Each line is a mistake on its own; what it breaks, and words that its message must hold.
MISTAKES: dict[str, dict[str, str]] = {
    "nodes: four": {"nodes": "is 'four', but takes a whole number of at least 1"},
    "cores_per_rank: 0": {"cores_per_rank": "is 0, but takes a whole number of at least 1"},
    "devices_per_rank: -1": {"devices_per_rank": "is -1, but takes a whole number of at least 0"},
    "memory: 64": {"memory": "is 64, but takes a size with a unit"},
    "walltime: soon": {"walltime": "is 'soon', but takes a duration"},
    "walltme: 1h": {"walltme": "did you mean walltime?"},
    "frobnicate: 1": {"frobnicate": "there is no such field; there are: command, name"},
    "mail: {to: me, on: [ended], cc: you}": {
        "mail.on.0": "did you mean end?",
        "mail.cc": "there is no such field",
    },
    "name: ''": {"name": "is '', but takes one line of text, not empty"},
    "account: [a]": {"account": "is a list, but takes one line of text"},
    "exclusive: yes": {"exclusive": "is 'yes', but takes true or false"},
    "env: {A B: 1, OK: 1, C: [1]}": {"env.A B": "a variable's name", "env.C": "is a list, but takes text"},
    "env_from: [1A]": {"env_from.0": "is '1A', but takes a variable's name"},
    "inherit: al": {"inherit": "one of none, all or a list of variables' names"},
    "directives: {a b: x, c: [1], pbs: {x y: z}, slurm: [a]}": {
        **{"directives.a b": "a directive's name", "directives.c": "is a list"},
        **{"directives.pbs.x y": "a directive's name", "directives.slurm": "is a list"},
    },
    "launcher: {name: slurm, torchrun: 'on'}": {"launcher.name": "srun", "launcher.torchrun": "is 'on'"},
    "array: {max_concurrent: 2}": {"array.count": "is missing"},
    "after: {afterOK: [a]}": {"after.afterOK": "did you mean afterok?"},
    "requeue: {max: -1, min: 2}": {
        "requeue.max": "is -1",
        "requeue.min": "no such field; there are: max, how, on, progress",
    },
    "grace: 5": {"grace": "is 5, but takes a duration"},
    "signal: SIGKILL@60": {"signal": "but takes a signal (USR1, USR2, TERM, INT or HUP) and a time"},
    "setup: module load x": {"setup": "is 'module load x', but takes a list of shell lines"},
    "binding: 4-7;8": {"binding": "is '4-7;8', but takes a CPU list for each rank of a node, joined by :"},
    "python: bin/python": {"python": "must be absolute"},
    "ranks: 4": {"ranks": "excludes ranks_per_node"},
}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"requeue": {"max": 1, "on": []}}, "requeue.on: is empty: name endings, as in [stop, walltime]"),
        ({"requeue": {"on": ["stop"]}}, "requeue.on: has no effect without requeue.max"),
        (
            {"requeue": {"max": 1, "progress": "a"}, "restart": {"max": 1, "progress": "b"}},
            "requeue.progress: is 'a', but restart.progress is 'b'",
        ),
    ],
)
def test_what_contradicts_itself_about_requeues(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(words)):
        JobSpec.of({"command": ["x"], **fields})


@given(st.sets(st.sampled_from(sorted(MISTAKES))), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_any_set_of_mistakes_is_reported_completely(
    tmp_path_factory: pytest.TempPathFactory, chosen: set[str], random: Any
) -> None:
    lines = [*chosen, "command: [train.py]", "ranks_per_node: 2", "queue: debug"]
    random.shuffle(lines)
    path = tmp_path_factory.getbasetemp() / "mistakes.yaml"
    path.write_text("\n".join(lines) + "\n")
    expected = {field: (line, words) for line in chosen for field, words in MISTAKES[line].items()}
    problems = []
    try:
        JobSpec.load(path)
    except InvalidInput as error:
        problems = error.problems
    assert sorted(problem.path for problem in problems) == sorted(expected)
    found = {problem.path: problem for problem in problems}
    for field, (line, words) in expected.items():
        assert words in found[field].message
        assert found[field].where == f"{path}:{lines.index(line) + 1}"


class TestCombinations:
    def test_ranks_and_ranks_per_node(self) -> None:
        assert "--set ranks_per_node=null" in problems_of(ranks=4, ranks_per_node=2)["ranks"]
        assert job(ranks=4, ranks_per_node=None).ranks == 4

    def test_a_node_without_a_rank(self) -> None:
        message = problems_of(ranks=2, nodes=4)["ranks"]
        assert message == "is 2 for 4 nodes, and each node needs a rank: lower nodes to 2, or raise ranks"
        assert job(ranks=4, nodes=4).nodes == 4

    def test_a_secret_that_is_also_written_down(self) -> None:
        assert "env_from too" in problems_of(env={"KEY": "x"}, env_from=["KEY"])["env.KEY"]

    @pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "CASTOFF_DEVICE"])
    def test_a_job_cannot_set_the_variables_that_castoff_exports(self, name: str) -> None:
        assert "drop it" in problems_of(env={name: "0"})[f"env.{name}"]
        assert job(env={"RANKS": "0", "MY_RANK": "0"})

    def test_nor_is_what_shells_keep(self) -> None:
        """`export RANDOM='a[$(…)]'` runs a command, UID ends the script, IFS garbles what it reads."""
        for name in ("RANDOM", "OPTIND", "UID", "IFS", "SHELLOPTS", "PWD", "_"):
            assert "reserve: no program" in problems_of(env={name: "a[$(touch x)]"})[f"env.{name}"]
            assert "reserve: no program" in problems_of(env_from=["OK", name])["env_from.1"]
        assert "reserved for the script" in problems_of(env={"castoff_job": "x"})["env.castoff_job"]
        assert "set by castoff" in problems_of(env_from=["CASTOFF_RUN_DIR"])["env_from.0"]
        assert job(env={"BASH_ENV": "x", "castoffs": "1"}, env_from=["PS3"])

    def test_a_python_in_a_folder_with_a_colon_is_refused(self) -> None:
        assert "colon" in problems_of(python="/opt/a:b/python")["python"]
        assert job(python="/opt/ab/python:3")

    def test_nothing_to_run(self) -> None:
        assert "write ./ before it" in problems_of(command=["-x"])["command.0"]
        assert "command: [python, train.py]" in problems_of(command=[])["command"]
        assert "is empty" in problems_of(command=["", "x"])["command.0"]

    def test_nobody_to_wait_for_and_nothing_to_mail(self) -> None:
        assert "is empty" in problems_of(after={"afterok": []})["after.afterok"]
        assert "is empty" in problems_of(mail={"to": "me", "on": []})["mail.on"]


class TestText:
    """What could not stand in a script, or would stand there as something else."""

    @pytest.mark.parametrize("end", ["\n", "\r", "\x00"])
    @pytest.mark.parametrize("field", ["name", "account", "queue", "workdir", "constraint"])
    def test_one_line_is_one_line(self, field: str, end: str) -> None:
        # Python's `$` stands before a last line break too: a directive of two lines got through.
        for text in (f"a{end}", f"{end}a", f"a{end}b", end):
            assert "takes one line of text" in problems_of(**{field: text})[field]

    def test_nor_do_the_other_patterns_end_before_a_line_break(self) -> None:
        found = problems_of(
            env={"A\n": "x"}, env_from=["B\n"], directives={"c\n": "x"}, memory="4G\n", walltime="1h\n"
        )
        assert set(found) == {"env.A\\n", "env_from.0", "directives.c\\n", "memory", "walltime"}

    @pytest.mark.parametrize(
        ("field", "value", "path"),
        [
            ("name", "a\udcff", "name"),
            ("command", ["x", "--out=\udcff"], "command.1"),
            ("env", {"A": "\udcff"}, "env.A"),
            ("env", {"\udcff": "1"}, "env.\\udcff"),
            ("setup", ["\udcff"], "setup.0"),
            ("directives", {"comment": "\udcff"}, "directives.comment"),
            ("w\udcff", "x", "w\\udcff"),
        ],
    )
    def test_bytes_that_are_not_utf8_are_refused(self, field: str, value: object, path: str) -> None:
        found = problems_of(**{field: value})
        assert set(found) == {path}
        found[path].encode()

    def test_bytes_on_the_command_line(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            JobSpec.load(
                None, flags={"command": ["x", "\udcff"], "name": "\udcff"}, overrides=["queue=\udcff"]
            )
        assert {problem.path for problem in caught.value.problems} == {"", "command.1", "name"}
        str(caught.value).encode()

    def test_nul_ends_no_text_early(self) -> None:
        found = problems_of(command=["x", "a\x00b"], env={"A": "a\x00"}, setup=["\x00"])
        assert set(found) == {"command.1", "env.A", "setup.0"}
        (windows,) = problems_of(command=["x"], setup=["module load x\r"]).values()
        assert "without carriage returns" in windows

    def test_what_linux_hands_to_no_program(self) -> None:
        longest = 131_071
        assert job(command=["x", "é" * (longest // 2)], env={"A": "x" * (longest - 2)})
        found = problems_of(command=["x", "é" * (longest // 2 + 1)], env={"A": "x" * (longest - 1)})
        assert set(found) == {"command.1", "env.A"}
        assert found["env.A"].startswith("is 131,072 bytes long, but Linux passes at most 131,071 ")

    def test_texts_may_have_many_lines(self) -> None:
        assert job(env={"A": "a\nb\n"}, setup=["if x\nthen y; fi\n"], command=["sh", "-c", "a\nb\n"])


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-m", "castoff.trainers.gnn", "--config", "a.py"], "gnn"),
        (["python", "/data/my train.py", "-m", "x"], "my_train"),
        (["./bench.sh"], "bench.sh"),
        (["train.py"], "train"),
        (["/opt/7zip"], "job-7zip"),
        ([".."], "job"),
        (["..", "-m"], "job"),
        (["python", "-m", "x."], "job"),
        (["été"], "ete"),
        (["обучение"], "job"),
        (["", "x"], "x"),
        (["", ""], "job"),
        ([], "job"),
        (["x" * 500], "x" * 60),
        (["python", "-m", "a/b:c"], "a_b_c"),
    ],
)
def test_the_default_name_is_one_that_every_scheduler_takes(command: list[str], name: str) -> None:
    assert program_name(command) == name


@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_command_has_such_a_name(command: list[str]) -> None:
    # OpenPBS: a letter, then letters, digits and -_.+
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_.+-]{0,63}", program_name(command))
