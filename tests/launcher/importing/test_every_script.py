"""Whatever the script is, none of its lines is lost, and castoff's loader takes the job file."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from castoff.launcher.importing.imported import Imported, nested
from castoff.launcher.importing.script import NotAScript, job_of, read_script
from castoff.launcher.importing.writing import block, job_file
from castoff.launcher.typed.document import Document

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
    *("f() {", "(cd x", ")", "cat <<EOF", "EOF", "echo 'open", 'echo "open', "echo `open", "echo $(", "A=("),
    *("srun python train.py &", "wait", "mpiexec -n 4 python a.py | tee b", "srun", "torchrun", "bash -c"),
    *("((i++))", "exec", "export A=1 B=$A", "export PATH=$PATH:/x", "OMP_NUM_THREADS=$X", "unset RANK", "cd"),
    *("cd /x && ls", "set -x", "python train.py \\", "  --lr 1 \\", "trap 'rm x' EXIT", "exit 1", "\t", ";;"),
    *("a=b c=d srun -n $N python -c 'x'", "A=1 B=2", 'srun --nodes=$(echo 2) bash -c "python $X"', "${A[@]}"),
    *("export PWD=3", "export IFS=,", "accelerate launch", "#SBATCH --nodes=x", "#SBATCH", "#SBATCH -N 2 -n"),
    *("#SBATCH --mem=1.5G --time=never", "#SBATCH hetjob", "#SBATCH --partition= --foo=bar", "#PBS -l"),
    *("#PBS -l select=2:ncpus=4+1:ncpus=2", "#PBS -W a=b", "# flux: -N x", "#SBATCH --job-name='a"),
    *(
        "#SBATCH --array=1-3,5",
        "#SBATCH --gres=gpu:a100",
        "# a comment",
        "apptainer exec x y",
        "echo $1 ${2}",
    ),
    *("srun podman-hpc run -v $X:/y image python a.py", "deepspeed --num_gpus 2 a.py", "sbatch next.sh"),
    *("#SBATCH -n 4 -N 2", "srun python train.py", "srun --ntasks=4 python train.py $A"),
]

LINES = st.lists(
    st.sampled_from(ODD) | st.text(max_size=30).filter(lambda text: "\x00" not in text), max_size=14
)


def held(result: Imported) -> str:
    """All that a job file holds of a script's lines."""
    fields = result.fields
    return "\n".join([fields.get("script", ""), *fields.get("setup", [])])


def accounted_for(script: str) -> None:
    try:
        result = read_script(script, "a.sh")
    except NotAScript:
        return
    lines = script.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if result.kept:
        others = [
            line for line in lines if not re.match(r"[^\w\n]*[ \t]*(?:SBATCH\b|PBS\b|flux:|FLUX:)", line)
        ]
        kept = result.fields["script"].split("\n")
        assert [line for line in kept if line in others] == [line for line in others if line in kept]
        assert {*others} <= {*kept}
    else:
        code = [line for line in lines if line.strip() and not line.startswith("#")]
        code.pop()
        while code and code[-1].endswith("\\"):  # the launch line goes over several
            code.pop()
        assert all(line.rstrip(" \t;") in held(result) for line in code)
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


WRITTEN = st.text(st.sampled_from(" \t\n#-|>:'\"%&*!?{}[]\\ab\u00e9\U0001f600"), min_size=1)


@given(WRITTEN)
@example(" a\n")
@example("\n\n  a\n\n\n")
@example("\t\n a")
def test_a_block_holds_a_text_byte_for_byte(text: str) -> None:
    lines = ["a: 1", *block("script: ", text, 2)]
    assert Document.parse("\n".join(lines) + "\n", "job.yaml").data == {"a": 1, "script": text}
    lines = ["setup:", *block("  - ", text, 4)]
    assert Document.parse("\n".join(lines) + "\n", "job.yaml").data == {"setup": [text]}
