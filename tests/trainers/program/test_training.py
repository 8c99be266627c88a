"""A program of one's own, which gives `train` its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.trainers import Config, ConfigError, train
from castoff.trainers.configuration.yaml_text import to_yaml
from tests.trainers.toys import Toy, config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration as a user writes it."""
    path = tmp_path / "toy.yaml"
    path.write_text(to_yaml(Config.of(config(tmp_path / "out"))))
    return path


def test_it_is_a_file_and_overrides(file: Path) -> None:
    trained = train(str(file), Toy(), ["training.num_epochs=1", "training.batch_size=8"])
    assert (trained.trainer.config.training.num_epochs, trained.trainer.config.training.batch_size) == (1, 8)


def test_what_is_wrong_in_the_file_is_shown_in_words_and_once(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace("shuffle:", "shufle:", 1))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "shufle" in text)
    with pytest.raises(ConfigError):
        train(file, Toy())
    shown = capfd.readouterr().err
    mend = "there is no such field; did you mean shuffle?"
    assert shown == f"castoff train: {file}:{line}: training.shufle: {mend}\n"


def test_a_configuration_that_was_read_takes_no_overrides(file: Path) -> None:
    with pytest.raises(ValueError, match=r"^training\.num_epochs=1 cannot change a Config: pass "):
        train(Config.load(file), Toy(), ["training.num_epochs=1"])
