"""The versions of castoff and torch that wrote a checkpoint, and whether this castoff can read it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from castoff.trainers.checkpointing.errors import CheckpointError

FORMAT = 1
"""The format of a checkpoint's files and their contents. It grows with each incompatible change."""


def versions() -> dict[str, Any]:
    """The versions that a manifest records: of the format, castoff and torch."""
    try:
        castoff = version("castoff")
    except PackageNotFoundError:  # run from the sources, not installed
        castoff = "unknown"
    return {"format": FORMAT, "castoff": castoff, "torch": str(torch.__version__)}


def check_format(path: Path, manifest: Mapping[str, Any]) -> None:
    """Check that this version of castoff can read the checkpoint.

    Raises:
        CheckpointError: it has another format.
        KeyError: the manifest has no format.
    """
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"checkpoint {path} has format {manifest['format']!r}, {_writer(manifest)}; {_here()} reads "
            f"format {FORMAT}. Resume with that castoff, or start over with training.fresh: true (castoff "
            "train --fresh)"
        )


def lacks(path: Path, manifest: Mapping[str, Any], what: str) -> CheckpointError:
    """The error for a checkpoint of this format that lacks `what`."""
    return CheckpointError(
        f"checkpoint {path} has no {what}; {_writer(manifest)}, and this is {_here()}. Resume with the "
        "castoff that wrote it, or start over with training.fresh: true (castoff train --fresh)"
    )


def changes(manifest: Mapping[str, Any]) -> str | None:
    """A note on the change of versions when a training resumes; None if they are the same."""
    now = versions()
    if all(manifest.get(name) == now[name] for name in ("castoff", "torch")):
        return None
    return f"The checkpoint was {_writer(manifest)}; {_here()} may round the last bits differently"


def _writer(manifest: Mapping[str, Any]) -> str:
    castoff, of_torch = (manifest.get(name, "of unknown version") for name in ("castoff", "torch"))
    return f"written by castoff {castoff} with torch {of_torch}"


def _here() -> str:
    now = versions()
    return f"castoff {now['castoff']} with torch {now['torch']}"
