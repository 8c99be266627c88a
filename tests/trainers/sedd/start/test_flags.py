"""The flags of `castoff train sedd`, and that each has a meaning."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.trainers.sedd.start.configuration import Settings, read
from castoff.trainers.sedd.start.flags import COMMAND_LINE

parsed, from_flags = COMMAND_LINE.parsed, COMMAND_LINE.from_flags


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


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("--sampling_method rigorous", "sampling.predictor", "analytic"),
        ("--sampling_method simple", "sampling.predictor", "euler"),
        ("--fresh", "training.fresh", True),
        ("--wandb_project p --wandb_name n", "logging.wandb.name", "n"),
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


def test_epochs_take_the_place_of_the_files_iterations() -> None:
    in_file = {"training": {"n_iters": 100}}
    found = read(in_file, from_flags(parsed(["--epochs", "2"])))
    assert (found.training.epochs, found.training.n_iters) == (2, None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--cluster", "--cluster has no meaning here: each rank detects where it runs"),
        ("--cluster aurora", "castoff submit JOB --site NAME"),
        ("--master_port 80", "--master-port: is '80', but takes a whole number from 1024 to 65535"),
        ("--master_port 65536", "--master-port: is '65536', but takes a whole number from 1024 to 65535"),
        ("--nnodes 0", "is '0', but takes a whole number of at least 1"),
        ("--node_rank -1", "is '-1', but takes a whole number of at least 0"),
        ("--nproc_per_node two", "is 'two', but takes a whole number of at least 1"),
    ],
)
def test_flags_that_make_no_sense(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(words.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_run_that_has_a_name_in_no_project_is_answered_with_the_flag() -> None:
    from castoff.trainers.configuration.fields import ConfigError

    with pytest.raises(ConfigError, match=r"logging\.wandb\.project: is missing"):
        settings("--wandb_name", "n")


def test_help_names_the_files_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "<training.work_dir>/<name>" in shown and "training.path" not in shown
