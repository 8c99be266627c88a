"""Builds token stores from FASTA and .pt files, in constant memory.

The text is read once, in order, and the proteins that pass the filters are written with a hash of each. Then
repeated hashes are found on disk, and the tokens are moved together to close the gaps. All of it happens in a
draft of the folder, which is renamed when it is complete and on the disk: an interrupted build leaves nothing
that looks like a store. The same files and filters give the same bytes, with any number of processes.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.parallel_map import usual_processes
from castoff.trainers.files.built_once import built_once
from castoff.trainers.files.durable import checksummed, sum_of, write_checksummed
from castoff.trainers.sedd.store.bar import Bar
from castoff.trainers.sedd.store.deduplication import mark_repeated, write_zeros
from castoff.trainers.sedd.store.fasta import Fasta
from castoff.trainers.sedd.store.packing import pack
from castoff.trainers.sedd.store.saved import SavedSequences, is_saved
from castoff.trainers.sedd.store.sifting import MOST_PROCESSES, sifted
from castoff.trainers.sedd.store.token_store import (
    FORMAT,
    MANIFEST,
    OFFSET,
    OFFSETS,
    TOKENS,
    Dropped,
    Filters,
    Manifest,
    Origin,
    read_manifest,
)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

logger = logging.getLogger(__name__)


def build(
    sources: Sequence[Path],
    folder: Path,
    filters: Filters,
    *,
    processes: int | None = None,
    is_whole: Callable[[Path], bool] = lambda _: False,
) -> Manifest:
    """Build a token store from files, in a folder that does not exist yet or is an older store.

    `processes`: number of processes that read proteins, besides this one; None: one per core, at most 8.
    `is_whole`: whether an older store may stay; by default it is replaced.

    Raises:
        ConfigError: a file cannot be read, no protein passes the filters, the folder is something other than
            a store, or the disk is full.
        OSError: the store cannot be written.
    """
    if filters.max_length is not None and filters.max_length < filters.min_length:
        raise ConfigError(
            [
                f"max_length: is {filters.max_length}, below min_length {filters.min_length}, so no "
                "protein can pass both limits; raise it, or leave it out"
            ]
        )
    folder = folder.absolute()

    def write(draft: Path) -> None:
        _check_replaceable(folder)
        begun = time.monotonic()
        logger.info("Building a token store of %s in %s", ", ".join(path.name for path in sources), folder)
        manifest = _write(sources, draft, filters, processes or usual_processes(MOST_PROCESSES))
        numbers = f"{manifest.sequences:,} proteins of {manifest.residues:,} residues"
        logger.info("The token store %s has %s, built in %.0f s", folder, numbers, time.monotonic() - begun)

    try:
        built_once(folder, is_whole, write)
    except OSError as error:
        if error.errno in _FULL:
            raise ConfigError([_too_little_room(folder, sources, error)], str(folder)) from error
        raise
    return read_manifest(folder)


def _write(sources: Sequence[Path], draft: Path, filters: Filters, processes: int) -> Manifest:
    with Bar() as bar:
        read = _read(sources, draft, filters, processes, bar)
        if not read.taken:
            raise ConfigError([_nothing(read, filters)], ", ".join(map(str, sources)))
        if filters.keep_duplicates:
            write_zeros(draft / "marks", read.taken)
        else:
            bar.begin("finding duplicates", read.taken)
            mark_repeated(draft / "hashes", draft / "marks", report=bar.at)
        bar.begin("packing", read.taken)
        tally = pack(*(draft / name for name in (TOKENS, "lengths", "marks", OFFSETS)), report=bar.at)
    for scratch in ("hashes", "marks", "lengths"):
        (draft / scratch).unlink(missing_ok=True)
    manifest = Manifest(
        format=FORMAT,
        sequences=tally.sequences,
        residues=tally.residues,
        counts=tally.counts,
        shortest=tally.shortest,
        longest=tally.longest,
        lengths=tally.lengths,
        origins=read.origins,
        filters=filters,
        dropped=Dropped(**read.dropped, duplicates=read.taken - tally.sequences),
        digest=tally.digest,
    )
    write_checksummed(draft / MANIFEST, checksummed(msgspec.to_builtins(manifest)))
    return manifest


def _check_replaceable(folder: Path) -> None:
    """Check that nothing but an older store would be replaced.

    Raises:
        ConfigError: the folder is something other than a store.
    """
    if not os.path.lexists(folder):
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() and not folder.is_symlink() else {""}
    if names - {TOKENS, OFFSETS, MANIFEST}:
        raise ConfigError(
            ["exists already and is not a token store, so it is left unchanged: choose another folder"],
            str(folder),
        )


def _too_little_room(folder: Path, sources: Sequence[Path], error: OSError) -> str:
    size = sum(source.stat().st_size for source in sources)
    free = shutil.disk_usage(folder.parent).free
    return (
        f"there is too little room for it ({error.strerror}): {free:,} bytes are free on that disk; it takes "
        "one byte a residue and, while it is built, 60 a protein, and the files that it is made of have "
        f"{size:,}; make room, or choose another place"
    )


# --- Reading ------------------------------------------------------------------------------------------


class _Read(NamedTuple):
    taken: int
    """Number of proteins, including duplicates."""
    dropped: dict[str, int]
    origins: list[Origin]


def _read(sources: Sequence[Path], draft: Path, filters: Filters, processes: int, bar: Bar) -> _Read:
    """Write the tokens, lengths and hashes of all proteins that pass the filters."""
    taken = 0
    dropped: Counter[str] = Counter(too_short=0, too_long=0, unknown=0)
    origins: list[Origin] = []
    with ExitStack() as stack:
        tokens, lengths, hashes = (
            stack.enter_context((draft / name).open("wb")) for name in (TOKENS, "lengths", "hashes")
        )
        blocks = _blocks(sources, draft, origins, bar)
        for part in sifted(blocks, filters, processes):
            tokens.write(part.tokens)
            lengths.write(part.lengths)
            hashes.write(part.hashes)
            taken += len(part.lengths) // OFFSET.itemsize
            dropped.update(too_short=part.too_short, too_long=part.too_long, unknown=part.unknown)
    return _Read(taken, dict(dropped), origins)


def _blocks(sources: Sequence[Path], scratch: Path, origins: list[Origin], bar: Bar) -> Iterator[bytes]:
    """Yield the text of all files, in order; a file that has been read is added to `origins`."""
    for path in sources:
        try:
            before = path.stat()
        except OSError as error:
            raise ConfigError([f"cannot be read: {error.strerror}"], str(path)) from error
        if path.is_dir():
            raise ConfigError(
                ["is a folder, but a store is made of files: FASTA, plain or gzip, or a .pt"], str(path)
            )
        size, lasting = before.st_size, path.is_file()  # a pipe can be read only once
        bar.begin(f"reading {path.name}", size)
        if is_saved(path):
            with SavedSequences(path, scratch) as saved:
                for block in saved.blocks():
                    yield block
                    bar.at(saved.consumed)
            crc32 = sum_of(path)
        else:
            with Fasta(path) as fasta:
                for block in fasta.blocks():
                    yield block
                    bar.at(fasta.consumed)
            crc32 = fasta.crc32
            size = size if lasting else fasta.consumed
        after = path.stat() if lasting else before
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ConfigError(["was changed while it was read; start again when it is complete"], str(path))
        origins.append(Origin(name=path.name, size=size, modified=before.st_mtime_ns, crc32=crc32))


def _nothing(read: _Read, filters: Filters) -> str:
    dropped = read.dropped
    if not sum(dropped.values()):
        return "there is no sequence in it; a store is made of FASTA, plain or gzip, or of a .pt of sequences"
    return (
        f"no protein of it is left: {dropped['too_short']:,} sequences are shorter than min_length "
        f"{filters.min_length}, {dropped['too_long']:,} longer than max_length {filters.max_length}, and "
        f"{dropped['unknown']:,} have a larger share of unknown residues than max_unknown "
        f"{filters.max_unknown:g}; set other limits, or check that these are proteins"
    )
