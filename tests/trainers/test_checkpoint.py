"""Durable checkpoints: whole or not at all, and never a damaged one."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.toys import Ranks, die_at_effect, run
from trainers.core.checkpoint import CheckpointError, Checkpoints, load_part


def parts(number: int) -> dict[str, dict[str, Any]]:
    return {"model": {"w": torch.full((1000,), float(number))}, "training": {"step": number}}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    path = kept.save(3, parts(3))
    assert kept.newest() == path
    assert torch.equal(load_part(path, "model")["w"], torch.full((1000,), 3.0))
    assert load_part(path, "training") == {"step": 3}
    assert (tmp_path / "latest").read_text() == "step-0000000003\n"


def test_the_last_ones_and_the_best_stay(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, keep=2)
    for step in range(6):
        kept.save(step, parts(step), best=step == 1)
    assert [path.name[-1] for path in kept.all()] == ["1", "4", "5"]
    assert kept.best() == tmp_path / "step-0000000001"


def test_one_alone_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 is the least"):
        Checkpoints(tmp_path, keep=1)


def damage(path: Path, how: str) -> None:
    model = path / "model.pt"
    if how == "flip":
        data = bytearray(model.read_bytes())
        data[len(data) // 2] ^= 1
        model.write_bytes(data)
    elif how == "cut":
        os.truncate(model, 100)
    elif how == "gone":
        model.unlink()
    elif how == "manifest":
        (path / "manifest.json").write_text("{")
    else:
        (path / "manifest.json").write_text('{"files": {"model.pt": 3}}')


@pytest.mark.parametrize("how", ["flip", "cut", "gone", "manifest", "nonsense"])
def test_a_damaged_one_is_refused_aloud(how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = Checkpoints(tmp_path)
    good = kept.save(1, parts(1))
    damage(kept.save(2, parts(2)), how)
    assert kept.newest() == good
    assert "is damaged, and not used" in caplog.text
    assert "going on from the older checkpoint" in caplog.text


def test_all_damaged_is_an_error_and_no_new_start(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for step in (1, 2):
        damage(kept.save(step, parts(step)), "cut")
    with pytest.raises(CheckpointError, match="every checkpoint is damaged"):
        kept.newest()


def test_none_at_all(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest() is None
    assert Checkpoints(tmp_path / "none").best() is None


def test_nothing_is_unpickled_but_tensors(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "evil"),)

    torch.save({"w": Evil()}, tmp_path / "model.pt")
    with pytest.raises(Exception, match="Weights only"):
        load_part(tmp_path, "model")
    assert not (tmp_path / "evil").exists()


def test_saving_again_replaces(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(1, parts(1))
    kept.save(1, parts(7))
    path = kept.newest()
    assert path is not None
    assert load_part(path, "training") == {"step": 7}
    assert names(tmp_path) == ["latest", "step-0000000001"]


def save_killed_at(folder: Path, effect: int) -> int:
    """On a process of its own: how many effects a save has, if it lives."""
    kept = Checkpoints(folder)
    for step in (1, 2):
        kept.save(step, parts(step), best=True)
    effects = die_at_effect(effect, folder)
    kept.save(3, parts(3), best=True)
    return effects()


@pytest.mark.usefixtures("for_real")
def test_killed_at_any_moment_of_a_save(tmp_path: Path) -> None:
    """Between any two effects: the newest is whole, and is the second or the third."""
    (effects,) = run(save_killed_at, tmp_path / "whole", 0, folder=tmp_path / "rank", world_size=1)
    assert effects > 10
    for effect in range(1, effects + 1):
        place = tmp_path / str(effect)
        killed = Ranks(tmp_path / f"rank{effect}", 1)
        killed.start(save_killed_at, place, effect)
        assert killed.end() == [-signal.SIGKILL]
        kept = Checkpoints(place)
        newest = kept.newest()
        assert newest is not None
        step = load_part(newest, "training")["step"]
        assert step in (2, 3)
        best = kept.best()
        assert best is not None
        assert kept.problem(best) is None
        kept.save(4, parts(4))
        assert not list(place.glob(".step-*"))
