"""Durable checkpoints: whole or not at all, and never a damaged one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainers.checkpoint import CheckpointError, Checkpoints, load_part


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


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from trainers.checkpoint import Checkpoints
effects, at = 0, int(sys.argv[2])
WATCHED = {"open", "os.rename", "os.mkdir", "shutil.rmtree", "os.remove", "os.rmdir"}
def audit(event, arguments):
    global effects
    if event not in WATCHED or (event == "open" and sys.argv[1] not in str(arguments[0])):
        return
    effects += 1
    if effects == at:
        os.kill(os.getpid(), signal.SIGKILL)
kept = Checkpoints(Path(sys.argv[1]))
parts = lambda n: {"model": {"w": torch.full((1000,), float(n))}, "training": {"step": n}}
for step in (1, 2):
    kept.save(step, parts(step), best=True)
fsync = os.fsync
def counted(descriptor):
    audit("os.rename", ())
    fsync(descriptor)
os.fsync = counted
sys.addaudithook(audit)
kept.save(3, parts(3), best=True)
print(effects)
"""


def save_killed_at(folder: Path, effect: int) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(effect)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_killed_at_any_moment_of_a_save_every_effect(tmp_path: Path) -> None:
    check_killed(tmp_path, every=1)


def test_killed_at_moments_of_a_save(tmp_path: Path) -> None:
    check_killed(tmp_path, every=5)


def check_killed(folder: Path, every: int) -> None:
    """Between any two effects: the newest is whole, and is the second or the third."""
    whole = save_killed_at(folder / "whole", 0)
    assert whole.returncode == 0, whole.stderr
    effects = int(whole.stdout)
    assert effects > 10
    for effect in range(1, effects + 1, every):
        place = folder / str(effect)
        assert save_killed_at(place, effect).returncode == -signal.SIGKILL
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
