"""The flags of `castoff train sedd`, and that each has a meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainers.sedd.start.configuration import Settings, read
from trainers.sedd.start.flags import COMMAND_LINE

parser, parsed, from_flags = COMMAND_LINE.parser, COMMAND_LINE.parsed, COMMAND_LINE.from_flags

DOCUMENT = Path(__file__).parents[4] / "docs" / "sedd-configuration.md"


def settings(*words: str) -> Settings:
    arguments = parsed(words)
    return read({}, from_flags(arguments), arguments.overrides)


@pytest.mark.parametrize(
    "line",
    [
        # as the UniRef50 trainer's document has them
        "--work_dir $SCRATCH/experiments --config configs/config_uniref50_ddp.yaml "
        "--datafile $SCRATCH/data/processed_uniref50.pt",
        "--master_addr 192.168.1.100 --master_port 29500 --node_rank 0 --nnodes 2",
        "--master_addr 192.168.1.100 --master_port 29500 --node_rank 1 --nnodes 2",
        "--work_dir . --config c.yaml --datafile d.pt --wandb_project p --wandb_name n --seed 42 "
        "--sampling_method rigorous --fresh --epochs 50 --device cuda --resume_checkpoint out/latest",
        "--no_wandb --sampling_method simple",
        "",
    ],
)
def test_documented_command_lines_are_parsed(line: str) -> None:
    words = line.split()
    assert parsed(words).config == (words[words.index("--config") + 1] if "--config" in words else None)
    hyphens = [word.replace("_", "-") if word.startswith("--") else word for word in words]
    assert vars(parsed(hyphens)) == vars(parsed(words))


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("--work_dir /w", "training.work_dir", "/w"),
        ("--datafile a.fasta", "data.datafile", "a.fasta"),
        ("--epochs 3", "training.epochs", 3),
        ("--seed 7", "training.seed", 7),
        ("--device cpu", "training.device", "cpu"),
        ("--sampling_method rigorous", "sampling.predictor", "analytic"),
        ("--sampling_method simple", "sampling.predictor", "euler"),
        ("--resume_checkpoint c", "training.resume_checkpoint", "c"),
        ("--fresh", "training.fresh", True),
        ("--resume", "training.fresh", False),
        ("--wandb_project p", "logging.wandb.project", "p"),
        ("--wandb_project p --wandb_name n", "logging.wandb.name", "n"),
        ("--no_wandb", "logging.wandb", None),
        ("--master_addr h", "parallel.master_addr", "h"),
        ("--master_port 4000", "parallel.master_port", 4000),
        ("--set training.accum=9", "training.accum", 9),
        ("--seed 7 --set training.seed=8", "training.seed", 8),
    ],
)
def test_each_sets_its_field(words: str, path: str, value: object) -> None:
    found: Any = settings(*words.split())
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


@given(text=st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_text_arrives_as_it_was_given(text: str) -> None:
    """Names of files, too, that are not words of YAML, or no UTF-8."""
    assume(text != "--")  # which argparse loses before Python 3.13
    assert settings(f"--datafile={text}", f"--work-dir={text}").data.datafile == text


def test_epochs_take_the_place_of_the_files_iterations() -> None:
    in_file = {"training": {"n_iters": 100}}
    found = read(in_file, from_flags(parsed(["--epochs", "2"])))
    assert (found.training.epochs, found.training.n_iters) == (2, None)


def test_no_wandb_wins_over_the_file() -> None:
    found = read({"logging": {"wandb": {"project": "p"}}}, from_flags(parsed(["--no_wandb"])))
    assert found.logging.wandb is None


@pytest.mark.parametrize("words", [["c.yaml"], ["--config", "c.yaml"], ["--config=c.yaml"]])
def test_the_file(words: list[str]) -> None:
    assert parsed(words).path == "c.yaml"
    assert parsed([]).path is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("a.yaml --config b.yaml", "--config b.yaml stands beside a.yaml; drop one of the two"),
        ("--no_wandb --wandb_project p", "--no_wandb stands beside --wandb_project"),
        ("--cluster", "--cluster has no meaning here: a rank finds out by itself where it runs"),
        ("--cluster aurora", "castoff submit JOB --site NAME"),
        ("--master_port 80", "--master-port: is '80', but takes a port from 1024 to 65535"),
        ("--master_port 65536", "--master-port: is '65536', but takes a port from 1024 to 65535"),
        ("--nnodes 0", "is '0', but takes a whole number of at least 1"),
        ("--node_rank -1", "is '-1', but takes a whole number of at least 0"),
        ("--nproc_per_node two", "is 'two', but takes a whole number of at least 1"),
        ("--device gpu", "invalid choice: 'gpu'"),
        ("--fresh --resume", "not allowed with argument"),
        ("--epoch 3", "unrecognized arguments: --epoch"),
    ],
)
def test_flags_that_make_no_sense(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(words.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_run_that_has_a_name_in_no_project_is_answered_with_the_flag() -> None:
    from trainers.configuration.fields import ConfigError

    with pytest.raises(ConfigError, match=r"logging\.wandb\.project: is missing"):
        settings("--wandb_name", "n")


def test_help_names_the_files_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "<training.work_dir>/<name>" in shown and "training.path" not in shown
