"""sbatch's directives as sbatch(1) reads them, in the fields of a job file."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.launchers.foreign.asked import Asked
from launcher.schedulers.slurm.reading import READER, minutes, read


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
    "--signal=B:TERM@90": {"grace": "90s"},
    "--requeue": {"requeue.max": 1},
    "--mail-type=ALL --mail-user a@b.c": {"mail.on": ["begin", "end", "fail"], "mail.to": "a@b.c"},
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
    assert asked(line).fields == {"device_type": "a100"}
    assert asked("--gres=gpu:4").fields == {}


TIMES = {"15": 900, "15:30": 930, "1:02:03": 3723, "2-0": 172800, "1-02:30": 95400, "1-02:03:04": 93784}


@pytest.mark.parametrize("text", TIMES)
def test_times(text: str) -> None:
    assert minutes(text) == TIMES[text]


RAW = {
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
    assert asked(line).directives == RAW[line]


NOT_EXPRESSED = {
    "hetjob": "heterogeneous",
    "--ntask-per-node=4": "ntasks-per-node",
    "--nodes=$N": "sbatch replaces no variable",
    "--time=soon": "no duration",
    "--mem=1.5G": "no whole number",
    "--partition=": "has no value",
    "--ntasks=many": "not a number",
    "--clusters=a": "castoff could not ask",
    "--dependency=singleton": "afterok",
    "--array=a": "no indices",
    "--mail-type=TIME_LIMIT": "mail.on",
    "-J a b": "is no option",
    "--container-image=x": "container.image",
}


@pytest.mark.parametrize("line", NOT_EXPRESSED)
def test_what_no_job_file_says_is_said(line: str) -> None:
    refused = [one.text for one in asked(line).remarks if one.fate == "not expressed"]
    assert len(refused) == 1 and NOT_EXPRESSED[line] in refused[0]


@pytest.mark.parametrize("line", ["-o x.%j", "--error=x", "--open-mode=append", "--no-requeue", "--parsable"])
def test_what_castoff_does_is_dropped(line: str) -> None:
    found = asked(line)
    assert [one.fate for one in found.remarks] == ["dropped"]
    assert found.fields == found.directives == {}


def test_without_export_the_environment_is_handed_on() -> None:
    found = asked("-N 1")
    READER.finish(found)
    assert found.fields == {"inherit": "all"}
    found = asked("--export=NONE")
    READER.finish(found)
    assert found.fields == {}


def test_mail_without_an_address_stays_a_directive() -> None:
    found = asked("--mail-type=end", "--mail-type=FAIL")
    READER.finish(found)
    assert found.directives == {"mail-type": "END,FAIL"}
    assert "mail.on" not in found.fields


def test_what_is_known_of_variables() -> None:
    known = READER.variables(asked("-N 2 --ntasks-per-node=4 -c 8 --gres=gpu:4"))
    assert (known["SLURM_NNODES"], known["SLURM_NTASKS"], known["SLURM_GPUS_ON_NODE"]) == ("2", "8", "4")
    assert READER.output_of("scontrol show hostnames $SLURM_JOB_NODELIST | wc -l", asked("-N 3")) == "3"
    assert READER.output_of("date", asked("-N 3")) is None
