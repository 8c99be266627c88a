"""Lightning and Hugging Face's Trainer, with castoff's callbacks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from castoff.trainers import ConfigError
from castoff.trainers.resumable.hugging_face import _Callback
from castoff.trainers.resumable.sealed import seal
from tests.trainers.resumable.attempts import attempt

# These libraries take seconds to import.


@pytest.mark.costly
def test_lightning_resumes_bit_for_bit(tmp_path: Path) -> None:
    """After a stop, with other workers, and after SIGKILL, within an epoch and at its end; with more epochs
    after a training that was complete.
    """
    from tests.trainers.resumable.with_lightning import by_lightning

    whole = attempt(by_lightning, tmp_path / "whole", 1, {})
    folder = tmp_path / "parts"
    said = attempt(by_lightning, folder, 1, {"stop_at": 2}, 1)
    assert "Stopped early at step 3 (the stop file)" in said
    attempt(by_lightning, folder, 1, {"stop_at": 12})  # an epoch's last step: it stops after the next one
    attempt(by_lightning, folder, 1, {"die_at": 19})
    attempt(by_lightning, folder, 1, {}, 0, 1, 4, 2)
    for _ in range(2):  # the second has nothing left to train
        assert attempt(by_lightning, folder, 1, {}) == whole
    assert sorted(path.name for path in folder.glob("step-*")) == ["step-0000000036", "step-0000000039"]


@pytest.mark.costly
def test_lightning_stops_and_saves_where_each_step_ends_an_epoch(tmp_path: Path) -> None:
    from tests.trainers.resumable.with_lightning import by_lightning

    whole = attempt(by_lightning, tmp_path / "whole", 1, {}, 0, 20)
    folder = tmp_path / "parts"
    others = [folder / name for name in ("step-0", "step-1", "step-0000000000")]
    for each in others:  # another program's
        each.mkdir(parents=True)
    assert "Stopped early at step 1" in attempt(by_lightning, folder, 1, {"stop_at": 0}, 0, 20)
    said = attempt(by_lightning, folder, 1, {"die_at": 2}, 0, 20, 1)
    assert (folder / "step-0000000002").is_dir(), said
    assert attempt(by_lightning, folder, 1, {}, 0, 20) == whole
    assert all(each.exists() for each in others)


@pytest.mark.costly
def test_a_trial_of_lightning_saves_nothing(tmp_path: Path) -> None:
    from tests.trainers.resumable.with_lightning import by_lightning

    attempt(by_lightning, tmp_path / "trial", 1, {}, 0, 1, 1, 3, True)
    assert not [*(tmp_path / "trial").glob("*step*")]


@pytest.mark.costly
def test_a_forgotten_ckpt_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from castoff.trainers.resumable import lightning_callback

    begins = SimpleNamespace(ckpt_path=None, global_step=0, global_rank=0)
    for has_checkpoint, asks in ((False, False), (True, True), (True, False)):
        if has_checkpoint:
            (tmp_path / "step-0000000002").mkdir(exist_ok=True)
            seal(tmp_path / "step-0000000002")
        callback = lightning_callback(tmp_path)
        if asks:
            callback.newest()
        caplog.clear()
        callback._warn_if_forgotten(begins)
        assert ("write trainer.fit(…, ckpt_path=callback.newest())" in caplog.text) == (
            has_checkpoint and not asks
        )


@pytest.mark.costly
def test_a_trainer_of_lightning_that_knows_of_one_rank_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lightning's own defaults on the CPU: each rank would train by itself."""
    from castoff.trainers.resumable import lightning_callback

    ranks = {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    for name, value in ranks.items():
        monkeypatch.setenv(name, value)
    trainer = SimpleNamespace(
        train_dataloader=[],
        ckpt_path=None,
        global_step=0,
        global_rank=0,
        strategy=SimpleNamespace(model=None),
    )
    with pytest.raises(ConfigError, match=r"rank 1 of 3, .*; pass Trainer strategy=\"ddp\", devices= "):
        lightning_callback(tmp_path).on_train_start(trainer, None)


@pytest.mark.long
def test_lightning_on_three_ranks_that_accumulate_gradients(tmp_path: Path) -> None:
    from tests.trainers.resumable.with_lightning import by_lightning

    whole = attempt(by_lightning, tmp_path / "whole", 3, {}, 0, 2)
    folder = tmp_path / "parts"
    attempt(by_lightning, folder, 3, {"stop_at": 1}, 0, 2)
    attempt(by_lightning, folder, 3, {"die_at": 7}, 0, 2)
    assert attempt(by_lightning, folder, 3, {}, 0, 2) == whole


@pytest.mark.costly
def test_hugging_faces_trainer_resumes_bit_for_bit(tmp_path: Path) -> None:
    from tests.trainers.resumable.with_hugging_face import by_hugging_face

    whole = attempt(by_hugging_face, tmp_path / "whole", 1, {})
    folder = tmp_path / "parts"
    said = attempt(by_hugging_face, folder, 1, {"stop_at": 2})
    assert "Stopped early at step 3 (the stop file)" in said
    attempt(by_hugging_face, folder, 1, {"die_at": 10})
    (folder / "checkpoint-8" / "optimizer.pt").write_bytes(b"half")
    assert "checkpoint-8 is not used: optimizer.pt has 4 bytes instead of" in attempt(
        by_hugging_face, folder, 1, {"die_at": 15}
    )
    manifest = json.loads((folder / "checkpoint-12" / "castoff.json").read_text())
    assert "trainer_state.json" in manifest["files"] and "rng_state.pth" in manifest["files"]
    assert attempt(by_hugging_face, folder, 1, {}) == whole


@pytest.mark.long
def test_hugging_faces_trainer_on_three_ranks(tmp_path: Path) -> None:
    from tests.trainers.resumable.with_hugging_face import by_hugging_face

    whole = attempt(by_hugging_face, tmp_path / "whole", 3, {})
    folder = tmp_path / "parts"
    attempt(by_hugging_face, folder, 3, {"stop_at": 2})
    attempt(by_hugging_face, folder, 3, {"die_at": 10})
    assert attempt(by_hugging_face, folder, 3, {}) == whole


def test_checkpoints_without_an_optimizer_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"save_only_model=True keeps no optimizer .* leave it out"):
        _Callback().on_train_begin(SimpleNamespace(save_only_model=True), None, None)
