"""Scripts whose members choose their values by the array's index: converted where they are plain."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.importing.imported import nested
from castoff.launcher.importing.script import read_script

HEAD = "#!/bin/bash\n#SBATCH -N 1\n#SBATCH --ntasks-per-node=2\n#SBATCH -t 10\n#SBATCH --array=0-2%2\n"
LIST = 'LRS=(1e-3 1e-4 "x")\n'
CASE = 'case "$SLURM_ARRAY_TASK_ID" in\n 0) LR=1e-3; SEED=0 ;;\n 1|2) LR=1e-4\n SEED="1" ;; # last\nesac\n'


def fields(body: str, head: str = HEAD) -> dict[str, Any]:
    result = read_script(head + body, "a.sh")
    assert result.kept == ""
    return nested(result.fields)


@pytest.mark.parametrize(
    ("body", "command", "parameters"),
    [
        (
            LIST + "LR=${LRS[$SLURM_ARRAY_TASK_ID]}\nsrun ./a --lr $LR --out=o/${LR}\n",
            ["./a", "--lr", "{LR}", "--out=o/{LR}"],
            {"LR": ["1e-3", "1e-4", "x"]},
        ),
        (
            LIST + "S=(\n 0\n 1 2 3)\n"
            'srun ./a "${LRS[SLURM_ARRAY_TASK_ID]}" -s${S[${SLURM_ARRAY_TASK_ID}]}\n',
            ["./a", "{LRS}", "-s{S}"],
            {"zip": {"LRS": ["1e-3", "1e-4", "x"], "S": ["0", "1", "2"]}},
        ),
        (
            CASE + "srun ./a $LR 'b c' $SEED\n",
            ["./a", "{LR}", "b c", "{SEED}"],
            {"zip": {"LR": ["1e-3", "1e-4", "1e-4"], "SEED": ["0", "1", "1"]}},
        ),
        (
            LIST + 'export LR="${LRS[$SLURM_ARRAY_TASK_ID]}"\nsrun torchrun --nproc-per-node 2 a.py $LR\n',
            None,
            {"LR": ["1e-3", "1e-4", "x"]},
        ),
    ],
)  # fmt: skip
def test_plain_forms(body: str, command: list[str] | None, parameters: dict[str, Any]) -> None:
    head = HEAD.replace("--ntasks-per-node=2", "--ntasks-per-node=1") if command is None else HEAD
    found = fields(body, head)
    assert found["array"] == {"parameters": parameters, "max_concurrent": 2}
    if command is not None:
        assert found["command"] == command
    assert body.partition("srun")[0] in found["setup"][-1]


def test_pbs() -> None:
    head = "#!/bin/bash -l\n#PBS -l select=1:ncpus=4:mpiprocs=4\n#PBS -l walltime=10:00\n#PBS -J 0-1\n"
    body = (
        "cd $PBS_O_WORKDIR\nA=(x y)\nmodule load openmpi\nB=(x y)\nmpiexec -n 4 ./a ${B[$PBS_ARRAY_INDEX]}\n"
    )
    assert fields(body, head)["array"] == {"parameters": {"B": ["x", "y"]}}


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ('c=$(sed -n "${SLURM_ARRAY_TASK_ID}p" cmds.txt)\neval "$c"\n', "6"),
        ("LRS=(1 2)\nLR=${LRS[$SLURM_ARRAY_TASK_ID]}\nsrun ./a $LR\n", "7"),
        ("LRS=(1 2 'a b')\nLR=${LRS[$SLURM_ARRAY_TASK_ID]}\nsrun ./a $LR\n", "7"),
        ("LRS=(1 2 *)\nLR=${LRS[$SLURM_ARRAY_TASK_ID]}\nsrun ./a $LR\n", "7"),
        (LIST + "LR=${LRS[$SLURM_ARRAY_TASK_ID]}\nsource b.sh\nsrun ./a $LR\n", "7"),
        (LIST + "LR=${LRS[$SLURM_ARRAY_TASK_ID]}\nLR=5\nsrun ./a $LR\n", "7"),
        (LIST + "LRS+=(5)\nLR=${LRS[$SLURM_ARRAY_TASK_ID]}\nsrun ./a $LR\n", "8"),
        (LIST + "LR=${LRS[$SLURM_ARRAY_TASK_ID]}\nsrun ./a $LR $SLURM_PROCID\n", "7"),
        (CASE.replace("1|2)", "1)") + "srun ./a $LR\n", "6"),
        (CASE.replace("1|2)", "*)") + "srun ./a $LR\n", "6"),
        (CASE.replace("LR=1e-4", "LR=$(date)") + "srun ./a $LR\n", "6"),
        (CASE.replace("LR=1e-4", "exit 1") + "srun ./a $LR\n", "6"),
        (CASE.replace(";;\n 1|2", ";&\n 1|2") + "srun ./a $LR\n", "6"),
    ],
)
def test_other_forms_are_left_as_they_are_and_listed(body: str, lines: str) -> None:
    result = read_script(HEAD + body, "a.sh")
    assert result.kept
    note = "which uses SLURM_ARRAY_TASK_ID, is left as it is"
    assert any(text.startswith(f"Line {lines}, {note}") for text in result.notes), result.notes
    assert nested(result.fields)["array"] == {"indices": "0-2", "max_concurrent": 2}


def test_members_that_do_not_count_from_0() -> None:
    body = LIST + "LR=${LRS[$SLURM_ARRAY_TASK_ID]}\nsrun ./a $LR\n"
    assert read_script(HEAD.replace("0-2%2", "1-3") + body, "a.sh").kept
