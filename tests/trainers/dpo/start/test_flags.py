"""The flags of `castoff train dpo`, and that each has a meaning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.start.configuration import read
from castoff.trainers.dpo.start.flags import COMMAND_LINE, parted, with_flags

parsed, from_flags = COMMAND_LINE.parsed, COMMAND_LINE.from_flags

LEAST = ["--train_data=pairs.json", "--base_model_dir=base", "--output_dir=outputs/dpo"]


def config(*words: str, least: bool = True) -> Config:
    arguments = parsed([*(LEAST if least else []), *words])
    return read({}, from_flags(arguments), arguments.overrides)


@pytest.mark.parametrize(
    "line",
    [
        # as the documents of the tool that this one follows have them
        "--train_data data/input/test_data_real.json --output_dir outputs/dpo_ddp --batch_size 1 "
        "--num_epochs 10",
        "--train_data data.json --output_dir outputs/ --backend ccl",
        "--train_data t.json --val_data v.json --base_model_name v_48_020 --base_model_dir weights "
        "--output_dir out --num_epochs 10 --batch_size 1 --lr 3e-7 --beta 0.1 --temperature 0.1 --no_cuda "
        "--backend auto --weight_decay 0.0 --max_length 500 --diversity_lambda 0.1",
        "--train_data t.json --output_dir out --mutable_positions 10 11 12 --mutable_ranges 10-15 20-25",
        "--batch_size 1 --learning_rate 1.2e-6",
        "--backend gloo",
        "--objective likelihood --structures pdb --output_dir base",
    ],
)
def test_documented_command_lines_are_parsed(line: str) -> None:
    from_flags(parsed(line.split()))


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("--mutable_positions 10 11 12", "task_kwargs.data.mutable_positions", [10, 11, 12]),
        ("--mutable_ranges 10-15 20-20", "task_kwargs.data.mutable_ranges", [[10, 15], [20, 20]]),
        ("", "task_kwargs.base_model.name", "v_48_020"),
        ("--beta 1", "task_kwargs.preference.beta", 1),
        ("--learning_rate 1e-6", "training.optimizer_kwargs", {"lr": 1e-6}),
        ("--lr 1e-6", "training.optimizer_kwargs", {"lr": 1e-6}),
        ("--weight_decay 0.01", "training.optimizer_kwargs", {"lr": 3e-7, "weight_decay": 0.01}),
        ("--no_cuda", "training.device", "cpu"),
        ("--no_cuda --device cpu", "training.device", "cpu"),
        ("--fresh", "training.fresh", True),
        ("--seed 7 --set training.seed=8", "training.seed", 8),
        ("--output_dir /w/out", "training.path", "/w"),
        ("--output_dir /w/out", "training.run", "out"),
    ],
)
def test_what_flags_set(words: str, path: str, value: object) -> None:
    found: Any = config(*words.split())
    for name in path.split("."):
        found = found[name]
    assert found == value


def test_those_of_a_likelihood() -> None:
    words = "--objective likelihood --structures a --validation_structures b --output_dir out --max_length 99"
    found = config(*words.split(), least=False).task_kwargs["data"]
    assert (found["structures"], found["validation_structures"], found["max_length"]) == ("a", "b", 99)


def test_epochs_take_the_place_of_the_files_steps() -> None:
    fields = {"training": {"num_steps": 100}}
    found = read(fields, from_flags(parsed([*LEAST, "--num_epochs", "2"]))).training
    assert (found.num_epochs, found.num_steps) == (2, None)


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("outputs/dpo", ("outputs", "dpo")),
        ("outputs/dpo/", ("outputs", "dpo")),
        ("outputs/", (".", "outputs")),
        ("outputs//dpo//", ("outputs", "dpo")),
        ("./outputs/../dpo/.", (".", "dpo")),
        ("/outputs", ("/", "outputs")),
        ("~/dpo", ("HOME", "dpo")),
        ("$SCRATCH/dpo", ("/scratch/me", "dpo")),
        ("${SCRATCH}", ("/scratch", "me")),
        ("$SCRATCH/../dpo", ("/scratch", "dpo")),
        ("a b/ä", ("a b", "ä")),
        (".", ("PARENT", "HERE")),
        ("./", ("PARENT", "HERE")),
        ("..", ("GRAND", "PARENT")),
    ],
)
def test_the_output_folder_is_where_the_run_lies(
    folder: str, found: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It and no folder in it, however it is written."""
    here = tmp_path / "over" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    parent, name = found
    parent = {"HOME": "/home/me", "PARENT": str(here.parent), "GRAND": str(tmp_path)}.get(parent, parent)
    name = {"HERE": "here", "PARENT": "over"}.get(name, name)
    assert parted(folder) == (parent, name)


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("", "--output_dir: is '', but takes a folder"),
        (" ", "--output_dir: is ' ', but takes a folder"),
        ("/", "--output_dir: is '/', but takes a folder that has a name, unlike /"),
        ("/..", "--output_dir: is '/..', but takes a folder that has a name"),
        ("$NOT_SET/dpo", "--output_dir: is '$NOT_SET/dpo', but NOT_SET is not set here"),
    ],
)
def test_output_folders_that_are_none(folder: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parted(folder)
    assert said in str(caught.value)


@given(parts=st.lists(st.text(st.characters(exclude_characters="\0/$~"), min_size=1), min_size=1, max_size=4))
def test_any_folder_is_taken_apart_so_that_it_is_itself(parts: list[str]) -> None:
    folder = "/".join(parts)
    assume(folder.strip() and Path(os.path.normpath(Path(folder).absolute())).name)
    parent, name = parted(folder)
    assert os.path.normpath(Path(parent, name).absolute()) == os.path.normpath(Path(folder).absolute())
    assert name not in ("", ".", "..") and "/" not in name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("preference.beta: is 2", "preference.beta (--beta): is 2"),
        ("c.yaml: task_kwargs.preference.beta: is 2", "c.yaml: preference.beta (--beta): is 2"),
        ("task_kwargs.model.dropout: is 2", "model.dropout: is 2"),
        ("training.run: is 'a/b'", "training.run (--output_dir): is 'a/b'"),
        ("training.optimizer_kwargs.lr: was", "training.optimizer_kwargs.lr (--learning_rate): was"),
        ("training.num_epochs: 3 keeps it", "training.num_epochs (--num_epochs): 3 keeps it"),
        ("is for objective: dpo, but", "is for objective: dpo, but"),
        ("a: is 1\nc.yaml: objective: is 2", "a: is 1\nc.yaml: objective (--objective): is 2"),
        ("drop data.train_data, or objective", "drop data.train_data, or objective"),
        ("my.objective: is", "my.objective: is"),
    ],
)
def test_a_message_about_a_field_names_its_flag(text: str, said: str) -> None:
    assert with_flags(text) == said
    assert with_flags(said) == said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--base_model_config_dir c", "--base_model_config_dir has no meaning here: the weights determine"),
        ("--no_cuda --device cuda", "--no_cuda cannot be used with --device cuda; drop one of the two"),
        ("--backend mpi", "--backend: is 'mpi', but takes one of"),
        ("--loss kto", "--loss: is 'kto', but takes one of"),
        ("--beta much", "--beta: is 'much', but takes a number"),
        ("--mutable_ranges 10", "is '10', but takes a range, as in 10-20"),
        ("--mutable_ranges a-b", "is 'a-b', but takes a range"),
    ],
)
def test_flags_that_make_no_sense(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(words.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
