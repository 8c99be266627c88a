"""A run that begins with another one's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.trainers.checkpointing.checkpoints import found_in
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.configuration.fields import ConfigError
from tests.trainers.toys import Sensitive, train, with_checkpoints

ENDLESS = {"num_epochs": None}


def test_it_resumes_there_bit_for_bit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And leaves the other one alone; its own record begins with what was known of the checkpoint."""
    first, branch = tmp_path / "first", tmp_path / "branch"
    train(Sensitive(), with_checkpoints(first, num_steps=45, **ENDLESS))
    before = sorted(first.rglob("*"))
    given = {"num_steps": 60, "resume_checkpoint": str(first / "toy"), **ENDLESS}
    mine = train(Sensitive(), with_checkpoints(branch, **given))
    assert sorted(first.rglob("*")) == before
    assert "is lost" not in caplog.text  # of lines that stand in the other one's record
    whole = train(Sensitive(), with_checkpoints(first, num_steps=60, **ENDLESS))
    assert (mine.weights, mine.seen) == (whole.weights, whole.seen)
    known = [line for line in whole.lines if line["step"] > 45 or (line["step"] == 45 and "val/loss" in line)]
    assert mine.lines == known and known[0]["step"] == 45


def test_which_one_is_meant(tmp_path: Path) -> None:
    """A checkpoint, a link to one, the folder of some, or a run."""
    train(Sensitive(), with_checkpoints(tmp_path, num_steps=5, **ENDLESS))
    folder = tmp_path / "toy" / "checkpoints"
    newest, before = folder / "step-0000000005", folder / "step-0000000003"
    assert [found_in(place) for place in (tmp_path / "toy", folder, newest, before)] == [
        *(newest, newest, newest, before)
    ]
    assert found_in(folder / "latest") == folder / "latest"
    assert found_in(tmp_path) is None
    (newest / "model.pt").write_bytes(b"")
    assert found_in(tmp_path / "toy") == before
    with pytest.raises(CheckpointError, match=r"step-0000000005 is damaged"):
        found_in(newest)


@pytest.mark.long
def test_from_then_on_its_own_count(tmp_path: Path) -> None:
    """The same command again resumes, and does not begin again."""
    train(Sensitive(), with_checkpoints(tmp_path / "first", num_steps=45, **ENDLESS))
    given = {"resume_checkpoint": str(tmp_path / "first" / "toy"), **ENDLESS}
    train(Sensitive(), with_checkpoints(tmp_path / "branch", num_steps=60, **given))
    (tmp_path / "first").rename(tmp_path / "gone")
    again = train(Sensitive(), with_checkpoints(tmp_path / "branch", num_steps=63, **given))
    assert again.lines[0]["step"] == 45 and again.lines[-1]["step"] == 63


@pytest.mark.parametrize(
    ("meant", "says"),
    [
        ("nowhere", "training.resume_checkpoint: is '{meant}', but there is no castoff checkpoint"),
        ("old.pth", "training.resume_checkpoint: is '{meant}', but there is no castoff checkpoint"),
        ("$NOT_SET/x", "training.resume_checkpoint: is '{meant}', but NOT_SET is not set here"),
    ],
)
def test_there_is_none(meant: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "old.pth").write_bytes(b"of another program")
    meant = meant if meant[0] == "$" else str(tmp_path / meant)
    with pytest.raises(ConfigError) as error:
        train(Sensitive(), with_checkpoints(tmp_path / "branch", resume_checkpoint=meant))
    assert says.format(meant=meant) in str(error.value)


def test_of_another_training(tmp_path: Path) -> None:
    """What matters must be the same, as for the run's own checkpoints."""
    train(Sensitive(), with_checkpoints(tmp_path / "first", num_steps=3, num_epochs=None))
    given = {"resume_checkpoint": str(tmp_path / "first" / "toy"), "seed": 5}
    with pytest.raises(ConfigError, match=r"training\.seed: is 5, but .* was made with 0"):
        train(Sensitive(), with_checkpoints(tmp_path / "branch", **given))
