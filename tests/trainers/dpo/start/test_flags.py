"""The flags of `castoff train dpo`, and that each has a meaning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainers.configuration.config import Config
from trainers.configuration.fields import ConfigError
from trainers.dpo.start.configuration import read
from trainers.dpo.start.flags import COMMAND_LINE, parted, with_flags

parser, parsed, from_flags = COMMAND_LINE.parser, COMMAND_LINE.parsed, COMMAND_LINE.from_flags

DOCUMENT = Path(__file__).parents[4] / "docs" / "dpo-configuration.md"

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
    words = line.split()
    hyphens = [word.replace("_", "-") if word.startswith("--") else word for word in words]
    assert vars(parsed(hyphens)) == vars(parsed(words))
    from_flags(parsed(words))


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("--train_data a.json", "data.train_data", "a.json"),
        ("--val_data a.json", "data.val_data", "a.json"),
        ("--test_data a.json", "data.test_data", "a.json"),
        ("--structures pdb", "data.structures", "pdb"),
        ("--max_length 300", "data.max_length", 300),
        ("--mutable_positions 10 11 12", "data.mutable_positions", [10, 11, 12]),
        ("--mutable_ranges 10-15 20-20", "data.mutable_ranges", [[10, 15], [20, 20]]),
        ("--base_model_dir b", "base_model.dir", "b"),
        ("--base_model_name n", "base_model.name", "n"),
        ("", "base_model.name", "v_48_020"),
        ("--loss ipo", "preference.loss", "ipo"),
        ("--beta 0.5", "preference.beta", 0.5),
        ("--beta 1", "preference.beta", 1),
        ("--temperature 1.0", "preference.temperature", 1.0),
        ("--label_smoothing 0.1", "preference.label_smoothing", 0.1),
        ("--diversity_lambda 0.2", "preference.diversity_lambda", 0.2),
    ],
)
def test_each_flag_reaches_the_task(words: str, path: str, value: object) -> None:
    section, field = path.split(".")
    assert config(*words.split()).task_kwargs[section][field] == value


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("--num_epochs 3", "training.num_epochs", 3),
        ("--batch_size 4", "training.batch_size", 4),
        ("--learning_rate 1e-6", "training.optimizer_kwargs", {"lr": 1e-6}),
        ("--lr 1e-6", "training.optimizer_kwargs", {"lr": 1e-6}),
        ("--weight_decay 0.01", "training.optimizer_kwargs", {"lr": 3e-7, "weight_decay": 0.01}),
        ("--seed 7", "training.seed", 7),
        ("--num_workers 2", "training.num_workers", 2),
        ("--device cuda", "training.device", "cuda"),
        ("--no_cuda", "training.device", "cpu"),
        ("--no_cuda --device cpu", "training.device", "cpu"),
        ("--backend ccl", "parallel.backend", "ccl"),
        ("--fresh", "training.fresh", True),
        ("--resume", "training.fresh", False),
        ("--wandb_project p --wandb_name n", "logging.wandb.name", "n"),
        ("--no_wandb", "logging.wandb", None),
        ("--set training.gradient_accumulation_steps=9", "training.gradient_accumulation_steps", 9),
        ("--seed 7 --set training.seed=8", "training.seed", 8),
        ("--output_dir /w/out", "training.path", "/w"),
        ("--output_dir /w/out", "training.run", "out"),
    ],
)
def test_each_sets_its_field(words: str, path: str, value: object) -> None:
    found: Any = config(*words.split())
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


def test_those_of_a_likelihood() -> None:
    words = "--objective likelihood --structures a --validation_structures b --output_dir out --max_length 99"
    found = config(*words.split(), least=False).task_kwargs["data"]
    assert (found["structures"], found["validation_structures"], found["max_length"]) == ("a", "b", 99)


@given(text=st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_text_arrives_as_it_was_given(text: str) -> None:
    """Names of files, too, that are not words of YAML, or no UTF-8."""
    assume(text != "--")  # which argparse loses before Python 3.13
    assert config(f"--val_data={text}").task_kwargs["data"]["val_data"] == text


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
        ("/", "--output_dir: is '/', which has no name of its own; write a folder in it"),
        ("/..", "--output_dir: is '/..', which has no name of its own"),
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


@pytest.mark.parametrize("words", [["c.yaml"], ["--config", "c.yaml"], ["--config=c.yaml"]])
def test_the_file(words: list[str]) -> None:
    assert parsed(words).path == "c.yaml"
    assert parsed([]).path is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("a.yaml --config b.yaml", "--config b.yaml stands beside a.yaml; drop one of the two"),
        ("--no_wandb --wandb_project p", "--no_wandb stands beside --wandb_project"),
        ("--base_model_config_dir c", "--base_model_config_dir has no meaning here: the weights say"),
        ("--base_model_config_dir", "--base_model_config_dir has no meaning here"),
        ("--no_cuda --device cuda", "--no_cuda stands beside --device cuda; drop one of the two"),
        ("--backend mpi", "invalid choice: 'mpi'"),
        ("--device gpu", "invalid choice: 'gpu'"),
        ("--loss kto", "invalid choice: 'kto'"),
        ("--beta much", "argument --beta: invalid number value: 'much'"),
        ("--mutable_ranges 15-10", "is '15-10', but takes the first and the last position, as 10-15"),
        ("--mutable_ranges 10", "is '10', but takes the first and the last position, as 10-15"),
        ("--mutable_ranges a-b", "is 'a-b', but takes the first and the last position, as 10-15"),
        ("--mutable_positions x", "argument --mutable_positions/--mutable-positions: invalid int value: 'x'"),
        ("--fresh --resume", "not allowed with argument"),
        ("--epochs 3", "unrecognized arguments: --epochs"),
    ],
)
def test_flags_that_make_no_sense(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(words.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
