"""Flags that set fields: what all tables of them have in common."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from castoff.launcher.typed.descriptions import fields
from castoff.trainers.dpo.start.flags import COMMAND_LINE as DPO
from castoff.trainers.program.flags import CommandLine, Flag
from castoff.trainers.sedd.start.flags import COMMAND_LINE as SEDD

SYSTEMS = pytest.mark.parametrize("system", [DPO, SEDD], ids=["dpo", "sedd"])
FLAGS = [
    pytest.param(system, row, id=f"{system.system} --{row.name}")
    for system in (DPO, SEDD)
    for row in system.table
    if isinstance(row, Flag)
]


def value(flag: argparse.Action) -> tuple[str, Any]:
    """One that a flag takes, as it is written, and what it is."""
    if flag.choices is not None:
        one = next(iter(flag.choices))
        return one, one
    if flag.metavar == "A-B":
        return "3-7000", [[3, 7000]]
    assert callable(flag.type)
    try:
        found: Any = flag.type("7000")  # a port, too
    except argparse.ArgumentTypeError:
        found = flag.type("a.txt")
    return str(found), [found] if flag.nargs == "+" else found


@pytest.mark.parametrize(("system", "row"), FLAGS)
def test_a_flag_sets_its_field(system: CommandLine, row: Flag) -> None:
    """In both of its spellings, and the field is one."""
    (flag,) = [each for each in system.parser(described=False)._actions if each.dest == row.name]
    text, meant = value(flag)
    names = [name for name in flag.option_strings if name.removeprefix("--").replace("-", "_") == row.name]
    for name in names:
        found = system.from_flags(system.parsed([name, text]))
        if row.sets is None:
            assert found == {row.field: meant} | ({row.drops: None} if row.drops else {})
        assert row.field in found
    known = {field.path for kind in system.kinds.values() for field in fields(kind.settings)}
    assert row.field in known or row.field.startswith("training.optimizer_kwargs.")


@SYSTEMS
@pytest.mark.parametrize("words", [["c.yaml"], ["--config", "c.yaml"], ["--config=c.yaml"]])
def test_the_file(system: CommandLine, words: list[str]) -> None:
    assert system.parsed(words).path == "c.yaml"
    assert system.parsed([]).path is None


@given(text=st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_text_arrives_as_it_was_given(text: str) -> None:
    """Names of files, too, that are not words of YAML, or no UTF-8."""
    assume(text != "--")  # which argparse loses before Python 3.13
    assert SEDD.from_flags(SEDD.parsed([f"--datafile={text}"])) == {"data.datafile": text}


@SYSTEMS
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("a.yaml --config b.yaml", "--config b.yaml and a.yaml are both given; drop one of the two"),
        (
            "--no_wandb --wandb_project p",
            "--no_wandb cannot be used with --wandb_project p; drop one of the two",
        ),
        ("--no_wandb --wandb_name n --wandb_project p", "with --wandb_project p and --wandb_name n; drop"),
        ("--seed x", "--seed: is 'x', but takes a whole number"),
        ("--device gpu", "--device: is 'gpu', but takes one of auto, cpu"),
        ("--fresh --resume", "--resume excludes --fresh: drop one of the two"),
        ("--epoch 3", "no option --epoch"),
    ],
)
def test_flags_that_make_no_sense(
    system: CommandLine, words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        system.parsed(words.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_flag_without_a_value_wins_over_the_file() -> None:
    assert DPO.from_flags(DPO.parsed(["--no_wandb", "--no_cuda"])) == {
        "logging.wandb": None,
        "training.device": "cpu",
    }


@pytest.mark.parametrize(
    ("system", "flag", "words"),
    [
        (SEDD, "--work_dir", "Folder in which the run's own folder is made. Default: trained."),
        (SEDD, "--epochs", "Epochs to train. training.n_iters of CONFIG is dropped."),
        (SEDD, "--master_port", "The port there, if no launcher sets it. Default: 20000."),
        (DPO, "--beta", "[dpo] Cost of departing from the base model: the larger, the closer the tuned model "
         "stays. Default: 0.1."),
        (DPO, "--objective", "What is learned. Default: dpo."),
        (DPO, "--lr", "Learning rate, used as given on any number of ranks. "
         "Default: 3e-07 for dpo, 0.001 for likelihood."),
        (DPO, "--max_length", "[dpo] Residues; pairs on longer structures are left out. "
         "[likelihood] Residues; longer chains are left out. Default: 500."),
    ],
)  # fmt: skip
def test_help_is_what_the_field_says(system: CommandLine, flag: str, words: str) -> None:
    (found,) = [each.help for each in system.parser()._actions if flag in each.option_strings]
    assert found == words
