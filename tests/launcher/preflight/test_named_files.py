"""Which words of a job name files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.preflight.named_files import (
    Module,
    Named,
    changes_folder,
    loaded,
    makes_nothing,
    program,
    sourced,
)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python train.py --lr 1", Named("command.1", "train.py")),
        ("/opt/py/bin/python3.12 -u -W ignore -X dev ./train.py", Named("command.6", "./train.py")),
        ("python -Bu train.py", Named("command.2", "train.py")),
        ("python -m pkg.train -c x", Module("command.2", "pkg.train")),
        ("python -c print(1)", None),
        ("python -Ic print(1)", None),
        ("python -", None),
        ("python", None),
        ("python -m", None),
        ("bash -e -o pipefail run.sh", Named("command.4", "run.sh")),
        ("bash -c run.sh", None),
        ("sh -ec run.sh", None),
        ("./bin/train -x", Named("command.0", "./bin/train", runs=True)),
        ("train.py", Named("command.0", "train.py", runs=True)),
        ("", None),
    ],
)
def test_a_program(command: str, named: object) -> None:
    assert program(command.split()) == named


@given(
    st.lists(st.text(alphabet="-+cmosxW. /y", min_size=1), max_size=5), st.sampled_from(["python", "bash"])
)
def test_a_program_is_a_word_of_the_command(words: list[str], interpreter: str) -> None:
    command = [interpreter, *words]
    found = program(command)
    if found is not None:
        word = found.name if isinstance(found, Module) else found.word
        assert command[int(found.field.removeprefix("command."))] == word


def test_scripts_that_setup_sources() -> None:
    setup = [
        "module load x",
        "source venv/bin/activate",
        ". ~/env.sh",
        "source $HOME/a/b",
        "source activate base",
    ]
    found = [(one.field, one.word) for one in sourced([*setup, "source 'a b/c' # why", "source a/b && c"])]
    assert found == [("setup.1", "venv/bin/activate"), ("setup.2", "~/env.sh"), ("setup.5", "a b/c")]


def test_modules_that_setup_loads() -> None:
    setup = [
        "module use /x",
        "module load gcc/12 cuda",
        "ml torch",
        "ml load a",
        "module purge",
        "ml -gcc",
        "ml $X",
    ]
    assert [*loaded(setup)] == [
        ("setup.1", "gcc/12"),
        ("setup.1", "cuda"),
        ("setup.2", "torch"),
        ("setup.3", "a"),
    ]


@pytest.mark.parametrize(
    "line", ["cd src", "git clone x", "echo x > y", "tar xf a", "true; make", "$START", "(cd x)"]
)
def test_setup_that_may_make_files(line: str) -> None:
    assert makes_nothing(["module load x", "# a comment", "export A=$B", "A=1", ""])
    assert not makes_nothing(["module load x", line])


def test_setup_that_changes_the_folder() -> None:
    assert changes_folder(["make && cd build"]) and not changes_folder(["abcd x", "echo cdr"])
