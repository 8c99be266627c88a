"""Durable checkpoints: whole or not at all, never a damaged one, and the best is the best."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import Any

import pytest
import torch

from castoff.trainers.checkpointing.checkpoints import (
    Checkpoints,
    load_part,
)
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.finite_weights import NonFiniteWeights, finite
from castoff.trainers.checkpointing.writer import Writer
from castoff.trainers.distributed.explanations import explained
from tests import patience
from tests.mounts import mount_read_only, mount_small, with_mounts
from tests.trainers.disk_order import recorded_order
from tests.trainers.toys import die_at_effect, run

BETTER = {"better": True, "metrics": {"loss": 0.5}}
PARTS = ("model.pt", "training.pt")


def parts(number: int) -> dict[str, dict[str, Any]]:
    return {"model": {"w": torch.full((1000,), float(number))}, "training": {"step": number}}


def saved(kept: Checkpoints, step: int, record: dict[str, Any] | None = None, content: int = 0) -> Path:
    kept.save(step, parts(content or step))
    if record is not None:
        kept.record(step, record)
    kept.wait()
    return kept.folder / f"step-{step:010d}"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def step_of(path: Path | None) -> int:
    assert path is not None
    step: int = load_part(path, "training")["step"]
    return step


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    path = saved(kept, 3)
    assert kept.newest() == path
    assert torch.equal(load_part(path, "model")["w"], torch.full((1000,), 3.0))
    assert load_part(path, "training") == {"step": 3}
    assert names(tmp_path) == ["latest", "step-0000000003"]
    assert str((tmp_path / "latest").readlink()) == "step-0000000003"
    assert kept.best() is None
    assert kept.longest > 0


def test_the_last_ones_and_the_best_stay(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for step in range(1, 7):
        saved(kept, step, BETTER if step == 2 else {"better": False})
    assert [path.name[-1] for path in kept.all()] == ["2", "5", "6"]
    assert kept.best() == tmp_path / "step-0000000002"
    assert str((tmp_path / "best").readlink()) == "step-0000000002"
    saved(kept, 7, BETTER)
    assert [path.name[-1] for path in kept.all()] == ["6", "7"]
    assert kept.best() == tmp_path / "step-0000000007"
    assert str((tmp_path / "best").readlink()) == "step-0000000007"


def test_a_record_is_kept_with_its_checkpoint(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    path = saved(kept, 1, {"better": False, "metrics": {"loss": float("inf"), "x": 0.1}})
    assert kept.record_of(path) == {"better": False, "metrics": {"loss": float("inf"), "x": 0.1}}
    assert kept.record_of(saved(kept, 2)) is None
    with pytest.raises(TypeError, match="Tensor is not JSON"):
        kept.record(2, {"loss": torch.ones(1)})


def test_one_alone_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be at least 2"):
        Checkpoints(tmp_path, keep=1)


def test_none_at_all(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest() is None
    assert Checkpoints(tmp_path / "none").best() is None


def test_what_is_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    saved(Checkpoints(tmp_path / "run" / "checkpoints"), 1)
    latest = tmp_path / "run" / "checkpoints" / "latest"
    assert load_part(str(latest), "training") == {"step": 1}
    with pytest.raises(CheckpointError, match=r"has no part 'modle'; it has model and training$"):
        load_part(latest, "modle")
    for place in ("run", "run/checkpoints"):
        with pytest.raises(CheckpointError, match=rf"{place} is not a checkpoint; pass .* such as {latest}$"):
            load_part(tmp_path / place, "model")
    for place, problem in (
        ("missing", "does not exist"),
        ("run/checkpoints/latest/model.pt", "is not a checkpoint"),
    ):
        with pytest.raises(CheckpointError, match=rf"{place} {problem}; .*trained/NAME/checkpoints/best$"):
            load_part(str(tmp_path / place), "model")


def test_nothing_is_unpickled_but_tensors(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "evil"),)

    torch.save({"w": Evil()}, tmp_path / "model.pt")
    with pytest.raises(Exception, match="Weights only"):
        load_part(tmp_path, "model")
    assert not (tmp_path / "evil").exists()


def test_saving_again_replaces(tmp_path: Path) -> None:
    """The record is about the weights, so it stays with them alone."""
    kept = Checkpoints(tmp_path)
    saved(kept, 1, BETTER)
    path = saved(kept, 1)
    assert kept.record_of(path) == BETTER
    assert kept.best() == path
    saved(kept, 1, content=7)
    assert step_of(kept.newest()) == 7
    assert kept.best() is None
    assert names(tmp_path) == ["latest", "step-0000000001"]


def test_a_checkpoint_is_on_the_disk_before_the_one_it_replaces_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a node that loses its power may have neither."""
    kept = Checkpoints(tmp_path)
    saved(kept, 1, BETTER)
    order = recorded_order(tmp_path, monkeypatch)
    saved(kept, 1)
    draft, files = ".step-0000000001", (*PARTS, "manifest.json", "record.json")
    written = [
        *(f"flush {draft}/{name}" for name in files),
        f"flush {draft}",
        f"rename step-0000000001 to {draft}.before",
        f"rename {draft} to step-0000000001",
        "flush .",
    ]
    assert order[: len(written)] == written
    removed = {line for line in order[len(written) :] if "before" in line}
    assert removed == {f"remove {draft}.before/{name}" for name in files}


def test_a_removed_checkpoint_loses_its_name_on_the_disk_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a node that loses its power may find one with its name, and half of its files."""
    kept = Checkpoints(tmp_path)
    for step in (1, 2):
        saved(kept, step)
    order = recorded_order(tmp_path, monkeypatch)
    saved(kept, 3)
    renamed = order.index("rename step-0000000001 to .step-0000000001")
    assert order[renamed + 1] == "flush ."
    removed = {line for line in order[renamed + 2 :] if line.startswith("remove ")}
    assert removed == {f"remove .step-0000000001/{name}" for name in (*PARTS, "manifest.json")}


def test_links_are_for_people_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be none, where a file system has none, and nothing follows from them."""

    def refuse(self: Path, target: str) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    kept = Checkpoints(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "symlink_to", refuse)
        saved(kept, 1, BETTER)
    assert names(tmp_path) == ["step-0000000001"]
    (tmp_path / "best").symlink_to("nowhere")
    (tmp_path / "latest").symlink_to("nowhere")
    assert step_of(kept.best()) == step_of(kept.newest()) == 1


def test_a_copy_of_a_run_whose_links_were_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As scp -r does; checkpoints are written there as ever, and what was copied stays."""
    kept = Checkpoints(tmp_path / "run")
    saved(kept, 1, BETTER)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    copy = Checkpoints(tmp_path / "copy")
    for step in (2, 3):
        saved(copy, step, BETTER)
    assert step_of(copy.newest()) == step_of(copy.best()) == 3
    for name in ("latest", "best"):
        assert (tmp_path / "copy" / name / "model.pt").is_file()
        assert caplog.text.count(f"{name} is a folder") == 1


def test_a_record_for_one_that_was_being_replaced(tmp_path: Path) -> None:
    """Killed between two renames, training resumes from what was there before, and validates that."""
    path = saved(Checkpoints(tmp_path), 1)
    path.rename(tmp_path / f".{path.name}.before")
    kept = Checkpoints(tmp_path)
    assert step_of(kept.newest()) == 1
    kept.record(1, BETTER)
    kept.wait()
    assert kept.best() == kept.newest() == path


# --- Damage ------------------------------------------------------------------------------------------


def flips(data: bytes, every: int) -> Iterator[bytes]:
    for place in range(0, len(data), every):
        yield data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]


def damages(path: Path, every: int) -> Iterator[None]:
    """Damages a file in one way after the other, and mends it at last."""
    data = path.read_bytes()
    for damaged in (b"", data[:-1], data[: len(data) // 2], data + b"x", *flips(data, every)):
        path.write_bytes(damaged)
        yield
    path.unlink()
    yield
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["model.pt", "training.pt", "manifest.json"])
def test_a_damaged_one_is_refused_aloud(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The newest gives way to the one before; the best to none, because that would not be the best."""
    kept = Checkpoints(tmp_path)
    good = saved(kept, 1, BETTER)
    best = saved(kept, 2, BETTER)
    for _ in damages(best / name, 11 if name == "manifest.json" else 211):
        caplog.clear()
        assert kept.newest() == good
        assert "is damaged, and not used" in caplog.text
        assert "resuming from the older checkpoint" in caplog.text
        with pytest.raises(CheckpointError, match=rf"(?s)step-0000000002.*{name}.*remove that folder"):
            kept.best()
    assert kept.newest() == kept.best() == best


@pytest.mark.parametrize("content", ["3", '{"files": {"model.pt": 3}}', '{"files": 3}', "[]"])
def test_nonsense_is_damage(content: str, tmp_path: Path) -> None:
    from castoff.trainers.files.durable import checksummed

    kept = Checkpoints(tmp_path)
    good, bad = saved(kept, 1), saved(kept, 2)
    (bad / "manifest.json").write_text(content)
    assert kept.newest() == good
    (bad / "manifest.json").write_bytes(checksummed({"files": {"model.pt": 3}}))
    assert kept.newest() == good


def test_a_damaged_record_is_none_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = Checkpoints(tmp_path)
    good, bad = saved(kept, 1, BETTER), saved(kept, 2, BETTER)
    for _ in damages(bad / "record.json", 11):
        caplog.clear()
        assert kept.record_of(bad) is None
        assert ("record.json does not match its checksum" in caplog.text) == (bad / "record.json").exists()
        assert kept.best() == good
    assert kept.best() == bad


def test_a_better_one_may_take_its_place_while_it_is_looked_at(tmp_path: Path) -> None:
    """As one who generates meets a resumed training."""
    kept = Checkpoints(tmp_path)
    saved(kept, 1, BETTER)

    class Looked(Checkpoints):
        def problem(self, path: Path) -> str | None:
            for step in (2, 3, 4) if path.name == "step-0000000001" else ():
                saved(kept, step, BETTER if step == 2 else None)
            return super().problem(path)

    assert step_of(Looked(tmp_path).best()) == 2


def test_what_may_be_the_best_stays(tmp_path: Path) -> None:
    """Its record is damaged, and can be made anew; a model that is removed cannot."""
    kept = Checkpoints(tmp_path)
    path = saved(kept, 1, BETTER)
    (path / "record.json").write_text("x")
    for step in (2, 3, 4):
        saved(kept, step)
    assert [path.name[-1] for path in kept.all()] == ["1", "3", "4"]
    kept.record(1, BETTER)
    kept.wait()
    assert kept.best() == path


def test_all_damaged_is_an_error_and_no_new_start(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "toy" / "checkpoints")
    for step in (1, 2):
        os.truncate(saved(kept, step) / "model.pt", 100)
    with pytest.raises(CheckpointError, match="every checkpoint is damaged") as error:
        kept.newest()
    ending = f"(castoff train --fresh), which renames {tmp_path / 'toy'}"
    assert ending in str(error.value)


def test_a_damaged_one_does_not_count_among_those_that_stay(tmp_path: Path) -> None:
    """Else one good checkpoint alone would be left, which may be damaged, too."""
    kept = Checkpoints(tmp_path)
    saved(kept, 1)
    os.truncate(saved(kept, 5) / "model.pt", 100)
    assert step_of(kept.newest()) == 1
    saved(kept, 2)
    assert [path.name[-1] for path in kept.all()] == ["1", "2"]


# --- On a thread -------------------------------------------------------------------------------------


class HeldBack:
    """Flushes wait for `release`: nothing becomes durable before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.begun, self.release = threading.Event(), threading.Event()
        flush = os.fsync

        def held(descriptor: int) -> None:
            self.begun.set()
            assert self.release.wait(patience.SECONDS)
            flush(descriptor)

        monkeypatch.setattr(os, "fsync", held)


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldBack]:
    held = HeldBack(monkeypatch)
    yield held
    held.release.set()


def two_parts(number: float) -> dict[str, dict[str, Any]]:
    return {"model": {"w": torch.full((1000,), number)}, "training": {"w": torch.full((1000,), number)}}


@pytest.mark.timeout(120)
def test_training_continues_while_a_checkpoint_is_written(tmp_path: Path, held_back: HeldBack) -> None:
    kept = Checkpoints(tmp_path)
    state = two_parts(1)
    kept.save(1, state)
    kept.record(1, BETTER)
    assert held_back.begun.wait(patience.SECONDS)
    for part in state.values():
        part["w"].fill_(9)
    assert kept.all() == [], "it is not on the disk"
    held_back.release.set()
    kept.wait()
    path = kept.best()
    assert path is not None
    assert torch.equal(load_part(path, "model")["w"], torch.ones(1000))
    assert torch.equal(load_part(path, "training")["w"], torch.ones(1000))


@pytest.mark.timeout(120)
def test_one_is_written_at_a_time(
    tmp_path: Path, held_back: HeldBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second save waits, and until then nothing touches the memory that the first is written from."""
    kept = Checkpoints(tmp_path)
    kept.save(1, two_parts(1))
    wait = Writer.wait

    def released(self: Writer) -> None:
        held_back.release.set()
        wait(self)

    monkeypatch.setattr(Writer, "wait", released)
    kept.save(2, two_parts(2))
    kept.wait()
    for path, number in zip(kept.all(), (1, 2), strict=True):
        assert load_part(path, "training")["w"].unique().tolist() == [number]


def open_files() -> list[str]:
    return [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:This process")  # is multi-threaded
def test_a_fork_has_nothing_of_it(tmp_path: Path, held_back: HeldBack) -> None:
    """A loader's worker, begun in the middle of a write: holds no file of it, and waits for nothing."""
    kept = Checkpoints(tmp_path)
    kept.save(1, parts(1))
    assert held_back.begun.wait(patience.SECONDS)
    assert any("model.pt" in path for path in open_files())
    pid = os.fork()
    if pid == 0:
        kept.wait()
        os._exit(any("model.pt" in path for path in open_files()))
    assert os.waitpid(pid, 0)[1] == 0
    held_back.release.set()
    kept.wait()
    assert step_of(kept.newest()) == 1


def test_an_error_is_raised_once(tmp_path: Path) -> None:
    """By the next save or by waiting; then it continues, and what was durable has not changed."""
    kept = Checkpoints(tmp_path / "checkpoints")
    saved(kept, 1, BETTER)
    shutil.move(tmp_path / "checkpoints", tmp_path / "away")
    (tmp_path / "checkpoints").touch()
    for tell in (partial(kept.save, 3, parts(3)), kept.wait):
        kept.save(2, parts(2))
        kept.record(2, BETTER)
        with pytest.raises(FileExistsError, match="checkpoints"):
            tell()
    kept.wait()
    (tmp_path / "checkpoints").unlink()
    shutil.move(tmp_path / "away", tmp_path / "checkpoints")
    assert step_of(kept.newest()) == step_of(kept.best()) == 1
    saved(kept, 3)
    assert step_of(kept.newest()) == 3


def save_and_fail(folder: Path) -> None:
    with Checkpoints(folder) as kept:
        kept.save(2, parts(2))
        kept.record(9, {})  # there is none of step 9, but the other error is the one to tell of
        raise KeyError("mine")


def test_in_a_with_statement(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as kept:
        kept.save(1, parts(1))
    assert step_of(kept.newest()) == 1
    with pytest.raises(KeyError, match="mine"):
        save_and_fail(tmp_path)
    assert step_of(kept.newest()) == 2


# --- Weights that are not numbers ---------------------------------------------------------------------


@pytest.mark.parametrize("part", ["model", "ema"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_become_no_checkpoint(part: str, bad: float, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    saved(kept, 1, BETTER)
    state = {**parts(2), "ema": {"fine": torch.ones(3), "n": torch.ones(3, dtype=torch.int64)}}
    state[part]["layer.weight"] = torch.ones(70_000)
    state[part]["layer.weight"][65_000] = bad
    state["training"]["best"] = bad
    kept.save(2, state)
    kept.record(2, BETTER)
    with pytest.raises(NonFiniteWeights, match=rf"step 2 .* first in {part}\.layer\.weight") as raised:
        kept.wait()
    assert explained(raised.value, None) == str(raised.value)
    assert names(tmp_path) == ["best", "latest", "step-0000000001"]
    assert step_of(kept.newest()) == step_of(kept.best()) == 1


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn],
)
def test_a_sum_that_overflows_is_not_taken_for_nan(dtype: torch.dtype) -> None:
    real = torch.float32 if dtype.is_complex else dtype
    numbers = torch.full((40_000,), torch.finfo(real).max, dtype=torch.float64).to(dtype)
    assert finite(numbers)
    assert finite(numbers.reshape(200, 200).t())
    numbers[39_999] = float("nan")
    assert not finite(numbers)
    assert finite(torch.ones(3, dtype=torch.int64))
    assert not finite(torch.tensor(float("inf")))


# --- Killed ------------------------------------------------------------------------------------------


def killed_at_each_effect(folder: Path, what: Callable[[Checkpoints], None]) -> list[tuple[int, int]]:
    """(the newest, the best) after a process was killed right before its first effect, its second …

    On a rank of its own, which forks them: in the middle of `what`, and 1 (the best), 2 and 3 are there.
    """
    vars(os)["fsync"] = lambda descriptor: None  # what a kill leaves needs no disk, which may be slow
    base = Checkpoints(folder / "base")
    for step in (1, 2, 3):
        saved(base, step, BETTER if step == 1 else {"better": False})
    found: list[tuple[int, int]] = []
    for effect in count(1):
        place = folder / f"{effect}"
        shutil.copytree(base.folder, place, symlinks=True)
        pid = os.fork()
        if pid == 0:
            die_at_effect(effect)
            kept = Checkpoints(place)
            what(kept)
            kept.wait()
            os._exit(0)
        if os.waitpid(pid, 0)[1] != signal.SIGKILL:
            return found
        kept = Checkpoints(place)
        assert [problem for path in kept.all() if (problem := kept.problem(path))] == []
        found.append((step_of(kept.newest()), step_of(kept.best())))
        saved(kept, 9, BETTER)
        assert step_of(kept.best()) == 9
        assert not list(place.glob(".step-*"))
        shutil.rmtree(place)
    raise AssertionError


def save_and_record(kept: Checkpoints) -> None:
    kept.save(4, parts(4))
    kept.record(4, BETTER)


def save_again(kept: Checkpoints) -> None:
    kept.save(3, parts(7))


@pytest.mark.usefixtures("for_real")
def test_killed_at_any_moment_of_a_save_and_a_record(tmp_path: Path) -> None:
    """Nothing is ever damaged; the newest moves first, and the best with its record, not before."""
    (found,) = run(killed_at_each_effect, tmp_path, save_and_record, folder=tmp_path / "rank", world_size=1)
    assert len(found) > 40
    assert [state for state, _ in groupby(found)] == [(3, 1), (4, 1), (4, 4)]


@pytest.mark.usefixtures("for_real")
def test_killed_while_one_is_replaced(tmp_path: Path) -> None:
    (found,) = run(killed_at_each_effect, tmp_path, save_again, folder=tmp_path / "rank", world_size=1)
    assert [state for state, _ in groupby(found)] == [(3, 1), (7, 1)]


def save_for_ever(folder: Path, durable: Path) -> None:
    """From the newest on, as a training; tells of each step that it is durable, and whether it is best."""
    kept = Checkpoints(folder)
    newest = kept.newest()
    with durable.open("a") as file:
        for step in count(1 if newest is None else step_of(newest) + 1):
            better = step % 3 == 0
            kept.save(step, parts(step))
            kept.record(step, {"better": better})
            if step % 2:
                kept.wait()
                file.write(f"{step} {int(better)}\n")
                file.flush()


def killed_again_and_again(folder: Path, times: int) -> int:
    durable = folder / "durable"
    durable.touch()
    given: list[list[str]] = []
    for _ in range(times):
        before = len(given)
        pid = os.fork()
        if pid == 0:
            save_for_ever(folder / "checkpoints", durable)
        patience.until(lambda before=before: len(durable.read_text().splitlines()) > before)  # type: ignore[misc]
        time.sleep(random.uniform(0.0, 0.05))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        given = [line.split() for line in durable.read_text().splitlines()]
        kept = Checkpoints(folder / "checkpoints")
        assert [problem for path in kept.all() if (problem := kept.problem(path))] == []
        assert step_of(kept.newest()) >= int(given[-1][0])
        if best := [int(step) for step, better in given if int(better)]:
            assert step_of(kept.best()) >= best[-1]
            assert step_of(kept.best()) % 3 == 0
    return len(given)


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
def test_killed_fifty_times(tmp_path: Path) -> None:
    (given,) = run(killed_again_and_again, tmp_path, 50, folder=tmp_path / "rank", world_size=1)
    assert given >= 50


# --- Disks -------------------------------------------------------------------------------------------


@contextmanager
def catching(kind: type[OSError]) -> Iterator[list[OSError]]:
    caught: list[OSError] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)


def fill(folder: Path, pages: int) -> None:
    """Leave room for so many pages of 4 KiB."""
    with (folder / "fill").open("wb", buffering=0) as file:
        with catching(OSError):
            while True:
                file.write(b"x" * 4096)
        file.truncate(file.tell() - 4096 * pages)


@pytest.mark.usefixtures("for_real")
def test_a_disk_that_fills_up_at_each_stage(tmp_path: Path) -> None:
    def test() -> None:
        disk = tmp_path / "disk"
        mount_small(disk, "size=256k")
        kept = Checkpoints(disk / "checkpoints")
        saved(kept, 1, BETTER)
        saved(kept, 2)
        for pages in count():
            fill(disk, pages)
            kept.save(3, parts(3))
            with catching(OSError) as caught:
                kept.wait()
            if not caught:
                break
            assert caught[0].errno == errno.ENOSPC
            assert "No space left on device" in str(explained(caught[0], str(disk)))
            assert step_of(kept.newest()) == 2
            assert step_of(kept.best()) == 1
            assert not list(kept.folder.glob(".step-*")), "what is half written takes no room"
            (disk / "fill").unlink()
        assert pages >= 3
        assert step_of(kept.newest()) == 3

    with_mounts(tmp_path, test)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("flushes", range(4))
def test_a_disk_that_turns_read_only(flushes: int, tmp_path: Path) -> None:
    """Before a save, or in the middle of it."""

    def test() -> None:
        disk = tmp_path / "disk"
        mount_small(disk, "size=256k")
        kept = Checkpoints(disk / "checkpoints")
        saved(kept, 1, BETTER)
        saved(kept, 2)
        flush, left = os.fsync, iter(range(flushes - 1, -1, -1))

        def flush_and_turn(descriptor: int) -> None:
            flush(descriptor)
            if next(left, None) == 0:
                mount_read_only(disk)

        if flushes:
            vars(os)["fsync"] = flush_and_turn
        else:
            mount_read_only(disk)
        kept.save(3, parts(3))
        with pytest.raises(OSError, match="Read-only file system") as raised:
            kept.wait()
        assert raised.value.errno == errno.EROFS
        assert "Read-only" in str(explained(raised.value, str(disk)))
        kept.wait()
        assert step_of(kept.newest()) == 2
        assert step_of(kept.best()) == 1

    with_mounts(tmp_path, test)


def test_folders_of_others_stay(tmp_path: Path) -> None:
    others = [tmp_path / name for name in (".step-mine", "step-1", "step-2")]
    for each in others:
        each.mkdir()
    kept = Checkpoints(tmp_path)
    for step in range(4):
        saved(kept, step)
    assert all(each.exists() for each in others) and len(kept.all()) < 4
