"""qsub's directives as qsub(1B) of PBS and of Torque read them, in the fields of a job file."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.launchers.foreign.asked import Asked
from launcher.schedulers.pbs.reading import READER, read, seconds


def asked(*lines: str) -> Asked:
    found = Asked()
    for line in lines:
        read(line, found)
    return found


FIELDS: dict[str, dict[str, Any]] = {
    "-N name -A abc": {"name": "name", "account": "abc"},
    "-Nname -q debug # why": {"name": "name", "queue": "debug"},
    "-l walltime=1:00:00": {"walltime": "01:00:00"},
    "-l walltime=90,mem=16gb": {"walltime": "00:01:30", "memory": "16G"},
    "-l select=2:mem=100GB:model=mil_a100:ngpus=4": {"memory": "100G", "select": {"model": "mil_a100"}},
    "-V": {"inherit": "all"},
    "-v A,B=1": {"inherit": ["A"]},
    "-W depend=afterok:1:2,afterany:3": {"after": {"afterok": ["1", "2"], "afterany": ["3"]}},
    "-m abe -M a@b.c": {"mail.on": ["begin", "end", "fail"], "mail.to": "a@b.c"},
    "-J 0-9": {"array": {"indices": "0-9"}},
    "-t 1-4%2": {"array": {"indices": "1-4", "max_concurrent": 2}},
    "-r y": {"requeue.max": 1},
}


@pytest.mark.parametrize("line", FIELDS)
def test_fields(line: str) -> None:
    found = asked(line)
    assert found.fields == FIELDS[line]
    assert not [one for one in found.remarks if one.fate != "note"]


NUMBERS: dict[str, dict[str, int]] = {
    "-l select=2:ncpus=64:mpiprocs=4:ngpus=4": {
        "nodes": 2,
        "node_cpus": 64,
        "ranks_per_node": 4,
        "node_devices": 4,
    },
    "-l select=ncpus=8": {"nodes": 1, "node_cpus": 8},
    "-l nodes=2:ppn=4:gpus=1": {"nodes": 2, "ranks_per_node": 4, "node_cpus": 4, "node_devices": 1},
    "-l ncpus=16": {"nodes": 1, "node_cpus": 16},
}


@pytest.mark.parametrize("line", NUMBERS)
def test_numbers(line: str) -> None:
    found = asked(line)
    assert {name: getattr(found, name) for name in NUMBERS[line]} == NUMBERS[line]


@pytest.mark.parametrize(
    ("line", "memory"),
    [
        ("-l nodes=2:ppn=8,mem=64gb", "32G"),
        ("-l mem=64gb,nodes=3", "22369622K"),
        ("-l mem=1gb,nodes=4", "256M"),
        ("-l nodes=1,mem=3gb", "3G"),
        ("-l select=2:mem=8gb", "8G"),
    ],
)
def test_memory_beside_nodes_is_that_of_all(line: str, memory: str) -> None:
    found = asked(line)
    READER.finish(found)
    assert found.fields["memory"] == memory


RAW = {
    "-l place=scatter:excl": {"place": "scatter:excl"},
    "-l filesystems=home:flare,walltime=10": {"filesystems": "home:flare"},
    "-k doe -p 100": {"k": "doe", "p": "100"},
    "-P project": {"P": "project"},
    "-h": {"h": True},
}


@pytest.mark.parametrize("line", RAW)
def test_directives_without_a_field(line: str) -> None:
    assert asked(line).directives == RAW[line]


NOT_EXPRESSED = {
    "-l nodes=host1+host2": "names hosts",
    "-l nodes=2:ppn=4:fat": "'fat'",
    "-l walltime=soon": "no duration",
    "-l mem=all": "mem is all",
    "-I": "castoff launch",
    "-M a@b.c,d@e.f": "one address",
    "-W depend=on:1": "after",
    "name": "no option",
    "-N": "has no value",
}


@pytest.mark.parametrize("line", NOT_EXPRESSED)
def test_what_no_job_file_says_is_said(line: str) -> None:
    refused = [one.text for one in asked(line).remarks if one.fate == "not expressed"]
    assert refused and NOT_EXPRESSED[line] in refused[0]


@pytest.mark.parametrize("line", ["-j oe", "-o x", "-e x", "-r n", "-S /bin/bash", "-m n", "-z"])
def test_what_castoff_does_is_dropped(line: str) -> None:
    found = asked(line)
    assert [one.fate for one in found.remarks] == ["dropped"]
    assert found.fields == found.directives == {}


def test_chunks_of_several_kinds() -> None:
    found = asked("-l select=1:ncpus=8:mpiprocs=2:mem=8gb+2:ncpus=4:ngpus=1:model=a")
    assert found.fields == {
        "select": [
            {"nodes": 1, "ranks_per_node": 2, "cores_per_rank": 4, "memory": "8G"},
            {"nodes": 2, "ranks_per_node": 1, "cores_per_rank": 4, "devices_per_node": 1, "model": "a"},
        ]
    }
    assert READER.output_of("wc -l < $PBS_NODEFILE", found) == "4"
    assert READER.output_of("sort -u $PBS_NODEFILE | wc -l", found) == "3"


@pytest.mark.parametrize(
    "line", ["select=node01:ppn=3", "select=0:ncpus=1", "select=1+1:mem=4xb", "select=1:"]
)
def test_chunks_that_qsub_or_castoff_cannot_take(line: str) -> None:
    assert [one.fate for one in asked(f"-l {line}").remarks] == ["not expressed"]


def test_attributes() -> None:
    found = asked("-W depend=afterok:1.x:2.x,afterany:3.x,group_list=lab,block=true,umask=027")
    assert found.fields == {"after": {"afterok": ["1.x", "2.x"], "afterany": ["3.x"]}}
    assert found.directives == {"W": "group_list=lab,umask=027"}
    assert [one.text for one in found.remarks] == ["-W block: castoff wait does that"]
    assert [one.fate for one in asked("-W umask").remarks] == ["not expressed"]


def test_variables_are_env() -> None:
    assert asked("-v A=1,B=x").env == {"A": "1", "B": "x"}


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("2:30", 150), ("1:00:00", 3600), ("1:0:0:0", 86400)]
)
def test_durations(text: str, expected: int) -> None:
    assert seconds(text) == expected


def test_the_node_file_holds_a_host_for_each_rank() -> None:
    several = asked("-l select=2:mpiprocs=4")
    assert READER.output_of("wc -l < $PBS_NODEFILE", several) == "8"
    assert READER.output_of("uniq $PBS_NODEFILE | wc -l", several) == "2"
    assert READER.output_of("cat $PBS_NODEFILE | wc -l", asked("-l select=2")) == "2"
    assert READER.output_of("wc -l < other", several) is None


def test_cpus_that_may_be_of_all_nodes() -> None:
    found = asked("-l ncpus=96")
    assert (found.nodes, found.node_cpus) == (1, 96)
    assert [one.fate for one in found.remarks] == ["note"]
