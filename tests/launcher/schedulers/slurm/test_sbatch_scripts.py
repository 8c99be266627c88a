"""sbatch's directives as sbatch(1) reads them, in the fields of a job file."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.schedulers.slurm.sbatch_directives import minutes
from castoff.launcher.schedulers.slurm.sbatch_scripts import READER, read


def asked(*lines: str) -> Asked:
    found = Asked()
    for line in lines:
        read(line, found)
    return found


FIELDS: dict[str, dict[str, Any]] = {
    "--job-name=a -p gpu": {"name": "a", "queue": "gpu"},
    "-Aabc -Jname -q debug": {"account": "abc", "name": "name", "qos": "debug"},
    "--part gpu --accou=x": {"queue": "gpu", "account": "x"},  # beginnings will do
    '--constraint="a100&ib" # why': {"constraint": "a100&ib"},
    "--mem=64G": {"memory": "64G"},
    "--mem 65536": {"memory": "64G"},
    "--mem=100GB": {"memory": "100G"},
    "--mem=1500": {"memory": "1500M"},
    "--exclusive": {"exclusive": True},
    "--array=1-9:2%3": {"array": {"indices": "1-9:2", "max_concurrent": 3}},
    "-d afterok:1:2,afterany:3": {"after": {"afterok": ["1", "2"], "afterany": ["3"]}},
    "--export=ALL": {"inherit": "all"},
    "--export=NONE": {"inherit": "none"},
    "--export=HOME,LANG": {"inherit": ["HOME", "LANG"]},
    "--signal=B:TERM@90": {"signal": "TERM@90"},
    "--requeue": {"requeue": {"max": 5, "on": ["preempted", "node-failure"], "progress": "none"}},
    "-D /scratch/x": {"workdir": "/scratch/x"},
    "-x n[1-3]": {"exclude": "n[1-3]"},
}


@pytest.mark.parametrize("line", FIELDS)
def test_fields(line: str) -> None:
    found = asked(line)
    assert found.fields == FIELDS[line]
    assert not [one for one in found.remarks if one.fate != "note"]


NUMBERS: dict[str, dict[str, int]] = {
    "-N 2 -n8 -c4": {"nodes": 2, "ranks": 8, "cpus_per_rank": 4},
    "-N2": {"nodes": 2},
    "--nodes=2-4": {"nodes": 4},
    "--tasks-per-node 3": {"ranks_per_node": 3},
    "--gres=gpu:a100:4": {"node_devices": 4},
    "--gres=gpu:2": {"node_devices": 2},
    "--gres=gpu:a100": {"node_devices": 1},
    "--gres=gpu": {"node_devices": 1},
    "-G 8": {"devices": 8},
    "--gpus-per-node=v100:4": {"node_devices": 4},
    "--gpus-per-task=1 --cpus-per-gpu=8": {"rank_devices": 1, "device_cpus": 8},
}


@pytest.mark.parametrize("line", NUMBERS)
def test_numbers(line: str) -> None:
    found = asked(line)
    assert {name: getattr(found, name) for name in NUMBERS[line]} == NUMBERS[line]


@pytest.mark.parametrize("line", ["--gres=gpu:a100:4", "--gpus-per-node=a100:4", "--gres=gpu:a100"])
def test_a_type_of_gpu(line: str) -> None:
    found = asked(line)
    assert found.fields == {"device_type": "a100"}
    assert found.raw == dict([line.removeprefix("--").split("=")])
    assert asked("--gres=gpu:4").fields == {}


@pytest.mark.parametrize("line", ["--gres=gpu:a100:2,gpu:v100:2", "--gres=gpu:a:1,gpu:1"])
def test_gpus_of_several_kinds(line: str) -> None:
    assert "several kinds" in asked(line).unclear


TIMES = {"15": 900, "15:30": 930, "1:02:03": 3723, "2-0": 172800, "1-02:30": 95400, "1-02:03:04": 93784}


@pytest.mark.parametrize("text", TIMES)
def test_times(text: str) -> None:
    assert minutes(text) == TIMES[text]


RAW: dict[str, dict[str, object]] = {
    "--hint=nomultithread": {"hint": "nomultithread"},
    "-w node1": {"nodelist": "node1"},
    "--mem=0": {"mem": "0"},
    "--mem-per-cpu=4G": {"mem-per-cpu": "4G"},
    "--exclusive=user": {"exclusive": "user"},
    "--gres=tmpfs:10G,gpu:1": {"gres": "tmpfs:10G"},
    "--contiguous": {"contiguous": True},
    "--of-a-plugin=x": {"of-a-plugin": "x"},
}


@pytest.mark.parametrize("line", RAW)
def test_directives_without_a_field(line: str) -> None:
    found = asked(line)
    assert found.directives == RAW[line]
    assert found.raw.keys() >= RAW[line].keys()


def test_sizes_and_output_are_kept_as_they_are_written() -> None:
    words = [
        "nodes=2-4",
        "ntasks=8",
        "gres=gpu:a100:4,tmp:1",
        "mem=100GB",
        "exclusive",
        "output=x.%j",
        "signal=USR1@60",
    ]
    found = asked(*(f"--{word}" for word in words))
    assert found.raw == {word.partition("=")[0]: word.partition("=")[2] or True for word in words}
    assert not [one for one in found.remarks if one.fate != "note"]


NOT_EXPRESSED = {
    "hetjob": "heterogeneous",
    "--ntask-per-node=4": "ntasks-per-node",
    "--nodes=$N": "sbatch replaces no variable",
    "--time=soon": "not a duration",
    "--mem=1.5G": "not a whole number",
    "--partition=": "has no value",
    "--ntasks=many": "not a number",
    "--clusters=a": "castoff could not ask",
    "--dependency=singleton": "afterok",
    "--array=a": "not indices",
    "-J a b": "is not an option",
    "--container-image=x": "would run in the container",
    "--signal=B:10@300": "castoff sends USR1",
}


@pytest.mark.parametrize("line", NOT_EXPRESSED)
def test_what_no_job_file_says_is_said(line: str) -> None:
    refused = [one.text for one in asked(line).remarks if one.fate == "not expressed"]
    assert len(refused) == 1 and NOT_EXPRESSED[line] in refused[0]


@pytest.mark.parametrize("line", ["--no-requeue", "--parsable"])
def test_what_castoff_does_is_dropped(line: str) -> None:
    found = asked(line)
    assert [one.fate for one in found.remarks] == ["dropped"]
    assert found.fields == found.directives == {}


def finished(*lines: str) -> Asked:
    found = asked(*lines)
    READER.finish(found)
    return found


def test_without_export_the_environment_is_handed_on() -> None:
    assert finished("-N 1").fields == {"inherit": "all"}
    found = finished("--export=NONE")
    assert (found.fields, found.raw) == ({}, {"export": "NONE"})
    found = finished("--export=ALL,A=1")
    assert (found.fields, found.env, found.raw) == ({"inherit": "all"}, {"A": "1"}, {"export": "ALL,A=1"})


@pytest.mark.parametrize(
    ("lines", "fields", "raw"),
    [
        ("--mail-type=ALL --mail-user a@b.c", {"on": ["begin", "end", "fail"], "to": "a@b.c"}, {}),
        ("--mail-type=end --mail-type=FAIL", {}, {"mail-type": "END,FAIL"}),
        ("--mail-type=END,TIME_LIMIT --mail-user=a", {}, {"mail-type": "END,TIME_LIMIT", "mail-user": "a"}),
        ("--mail-type=NONE", {}, {}),
        ("--mail-user=a", {}, {}),
    ],
)
def test_mail(lines: str, fields: dict[str, Any], raw: dict[str, str]) -> None:
    found = finished(lines)
    assert {name: found.fields.get(f"mail.{name}") for name in fields} == fields
    assert found.raw == raw


@pytest.mark.parametrize(
    ("line", "nodes", "chooses"),
    [
        ("-n 8", 1, True),
        ("-n 8 --ntasks-per-node=4", 2, True),
        ("-N 2-4", 4, True),
        ("-G 4", 1, True),
        ("-n 1", 1, False),
        ("-c 4", 1, False),
        ("--ntasks-per-node=4", 1, False),
        ("-N 3 -n 6", 3, False),
    ],
)
def test_the_number_of_nodes(line: str, nodes: int, chooses: bool) -> None:
    found = finished(line)
    assert (found.nodes, "number of nodes to Slurm" in found.unclear) == (nodes, chooses)


def test_what_is_known_of_variables() -> None:
    known = READER.variables(finished("-N 2 --ntasks-per-node=4 -c 8"))
    assert (known["SLURM_NNODES"], known["SLURM_NTASKS_PER_NODE"]) == ("2", "4")
    assert known["SLURM_NTASKS"] == "8"
    assert READER.variables(finished("-N 2"))["SLURM_NTASKS"] is None
