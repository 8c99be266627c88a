"""qsub's directives as qsub(1B) of PBS and of Torque read them, in the fields of a job file."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.schedulers.pbs.qsub_directives import seconds
from castoff.launcher.schedulers.pbs.qsub_scripts import READER, read


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
    "-l select=2:mem=100GB:ngpus=4": {"memory": "100G"},
    "-V": {"inherit": "all"},
    "-v A,B=1": {"inherit": ["A"]},
    "-W depend=afterok:1:2,afterany:3": {"after": {"afterok": ["1", "2"], "afterany": ["3"]}},
    "-J 0-9": {"array": {"indices": "0-9"}},
    "-t 1-4%2": {"array": {"indices": "1-4", "max_concurrent": 2}},
    "-r y": {"requeue": {"max": 5, "on": ["preempted", "node-failure"], "progress": "none"}},
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
    "-l ncpus=16": {"node_cpus": 16},
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
    "-l place=scatter": {"place": "scatter"},
    "-l filesystems=home:flare,walltime=10": {"filesystems": "home:flare"},
    "-c n -S /bin/sh": {"c": "n", "S": "/bin/sh"},
    "-P project": {"P": "project"},
    "-h": {"h": True},
}


@pytest.mark.parametrize("line", RAW)
def test_directives_without_a_field(line: str) -> None:
    assert asked(line).directives == asked(line).raw == RAW[line]


AS_WRITTEN = {
    "-l select=2:ncpus=4:gpu_model=a100+1:ncpus=2": {"select": "2:ncpus=4:gpu_model=a100+1:ncpus=2"},
    "-l nodes=2:ppn=4,mem=8gb": {"nodes": "2:ppn=4", "mem": "8gb"},
    "-l nodes=host1:ppn=4:fat+host2": {"nodes": "host1:ppn=4:fat+host2"},
    "-o x -e y -j oe -k oed": {"o": "x", "e": "y", "j": "oe", "k": "oed"},
}


@pytest.mark.parametrize("line", AS_WRITTEN)
def test_sizes_and_output_are_kept_as_they_are_written(line: str) -> None:
    found = asked(line)
    assert found.raw == AS_WRITTEN[line]
    assert found.directives == {} and found.remarks == []


def test_whole_nodes() -> None:
    assert asked("-l place=scatter:excl").fields == {"exclusive": True}


@pytest.mark.parametrize(
    ("line", "fields", "raw"),
    [
        ("-m abe -M a@b.c", {"mail.to": "a@b.c", "mail.on": ["fail", "begin", "end"]}, {}),
        ("-M a@b.c", {"mail.to": "a@b.c", "mail.on": ["fail"]}, {}),
        ("-m n", {}, {"m": "n"}),
        ("-m a -M a@b.c,d@e.f", {}, {"m": "a", "M": "a@b.c,d@e.f"}),
    ],
)
def test_mail(line: str, fields: dict[str, Any], raw: dict[str, str]) -> None:
    found = asked(line)
    READER.finish(found)
    assert (found.fields, found.raw) == (fields, raw)


NOT_EXPRESSED = {
    "-l walltime=soon": "not a duration",
    "-l mem=all": "mem is all",
    "-I": "castoff launch",
    "-W depend=on:1": "after",
    "name": "not an option",
    "-N": "has no value",
}


@pytest.mark.parametrize("line", NOT_EXPRESSED)
def test_what_no_job_file_says_is_said(line: str) -> None:
    refused = [one.text for one in asked(line).remarks if one.fate == "not expressed"]
    assert refused and NOT_EXPRESSED[line] in refused[0]


@pytest.mark.parametrize("line", ["-r n", "-z"])
def test_what_castoff_does_is_dropped(line: str) -> None:
    found = asked(line)
    assert [one.fate for one in found.remarks] == ["dropped"]
    assert found.fields == found.directives == {}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-l select=1:ncpus=8:mpiprocs=2:mem=8gb+2:ncpus=4", "several kinds"),
        ("-l nodes=1:ppn=2+2:ppn=4", "several kinds"),
        ("-l nodes=2:ppn=4:fat", "a property"),
        ("-l ncpus=4", "without select"),
    ],
)
def test_what_castoff_cannot_ask_for_by_fields(line: str, words: str) -> None:
    assert words in asked(line).unclear


def test_chunks_of_several_kinds_have_no_size_of_their_own() -> None:
    found = asked("-l select=1:ncpus=8:mpiprocs=2:mem=8gb+2:ncpus=4:model=a")
    assert (found.nodes, found.node_cpus, found.fields) == (3, None, {})
    assert asked("-l select=2:model=a").of_ranks == {"select": {"model": "a"}}


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
