"""Pairs and chains as samples: cached structures, sequences aligned with them, and decoding orders."""

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
    """The pairs of a file as samples, which depend only on the pair and the seed.

    Rank 0 makes the set. The others get it pickled, with the layouts of the pairs, and map the same cache.

    `cache`: a folder for the structures that were read, if nothing can be written next to the file.

    Raises:
        ConfigError: pairs are wrong, or do not fit their structures; each is named with its number and file.
    """

    rng_sources = ()

    def __init__(self, file: str | Path, data: Pairs, seed: int, cache: Path | None = None):
        source = expanded(str(file), "data.train_data")
        pairs = read_pairs(source)
        paths = _found(pairs, source, data)
        files = {path: number for number, path in enumerate(dict.fromkeys(paths))}
        self._seed = seed
        self.structures = structures_of(list(files), source, cache=cache)
        fitted_pairs = _fitted(pairs, [files[path] for path in paths], self.structures, source, data)
        self._pairs = fitted_pairs.pairs
        self.notes = fitted_pairs.notes
        """Warnings about pairs that the user may not have meant."""
        self.lengths = [pair.length for _, pair in self._pairs]
        """Number of residues in each sample."""
        self.digests = [self._digest(number) for number in range(len(self))]
        """A digest of each pair and its structure, which does not depend on file paths."""
        self.things = [(self.structures.digest(file),) for file, _ in self._pairs]
        """The structure of each pair: pairs that share one are not divided between training and
        validation.
        """

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self._pairs)

    def __getitem__(self, index: int) -> Sample:
        """A pair's structure, with the preferred sequence and the other one."""
        return self.sample(index)

    def sample(self, index: int, epoch: int | None = None) -> Sample:
        """A pair in the decoding order of an epoch; None: in the order that it has in all epochs."""
        file, pair = self._pairs[index]
        structure = pair.structure(self.structures.chains(file))
        length = len(pair.designed)
        designed = numpy.zeros(len(structure.native), numpy.bool_)
        designed[:length] = pair.designed
        sequences = numpy.stack([structure.native, structure.native])
        sequences[:, designed] = pair.sequences[:, pair.designed]
        key = (self._seed, int(self.digests[index][:15], 16), *(() if epoch is None else (epoch,)))
        generator = torch.Generator()
        generator.manual_seed(derived(ORDER, *key))
        return _sample(structure, sequences, designed, generator)

    def _digest(self, index: int) -> str:
        file, pair = self._pairs[index]
        layouts = [(number, layout.name) for number, layout in pair.chains]
        parts = (self.structures.digest(file), layouts, pair.sequences.tobytes(), pair.designed.tobytes())
        return sha256(repr(parts).encode()).hexdigest()


class Reordered(Dataset[Sample]):
    """Pairs that get another decoding order in each epoch."""

    rng_sources = ()

    def __init__(self, pairs: PairSet):
        self._pairs = pairs
        self._epoch = 0
        self.lengths = pairs.lengths

    def set_epoch(self, epoch: int) -> None:
        """Choose the orders of an epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self._pairs)

    def __getitem__(self, index: int) -> Sample:
        """A pair in the order of the epoch."""
        return self._pairs.sample(index, self._epoch)


class ChainSet(Dataset[Sample]):
    """Chains of structures with their own sequences, each in a new decoding order whenever it is read.

    It can be pickled, like `PairSet`. `noise`: standard deviation, in Å, of the noise added to each
    coordinate; `field`: the field that names the folder.

    Raises:
        ConfigError: the folder does not exist, a file in it is damaged, or none of its chains can be used.
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
        """Number of residues in each chain."""
        self.digests = [
            sha256(f"{self.structures.digest(file)} {number}".encode()).hexdigest()
            for file, number in self._chains
        ]
        """A digest of each chain and its file's content, which does not depend on file paths."""
        self.things = [
            (self.structures.digest(file), self.structures.chain(file, number).sequence.tobytes())
            for file, number in self._chains
        ]
        """The file and the sequence of each chain: chains that share one are not divided between training and
        validation.
        """

    def __len__(self) -> int:
        """The number of chains."""
        return len(self._chains)

    def __getitem__(self, index: int) -> Sample:
        """A chain with its sequence; draws from torch's global generator."""
        structure = self.structures.chain(*self._chains[index]).laid_out()
        designed = structure.resolved & (structure.native != UNKNOWN)
        sample = _sample(structure, structure.native[None], designed, None)
        if not self.noise:
            return sample
        noise = self.noise * torch.randn(sample.atoms.shape)
        return sample._replace(atoms=sample.atoms + noise * sample.resolved[:, None, None])

    def origin(self, index: int) -> tuple[Path, Chain]:
        """The file of a chain, and the chain as the file has it."""
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
    """Make a sample with a random decoding order, in which designed residues come last."""
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
    """Pad samples to a batch; the shorter ones end with residues that are not resolved."""
    longest = max(len(sample.resolved) for sample in samples)
    ranks = torch.arange(longest)

    def padded(name: str) -> Tensor:
        return pad_sequence([getattr(sample, name) for sample in samples], batch_first=True)

    sequences = pad_sequence(
        [sample.sequences.T for sample in samples], batch_first=True, padding_value=UNKNOWN
    ).transpose(1, 2)
    order = torch.stack([torch.cat([sample.order, ranks[len(sample.order) :]]) for sample in samples])
    return Batch(
        Backbones(padded("atoms"), padded("resolved"), padded("chains"), padded("positions")),
        sequences.contiguous(),
        padded("designed"),
        order,
        torch.stack([sample.reference for sample in samples]),
    )


# --- Pairs --------------------------------------------------------------------------------------------


def _found(pairs: Sequence[Pair], source: Path, data: Pairs) -> list[Path]:
    """Find the structure file of each pair.

    Raises:
        ConfigError: some files do not exist.
    """
    folders = [source.parent, Path.cwd()]
    if data.structures is not None:
        folders = [expanded(data.structures, "data.structures")]
    located: dict[str, Path | str] = {}
    problems = []
    for number, pair in enumerate(pairs, start=1):
        if pair.pdb_file not in located:
            located[pair.pdb_file] = _located(pair.pdb_file, folders)
        path_or_problem = located[pair.pdb_file]
        if isinstance(path_or_problem, str):
            problems.append(f"pair {number} ({pair.pdb_file}): {path_or_problem}")
    if problems:
        raise ConfigError(first_few(problems), str(source))
    return [path for pair in pairs if isinstance(path := located[pair.pdb_file], Path)]


def _located(written: str, folders: Sequence[Path]) -> Path | str:
    """The path of the file that a pair names; or, as text, why there is none."""
    name = Path(os.path.expandvars(written))
    try:
        paths = [folder / name.expanduser() for folder in folders]
    except RuntimeError:
        return f"the home folder of {name.parts[0]} is unknown here; write the full path"
    refusals = []
    for path in dict.fromkeys(paths):
        try:
            if stat.S_ISREG(path.stat().st_mode):
                return path
        except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: no file can have this name
            continue
        except OSError as error:
            refusals.append(f"{path} cannot be read: {error.strerror}")
    searched = " or ".join(str(folder) for folder in dict.fromkeys(folders))
    return "; ".join(refusals) or (
        f"there is no such file in {searched}; set data.structures to the folder that it is in"
    )


class _Found(NamedTuple):
    pairs: list[tuple[int, Fitted]]
    """The pairs, each with the number of its structure file."""
    notes: list[str]


def _fitted(
    all_pairs: Sequence[Pair], files: Sequence[int], structures: Structures, source: Path, data: Pairs
) -> _Found:
    """Align pairs with their structures; pairs that are too long or teach nothing are left out.

    Raises:
        ConfigError: some pairs do not fit, or none is left.
    """
    mutable = ranges_of(data.mutable_positions, data.mutable_ranges)
    problems: list[str] = []
    first, long, identical, differing = [], [], [], []
    pairs = []
    for number, (pair, file) in enumerate(zip(all_pairs, files, strict=True), start=1):
        mistakes: list[str] = []
        chains = structures.chains(file)
        fitted_pair = fitted(pair, chains, mutable, mistakes)
        name = f"pair {number} ({pair.pdb_file})"
        problems += [f"{name}: {mistake}" for mistake in mistakes]
        if fitted_pair is None:
            continue
        if not pair.designed_chains() and len(chains) > 1:
            first.append(f"{name} has chains {', '.join(chain.name for chain in chains)}")
        if fitted_pair.length > data.max_length:
            long.append(f"{name} has {fitted_pair.length}")
            continue
        preferred, other = fitted_pair.sequences[:, fitted_pair.designed]
        if (preferred == other).all():
            identical.append(name)
            continue
        if fitted_pair.differs_elsewhere:
            differing.append(name)
        pairs.append((file, fitted_pair))
    if problems:
        raise ConfigError(first_few(problems), str(source))
    notes_of = (
        (first, "no chain is named, so only the first one is designed; set chain_id"),
        (
            long,
            f"left out, because their structures have more than data.max_length: {data.max_length} residues",
        ),
        (identical, "left out, because their sequences differ only where nothing is designed"),
        (
            differing,
            "their sequences also differ where nothing is designed, and these differences are ignored",
        ),
    )
    notes = [
        f"{len(names):,} of {len(all_pairs):,} pairs: {note} ({_few(names)})"
        for names, note in notes_of
        if names
    ]
    if not pairs:
        raise ConfigError(["holds no pair that can be learned from", *notes], str(source))
    return _Found(pairs, [f"{source}: {note}" for note in notes])


def _few(names: Sequence[str]) -> str:
    return "; ".join(names[:3]) + ("; …" if len(names) > 3 else "")


# --- Chains -------------------------------------------------------------------------------------------


def _files_in(folder: Path, field: str) -> list[Path]:
    """The structure files in a folder and its subfolders, ordered by name.

    Raises:
        ConfigError: the folder does not exist, holds no structures, or cannot be read.
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
    """Add a folder's structure files. Linked folders are read, too, each once; hidden files are skipped."""
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
    """Chains that are neither too short nor too long, as file and number, and notes about the others."""
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
    notes = [f"{count:,} {note}, and are left out" for count, note in left_out if count]
    if not taken:
        raise ConfigError(["holds no chain that can be used", *notes], str(source))
    return taken, [f"{source}: {note}" for note in notes]
