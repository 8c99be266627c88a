"""Checkpoints of sharded states: written by all ranks, whole or not at all, read by any number of them."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import signal
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from castoff.trainers.checkpointing.checkpoints import Checkpoints, has_part, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.finite_weights import NonFiniteWeights
from castoff.trainers.checkpointing.shards import local_of
from castoff.trainers.distributed.explanations import explained
from castoff.trainers.distributed.process_group import initialize_ddp
from castoff.trainers.files.durable import SummedFile
from castoff.trainers.program.training import train
from tests.ports import free_port
from tests.trainers.checkpointing.sharded import begin, digest, end
from tests.trainers.toys import Toy, config, die_at_effect, run
from tests.trainers.toys import digest as model_digest

pytestmark = pytest.mark.usefixtures("for_real")

PATH = "step-0000000002"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- Any number of ranks, in either form -------------------------------------------------------------


def trained_and_saved(folder: Path, kind: str, optimizer: str) -> tuple[list[str], list[float]]:
    training = begin(kind, optimizer)
    kept = Checkpoints(folder)
    for _ in range(2):
        training.step()
    training.save(kept, 2)
    digests = training.digests()
    further = [training.step() for _ in range(3)]
    end()
    return digests, further


def loaded_and_trained(folder: Path, kind: str, optimizer: str) -> tuple[list[str], list[float]]:
    training = begin(kind, optimizer, seed=1)
    newest = Checkpoints(folder).newest(training.context)
    assert newest is not None
    training.load(newest)
    digests = training.digests()
    further = [training.step() for _ in range(3)]
    end()
    return digests, further


@pytest.mark.parametrize(
    ("saved", "loaded", "optimizer"),
    [
        (("fsdp", 2), ("fsdp", 3), "AdamW"),
        (("fsdp", 3), ("ddp", 1), "SGD"),
        (("ddp", 1), ("fsdp", 2), "AdamW"),
        pytest.param(("fsdp", 2), ("fsdp", 2), "SGD", marks=pytest.mark.long),
        pytest.param(("fsdp", 4), ("fsdp", 2), "AdamW", marks=pytest.mark.long),
        pytest.param(("ddp", 2), ("fsdp", 3), "SGD", marks=pytest.mark.long),
        pytest.param(("fsdp", 1), ("ddp", 2), "AdamW", marks=pytest.mark.long),
    ],
    ids=lambda each: "-".join(map(str, each)) if isinstance(each, tuple) else each,
)
def test_it_resumes_on_another_number_of_ranks_and_in_another_form(
    saved: tuple[str, int], loaded: tuple[str, int], optimizer: str, tmp_path: Path
) -> None:
    """Weights and the optimizer's state equal to the bit, and the losses that follow to rounding."""
    before = run(
        trained_and_saved, tmp_path / "out", saved[0], optimizer, folder=tmp_path / "a", world_size=saved[1]
    )
    after = run(
        loaded_and_trained,
        tmp_path / "out",
        loaded[0],
        optimizer,
        folder=tmp_path / "b",
        world_size=loaded[1],
    )
    assert len({tuple(digests) for digests, _ in (*before, *after)}) == 1
    for _, losses in (*before, *after):
        assert losses == pytest.approx(before[0][1], rel=1e-5)
        if saved == loaded:
            assert losses == before[0][1]
    folders = {"fsdp": "shards", "ddp": "model.pt"}
    assert names(tmp_path / "out" / PATH) == sorted(["manifest.json", folders[saved[0]], "training.pt"])


# --- Read by one process -----------------------------------------------------------------------------


def two_saved(folder: Path) -> tuple[str, str]:
    training = begin("fsdp")
    kept = Checkpoints(folder)
    training.step()
    training.save(kept, 1)
    training.step()
    training.save(kept, 2)
    found = digest(training.model.state_dict()), digest(training.optimizer.state_dict())
    for each in training.model.parameters():
        local_of(each).zero_()  # what is saved does not change
    end()
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder with two checkpoints by two ranks; digests of the newest's weights and optimizer."""
    folder = tmp_path_factory.mktemp("made")
    return folder / "out", *run(two_saved, folder / "out", folder=folder / "ranks", world_size=2)[0]


def test_a_single_process_reads_it(made: tuple[Path, str, str]) -> None:
    folder, weights, optimizer = made
    newest = Checkpoints(folder).newest()
    assert newest == folder / PATH
    assert digest(load_part(newest, "model")) == weights
    assert digest(load_part(newest, "training")["engine"]["optimizer"]) == optimizer
    assert (has_part(newest, "model"), has_part(newest, "training"), has_part(newest, "ema")) == (
        True,
        True,
        False,
    )
    with pytest.raises(CheckpointError, match=r"has no part 'ema'; it has model and training$"):
        load_part(newest, "ema")


def test_torchs_own_loader_reads_it(made: tuple[Path, str, str]) -> None:
    folder, _, _ = made
    wanted = load_part(folder / PATH, "model")
    state = {"model": {name: torch.empty_like(each) for name, each in wanted.items()}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch.distributed is not initialised
        load(state, checkpoint_id=folder / PATH / "shards")
    assert digest(state["model"]) == digest(wanted)


def test_nothing_else_is_unpickled(made: tuple[Path, str, str], tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "evil"),)

    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(pickle.UnpicklingError, match=r"names posix\.mkdir"):
        load_part(tmp_path, "model")
    assert not (tmp_path / "evil").exists()


def test_a_damaged_one_is_not_used(made: tuple[Path, str, str]) -> None:
    folder, _, _ = made
    kept = Checkpoints(folder)
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp"):
        file = folder / PATH / "shards" / name
        good = file.read_bytes()
        for bad in (good[:-1], bytes([good[0] ^ 1]) + good[1:], None):
            file.unlink() if bad is None else file.write_bytes(bad)
            assert f"shards/{name}" in str(kept.problem(folder / PATH))
            newest = kept.newest()
            assert newest is not None and newest.name == "step-0000000001"
        file.write_bytes(good)
    assert kept.problem(folder / PATH) is None


# --- Together ----------------------------------------------------------------------------------------


def damaged_on_one(folder: Path) -> list[str | None]:
    """The newest after each of the files is damaged: a rank reads only some of them."""
    training = begin("fsdp")
    kept = Checkpoints(folder)
    training.save(kept, 1)
    training.save(kept, 2)
    found: list[str | None] = []
    for name in ("shards/__0_0.distcp", "shards/__1_0.distcp", "training.pt", "manifest.json"):
        file = folder / PATH / name
        good = training.context.on_main(file.read_bytes)
        training.context.on_main(partial(file.write_bytes, good[:-2] + b"??"))
        newest = kept.newest(training.context)
        found.append(newest.name if newest is not None else None)
        training.context.on_main(partial(file.write_bytes, good))
    newest = kept.newest(training.context)
    end()
    return [*found, newest.name if newest is not None else None]


def test_ranks_verify_it_together_and_agree(tmp_path: Path) -> None:
    answers = run(damaged_on_one, tmp_path / "out", folder=tmp_path / "ranks", world_size=2)
    assert answers == [[*["step-0000000001"] * 4, PATH]] * 2


def full_on_one(folder: Path) -> tuple[tuple[str, int], list[str]]:
    training = begin("fsdp")
    kept = Checkpoints(folder)
    training.save(kept, 1)
    before = digest(load_part(folder / "step-0000000001", "model"))
    training.step()
    write = SummedFile.write

    def full(self: SummedFile, data: bytes | memoryview) -> int:
        if training.context.rank == 1:
            with self._refusals():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SummedFile, "write", full)
        with pytest.raises(OSError) as raised:
            training.save(kept, 2)
    said = explained(raised.value, str(folder))
    training.context.barrier("the end")
    there = names(folder)
    assert kept.newest(training.context) == folder / "step-0000000001"
    assert digest(load_part(folder / "step-0000000001", "model")) == before
    training.save(kept, 2)
    newest = kept.newest(training.context)
    assert newest == folder / PATH
    end()
    return (str(said), vars(raised.value)["reporting_rank"]), there


def test_a_disk_that_is_full_on_one_rank(tmp_path: Path) -> None:
    """All hear of it, nothing half-written stays, and the next checkpoint is written."""
    answers = run(full_on_one, tmp_path / "out", folder=tmp_path / "ranks", world_size=2)
    file = tmp_path / "out" / f".{PATH}" / "shards" / "__1_0.distcp"
    said = f"training.path: {file}: No space left on device"
    assert answers == [((said, 1), ["latest", "step-0000000001"])] * 2


def not_finite_on_one(folder: Path) -> tuple[str, list[str]]:
    training = begin("fsdp")
    kept = Checkpoints(folder)
    training.save(kept, 1)
    if training.context.rank == 1:
        local_of(training.model.get_parameter("norm.weight"))[0] = float("nan")
    with pytest.raises(NonFiniteWeights) as raised:
        training.save(kept, 2)
    training.context.barrier("the end")
    there = names(folder)
    end()
    return str(raised.value), there


def test_a_shard_that_is_not_finite(tmp_path: Path) -> None:
    answers = run(not_finite_on_one, tmp_path / "out", folder=tmp_path / "ranks", world_size=2)
    assert all("step 2" in said and "first in model.norm.weight" in said for said, _ in answers)
    assert [there for _, there in answers] == [["latest", "step-0000000001"]] * 2


def saved_again(folder: Path) -> list[bool]:
    """Whether the record is still there: after the same weights, after others."""
    training = begin("fsdp")
    kept = Checkpoints(folder)
    found = []
    training.save(kept, 2)
    if training.context.is_main:
        kept.record(2, {"better": True})
    for _ in range(2):
        training.save(kept, 2)
        training.context.barrier("saved")
        found.append(kept.best() is not None)
        training.step()
    end()
    return found


def test_a_record_stays_with_the_weights_alone(tmp_path: Path) -> None:
    answers = run(saved_again, tmp_path / "out", folder=tmp_path / "ranks", world_size=2)
    assert answers == [[True, False]] * 2


# --- Killed ------------------------------------------------------------------------------------------


def killed(folder: Path, dying: tuple[int, ...], effects: Sequence[int]) -> list[tuple[int, int]]:
    """(the newest, the best) after ranks were killed right before one of their effects on the disk.

    On a rank of its own, which forks all others: in the middle of a save and a record, and 1 (the best) and 2
    are there.
    """
    for step in (1, 2):
        _two_ranks(partial(_save, folder / "base", step))
    found: list[tuple[int, int]] = []
    for effect in effects:
        place = folder / f"{effect}"
        shutil.copytree(folder / "base", place, symlinks=True)

        def save(rank: int, place: Path = place, effect: int = effect) -> None:
            if rank in dying:
                die_at_effect(effect)
            with suppress(RuntimeError):  # the other rank is lost
                _save(place, 3, rank)

        if signal.SIGKILL not in _two_ranks(save):
            return found
        kept = Checkpoints(place)
        assert [problem for path in kept.all() if (problem := kept.problem(path))] == []
        found.append((_step_of(kept.newest()), _step_of(kept.best())))
        shutil.rmtree(place)
    return found


def _save(folder: Path, step: int, rank: int) -> None:
    initialize_ddp(rank, 2, device="cpu")
    mesh = init_device_mesh("cpu", (2,))
    weights, moment = (
        DTensor.from_local(torch.full((100, 3), number * step), mesh, [Shard(0)]) for number in (1.0, 2.0)
    )
    kept = Checkpoints(folder)
    kept.save(step, {"model": {"w": weights}, "training": {"step": step, "moment": moment}})
    if rank == 0:
        kept.record(step, {"better": step != 2})
    kept.wait()
    dist.barrier()


def _step_of(path: Path | None) -> int:
    assert path is not None
    training = load_part(path, "training")
    step: int = training["step"]
    assert path.name == f"step-{step:010d}"
    assert torch.equal(load_part(path, "model")["w"], torch.full((200, 3), float(step)))
    assert torch.equal(training["moment"], torch.full((200, 3), 2.0 * step))
    return step


def _two_ranks(work: Callable[[int], None]) -> list[int]:
    """The signals that ended two ranks forked from this process; 0: none."""
    port = str(free_port())
    pids = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            vars(os)["fsync"] = lambda descriptor: None  # what a kill leaves needs no disk, which may be slow
            os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
            os.environ.update(MASTER_PORT=port, CASTOFF_RANK=f"{rank}/2")
            work(rank)
            os._exit(0)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) * -1 for pid in pids]


@pytest.mark.parametrize(
    ("dying", "effects"),
    [
        ((0,), (1, 12, 28, 50)),
        ((0, 1), (2,)),
        pytest.param((1,), range(1, 99), marks=pytest.mark.long),
        pytest.param((0,), range(1, 99), marks=pytest.mark.long),
    ],
)
def test_killed_at_any_moment(dying: tuple[int, ...], effects: Sequence[int], tmp_path: Path) -> None:
    """Nothing is ever damaged; the newest moves first, and the best with its record, not before."""
    (found,) = run(killed, tmp_path, dying, effects, folder=tmp_path / "rank", world_size=1)
    assert len(found) >= min(len(effects), 3)
    moved = [(2, 1), (3, 1), (3, 3)]
    assert [state for state, _ in groupby(found)] == (moved if dying == (0,) else moved[:1])


# --- A training --------------------------------------------------------------------------------------


def trained(folder: Path, strategy: str, batch_size: int, epochs: int) -> tuple[list[float], str, str]:
    """Losses of all validations; digests of the last weights and of the best ones."""
    averaged = {"ema_decay": 0.9, "batch_size": batch_size, "num_epochs": epochs}
    fields = {**config(folder, **averaged), "parallel": {"strategy": strategy}}
    fields["training"]["optimizer_kwargs"] = {"lr": 0.002}
    made = train(fields, Toy(dropout=0.0)).trainer
    losses = [each["loss"] for each in made.val_data]
    return losses, model_digest(made.model), model_digest(made.engine.judged)


def test_a_training_changes_ranks_and_strategy(tmp_path: Path) -> None:
    """As one that is not interrupted, to rounding; and all ranks have the same best weights at each end."""
    whole = run(trained, tmp_path / "whole", "ddp", 12, 4, folder=tmp_path / "whole-ranks", world_size=1)[0]
    for epochs, (strategy, ranks) in enumerate([("fsdp", 2), ("fsdp", 3), ("ddp", 1), ("fsdp", 2)], 1):
        arguments = (tmp_path / "out", strategy, 12 // ranks, epochs)
        answers = run(trained, *arguments, folder=tmp_path / f"{epochs}", world_size=ranks)
        assert len(set(answers[0][1:])) == 2
        assert all(answer == answers[0] for answer in answers)
        assert answers[0][0] == pytest.approx(whole[0][:epochs], rel=1e-4)
        best = Checkpoints(tmp_path / "out" / "toy" / "checkpoints").best()
        assert best is not None
        assert (best / "shards").is_dir() == (strategy == "fsdp")
        judged = Toy(dropout=0.0).build_model()
        judged.load_state_dict(load_part(best, "ema"))
        assert model_digest(judged) == answers[0][2]
