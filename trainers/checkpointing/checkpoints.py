"""Durable checkpoints: complete or absent, and verified before they are used.

    checkpoints/
      step-0000000400/   model.pt  training.pt  manifest.json  record.json
      latest  best       links for people, to the newest and the best

Each checkpoint is written under a temporary name, its files and folder are flushed to disk, and one rename
makes it appear. The manifest has the files' sizes and CRC-32 sums, its own sum, the format, and the versions
of castoff and torch; a checkpoint that does not match its manifest is refused. The record has the metrics of
the later validation, and also appears by one rename; the records alone decide which checkpoint is the best.
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
"""The most numbers that torch sums on one thread; more threads would take cores from training."""

logger = logging.getLogger(__name__)


class NonFiniteWeights(UserError):
    """Weights are NaN or infinite, so no checkpoint was written; the text names the tensor."""


class Checkpoints:
    """The checkpoints of one run, in one folder. Only rank 0 writes; every rank may read.

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
        self._damaged: set[Path] = set()
        self._copies: set[Path] = set()
        """Folders found where links to checkpoints were expected."""

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()
            return
        self._writer.join()  # only `error` is reported

    # --- Writing: rank 0 alone --------------------------------------------------------------------

    def save(self, step: int, parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Copy `parts` (`model` becomes model.pt), and start to write the checkpoint of a step.

        After it returns, the tensors in `parts` may change. It first waits for a checkpoint that is still
        being written. The weights, `model` and `ema`, must be finite.

        Raises:
            TypeError: a part holds more than tensors and plain containers.
            OSError, NonFiniteWeights: an earlier checkpoint or record could not be written.
        """
        self._writer.wait()
        copies = self._staging.copy(parts)
        self._writer.do(partial(self._write, step, copies))

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
            self._check()  # the attempt may have ended while the draft was written
            if final.exists():  # written by an earlier attempt
                final.rename(before)
            draft.rename(final)
        except AttemptOver:  # another attempt may be writing the draft
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
        """If a checkpoint is written again with the same weights, keep its record."""
        try:
            same = read_checksummed(final / _MANIFEST)["files"]["model.pt"] == files["model.pt"]
            record = read_checksummed(final / _RECORD)
        except (OSError, ValueError, KeyError, TypeError):
            return
        if same:
            write_checksummed(draft / _RECORD, checksummed(record))

    def _clear(self) -> None:
        """Remove drafts of killed processes, and restore checkpoints whose replacement was interrupted."""
        for left in self.folder.glob(".step-*"):
            final = left.with_name(left.name[1:].removesuffix(_BEFORE))
            if left.name.endswith(_BEFORE) and not final.exists():
                left.rename(final)
            else:
                shutil.rmtree(left, ignore_errors=True)

    def _tidy(self) -> None:
        """Update the links, and remove checkpoints other than the best and the last `keep`."""
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
            # scp -r turns a link into a folder: possibly outdated, but somebody's copy.
            if link not in self._copies:
                logger.warning("%s is a folder, not a link to a checkpoint, and is left unchanged", link)
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
        """The newest undamaged checkpoint; None if there are no checkpoints.

        Raises:
            CheckpointError: there are checkpoints, and every one is damaged.
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
        try:
            manifest = read_checksummed(path / _MANIFEST)
            check_format(path, manifest)
            for name, expected in manifest["files"].items():
                size = (path / name).stat().st_size
                if size != expected["size"]:
                    return f"{name} has {size} bytes instead of {expected['size']}"
                if sum_of(path / name) != expected["crc32"]:
                    return f"{name} does not match its checksum"
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
        """The path of a step's checkpoint, whether it exists or not."""
        return self.folder / f"step-{step:010d}"


def found_in(place: Path) -> Path | None:
    """The folder itself if it is a checkpoint; if it is a run's folder, the newest undamaged checkpoint; else
    None.

    Raises:
        CheckpointError: it is damaged, or all of the run's are.
    """
    for folder in (place, place / "checkpoints"):
        if (folder / _MANIFEST).exists():
            return Checkpoints(folder.parent).whole(folder)
        newest = Checkpoints(folder).newest()
        if newest is not None:
            return newest
    return None


def load_part(path: Path, part: str) -> dict[str, Any]:
    """Load a part of a checkpoint to the CPU; unpickles only tensors and plain containers.

    Raises:
        CheckpointError: the checkpoint has no such part.
    """
    file = path / f"{part}.pt"
    if path.is_dir() and not file.exists():
        raise lacks(path, manifest_of(path), file.name)
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return state


def manifest_of(path: Path) -> dict[str, Any]:
    """A checkpoint's manifest; empty if it cannot be read."""
    try:
        return read_checksummed(path / _MANIFEST)
    except (OSError, ValueError):
        return {}


def _write_part(path: Path, state: Mapping[str, Any]) -> dict[str, int]:
    with SummedFile(path) as file:
        torch.save(state, cast("IO[bytes]", file))
    return {"size": file.size, "crc32": file.crc32}


def _read_record(path: Path) -> dict[str, Any] | str | None:
    """A checkpoint's record; None: it has none; a text: how the record is damaged."""
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
                    f"the weights of step {step} were not saved as a checkpoint, because they are NaN or "
                    f"infinite, first in {name}; earlier checkpoints are unchanged"
                )


def finite(tensor: torch.Tensor) -> bool:
    """Whether every number in a tensor is finite, judged by sums, which need no memory and only one core."""
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
