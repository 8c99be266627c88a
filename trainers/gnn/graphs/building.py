"""Builds written graphs once: a folder named by everything that they depend on, complete or absent."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.files.built_once import built_once
from castoff.trainers.gnn.graphs.making import Making
from castoff.trainers.gnn.graphs.processes import records
from castoff.trainers.gnn.graphs.saved import ABOUT, FORMAT, OFFSETS, RECORDS, read_about, write
from castoff.trainers.gnn.graphs.sources import digest

logger = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def built(making: Making, output: Path, processes: int, at_once: int) -> Path:
    """The folder in `output` with the graphs, which are written if they are missing.

    Of several processes, one writes and the others wait for it. A damaged folder is written again.

    Raises:
        ConfigError: a sample cannot be read, no graph is left, or the graphs cannot be written.
    """
    fingerprint = _fingerprint(making)
    folder = output / f"graphs-{fingerprint}"
    if _is_whole(folder):
        logger.info("Graphs were written before: %s", folder)
        return folder

    def write_unchanged(draft: Path) -> None:
        _check_replaceable(folder)
        _write(making, draft, processes, at_once)
        if _fingerprint(making) != fingerprint:
            raise ConfigError(["was changed while it was read; start again when it is complete"], "data")

    try:
        built_once(folder, _is_whole, write_unchanged)
    except OSError as error:
        raise ConfigError([_in_words(error, output)]) from error
    return folder


def _is_whole(folder: Path) -> bool:
    return read_about(folder) is not None


def _fingerprint(making: Making) -> str:
    return digest({"format": FORMAT, "making": making.fingerprint()})


def _write(making: Making, draft: Path, processes: int, at_once: int) -> None:
    logger.info("Writing graphs: %s", draft.parent)
    seen = 0

    def wanted() -> Iterator[bytes]:
        nonlocal seen
        for record in records(making, processes, at_once):
            seen += 1
            if record is not None:
                yield record

    number = write(draft, wanted(), {})
    if not number:
        reason = (
            f"data.pre_filter keeps none of {seen} samples"
            if seen
            else "data.files: there is no sample in them"
        )
        raise ConfigError([f"{reason}; nothing is left to train on"])
    dropped = f", without {seen - number} that data.pre_filter drops" if seen > number else ""
    logger.info("Wrote %d graphs%s", number, dropped)


def _check_replaceable(folder: Path) -> None:
    """Check that a damaged folder holds nothing but written graphs.

    Raises:
        ConfigError: it holds something else.
    """
    if not folder.exists():
        return
    if not folder.is_dir() or {path.name for path in folder.iterdir()} - {RECORDS, OFFSETS, ABOUT}:
        raise ConfigError(
            ["is where graphs are to be written, but holds something else; choose another data.output"],
            str(folder),
        )
    logger.warning("%s is damaged, and is written again", folder)


def _in_words(error: OSError, output: Path) -> str:
    if error.errno in _NO_ROOM:
        free = shutil.disk_usage(output).free
        return (
            f"data.output: there is too little room for the graphs in {output} "
            f"({os.strerror(error.errno or 0)}): {free:,} bytes are free there; free some space, or "
            "choose another folder"
        )
    path = error.filename or output
    return f"data.output: cannot be written: {path}: {error.strerror or error}; choose a writable folder"
