"""Durable checkpoints: whole or not at all, checked before they are used.

    checkpoints/
      step-0000000400/   model.pt  training.pt  manifest.json
      latest             the name of the newest
      best               the name of the best

Each is written under a temporary name, its files and folder are flushed to the disk, and one rename
makes it appear. The manifest holds sizes and SHA-256 sums; what does not fit them is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch

_NAME = re.compile(r"step-(\d{10})")
_MANIFEST = "manifest.json"

logger = logging.getLogger(__name__)


class CheckpointError(Exception):
    """No checkpoint can be used; the text says which were looked at and what is wrong with each."""


class Checkpoints:
    """The checkpoints of one run, in one folder. Only rank 0 writes."""

    def __init__(self, folder: Path, keep: int = 2):
        if keep < 2:
            raise ValueError(f"keep is {keep}, but one alone may be damaged: 2 is the least")
        self.folder = folder
        self.keep = keep

    def save(self, step: int, parts: Mapping[str, Mapping[str, Any]], *, best: bool = False) -> Path:
        """Write `parts` (`model`: … becomes model.pt) as the checkpoint of a step, durably.

        Holds only what `torch.load(weights_only=True)` reads: tensors and plain containers.

        Raises:
            OSError: it cannot be written; the checkpoints before it stay as they were.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".step-*"):  # somebody was killed here
            shutil.rmtree(left)
        name = f"step-{step:010d}"
        draft = self.folder / f".{name}"
        draft.mkdir()
        manifest = {}
        for part, state in parts.items():
            path = draft / f"{part}.pt"
            with path.open("wb") as file:
                torch.save(dict(state), file)
                _flush(file)
            manifest[path.name] = {"size": path.stat().st_size, "sha256": _sha256(path)}
        _write(draft / _MANIFEST, json.dumps({"step": step, "files": manifest}, indent=2) + "\n")
        _flush_folder(draft)
        final = self.folder / name
        if final.exists():  # made before by an attempt that got no further
            final.rename(self.folder / f".{name}.before")
        draft.rename(final)
        _flush_folder(self.folder)
        shutil.rmtree(self.folder / f".{name}.before", ignore_errors=True)
        self._point("latest", name)
        if best:
            self._point("best", name)
        self._prune()
        return final

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
                    logger.warning("going on from the older checkpoint %s", path)
                return path
            logger.error("checkpoint %s is damaged, and not used: %s", path, problem)
            damaged.append(f"{path}: {problem}")
        if damaged:
            raise CheckpointError(
                "every checkpoint is damaged; remove them to begin anew:\n" + "\n".join(damaged)
            )
        return None

    def best(self) -> Path | None:
        """The checkpoint that `best` names; None where there is none."""
        try:
            name = (self.folder / "best").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        return self.folder / name if _NAME.fullmatch(name) else None

    def all(self) -> list[Path]:
        """Every checkpoint, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))

    def problem(self, path: Path) -> str | None:
        """What is wrong with a checkpoint; None: nothing."""
        try:
            manifest = json.loads((path / _MANIFEST).read_bytes())
            files = manifest["files"].items()
            for name, told in files:
                size = (path / name).stat().st_size
                if size != told["size"]:
                    return f"{name} has {size} bytes instead of {told['size']}"
                if _sha256(path / name) != told["sha256"]:
                    return f"{name} does not have its checksum"
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _point(self, pointer: str, name: str) -> None:
        draft = self.folder / f".{pointer}"
        _write(draft, name + "\n")
        draft.replace(self.folder / pointer)
        _flush_folder(self.folder)

    def _prune(self) -> None:
        best = self.best()
        for path in self.all()[: -self.keep]:
            if path != best:
                shutil.rmtree(path)


def load_part(path: Path, part: str) -> dict[str, Any]:
    """One part of a checkpoint, on the CPU; unpickles nothing but tensors and plain containers."""
    state: dict[str, Any] = torch.load(path / f"{part}.pt", map_location="cpu", weights_only=True)
    return state


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        if hasattr(hashlib, "file_digest"):
            return hashlib.file_digest(file, "sha256").hexdigest()
        total = hashlib.sha256()  # Python 3.10
        while block := file.read(1 << 20):
            total.update(block)
        return total.hexdigest()


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        _flush(file)


def _flush(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
