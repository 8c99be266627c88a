"""Whatever the script is, each of its lines has a fate, and castoff's loader takes the job file."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from launcher.importing.imported import nested
from launcher.importing.script import NotAScript, job_of, read_script
from launcher.importing.writing import job_file
from launcher.typed.document import Document

from .scripts_of_tests import NAMES, text_of

ODD = [
    *(
        "for i in 1 2; do",
        "done",
        "if [ $X ]; then",
        "else",
        "fi",
        "case $1 in",
        "a) echo;;",
        "esac",
        "{",
        "}",
    ),
    *(
        "f() {",
        "(cd x",
        ")",
        "cat <<EOF",
        "EOF",
        "echo 'open",
        'echo "open',
        "echo `open",
        "echo $(",
        "A=(",
        "((i++))",
    ),
    *(
        "srun python train.py &",
        "wait",
        "mpiexec -n 4 python a.py | tee b",
        "srun",
        "torchrun",
        "bash -c",
        "exec",
    ),
    *(
        "export A=1 B=$A",
        "export PATH=$PATH:/x",
        "OMP_NUM_THREADS=$X",
        "unset RANK",
        "cd",
        "cd /x && ls",
        "set -x",
    ),
    *(
        "python train.py \\",
        "  --lr 1 \\",
        "trap 'rm x' EXIT",
        "exit 1",
        "a=b c=d srun -n $N python -c 'x'",
        "\t",
        ";;",
    ),
    *(
        'srun --nodes=$(echo 2) bash -c "python $X"',
        "export PWD=3",
        "export IFS=,",
        "accelerate launch",
        "${A[@]}",
    ),
    *("#SBATCH --nodes=x", "#SBATCH", "#SBATCH -N 2 -n", "#SBATCH --mem=1.5G --time=never", "#SBATCH hetjob"),
    *(
        "#SBATCH --partition= --foo=bar",
        "#PBS -l select=2:ncpus=4+1:ncpus=2",
        "#PBS -l",
        "#PBS -W a=b",
        "# flux: -N x",
    ),
    *(
        "#SBATCH --job-name='a",
        "#SBATCH --array=1-3,5",
        "#SBATCH --gres=gpu:a100",
        "# a comment",
        "apptainer exec x y",
    ),
    *(
        "srun podman-hpc run -v $X:/y image python a.py",
        "deepspeed --num_gpus 2 a.py",
        "sbatch next.sh",
        "echo $1 ${2}",
    ),
]

LINES = st.lists(
    st.sampled_from(ODD) | st.text(max_size=30).filter(lambda text: "\x00" not in text), max_size=14
)


def accounted_for(script: str) -> None:
    try:
        result = read_script(script)
    except NotAScript:
        return
    lines = script.replace("\r\n", "\n").split("\n")
    known = {number for one in result.account.entries for number in range(one.first, one.last + 1)}
    for number, line in enumerate(lines, 1):
        is_code = line.strip().strip(" ;\\") and not line.lstrip(" \t").startswith("#")
        is_directive = line.startswith(("#SBATCH", "#PBS"))
        assert number in known or not (is_code or is_directive), line
    text = job_file(result, "script", "slurm")
    assert Document.parse(text, "job.yaml").data == nested(result.fields)
    job_of(result)


@given(LINES)
@example(["'", "'"])
@example(["A=(", ")", "${A[@]}"])
@example(["python 'a", "", "'"])
@example(["set"])
def test_no_line_is_lost(lines: list[str]) -> None:
    accounted_for("\n".join(["#!/bin/bash", *lines]))


@given(
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(ODD)), max_size=4),
    st.data(),
)
def test_nor_where_a_script_is_damaged(name: str, more: list[tuple[int, str]], data: st.DataObject) -> None:
    lines = text_of(name).split("\n")
    for at, line in more:
        lines.insert(min(at, len(lines)), line)
    del lines[data.draw(st.integers(1, len(lines) - 1))]
    accounted_for("\n".join(lines))


@given(st.text(max_size=200))
def test_nor_of_any_text(text: str) -> None:
    accounted_for(text)
