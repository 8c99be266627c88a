"""Words of a command that only a shell understands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from castoff.launcher.preflight.shell_words import near_miss, shell_warning
from tests.launcher.conftest import Castoff

FOR_A_SHELL = {
    "python t.py --lr $LR": 'python t.py --lr "$LR"',
    "python t.py ${x}": 'python t.py "${x}"',
    "python t.py --data=$SCRATCH/x": 'python t.py "--data=$SCRATCH/x"',
    "python t.py --out $HOME/a/${RUN}": 'python t.py --out "$HOME/a/${RUN}"',
    "python t.py --host $(hostname)": 'python t.py --host "$(hostname)"',
    "python t.py && echo x|y": "python t.py && echo 'x|y'",
    "python t.py --fast | tee log": "python t.py --fast | tee log",
    "python t.py > out.txt 2>&1": "python t.py > out.txt 2>&1",
    "python t.py >out.txt": "python t.py >out.txt",
    "cd src; python t.py": "cd src; python t.py",
    "cd src ; python t.py": "cd src ; python t.py",
    "LR=0.1 python t.py": "LR=0.1 python t.py",
    "module load x && python t.py": "module load x && python t.py",
    "python t.py a={lr} && true": "python t.py 'a={lr}' && true",
}
"""Command lines, as they are split at blanks, and what a shell should read instead."""

FOR_THE_PROGRAM = [
    "python t.py a=${b} x>3 model.lr=${oc.env:LR} ++a=[1,2]",
    "python t.py --pattern a|b|c ^x$ $ $1 $@ *.pt ~/data",
    "python t.py --delimiter ; --sep | --op > 3",
    "python t.py --filter >=3 <pad> </s> <unk>",
    "python t.py {{name}} {lr} --name=${lr}",
    "python t.py a&&b a;b http://x/?a=1&b=2",
    "python -c import-os;print($x) $x.y",
    "bash -c $X && y",
    "nsys profile bash -lc a|b && $X",
    "find . -name x -exec rm {} ;",
    "grep -E a|b | x",
    "ssh n1 a && b",
    "/data/run --x a,b;c",
]


@pytest.mark.parametrize("line", FOR_A_SHELL)
def test_what_to_write_instead(line: str) -> None:
    found = shell_warning(line.split())
    assert found is not None
    (_, instead, _) = found[1].split("`")
    assert yaml.safe_load(instead) == {"command": ["bash", "-c", FOR_A_SHELL[line]]}
    typed = shell_warning(line.split(), typed=True)
    assert typed is not None and shlex.split(typed[1].partition(": write ")[2]) == [
        *("--", "bash", "-c", FOR_A_SHELL[line])
    ]


@pytest.mark.parametrize("line", FOR_THE_PROGRAM)
def test_words_that_a_program_may_want(line: str) -> None:
    assert shell_warning(line.split()) is None


def test_a_first_word_with_a_blank() -> None:
    assert "write `command: [python, t.py, " in str(shell_warning(["python t.py", "-x"]))
    assert '[bash, -c, "python t.py | tee x"]' in str(shell_warning(["python t.py | tee x"]))
    assert shell_warning(["/my tools/run", "x"]) is None


@settings(max_examples=50, deadline=None, database=None)
@given(st.lists(st.text(st.sampled_from("abZ0 \t\n\r\"'`\\$&|;<>(){}[]*?!~#=%^-+./:,@é日\x1b"), max_size=9)))
def test_the_other_words_stay_as_they_are(words: list[str]) -> None:
    command = ["printf", "%s\\0", "-", *words]
    assume(shell_warning(command) is None)
    found = shell_warning([*command, "--x", "$CASTOFF_T"])
    assert found is not None
    program = yaml.safe_load(found[1].partition(": write `")[2][:-1])["command"]
    printed = subprocess.run(program, env={**os.environ, "CASTOFF_T": "a b"}, capture_output=True, check=True)
    assert printed.stdout == "".join(f"{word}\0" for word in ("-", *words, "--x", "a b")).encode()


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *[(word, "python") for word in ("pyhton", "pythn", "pythonn", "pythom", "ypthon")],
        *[("trochrun", "torchrun"), ("mpiexc", "mpiexec"), ("mpirn", "mpirun")],
        *[
            (word, None)
            for word in ("python", "python3.12", "ipython", "cython", "bpython", "pytest", "prun")
        ],
        *[(word, None) for word in ("./pyhton", "mpiexec.hydra", "", "torchx")],
    ],
)
def test_a_near_miss_of_a_well_known_program(word: str, meant: str | None) -> None:
    assert near_miss(word) == meant


@pytest.mark.parametrize(
    "verb",
    [["render", "--site", "slurm"], ["submit", "--dry-run", "--site", "slurm"], ["launch"]],
    ids=["render", "submit", "launch"],
)
@pytest.mark.parametrize(
    ("command", "warning"),
    [
        (["echo", "$LR"], "is $LR, a variable, but no shell reads the command: write "),
        (["pyhton", "x"], "is 'pyhton', which is not on PATH here; did you mean python?"),
    ],
)
def test_a_warning(
    castoff: Castoff, tmp_path: Path, verb: list[str], command: list[str], warning: str
) -> None:
    typed = castoff(*verb, "--", *command)
    assert f"castoff: warning: the program: {warning}" in typed.stderr
    (tmp_path / "job.yaml").write_text(f"name: x\ncommand: {json.dumps(command)}\n")
    assert (
        f"job.yaml:2: command.{command.index(command[-1]) if '$' in warning else 0}: {warning}"
        in castoff(*verb, "job.yaml").stderr
    )
    assert "warning" not in castoff(*verb, "--", "echo", "a=${b}", "x>3", "a|b").stderr


def test_a_program_that_is_nowhere(castoff: Castoff) -> None:
    """Only where the job has this host's PATH."""

    def said(*words: str) -> str:
        return castoff("submit", "--dry-run", *words, "--", "nosuch").stderr

    assert "is 'nosuch', which is not on PATH here; add its folder" in said("--site", "local")
    for words in (["--set", "setup=[module load x]"], ["--set", "env.PATH=/x"]):
        assert "nosuch" not in said("--site", "local", *words)
    assert "nosuch" not in said("--site", "slurm")
