"""Structures that are read once: their chains in memory-mapped files.

    <folder>/
      atoms.npy, resolved.npy, …   an array of each field of `Chain`, chain after chain
      index.json                   which files were read, and their chains; with a checksum

The folder's name follows from the content of the structure files, and from the versions of this format and of
gemmi, which reads them. So a file that has changed has another cache, and the one that a running training
uses stays as it is.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import errno
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import msgspec
import numpy
import numpy.typing

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.section import Section
from castoff.trainers.distributed.parallel_map import mapped, usual_processes
from castoff.trainers.dpo.structures.reading import Chain, chains_of
from castoff.trainers.files.built_once import built_once
from castoff.trainers.files.durable import (
    SummedFile,
    checksummed,
    read_checksummed,
    sum_of,
    write_checksummed,
)

FORMAT = 1
"""Version of the files' format."""

INDEX = "index.json"

_OF_MODELLED = ("atoms", "resolved", "native", "places", "filled")
_OF_ALL = ("sequence", "positions")
_EMPTY = Chain("", "", *(numpy.zeros((0, 4, 3), numpy.float32), numpy.zeros(0, numpy.bool_)),
               *(numpy.zeros(0, numpy.uint8),) * 2, *(numpy.zeros(0, numpy.int32),) * 3)  # fmt: skip

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)
_SEVERAL_PROCESSES_FROM = 64
"""From this number of files on, several processes read them; fewer are read before other processes have
started.
"""
_MOST_PROCESSES = 16
_SHOWN = 5
"""Number of problems of one kind that an error lists; the others are counted."""
_ADVICE = "the system does this if memory runs out; start again with more memory or fewer cores (taskset)"


class Outline(Section, frozen=True):
    """A chain's names and lengths, without its residues."""

    name: str
    label: str
    modelled: int
    full: int


class File(Section, frozen=True):
    """A structure file, known by its content."""

    digest: str
    """SHA-256 of its bytes."""
    chains: list[Outline]


class Index(Section, frozen=True, kw_only=True):
    """The content of a cache."""

    format: str
    files: list[File]
    sums: dict[str, int]
    """CRC-32 of each array's file."""


class Structures:
    """The chains of structure files, by number. Its pickle is only the folder's path."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.index = _index(folder)
        outlines = [chain for file in self.index.files for chain in file.chains]
        self._first = [0, *accumulate(len(file.chains) for file in self.index.files)]
        self._modelled = [0, *accumulate(chain.modelled for chain in outlines)]
        self._all = [0, *accumulate(chain.full for chain in outlines)]
        self._arrays = {name: _mapped(folder / f"{name}.npy") for name in (*_OF_MODELLED, *_OF_ALL)}
        for names, ends in ((_OF_MODELLED, self._modelled), (_OF_ALL, self._all)):
            for name in names:
                if len(self._arrays[name]) != ends[-1]:
                    raise ConfigError([f"is damaged: {name}.npy does not match the index"], str(folder))

    def __len__(self) -> int:
        """The number of files."""
        return len(self.index.files)

    def digest(self, file: int) -> str:
        """The SHA-256 of a file's bytes."""
        return self.index.files[file].digest

    def chains(self, file: int) -> list[Chain]:
        """The protein chains of a file, which may have none."""
        return [self.chain(file, number) for number in range(len(self.index.files[file].chains))]

    def chain(self, file: int, number: int) -> Chain:
        """A chain by its number in a file; its arrays are views of the cache."""
        outline, index = self.index.files[file].chains[number], self._first[file] + number
        fields = {
            name: self._arrays[name][slice(*ends[index : index + 2])]
            for names, ends in ((_OF_MODELLED, self._modelled), (_OF_ALL, self._all))
            for name in names
        }
        return Chain(outline.name, outline.label, **fields)

    def __reduce__(self) -> tuple[type["Structures"], tuple[Path]]:
        return Structures, (self.folder,)


def structures_of(
    files: Sequence[Path], source: Path, *, cache: Path | None = None, processes: int | None = None
) -> Structures:
    """The structures of files, from a cache next to `source`, their list or folder; it is made if it is
    missing.

    It is made in the folder `cache` if nothing can be written next to `source`. Of several processes, one
    makes it and the others wait; it is complete or absent. `processes`: how many read files; None: one per
    core, if there are many files.

    Raises:
        ConfigError: files cannot be read, or the cache cannot be written.
    """
    digests = _digests(files)
    key = sha256(repr((_version(), digests)).encode()).hexdigest()[:16]
    name = f"{source.absolute().name}.{key}.structures"
    folders = [folder.absolute() / name for folder in (source.absolute().parent, cache) if folder is not None]
    for folder in folders:
        if _is_whole(folder):
            return Structures(folder)
    refusal = ""
    for folder in folders:
        try:
            built_once(folder, _is_whole, lambda draft: _make(draft, files, digests, processes))
            return Structures(folder)
        except OSError as error:
            if error.errno in _FULL:
                raise ConfigError(
                    [_refused(source, f"{folder}: {error.strerror}; make room there")]
                ) from error
            if error.errno not in _NOT_OURS:
                raise
            refusal = f"{folder}: {error.strerror}"
    advice = "copy it to a writable folder, or set training.path to one"
    raise ConfigError([_refused(source, f"{refusal}; {advice}")])


def _refused(source: Path, why: str) -> str:
    return f"the structures read from {source} are saved next to it, but that failed: {why}"


def first_few(problems: Sequence[str]) -> list[str]:
    """The first few of several problems of one kind, and how many more there are."""
    more = len(problems) - _SHOWN
    return [*problems[:_SHOWN], *([f"and {more:,} more of this kind"] if more > 0 else [])]


def _version() -> str:
    return f"{FORMAT}, gemmi {metadata.version('gemmi')}"


# --- Making -------------------------------------------------------------------------------------------


class _Read(NamedTuple):
    digest: str
    chains: list[Chain]
    problem: str


def _digests(files: Sequence[Path]) -> list[str]:
    """The SHA-256 of each file's bytes."""

    def digest(path: Path) -> tuple[str, str]:
        try:
            with path.open("rb") as file:
                return _file_digest(file), ""
        except OSError as error:
            return "", f"{path}: cannot be read: {error.strerror}"

    with ThreadPoolExecutor(_MOST_PROCESSES) as threads:
        results = list(threads.map(digest, files))
    if problems := [problem for _, problem in results if problem]:
        raise ConfigError(first_few(problems), "structures")
    return [digest for digest, _ in results]


def _file_digest(file: Any) -> str:
    summed = sha256()
    while block := file.read(1 << 20):
        summed.update(block)
    return summed.hexdigest()


def _read(path: Path) -> _Read:
    try:
        data = path.read_bytes()
        return _Read(sha256(data).hexdigest(), chains_of(data, str(path)), "")
    except OSError as error:
        return _Read("", [], f"{path}: cannot be read: {error.strerror}")
    except ConfigError as error:
        return _Read("", [], str(error))


def _make(draft: Path, files: Sequence[Path], digests: Sequence[str], processes: int | None) -> None:
    several = len(files) >= _SEVERAL_PROCESSES_FROM
    processes = processes or (usual_processes(_MOST_PROCESSES) if several else 1)
    read = list(mapped(_read, files, processes, _ADVICE))
    problems = [file.problem for file in read if file.problem]
    problems += [
        f"{path}: has changed while it was read; start again when no other program writes to it"
        for path, before, file in zip(files, digests, read, strict=True)
        if not file.problem and file.digest != before
    ]
    if problems:
        raise ConfigError(first_few(problems), "structures")
    _write(draft, read)


def _write(folder: Path, read: Sequence[_Read]) -> None:
    chains = [chain for each in read for chain in each.chains]
    sums = {}
    for name in (*_OF_MODELLED, *_OF_ALL):
        path = folder / f"{name}.npy"
        with SummedFile(path) as file:  # numpy bypasses Python for plain files, which hides a full disk
            numpy.save(
                cast("IO[bytes]", file),
                numpy.concatenate([getattr(_EMPTY, name), *(getattr(c, name) for c in chains)]),
            )
        sums[path.name] = file.crc32
    entries = [
        File(
            each.digest,
            [Outline(c.name, c.label, len(c.native), len(c.sequence)) for c in each.chains],
        )
        for each in read
    ]
    index = Index(format=_version(), files=entries, sums=sums)
    write_checksummed(folder / INDEX, checksummed(msgspec.to_builtins(index)))


# --- Opening ------------------------------------------------------------------------------------------


def _index(folder: Path) -> Index:
    try:
        return msgspec.convert(read_checksummed(folder / INDEX), Index)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError([f"holds no saved structures: {error}"], str(folder)) from error


def _is_whole(folder: Path) -> bool:
    """Whether a cache exists and each of its files has its checksum."""
    try:
        sums = _index(folder).sums
        return all(sum_of(folder / name) == total for name, total in sums.items())
    except (ConfigError, OSError):
        return False


def _mapped(path: Path) -> "numpy.typing.NDArray[Any]":
    """Map an array from its file."""
    try:
        try:
            array: numpy.typing.NDArray[Any] = numpy.load(path, mmap_mode="r")
        except ValueError:  # an empty array: mmap refuses length 0
            array = numpy.load(path)
    except (OSError, EOFError, ValueError) as error:
        raise ConfigError([f"is damaged: {error}"], str(path)) from error
    return array.view(numpy.ndarray)
