"""Durable checkpoints: whole or not at all, checked before they are used.

    checkpoints/
      step-0000000400/   model.pt  training.pt  manifest.json  record.json
      latest  best       links for people, to the newest and the best

Each is written under a temporary name, its files and folder are flushed to the disk, and one rename
makes it appear. The manifest holds sizes and CRC-32 sums, its own among them, and which castoff and torch
have written it, in which format; what does not fit is refused. What validation finds out later is in the
record, which one rename makes appear, too; which checkpoint is the best follows from the records alone.
"""

from __future__ import annotations

import errno
import logging
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import torch

from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.staging import Staging, tensors
from castoff.trainers.checkpointing.writer import Writer
from castoff.trainers.checkpointing.written_by import check_format, lacks, versions
from castoff.trainers.configuration.fields import UserError
from castoff.trainers.distributed.attempt import AttemptOver
from castoff.trainers.files.durable import (
    SummedFile,
    checksummed,
    flush,
    read_checksummed,
    replace_file,
    sum_of,
    write_checksummed,
)

_NAME = re.compile(r"step-(\d{10})")
_BEFORE = ".before"
_MANIFEST = "manifest.json"
_RECORD = "record.json"
_WEIGHTS = ("model", "ema")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)

_ON_ONE_CORE = 30_000
"""So many numbers torch adds up without more threads, whose cores belong to the training."""

logger = logging.getLogger(__name__)


class NonFiniteWeights(UserError):
    """Weights are NaN or infinite, so they did not become a checkpoint; the text says which tensor."""


class Checkpoints:
    """The checkpoints of one run, in one folder. Only rank 0 writes; every rank may read.

    `save` and `record` return at once, and a thread writes, in their order. What it cannot do is raised
    by the next `save` or `wait`, once: OSError with the system's number, NonFiniteWeights. All that was
    durable before stays as it was.

    `infinite` names weights that may be so, because they always were: a mask of -inf for attention.
    `check` raises where nothing may be written any more; `durable` is called with each step that is kept.
    As a context manager: what is being written is whole when it ends.
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
            raise ValueError(f"keep is {keep}, but one alone may be damaged: 2 is the least")
        self.folder = folder
        self.keep = keep
        self._infinite = frozenset(infinite)
        self._check, self._durable = check, durable
        self.longest = 0.0
        """Seconds that the slowest write took, to the moment when the checkpoint was durable."""
        self._staging = Staging()
        self._writer = Writer()
        self._damaged: set[Path] = set()
        self._copies: set[Path] = set()
        """Folders where links should be."""

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()
            return
        self._writer.join()  # and the error that is under way is the one to tell of

    # --- Writing: rank 0 alone --------------------------------------------------------------------

    def save(self, step: int, parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Copy `parts` (`model`: … becomes model.pt), and begin to write the checkpoint of a step.

        When it returns, what was given may change. Where the last checkpoint is still being written,
        it waits for that first. The weights, `model` and `ema`, must be finite.

        Raises:
            TypeError: a part holds more than tensors and plain containers.
            OSError, NonFiniteWeights: what was given before this could not be written.
        """
        self._writer.wait()
        copies = self._staging.copy(parts)
        self._writer.do(partial(self._write, step, copies))

    def record(self, step: int, record: Mapping[str, Any]) -> None:
        """Write what became known of a step's checkpoint beside it, once that is durable.

        JSON, and NaN and infinity. `better`: True makes it the best so far.

        Raises:
            TypeError: a value is nothing that JSON has.
        """
        content = checksummed({"step": step, "record": dict(record)})
        self._writer.do(partial(self._write_record, self.path(step), content))

    def wait(self) -> None:
        """Return when all that was given is durable.

        Raises:
            OSError, NonFiniteWeights: something could not be written; raised once.
        """
        self._writer.wait()

    def _write(self, step: int, parts: Mapping[str, Any]) -> None:
        began = time.monotonic()
        _refuse_non_finite(step, parts, self._infinite)
        self._check()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear()
        final = self.path(step)
        draft = final.with_name(f".{final.name}")
        try:
            draft.mkdir()
            files = {f"{part}.pt": _write_part(draft / f"{part}.pt", state) for part, state in parts.items()}
            manifest = {"step": step, **versions(), "files": files}
            write_checksummed(draft / _MANIFEST, checksummed(manifest))
            self._keep_record(final, draft, files)
            flush(draft)
            before = final.with_name(f".{final.name}{_BEFORE}")
            self._check()  # it has taken a while
            if final.exists():  # made before by an attempt that got no further
                final.rename(before)
            draft.rename(final)
        except AttemptOver:  # the draft may be another attempt's by now
            raise
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        flush(self.folder)
        self._durable(step)
        shutil.rmtree(before, ignore_errors=True)
        self.longest = max(self.longest, time.monotonic() - began)
        self._damaged.discard(final)
        self._tidy()

    def _write_record(self, path: Path, content: bytes) -> None:
        self._check()
        self._clear()
        replace_file(path / _RECORD, content)
        self._tidy()

    def _keep_record(self, final: Path, draft: Path, files: Mapping[str, Any]) -> None:
        """Take over the record of a checkpoint that is made anew, if it is about the same weights."""
        try:
            same = read_checksummed(final / _MANIFEST)["files"]["model.pt"] == files["model.pt"]
            record = read_checksummed(final / _RECORD)
        except (OSError, ValueError, KeyError, TypeError):
            return
        if same:
            write_checksummed(draft / _RECORD, checksummed(record))

    def _clear(self) -> None:
        """Remove what is left where somebody was killed."""
        for left in self.folder.glob(".step-*"):
            whole = left.with_name(left.name[1:].removesuffix(_BEFORE))
            if left.name.endswith(_BEFORE) and not whole.exists():
                left.rename(whole)
            else:
                shutil.rmtree(left, ignore_errors=True)

    def _tidy(self) -> None:
        """Point to the newest and the best, and remove the others but the last ones."""
        best = self._best()
        everything = self.all()
        self._point("latest", everything[-1])
        self._point("best", best)
        usable = [path for path in everything if path not in self._damaged]
        kept = {best, *usable[-self.keep :]}
        for path in everything:
            if path not in kept and not isinstance(_read_record(path), str):
                gone = path.with_name(f".{path.name}")
                path.rename(gone)
                flush(self.folder)
                shutil.rmtree(gone, ignore_errors=True)

    def _point(self, name: str, path: Path | None) -> None:
        link = self.folder / name
        if link.is_dir() and not link.is_symlink():
            # scp -r makes one of a link, which may be old now, but is somebody's copy.
            if link not in self._copies:
                logger.warning("%s is a folder, not a link to a checkpoint, and stays as it is", link)
            self._copies.add(link)
            return
        if path is None:
            link.unlink(missing_ok=True)
            return
        draft = self.folder / f".{name}"
        draft.unlink(missing_ok=True)
        try:
            draft.symlink_to(path.name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return
        draft.replace(link)

    # --- Reading ----------------------------------------------------------------------------------

    def newest(self) -> Path | None:
        """The newest checkpoint that is whole; None where there is none at all.

        Raises:
            CheckpointError: there are some, and every one is damaged.
        """
        damaged: list[str] = []
        for path in reversed(self.all()):
            problem = self.problem(path)
            if problem is None:
                if damaged:
                    logger.warning("resuming from the older checkpoint %s", path)
                return path
            logger.error("checkpoint %s is damaged, and not used: %s", path, problem)
            self._damaged.add(path)
            damaged.append(f"{path}: {problem}")
        if damaged:
            raise CheckpointError(
                "every checkpoint is damaged; put back a copy of one, or start over with training.fresh: "
                f"true (castoff train --fresh), which sets {self.folder.parent} aside:\n" + "\n".join(damaged)
            )
        return None

    def best(self) -> Path | None:
        """The newest checkpoint whose record says that it is better than all before; None: none does.

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
                f"the best checkpoint, {path}, is damaged: {problem}. Put back a copy of it; or remove that "
                "folder, and the best of those that are left is used, or else the model as it is"
            )
        return path

    def whole(self, path: Path) -> Path:
        """The checkpoint, looked through.

        Raises:
            CheckpointError: it is damaged.
        """
        problem = self.problem(path)
        if problem is not None:
            raise CheckpointError(f"checkpoint {path} is damaged: {problem}")
        return path

    def record_of(self, path: Path) -> dict[str, Any] | None:
        """What `record` was given for a checkpoint; None: nothing, or it is damaged, which is logged."""
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
        found = {name for name in names if _NAME.fullmatch(name)}
        for name in names:  # killed while one was replaced by its like
            whole = name[1:].removesuffix(_BEFORE)
            if name == f".{whole}{_BEFORE}" and whole not in found and _NAME.fullmatch(whole):
                found.add(name)
        return [self.folder / name for name in sorted(found, key=lambda name: name.lstrip("."))]

    def problem(self, path: Path) -> str | None:
        """What is wrong with a checkpoint; None: nothing.

        Raises:
            CheckpointError: it is whole, but in a format that this castoff does not read.
        """
        try:
            manifest = read_checksummed(path / _MANIFEST)
            check_format(path, manifest)
            for name, given in manifest["files"].items():
                size = (path / name).stat().st_size
                if size != given["size"]:
                    return f"{name} has {size} bytes instead of {given['size']}"
                if sum_of(path / name) != given["crc32"]:
                    return f"{name} does not have its checksum"
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _best(self) -> Path | None:
        for path in reversed(self.all()):
            record = self.record_of(path)
            if record is not None and record.get("better") is True:
                return path
        return None

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step lies, or would."""
        return self.folder / f"step-{step:010d}"


def found_in(place: Path) -> Path | None:
    """The checkpoint that somebody means by a folder: it itself, or the newest of a run that is whole.

    Raises:
        CheckpointError: it is damaged.
    """
    for folder in (place, place / "checkpoints"):
        if (folder / _MANIFEST).exists():
            return Checkpoints(folder.parent).whole(folder)
        newest = Checkpoints(folder).newest()
        if newest is not None:
            return newest
    return None


def load_part(path: Path, part: str) -> dict[str, Any]:
    """One part of a checkpoint, on the CPU; unpickles nothing but tensors and plain containers.

    Raises:
        CheckpointError: it has no such part.
    """
    file = path / f"{part}.pt"
    if path.is_dir() and not file.exists():
        raise lacks(path, manifest_of(path), file.name)
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return state


def manifest_of(path: Path) -> dict[str, Any]:
    """What a checkpoint's manifest says; nothing where it cannot be read."""
    try:
        return read_checksummed(path / _MANIFEST)
    except (OSError, ValueError):
        return {}


def _write_part(path: Path, state: Mapping[str, Any]) -> dict[str, int]:
    with SummedFile(path) as file:
        torch.save(state, cast("IO[bytes]", file))
    return {"size": file.size, "crc32": file.crc32}


def _read_record(path: Path) -> dict[str, Any] | str | None:
    """A checkpoint's record; None: it has none; a text: what is wrong with it."""
    try:
        record = read_checksummed(path / _RECORD)["record"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return record if isinstance(record, dict) else "it is not a record"


def _refuse_non_finite(step: int, parts: Mapping[str, Any], infinite: Collection[str]) -> None:
    for part in _WEIGHTS:
        for name, tensor in tensors(parts.get(part), part):
            if not finite(tensor) and name.removeprefix(f"{part}.") not in infinite:
                raise NonFiniteWeights(
                    f"the weights of step {step} became no checkpoint, because they are NaN or infinite, "
                    f"first in {name}; the checkpoints before it are as they were"
                )


def finite(tensor: torch.Tensor) -> bool:
    """Whether every number in it is; a sum tells, and takes neither memory nor more than one core."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    for piece in tensor.reshape(-1).split(_ON_ONE_CORE):
        wide = piece if piece.itemsize > 1 else piece.float()
        total = wide.sum(dtype=torch.float64 if piece.dtype == torch.float64 else torch.float32)
        if not total.isfinite() and not wide.isfinite().all():
            return False
    return True
