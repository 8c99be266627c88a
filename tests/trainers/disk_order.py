"""In which order something flushes, renames and removes: what is left on the disk when the power fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def recorded_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is flushed, renamed and removed below `folder` from now on, in order, by paths within it."""
    order: list[str] = []

    def within(path: Any, descriptor: int | None = None) -> str:
        at = Path(f"/proc/self/fd/{descriptor}").readlink() if descriptor is not None else Path()
        return str((at / os.fspath(path)).relative_to(folder))

    flush, rename, replace, unlink = os.fsync, os.rename, os.replace, os.unlink

    def flushed(descriptor: int) -> None:
        flush(descriptor)
        order.append(f"flush {within('', descriptor)}")

    def renamed(source: Any, target: Any) -> None:
        rename(source, target)
        order.append(f"rename {within(source)} to {within(target)}")

    def replaced(source: Any, target: Any) -> None:
        replace(source, target)
        order.append(f"rename {within(source)} to {within(target)}")

    def unlinked(path: Any, *, dir_fd: int | None = None) -> None:
        named = within(path, dir_fd)
        unlink(path, dir_fd=dir_fd)
        order.append(f"remove {named}")

    for name, noted in (
        ("fsync", flushed),
        ("rename", renamed),
        ("replace", replaced),
        ("unlink", unlinked),
    ):
        monkeypatch.setattr(os, name, noted)
    return order
