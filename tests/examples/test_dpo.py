"""The configurations of inverse folding in examples/: whole, and what their words say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainers.core.early_stopping import Judge
from trainers.core.scaling import resolved
from trainers.core.yaml_text import read_yaml_file
from trainers.dpo.start.configuration import OBJECTIVES, read

FOLDER = Path(__file__).parents[2] / "examples"
FILES = {"dpo": FOLDER / "dpo.yaml", "likelihood": FOLDER / "dpo_base.yaml"}


@pytest.mark.parametrize("objective", FILES)
def test_they_are_whole(objective: str) -> None:
    """All sections of the objective's own, and what the defaults would say where nothing else is meant."""
    path = FILES[objective]
    fields = read_yaml_file(path)
    config = read(fields)
    assert fields["objective"] == objective
    assert config.task == OBJECTIVES[objective].task
    assert set(config.task_kwargs) <= set(fields)
    training, defaults = fields["training"], OBJECTIVES[objective].defaults["training"]
    for name in ("num_epochs", "batch_size", "optimizer_kwargs"):
        assert training[name] == defaults[name]
    assert f"run's folder is {config.training.path}/{config.training.run}\n" in path.read_text()
    Judge(config)


def test_the_rate_follows_the_number_of_ranks() -> None:
    """1.2e-6 on four, as the documents of the tool that this one follows have it."""
    config = read(read_yaml_file(FILES["dpo"]))
    rate = config.training.optimizer_kwargs["lr"] * resolved(config, 4).learning_rate
    assert rate == pytest.approx(1.2e-6)


def test_what_is_commented_out_is_a_field() -> None:
    text = re.sub(r"^( +)# (\w+: \S+)", r"\1\2", FILES["dpo"].read_text(), flags=re.MULTILINE)
    from trainers.core.yaml_text import read_yaml

    assert read(read_yaml(text)).task_kwargs["data"]["val_data"] == "held_out.json"


def test_the_base_model_is_the_one_that_the_other_has_made() -> None:
    base = read(read_yaml_file(FILES["likelihood"])).training
    (dir_, name) = re.findall(
        r"--base_model_dir (\S+) --base_model_name (\S+)", FILES["likelihood"].read_text()
    )[0]
    assert (dir_, name) == (f"{base.path}/{base.run}", "best_model")
