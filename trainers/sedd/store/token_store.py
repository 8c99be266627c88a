"""Proteins packed into two memory-mapped files, and their metadata.

    <folder>/
      tokens          one byte per residue, protein after protein
      offsets         where each protein begins, and where the last ends: 8 bytes each, little-endian
      manifest.json   counts, the files that were read and the filters, with a checksum

Proteins are read only when they are used: a store of any size is opened at once and takes no memory.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import mmap
import os
import shlex
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy
import numpy.typing

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.section import Fraction, Positive, Section
from castoff.trainers.files.durable import read_checksummed
from castoff.trainers.sedd.alphabet import Tokens

FORMAT = 1
"""Version of the files' format."""

TOKENS, OFFSETS, MANIFEST = "tokens", "offsets", "manifest.json"

OFFSET = numpy.dtype("<u8")

BIN = 64
"""Residues in a bin of the histogram of lengths."""

Numbers: TypeAlias = "numpy.typing.NDArray[numpy.int64]"


class Filters(Section, frozen=True, kw_only=True):
    """Which proteins a store takes."""

    min_length: Positive = 1
    """Smallest number of residues."""
    max_length: Positive | None = None
    """Largest number of residues; None: no limit."""
    max_unknown: Fraction = 0.1
    """Largest share of a protein's residues that may be unknown."""
    keep_duplicates: bool = False
    """Whether to keep repeated sequences; if not, the first one in the order of the files is kept."""


class Origin(Section, frozen=True, kw_only=True):
    """A file that proteins were read from."""

    name: str
    size: int
    """Size in bytes."""
    modified: int
    """When the file was last modified, in nanoseconds since 1970."""
    crc32: int


class Dropped(Section, frozen=True, kw_only=True):
    """How many sequences were left out, each counted under the first reason that applied."""

    too_short: int = 0
    too_long: int = 0
    unknown: int = 0
    """Sequences with too large a share of unknown residues."""
    duplicates: int = 0


class Manifest(Section, frozen=True, kw_only=True):
    """A store's content, and how it was made."""

    format: int
    sequences: int
    residues: int
    counts: list[int]
    """How often each token occurs, by token."""
    shortest: int
    longest: int
    lengths: dict[str, int]
    """The number of proteins in each bin of `BIN` residues, by the shortest length of the bin."""
    origins: list[Origin]
    filters: Filters
    dropped: Dropped
    digest: str
    """SHA-256 of the lengths and the tokens: only the same proteins in the same order have the same digest.
    """


class TokenStore:
    """The proteins of a store by index. Its pickle is only the folder's path and the digest."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.manifest = read_manifest(folder)
        sequences, residues = self.manifest.sequences, self.manifest.residues
        self._tokens = numpy.frombuffer(_mapped(folder / TOKENS, residues), dtype=numpy.uint8)
        self._offsets = numpy.frombuffer(
            _mapped(folder / OFFSETS, (sequences + 1) * OFFSET.itemsize), dtype=OFFSET
        )
        if (self._offsets[0], self._offsets[-1]) != (0, residues):
            raise _damaged(folder / OFFSETS, "does not match the tokens")

    @classmethod
    def open(cls, folder: str | Path) -> "TokenStore":
        """Open the store in a folder.

        Raises:
            ConfigError: there is no store, or it is damaged or has another format.
        """
        return cls(Path(folder).absolute())

    def __len__(self) -> int:
        """The number of proteins."""
        return self.manifest.sequences

    def __getitem__(self, index: int) -> Tokens:
        """A copy of a protein's tokens."""
        first, last = self._span(index, index + 1)
        return self._tokens[first:last].copy()

    def length_of(self, index: int) -> int:
        """The number of residues of a protein."""
        first, last = self._span(index, index + 1)
        return last - first

    def run(self, first: int, last: int) -> list[Tokens]:
        """Read the proteins from `first` up to `last` at once, as slow disks require; the arrays share
        memory.

        Raises:
            OSError: they cannot be read.
        """
        beginning, end = self._span(first, last)
        with (self.folder / TOKENS).open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), end - beginning, beginning)
        if len(data) != end - beginning:
            raise OSError(f"{file.name}: has become shorter than it was")
        tokens = numpy.frombuffer(data, dtype=numpy.uint8)
        cuts = self._offsets[first + 1 : last] - self._offsets[first]
        return numpy.split(tokens, cuts.astype(numpy.int64))

    @property
    def digest(self) -> str:
        """The manifest's digest."""
        return self.manifest.digest

    def _span(self, first: int, last: int) -> tuple[int, int]:
        if not 0 <= first < last <= len(self):
            raise IndexError(f"{self.folder} has no proteins {first} to {last - 1}: it has {len(self)}")
        return int(self._offsets[first]), int(self._offsets[last])

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, (self.folder, self.manifest.digest)


def _opened_again(folder: Path, digest: str) -> TokenStore:
    """Open a store again in another process.

    Raises:
        ConfigError: the folder now has another store.
    """
    store = TokenStore(folder)
    if store.manifest.digest != digest:
        raise ConfigError(["was rebuilt while it was in use; start the training again"], str(folder))
    return store


def read_manifest(folder: Path) -> Manifest:
    """Read a store's manifest, without its proteins.

    Raises:
        ConfigError: there is no store, or it is damaged or has another format.
    """
    path = folder / MANIFEST
    try:
        content = read_checksummed(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        problem = "holds no token store" if folder.is_dir() else "is not a folder of a token store"
        raise ConfigError(
            [
                f"{problem}; make one with: python -m castoff.trainers.sedd.prepare proteins.fasta.gz --out "
                f"{shlex.quote(str(folder))}"
            ],
            str(folder),
        ) from error
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror or error}"], str(path)) from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if content.get("format") != FORMAT:
        raise ConfigError(
            [
                f"is a token store of format {content.get('format')!r}, but this castoff reads format "
                f"{FORMAT}; rebuild it with python -m castoff.trainers.sedd.prepare"
            ],
            str(folder),
        )
    try:
        return msgspec.convert(content, Manifest)
    except msgspec.ValidationError as error:
        raise _damaged(path, str(error)) from error


def _mapped(path: Path, size: int) -> mmap.mmap:
    """Map a file; the system may take back the memory at any time."""
    try:
        with path.open("rb", buffering=0) as file:
            actual = os.fstat(file.fileno()).st_size
            if actual != size:
                raise _damaged(path, f"has {actual:,} bytes, but {size:,} were written")
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error


def _damaged(path: Path, how: str) -> ConfigError:
    return ConfigError(
        [
            f"is damaged ({how}); remove its folder, and rebuild it with python -m "
            "castoff.trainers.sedd.prepare"
        ],
        str(path),
    )
