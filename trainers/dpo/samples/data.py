"""Pairs and chains as samples: structures from the cache, sequences in their places, orders of decoding."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.distributed.randomness import ORDER, derived
from castoff.trainers.dpo.alphabet import UNKNOWN
from castoff.trainers.dpo.samples.batch import Backbones, Batch, Sample
from castoff.trainers.dpo.samples.pairs import Fitted, Pair, fitted, ranges_of, read_pairs
from castoff.trainers.dpo.settings import Chains, Pairs
from castoff.trainers.dpo.structures.cache import Structures, first_few, structures_of
from castoff.trainers.dpo.structures.reading import SUFFIXES, Chain
from castoff.trainers.dpo.structures.structure import Structure


class PairSet(Dataset[Sample]):
    """The pairs of a file; what comes of one follows from itself and the seed alone.

    It can be pickled: rank 0 makes it, and the others get the places of the residues, and map the cache.

    `cache`: a folder for what is read of structures, where it cannot be written beside the file.

    Raises:
        ConfigError: pairs are wrong, or do not fit to their structures; each with its number and its file.
    """

    rng_sources = ()

    def __init__(self, file: str | Path, data: Pairs, seed: int, cache: Path | None = None):
        source = expanded(str(file), "data.train_data")
        written = read_pairs(source)
        paths = _found(written, source, data)
        places = {path: number for number, path in enumerate(dict.fromkeys(paths))}
        self._seed = seed
        self.structures = structures_of(list(places), source, cache=cache)
        found = _fitted(written, [places[path] for path in paths], self.structures, source, data)
        self._pairs = found.pairs
        self.notes = found.notes
        """What somebody may not have meant by these pairs."""
        self.lengths = [pair.length for _, pair in self._pairs]
        """Residues of each."""
        self.digests = [self._digest(number) for number in range(len(self))]
        """A digest of each pair and its structure, which does not depend on the file's path."""
        self.things = [(self.structures.digest(file),) for file, _ in self._pairs]
        """What is not to be held out of one pair and trained on in another: the structure."""

    def __len__(self) -> int:
        """How many pairs."""
        return len(self._pairs)

    def __getitem__(self, index: int) -> Sample:
        """The preferred sequence and the other one."""
        file, pair = self._pairs[index]
        structure = pair.structure(self.structures.chains(file))
        own = len(pair.designed)
        designed = numpy.zeros(len(structure.native), numpy.bool_)
        designed[:own] = pair.designed
        sequences = numpy.stack([structure.native, structure.native])
        sequences[:, designed] = pair.sequences[:, pair.designed]
        generator = torch.Generator()
        generator.manual_seed(derived(ORDER, self._seed, int(self.digests[index][:15], 16)))
        return _sample(structure, sequences, designed, generator)

    def _digest(self, index: int) -> str:
        file, pair = self._pairs[index]
        places = [(number, layout.name) for number, layout in pair.chains]
        words = (self.structures.digest(file), places, pair.sequences.tobytes(), pair.designed.tobytes())
        return sha256(repr(words).encode()).hexdigest()


class ChainSet(Dataset[Sample]):
    """Chains of structures with their own sequences, each in a new order of decoding whenever it is taken.

    It can be pickled, as pairs can. `noise`: Å, the standard deviation of what is added to each coordinate;
    `field`: which one names the folder.

    Raises:
        ConfigError: there is no such folder, a file in it is damaged, or none of its chains can be taken.
    """

    rng_sources = ("torch",)

    def __init__(
        self,
        folder: str | Path,
        data: Chains,
        noise: float = 0.0,
        cache: Path | None = None,
        field: str = "data.structures",
    ):
        source = expanded(str(folder), field)
        self._files = _files_in(source, field)
        self.noise = noise
        self.structures = structures_of(self._files, source, cache=cache)
        self._chains, self.notes = _taken(self.structures, source, data)
        self.lengths = [len(self.structures.chain(*place).sequence) for place in self._chains]
        """Residues of each."""
        self.digests = [
            sha256(f"{self.structures.digest(file)} {number}".encode()).hexdigest()
            for file, number in self._chains
        ]
        """A digest of each chain and its file's content, which does not depend on the file's path."""
        self.things = [
            (self.structures.digest(file), self.structures.chain(file, number).sequence.tobytes())
            for file, number in self._chains
        ]
        """What is not to be held out of one chain and trained on in another: file, and sequence."""

    def __len__(self) -> int:
        """How many chains."""
        return len(self._chains)

    def __getitem__(self, index: int) -> Sample:
        """A chain and its sequence; draws from torch's global generator."""
        structure = self.structures.chain(*self._chains[index]).laid_out()
        designed = structure.resolved & (structure.native != UNKNOWN)
        sample = _sample(structure, structure.native[None], designed, None)
        if not self.noise:
            return sample
        noise = self.noise * torch.randn(sample.atoms.shape)
        return sample._replace(atoms=sample.atoms + noise * sample.resolved[:, None, None])

    def origin(self, index: int) -> tuple[Path, Chain]:
        """The file of a chain, and the chain as it is in it."""
        file, number = self._chains[index]
        return self._files[file], self.structures.chain(file, number)

    def with_noise(self, noise: float) -> ChainSet:
        """The same chains with another noise."""
        other = ChainSet.__new__(ChainSet)
        other.__dict__.update(self.__dict__, noise=noise)
        return other


# --- Samples ------------------------------------------------------------------------------------------


def _sample(
    structure: Structure,
    sequences: numpy.typing.NDArray[numpy.uint8],
    designed: numpy.typing.NDArray[numpy.bool_],
    generator: torch.Generator | None,
) -> Sample:
    """A sample, its residues in random order, those that are designed behind the others."""
    marked = torch.from_numpy(designed)
    last = torch.rand(len(designed), generator=generator, dtype=torch.float64) + marked
    return Sample(
        torch.from_numpy(structure.atoms),
        torch.from_numpy(structure.resolved),
        torch.from_numpy(structure.chains).long(),
        torch.from_numpy(structure.positions).long(),
        torch.from_numpy(sequences).long(),
        marked,
        last.argsort().argsort(),
        torch.zeros(len(sequences)),
    )


def collated(samples: Sequence[Sample]) -> Batch:
    """Samples side by side; the shorter ones end with residues that are not resolved."""
    longest = max(len(sample.resolved) for sample in samples)
    places = torch.arange(longest)

    def padded(name: str) -> Tensor:
        return pad_sequence([getattr(each, name) for each in samples], batch_first=True)

    sequences = pad_sequence(
        [each.sequences.T for each in samples], batch_first=True, padding_value=UNKNOWN
    ).transpose(1, 2)
    order = torch.stack([torch.cat([each.order, places[len(each.order) :]]) for each in samples])
    return Batch(
        Backbones(padded("atoms"), padded("resolved"), padded("chains"), padded("positions")),
        sequences.contiguous(),
        padded("designed"),
        order,
        torch.stack([each.reference for each in samples]),
    )


# --- Pairs --------------------------------------------------------------------------------------------


def _found(pairs: Sequence[Pair], source: Path, data: Pairs) -> list[Path]:
    """The structure of each pair.

    Raises:
        ConfigError: some are not there.
    """
    folders = [source.parent, Path.cwd()]
    if data.structures is not None:
        folders = [expanded(data.structures, "data.structures")]
    known: dict[str, Path | str] = {}
    problems = []
    for number, pair in enumerate(pairs, start=1):
        if pair.pdb_file not in known:
            known[pair.pdb_file] = _context(pair.pdb_file, folders)
        why = known[pair.pdb_file]
        if isinstance(why, str):
            problems.append(f"pair {number} ({pair.pdb_file}): {why}")
    if problems:
        raise ConfigError(first_few(problems), str(source))
    return [path for pair in pairs if isinstance(path := known[pair.pdb_file], Path)]


def _context(written: str, folders: Sequence[Path]) -> Path | str:
    """Where a file is that a pair names; or why nowhere."""
    name = Path(os.path.expandvars(written))
    try:
        places = [folder / name.expanduser() for folder in folders]
    except RuntimeError:
        return f"nobody knows the home of {name.parts[0]} here; write the path itself"
    refusals = []
    for place in dict.fromkeys(places):
        try:
            if stat.S_ISREG(place.stat().st_mode):
                return place
        except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: no file has such a name
            continue
        except OSError as error:
            refusals.append(f"{place} cannot be read: {error.strerror}")
    where = " or ".join(str(folder) for folder in dict.fromkeys(folders))
    return "; ".join(refusals) or (
        f"there is no such file in {where}; set data.structures to the folder that it is in"
    )


class _Found(NamedTuple):
    pairs: list[tuple[int, Fitted]]
    """With the number of its file."""
    notes: list[str]


def _fitted(
    written: Sequence[Pair], files: Sequence[int], structures: Structures, source: Path, data: Pairs
) -> _Found:
    """Pairs in their places, without those that are too long or teach nothing.

    Raises:
        ConfigError: some do not fit, or none is left.
    """
    mutable = ranges_of(data.mutable_positions, data.mutable_ranges)
    problems: list[str] = []
    first, long, silent, elsewhere = [], [], [], []
    pairs = []
    for number, (pair, file) in enumerate(zip(written, files, strict=True), start=1):
        mistakes: list[str] = []
        chains = structures.chains(file)
        found = fitted(pair, chains, mutable, mistakes)
        name = f"pair {number} ({pair.pdb_file})"
        problems += [f"{name}: {mistake}" for mistake in mistakes]
        if found is None:
            continue
        if not pair.designed_chains() and len(chains) > 1:
            first.append(f"{name} has chains {', '.join(chain.name for chain in chains)}")
        if found.length > data.max_length:
            long.append(f"{name} has {found.length}")
            continue
        preferred, other = found.sequences[:, found.designed]
        if (preferred == other).all():
            silent.append(name)
            continue
        if found.differs_elsewhere:
            elsewhere.append(name)
        pairs.append((file, found))
    if problems:
        raise ConfigError(first_few(problems), str(source))
    found_of = (
        (first, "no chain is said, so that the first one is designed alone; write chain_id"),
        (long, f"left out, on structures of more than data.max_length: {data.max_length} residues"),
        (silent, "left out, because their sequences differ only where nothing is designed"),
        (elsewhere, "their sequences differ also where nothing is designed, which is not seen"),
    )
    notes = [
        f"{len(names):,} of {len(written):,} pairs: {what} ({_few(names)})"
        for names, what in found_of
        if names
    ]
    if not pairs:
        raise ConfigError(["holds no pair that can be learned from", *notes], str(source))
    return _Found(pairs, [f"{source}: {note}" for note in notes])


def _few(names: Sequence[str]) -> str:
    return "; ".join(names[:3]) + ("; …" if len(names) > 3 else "")


# --- Chains -------------------------------------------------------------------------------------------


def _files_in(folder: Path, field: str) -> list[Path]:
    """The structure files in a folder and in those in it, in the order of their names.

    Raises:
        ConfigError: there is no such folder, or none in it, or it cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError([f"{field}: is {str(folder)!r}, but there is no such folder"])
    files: list[Path] = []
    try:
        _look_in(folder, files, set())
    except OSError as error:
        raise ConfigError([f"{field}: {error.filename} cannot be read: {error.strerror}"]) from error
    if not files:
        raise ConfigError(
            [
                f"{field}: in {folder} there are no structures; it takes a folder of files "
                f"{', '.join(f'*{suffix}' for suffix in SUFFIXES)}, also with .gz"
            ]
        )
    return sorted(files)


def _look_in(folder: Path, files: list[Path], seen: set[Path]) -> None:
    """Add the structure files; folders that are links, too, each once, and nothing that is hidden."""
    if (real := folder.resolve()) in seen:
        return
    seen.add(real)
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            _look_in(path, files, seen)
        elif path.name.lower().removesuffix(".gz").endswith(SUFFIXES):
            files.append(path)


def _taken(structures: Structures, source: Path, data: Chains) -> tuple[list[tuple[int, int]], list[str]]:
    """Chains that are neither too short nor too long, as file and number, and what became of others."""
    taken, short, long, none = [], 0, 0, 0
    for file in range(len(structures)):
        chains = structures.chains(file)
        none += not chains
        for number, chain in enumerate(chains):
            if chain.resolved.sum() < data.min_length:
                short += 1
            elif len(chain.sequence) > data.max_length:
                long += 1
            elif ((chain.native != UNKNOWN) & chain.resolved).any():
                taken.append((file, number))
            else:
                short += 1
    left_out = (
        (none, "files have no protein chain"),
        (short, f"chains have fewer than data.min_length: {data.min_length} known and resolved residues"),
        (long, f"chains have more than data.max_length: {data.max_length} residues"),
    )
    notes = [f"{count:,} {what}, and are left out" for count, what in left_out if count]
    if not taken:
        raise ConfigError(["holds no chain that can be taken", *notes], str(source))
    return taken, [f"{source}: {note}" for note in notes]
