"""A program's own loop: it stops and dies anywhere, and resumes bit for bit."""

from __future__ import annotations

import gc
import logging
import signal
import weakref
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from castoff.trainers import CheckpointError, ConfigError, resumable
from castoff.trainers.resumable.ranks import joined
from tests.trainers.resumable.attempts import attempt
from tests.trainers.resumable.programs import Numbers, by_hand, network
from tests.trainers.toys import Ranks


@pytest.mark.parametrize("world_size", [1, pytest.param(3, marks=pytest.mark.costly)])
def test_a_loop_resumes_bit_for_bit(world_size: int, tmp_path: Path) -> None:
    """After a stop, with other workers, after SIGKILL; at the end of an epoch and within one."""
    whole = attempt(by_hand, tmp_path / "whole", world_size, {})
    per_epoch = -(-50 // (4 * world_size))
    folder = tmp_path / "parts"
    said = attempt(by_hand, folder, world_size, {"stop_at": 2}, 2)
    assert "Stopped early at step" in said and "the stop file" in said
    attempt(by_hand, folder, world_size, {"stop_at": per_epoch - (world_size > 1)})
    attempt(by_hand, folder, world_size, {"die_at": per_epoch + 3})
    attempt(by_hand, folder, world_size, {"die_at": 3 * per_epoch - 1})
    assert attempt(by_hand, folder, world_size, {}, 1) == whole


def test_the_process_group_outlives_a_model_that_holds_it(tmp_path: Path) -> None:
    """A destructor of gloo's group joins a thread, which may wait for the GIL of who calls it."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    joined()
    held = [weakref.ref(dist.group.WORLD)]
    dist.destroy_process_group()
    gc.collect()
    assert held[0]() is not None


def test_an_epoch_without_its_batches(tmp_path: Path) -> None:
    run = resumable.Run(tmp_path / "run", model=network())
    with pytest.raises(RuntimeError, match=r"epoch 0 ended without run\.batches.*for batch in run\.batches"):
        for _ in run.epochs(2):
            pass
    assert not [*(tmp_path / "run").glob("step-*")]


def test_a_second_loader_in_an_epoch(tmp_path: Path) -> None:
    run = resumable.Run(tmp_path / "run", model=network())
    training, validation = resumable.Loader(Numbers(), 25), resumable.Loader(Numbers(), 10)
    for _ in run.epochs(1):
        next(run.batches(training))
        with pytest.raises(RuntimeError, match="iterate over a validation loader directly"):
            next(run.batches(validation))
        break


def test_a_complete_training_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    for _ in range(2):
        run = resumable.Run(tmp_path / "run", model=model)
        with caplog.at_level(logging.INFO, "castoff.trainers.resumable"):
            trained = [epoch for epoch in run.epochs(2) for _ in run.batches(resumable.Loader(Numbers(), 25))]
    assert trained == []
    assert "Nothing is left to train" in caplog.text


def test_weights_have_their_own_names_in_their_own_file(tmp_path: Path) -> None:
    model = network()
    wrapped = nn.parallel.DistributedDataParallel.__new__(_Wrapped)
    nn.Module.__init__(wrapped)
    wrapped.module = model
    resumable.Run(tmp_path, model=wrapped).finish()
    saved = torch.load(tmp_path / "step-0000000000" / "model.pt")
    assert saved.keys() == model.state_dict().keys()


class _Wrapped(nn.parallel.DistributedDataParallel):
    """Like DDP, without a group."""

    find_unused_parameters = True


def test_it_neither_saves_nor_stops_between_the_batches_of_a_step(tmp_path: Path) -> None:
    run = resumable.Run(tmp_path, save_every=1, model=network())
    for _ in run.epochs(1):
        for _ in run.batches(resumable.Loader(Numbers(), 5), accumulate=4):
            if run.step == 8:
                run._checkpoints.wait()
                steps = [path.name for path in run._checkpoints.all()]
    assert steps == ["step-0000000004", "step-0000000008"]


# Mistakes


def test_parts_have_names_and_there_are_some(tmp_path: Path) -> None:
    words = r"resumable\.Run\(model=model, optimizer=optimizer\)$"
    with pytest.raises(TypeError, match=rf"the folder is a Sequential; give models and .* {words}"):
        resumable.Run(network())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"its checkpoints would hold no weights; write {words}"):
        resumable.Run(tmp_path / "run")
    with pytest.raises(ValueError, match="save_every is 0, but must be an integer from 1 on"):
        resumable.Run(tmp_path / "run", save_every=0, model=network())
    assert not [*tmp_path.iterdir()]


def test_an_epoch_has_its_batches_once(tmp_path: Path) -> None:
    """With `range` instead of `run.epochs`, the others would be empty; so would a validation."""
    run = resumable.Run(tmp_path, model=network())
    loader = resumable.Loader(Numbers(), 25)
    assert len(list(run.batches(loader))) == 2
    with pytest.raises(RuntimeError, match=r"no batches left; begin each epoch by `for epoch in run.epochs"):
        next(run.batches(loader))
    run.finish()


def test_a_data_loader_of_torch_is_refused(tmp_path: Path) -> None:
    run = resumable.Run(tmp_path, model=network())
    with pytest.raises(TypeError, match=r"takes a resumable.Loader, not a DataLoader, which cannot begin in"):
        next(run.batches(DataLoader(Numbers())))  # type: ignore[arg-type]
    run.finish()


def test_other_parts_than_those_of_the_checkpoint_are_refused(tmp_path: Path) -> None:
    resumable.Run(tmp_path, model=network()).finish()
    with pytest.raises(ConfigError, match=r"its parts are model, net, but those in .*0 are model"):
        resumable.Run(tmp_path, model=network(), net=network())
    with pytest.raises(TypeError, match=r"best is a float without state_dict .* run.state"):
        resumable.Run(tmp_path, best=1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"there is no save_evry; did you mean save_every"):
        resumable.Run(tmp_path, save_evry=3)  # type: ignore[arg-type]


def test_another_batch_size_within_an_epoch_is_refused(tmp_path: Path) -> None:
    run = resumable.Run(tmp_path, model=network())
    for _ in run.batches(resumable.Loader(Numbers(), 5)):
        if run.step == 3:
            break
    run.finish()
    again = resumable.Run(tmp_path, model=network())
    assert (again.step, again.consumed) == (4, 4)
    with pytest.raises(ConfigError, match=r"batch_size x ranks is 6, but was 5 .* is 4 batches; use 5 again"):
        next(again.batches(resumable.Loader(Numbers(), 6)))
    assert len(list(again.batches(resumable.Loader(Numbers(), 5)))) == 6
    again.finish()


def test_damaged_checkpoints_are_passed_over_and_without_another_refused(tmp_path: Path) -> None:
    run = resumable.Run(tmp_path, save_every=3, model=network())
    for _ in run.epochs(1):
        for _ in run.batches(resumable.Loader(Numbers(), 5)):
            pass
    for path, before in zip(reversed(run._checkpoints.all()), (9, None), strict=True):
        with (path / "model.pt").open("r+b") as file:
            file.truncate(100)
        if before is not None:
            assert resumable.Run(tmp_path, model=network()).step == before
    with pytest.raises(CheckpointError, match=rf"every checkpoint is damaged; .* or remove {tmp_path}"):
        resumable.Run(tmp_path, model=network())


def test_ranks_without_a_group_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": 1,
        "WORLD_SIZE": 2,
        "LOCAL_RANK": 1,
        "MASTER_ADDR": "h",
        "MASTER_PORT": 1,
    }.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(ConfigError, match=r"rank 1 of 2, but it has joined no process group; call"):
        resumable.Run(tmp_path, model=network())


def test_two_trainings_in_a_folder(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "ranks", 1)
    ranks.start(hold, tmp_path / "run", tmp_path / "held")
    try:
        while not (tmp_path / "held").exists():
            assert ranks.processes[0].poll() is None, ranks.log(0)
        with pytest.raises(ConfigError, match=r"is training in .* own folder: resumable.Run\(FOLDER, …\)"):
            resumable.Run(tmp_path / "run", model=network())
    finally:
        ranks.kill()


def hold(folder: Path, held: Path) -> None:
    resumable.Run(folder, model=network())
    held.touch()
    signal.pause()
