"""Durable checkpoints: complete or absent, and verified before they are used.

    checkpoints/
      step-0000000400/   model.pt  training.pt  manifest.json  record.json
                         shards/ in place of model.pt, if the states are sharded
      latest  best       links for people, to the newest and the best

Each checkpoint is written under a temporary name, its files and folder are flushed to disk, and one rename
makes it appear. The manifest has the files' sizes and CRC-32 sums, its own sum, the format, and the versions
of castoff and torch; a checkpoint that does not match its manifest is refused. The record has the metrics of
the later validation, and also appears by one rename; the records alone decide which checkpoint is the best.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.finite_weights import refuse_non_finite
from castoff.trainers.checkpointing.links import Links
from castoff.trainers.checkpointing.part_files import load_file, write_file
from castoff.trainers.checkpointing.shards import SHARDS, Divided, divide, has_shards
from castoff.trainers.checkpointing.staging import Staging, tensors
from castoff.trainers.checkpointing.together import AllRanks, Alone, Writers
from castoff.trainers.checkpointing.verification import MANIFEST, common_problem_of, problem_of
from castoff.trainers.checkpointing.writer import Writer
from castoff.trainers.checkpointing.written_by import versions
from castoff.trainers.distributed.attempt import AttemptOver
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.files.durable import (
    checksummed,
    flush,
    read_checksummed,
    replace_file,
    write_checksummed,
)

_NAME = re.compile(r"step-(\d{10})")
_BEFORE = ".before"
_RECORD = "record.json"
_WEIGHTS = ("model", "ema")

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run, in one folder. Rank 0 writes them, and each rank its part of sharded
    states; every rank may read.

    `save` and `record` return at once, and a thread writes in the order of the calls. Its error is raised
    once, by the next `save` or `wait`: OSError with an errno, or NonFiniteWeights. Checkpoints that were
    already durable are not affected.

    `infinite`: names of tensors that may be infinite, such as an attention mask of -inf. `check` raises if
    this process may not write any more; `durable` is called with the step of each checkpoint once it is
    durable. As a context manager it finishes writing when it exits.
    """

    def __init__(
        self,
        folder: Path,
        keep: int = 2,
        *,
        infinite: Collection[str] = (),
        check: Callable[[], None] = lambda: None,
        durable: Callable[[int], None] = lambda step: None,
    ):
        if keep < 2:
            raise ValueError(
                f"keep is {keep}, but must be at least 2, because a single checkpoint may be damaged"
            )
        self.folder = folder
        self.keep = keep
        self._infinite = frozenset(infinite)
        self._check, self._durable = check, durable
        self.longest = 0.0
        """Seconds that the slowest write took until the checkpoint was durable."""
        self._staging = Staging()
        self._writer = Writer()
        self._ranks: AllRanks | None = None
        self._damaged: set[Path] = set()
        self._links = Links(folder)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()
            return
        self._writer.join()  # only `error` is reported

    # --- Writing ----------------------------------------------------------------------------------

    def save(self, step: int, parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Copy `parts` (`model` becomes model.pt), and start to write the checkpoint of a step.

        After it returns, the tensors in `parts` may change. It first waits for a checkpoint that is still
        being written. The weights, `model` and `ema`, must be finite.

        Rank 0 calls it; if tensors are sharded all ranks do, the others with the parts that have shards. An
        error is then raised on all.

        Raises:
            TypeError: a part holds more than tensors and plain containers.
            OSError, NonFiniteWeights: an earlier checkpoint or record could not be written.
        """
        self._writer.wait()
        ranks: Writers = Alone()
        if any(map(has_shards, parts.values())):
            ranks = self._ranks = self._ranks or AllRanks()
        divided = divide(parts, whole=_WEIGHTS, is_main=ranks.is_main)
        self._writer.do(partial(self._write, step, self._staged(divided), ranks))

    def _staged(self, divided: Divided) -> Divided:
        values = {key: each.value for key, each in divided.shards.items()}
        copies = self._staging.copy({**divided.rest, SHARDS: values})
        copied = copies.pop(SHARDS)
        shards = {key: each._replace(value=copied[key]) for key, each in divided.shards.items()}
        return divided._replace(rest=copies, shards=shards)

    def record(self, step: int, record: Mapping[str, Any]) -> None:
        """Write a record into a step's checkpoint, once that is durable.

        Values are JSON, NaN and infinity. `better: True` makes the checkpoint the best so far.

        Raises:
            TypeError: a value is not a JSON type.
        """
        content = checksummed({"step": step, "record": dict(record)})
        self._writer.do(partial(self._write_record, self.path(step), content))

    def wait(self) -> None:
        """Wait until everything passed to `save` and `record` is durable.

        Raises:
            OSError, NonFiniteWeights: something could not be written; raised once.
        """
        self._writer.wait()

    def _write(self, step: int, states: Divided, ranks: Writers) -> None:
        began = time.monotonic()
        final = self.path(step)
        draft = final.with_name(f".{final.name}")
        before = final.with_name(f".{final.name}{_BEFORE}")
        ranks.together(lambda: refuse_non_finite(step, _weights_in(states), self._infinite))
        try:
            ranks.together(lambda: self._begin(draft) if ranks.is_main else None)
            files: dict[str, Any] = {}
            if ranks.group is not None:
                from castoff.trainers.checkpointing.shard_files import write_shards

                files = write_shards(draft / SHARDS, states.shards, ranks)
            ranks.together(lambda: self._complete(step, states, draft, files) if ranks.is_main else None)
        except AttemptOver:  # another attempt may be writing the draft
            raise
        except BaseException:
            if ranks.is_main:
                shutil.rmtree(draft, ignore_errors=True)
            raise
        if ranks.is_main:
            self._durable(step)
            shutil.rmtree(before, ignore_errors=True)
        self.longest = max(self.longest, time.monotonic() - began)
        if ranks.is_main:
            self._damaged.discard(final)
            self._tidy()

    def _begin(self, draft: Path) -> None:
        self._check()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear()
        draft.mkdir()

    def _complete(self, step: int, states: Divided, draft: Path, files: dict[str, Any]) -> None:
        """Write what rank 0 writes alone, and let the checkpoint appear."""
        final, before = self.path(step), draft.with_name(f"{draft.name}{_BEFORE}")
        for part, state in states.rest.items():
            files[f"{part}.pt"] = write_file(draft / f"{part}.pt", state)
        tied = {"tied": states.tied} if states.tied else {}
        write_checksummed(draft / MANIFEST, checksummed({"step": step, **versions(), "files": files, **tied}))
        self._keep_record(final, draft, files)
        flush(draft)
        self._check()  # the attempt may have ended while the draft was written
        if final.exists():  # written by an earlier attempt
            final.rename(before)
        draft.rename(final)
        flush(self.folder)

    def _write_record(self, path: Path, content: bytes) -> None:
        self._check()
        self._clear()
        replace_file(path / _RECORD, content)
        self._tidy()

    def _keep_record(self, final: Path, draft: Path, files: Mapping[str, Any]) -> None:
        """If a checkpoint is written again with the same weights, keep its record."""
        try:
            same = _of_weights(read_checksummed(final / MANIFEST)["files"]) == _of_weights(files)
            record = read_checksummed(final / _RECORD)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        if same:
            write_checksummed(draft / _RECORD, checksummed(record))

    def _clear(self) -> None:
        """Remove drafts of killed processes, and restore checkpoints whose replacement was interrupted."""
        for left in self.folder.glob(".step-*"):
            final = left.with_name(left.name[1:].removesuffix(_BEFORE))
            if not _NAME.fullmatch(final.name):  # somebody else's
                continue
            if left.name.endswith(_BEFORE) and not final.exists():
                left.rename(final)
            else:
                shutil.rmtree(left, ignore_errors=True)

    def _tidy(self) -> None:
        """Update the links, and remove checkpoints other than the best and the last `keep`."""
        best = self._best()
        everything = self.all()
        self._links.point("latest", everything[-1])
        self._links.point("best", best)
        usable = [path for path in everything if path not in self._damaged]
        kept = {best, *usable[-self.keep :]}
        for path in everything:
            if path not in kept and not isinstance(_read_record(path), str):
                gone = path.with_name(f".{path.name}")
                path.rename(gone)
                flush(self.folder)
                shutil.rmtree(gone, ignore_errors=True)

    # --- Reading ----------------------------------------------------------------------------------

    def newest(self, context: RankContext | None = None) -> Path | None:
        """The newest undamaged checkpoint; None if there are no checkpoints.

        With `context` all ranks must call it: each verifies a share of the files, and gets the same result.

        Raises:
            CheckpointError: there are checkpoints, and every one is damaged.
        """
        damaged: list[str] = []
        is_main = context is None or context.is_main
        for path in reversed(self.all() if context is None else context.on_main(self.all)):
            problem = self.problem(path) if context is None else common_problem_of(path, context)
            if problem is None:
                if damaged and is_main:
                    logger.warning("resuming from the older checkpoint %s", path)
                return path
            if is_main:
                logger.error("checkpoint %s is damaged, and not used: %s", path, problem)
            self._damaged.add(path)
            damaged.append(f"{path}: {problem}")
        if damaged:
            raise CheckpointError(
                "every checkpoint is damaged; restore a copy of one, or start over with training.fresh: "
                f"true (castoff train --fresh), which renames {self.folder.parent}:\n" + "\n".join(damaged)
            )
        return None

    def best(self) -> Path | None:
        """The newest checkpoint whose record has `better: true`; None: there is none.

        Raises:
            CheckpointError: it is damaged.
        """
        path = self._best()
        if path is None:
            return None
        problem = self.problem(path)
        if problem is not None and not path.exists():  # a resumed training has found a better one
            return self.best()
        if problem is not None:
            raise CheckpointError(
                f"the best checkpoint, {path}, is damaged: {problem}. Restore a copy of it, or remove "
                "that folder: then the best remaining checkpoint is used or, without one, the current "
                "model"
            )
        return path

    def whole(self, path: Path) -> Path:
        """Verify a checkpoint, and return its path.

        Raises:
            CheckpointError: it is damaged.
        """
        problem = self.problem(path)
        if problem is not None:
            raise CheckpointError(f"checkpoint {path} is damaged: {problem}")
        return path

    def record_of(self, path: Path) -> dict[str, Any] | None:
        """A checkpoint's record; None: it has none, or its record is damaged, which is logged."""
        record = _read_record(path)
        if isinstance(record, str):
            logger.error("the record of checkpoint %s is damaged, and not used: %s", path, record)
            return None
        return record

    def all(self) -> list[Path]:
        """Every checkpoint, oldest first."""
        if not self.folder.is_dir():
            return []
        names = {path.name for path in self.folder.iterdir()}
        checkpoints = {name for name in names if _NAME.fullmatch(name)}
        for name in names:  # the process was killed while it replaced a checkpoint
            whole = name[1:].removesuffix(_BEFORE)
            if name == f".{whole}{_BEFORE}" and whole not in checkpoints and _NAME.fullmatch(whole):
                checkpoints.add(name)
        return [self.folder / name for name in sorted(checkpoints, key=lambda name: name.lstrip("."))]

    def problem(self, path: Path) -> str | None:
        """How a checkpoint is damaged; None: it is not.

        Raises:
            CheckpointError: it is undamaged, but has a format that this castoff does not read.
        """
        return problem_of(path)

    def _best(self) -> Path | None:
        for path in reversed(self.all()):
            record = self.record_of(path)
            if record is not None and record.get("better") is True:
                return path
        return None

    def path(self, step: int) -> Path:
        """The path of a step's checkpoint, whether it exists or not."""
        return self.folder / f"step-{step:010d}"


def found_in(place: Path) -> Path | None:
    """The folder itself if it is a checkpoint; if it is a run's folder, the newest undamaged checkpoint; else
    None.

    Raises:
        CheckpointError: it is damaged, or all of the run's are.
    """
    for folder in (place, place / "checkpoints"):
        if (folder / MANIFEST).exists():
            return Checkpoints(folder.parent).whole(folder)
        newest = Checkpoints(folder).newest()
        if newest is not None:
            return newest
    return None


def load_part(path: str | Path, part: str) -> dict[str, Any]:
    """Load a part of a checkpoint to the CPU, a sharded one as a whole; unpickles only tensors and plain
    containers.

    Raises:
        CheckpointError: there is no such checkpoint, or it has no such part.
    """
    path = Path(path)
    if not has_part(path, part):
        raise _without(path, part)
    if not (path / SHARDS).is_dir():
        return load_file(path, part)
    from castoff.trainers.checkpointing.sharded_states import gathered

    return gathered(path, part)


def has_part(path: Path, part: str) -> bool:
    """Whether a checkpoint has a part, such as `ema`, the averaged weights."""
    if (path / f"{part}.pt").exists() or not (path / SHARDS).is_dir():
        return (path / f"{part}.pt").exists()
    from castoff.trainers.checkpointing.shard_files import Shards

    return bool(Shards(path).keys(part))


def _without(path: Path, part: str) -> CheckpointError:
    """The error for a checkpoint that lacks a part, or for a path that is none."""
    parts = {file.stem for file in path.glob("*.pt")} | {name for name in _WEIGHTS if has_part(path, name)}
    if parts:
        return CheckpointError(
            f"checkpoint {path} has no part {part!r}; it has {' and '.join(sorted(parts))}"
        )
    links = [folder / name for folder in (path / "checkpoints", path) for name in ("best", "latest")]
    pass_one = " or ".join(str(link) for link in links if link.exists()) or "trained/NAME/checkpoints/best"
    problem = "is not a checkpoint" if path.exists() else "does not exist"
    return CheckpointError(f"{path} {problem}; pass a checkpoint's folder, such as {pass_one}")


def _read_record(path: Path) -> dict[str, Any] | str | None:
    """A checkpoint's record; None: it has none; a text: how the record is damaged."""
    try:
        record = read_checksummed(path / _RECORD)["record"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return record if isinstance(record, dict) else "it is not a record"


def _of_weights(files: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sums for name, sums in files.items() if name == "model.pt" or "/" in name}


def _weights_in(states: Divided) -> Iterator[tuple[str, torch.Tensor]]:
    for part in _WEIGHTS:
        yield from tensors(states.rest.get(part), part)
    for key, shard in states.shards.items():
        if shard.place[0] in _WEIGHTS:
            yield from tensors(shard.value, key)
