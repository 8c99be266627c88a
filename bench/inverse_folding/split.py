"""A split of structures into learned and held-out ones, of which none has a learned one's sequence nearly."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.proteins.homology import Sizes, mmseqs, read_fasta, split_of
from castoff.trainers.dpo.alphabet import LETTERS, UNKNOWN
from castoff.trainers.dpo.structures.reading import read_structure

SEARCH = ("-c", "0.5", "--cov-mode", "2", "-s", "7.5", "-e", "10", "--max-seqs", "1000")
"""Alignments with a learned chain that cover half of a held-out one, be they better than chance or not."""
IDENTITY = 0.3
"""The share of an alignment's residues that may be the same, at most."""


class Chain(NamedTuple):
    """A file with one chain."""

    path: Path
    sequence: str
    """Of its resolved residues."""


class Split(msgspec.Struct, frozen=True):
    """Folders with links to the files of each."""

    learned: Path
    held_out: Path
    sizes: Sizes
    """Of the sequences, before any of the held-out ones were looked at again."""
    too_near: int
    """Held-out chains that were dropped for what they have in common with a learned one all the same."""
    nearest: float
    """The largest identity that is left."""


def split_structures(structures: Path, folder: Path, share: float) -> Split:
    """Whole clusters with a share of the chains are held out, but for what is too near to a learned one.

    The clusters are mmseqs2's, and so are the searches that drop some: the diffusion's, and one that asks for
    no good alignment, but for half of the chain.
    """
    chains = different(chain_of(path) for path in sorted(structures.glob("*.*")) if is_structure(path))
    fasta = folder / "chains.fasta"
    folder.mkdir(parents=True, exist_ok=True)
    fasta.write_text("".join(f">{sequence}\n{sequence}\n" for sequence in chains))
    found = split_of(fasta, folder / "split", share=share)
    learned, held_out = ([sequence for _, sequence in read_fasta(path)] for path in found[:2])
    alike = identities(found.held_out, found.training, folder / "searching")
    kept = [sequence for number, sequence in enumerate(held_out) if alike.get(number, 0.0) <= IDENTITY]
    return Split(
        _linked(folder / "learned", chains, learned),
        _linked(folder / "held-out", chains, kept),
        found.sizes,
        len(held_out) - len(kept),
        max((most for most in alike.values() if most <= IDENTITY), default=0.0),
    )


def identities(held_out: Path, learned: Path, scratch: Path) -> dict[int, float]:
    """The largest identity in any alignment of each held-out chain, by its number in the file."""
    scratch.mkdir(exist_ok=True)
    hits = scratch / "hits.tsv"
    mmseqs(
        "easy-search", held_out, learned, hits, scratch / "mmseqs", "--format-output", "query,fident", *SEARCH
    )
    number_of = {header.split()[0]: number for number, (header, _) in enumerate(read_fasta(held_out))}
    found: dict[int, float] = {}
    for line in hits.read_text().splitlines():
        query, share = line.split("\t")
        number = number_of[query]
        found[number] = max(found.get(number, 0.0), float(share))
    shutil.rmtree(scratch)
    return found


def is_structure(path: Path) -> bool:
    """Whether it is called like one."""
    return path.name.removesuffix(".gz").rpartition(".")[2] in ("pdb", "cif", "ent", "mmcif")


def chain_of(path: Path) -> Chain:
    """What is in a file."""
    structure = read_structure(path)
    known = structure.native[structure.resolved & (structure.native != UNKNOWN)]
    return Chain(path, "".join(LETTERS[token] for token in known))


def different(chains: Iterable[Chain]) -> dict[str, Path]:
    """The first file with each sequence."""
    found: dict[str, Path] = {}
    for chain in chains:
        found.setdefault(chain.sequence, chain.path)
    return found


def _linked(folder: Path, files: Mapping[str, Path], sequences: Sequence[str]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for sequence in sequences:
        (folder / files[sequence].name).symlink_to(files[sequence].resolve())
    return folder
